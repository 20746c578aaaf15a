"""Attacks with damaged files, odd values, full disks and limits; each has a seed.

Each finding is one line: its kind, the seed, and a description. `--only SEED` repeats that attack
and describes it. `--failing` makes every call of the writers' I/O fail in turn instead.
`--boundscheck` has compiled kernels check their indices, `--plain` runs them as plain Python.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.attack import registry
from benchmarks.attack.case import CLASSES
from benchmarks.attack.pool import LIMIT, ROOT, AttackPool
from benchmarks.options import BenchParser, command


def parser() -> BenchParser:
    """The options."""
    out = BenchParser("attack", __doc__)
    out.add_argument("--n", type=int, default=1000, help="how many attacks (1000)")
    out.add_argument("--seed", type=int, default=0, help="which attacks (0)")
    out.add_argument(
        "--kinds", nargs="+", metavar="KIND", help="only these kinds, or attacks by name"
    )
    out.add_argument("--only", metavar="SEED", help="repeat one attack, as a finding names it")
    out.add_argument("--quick", action="store_true", help="only attacks without own processes")
    out.add_argument("--jobs", type=int, default=2, help="workers side by side (2)")
    out.add_argument("--boundscheck", action="store_true", help="kernels check their indices")
    out.add_argument("--plain", action="store_true", help="kernels are plain Python")
    out.add_argument("--failing", action="store_true", help="I/O that fails at every call in turn")
    out.add_argument("--writers", nargs="+", metavar="NAME", help="of --failing: only these")
    out.add_argument("--limit", type=float, default=LIMIT, help=f"seconds of an attack ({LIMIT:g})")
    out.add_argument("--material", type=Path, help="folder to keep the material in")
    out.add_argument("--list", action="store_true", help="the names of all attacks")
    out.add_argument("--json", action="store_true")
    return out


@command
def main(argv: list[str] | None = None) -> int:
    """Attack; 1 if there are findings."""
    options = parser()
    args = options.parse_args(argv)
    if args.list:
        print("\n".join(registry.load_all()))
        return 0
    if args.failing:
        from benchmarks.attack import failing

        return failing.main(args)
    unknown = [k for k in args.kinds or () if k not in (*registry.kinds(), *registry.load_all())]
    if unknown:
        options.error(f"unknown kind {unknown[0]!r}: choose from {', '.join(registry.kinds())}")
    if args.only and not registry.known(args.only):
        options.error(f"{args.only!r} is not a seed such as text.damaged:17")
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        return run(args, Path(folder))


def run(args: Any, scratch: Path) -> int:
    """Run all attacks; print findings as they end."""
    env, options = environment(args, scratch)
    material = args.material or scratch / "material"
    begin = time.monotonic()
    if not (material / "answers.npz").exists():
        say("making the material")
        make_material(material, env, options)
    quick = args.quick or args.plain  # commands of their own would be compiled
    seeds = [args.only] if args.only else registry.chosen(args.n, args.seed, args.kinds, quick)
    limit = args.limit * (6 if args.plain or args.boundscheck else 1)
    pool = AttackPool(material, scratch, args.jobs, options, env, limit)
    done: list[dict[str, Any]] = []
    started = time.monotonic()
    for found in pool.run(seeds):
        done.append(found)
        for of, text in found["findings"]:
            say()
            print(f"{of:<14} {found['seed']}  {text}", flush=True)
        if args.only:
            print(
                "\n".join(
                    [*found["said"], f"answered {found['answered']}, refused {found['refused']}"]
                )
            )
        n, seconds = len(done), time.monotonic() - started
        bad = sum(bool(one["findings"]) for one in done)
        say(f"{n:,} of {len(seeds):,} attacks, {bad} with findings, {n / seconds:.0f} a second")
    say()
    show(args, done, time.monotonic() - begin)
    return 1 if any(one["findings"] for one in done) else 0


def environment(args: Any, scratch: Path) -> tuple[dict[str, str], list[str]]:
    """The environment of workers: modes of numba, and caches where compiled code differs."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    env["PYTHONFAULTHANDLER"] = "1"  # a crash prints where it was
    options = []
    if args.boundscheck:
        # A cache of its own: numba would take for checked what was compiled without.
        cache = Path(os.environ.get("NUMBA_CACHE_DIR", scratch)) / "boundscheck"
        env |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    if args.plain:
        options.append("--plain")
    return env, options


def make_material(folder: Path, env: dict[str, str], options: list[str]) -> None:
    """In a process of its own, which also compiles the kernels; it appears when it is complete."""
    import subprocess

    part = Path(f"{folder}.part")
    shutil.rmtree(part, ignore_errors=True)
    code = (
        "import sys, warnings; from pathlib import Path; warnings.simplefilter('ignore');"
        "'--plain' in sys.argv and __import__('benchmarks.attack.plain').attack.plain.install();"
        "from benchmarks.attack.material import make; make(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(part), *options], env=env, cwd=ROOT, capture_output=True
    )
    if done.returncode:
        raise SystemExit(f"attack: the material cannot be made: {done.stderr.decode()[-2000:]}")
    os.replace(part, folder)


def say(line: str = "") -> None:
    """A line of progress, at a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def show(args: Any, done: list[dict[str, Any]], seconds: float) -> None:
    """A table of counts by kind."""
    rows: dict[str, Counter[str]] = {}
    for one in done:
        for name in (registry.ATTACKS[one["seed"].rpartition(":")[0]].kind, "all"):
            row = rows.setdefault(name, Counter())
            row.update(attacks=1, refused=int(one["refused"]), answered=int(one["answered"]))
            row.update(dict.fromkeys({of for of, _ in one["findings"]}, 1))
    rows["all"] = rows.pop("all")
    columns = ("attacks", "refused", "answered", *CLASSES)
    if args.json:
        found = [one for one in done if one["findings"]]
        print(
            json.dumps({"seed": args.seed, "seconds": seconds, "counts": rows, "findings": found})
        )
        return
    print(f"{'':<12}" + "".join(f"{c:>15}" for c in columns))
    for kind, row in rows.items():
        print(f"{kind:<12}" + "".join(f"{row[c]:>15,}" for c in columns))
    rate = len(done) / seconds
    print(f"{len(done):,} attacks of seed {args.seed} in {seconds:.0f} s, {rate:.0f} a second")
