"""Processes killed at random moments, and the files that they leave.

A process is killed (SIGKILL) at a random moment of its life, started again, killed again, and at
last left to end. What it has made must then be, to the bit, what an undisturbed one makes:

    fit    `bayesmf fit --checkpoint --resume`, threads: all draws of all chains
    pack   `bayesmf pack`: every byte of the folder
    save   two models are saved to one path by turns: it holds one of them, whole, at any time
    ray    like fit, a driver of a Ray cluster of this machine

Afterwards nothing else may be left but temporary names of what was killed (.bayesmf-...). Every
kind ends with a line of JSON. A line before it for every finding has the command that makes the
same moments again; the status is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.options import BenchParser, command

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("fit", "pack", "save", "ray")
KILLS = 4  # of one run at most: then it is left to end
PATIENCE = 120.0  # seconds beyond the usual, after which a process counts as hung
FIT = (
    "--sampler", "gibbs", "--chains", "2", "--factors", "5", "--max-draws", "40",
    "--checkpoint-every", "0.05", "--resume",
)  # fmt: skip


@dataclass
class Victim:
    """A command to be killed, by the folder of a run; `answer` is a hash of its result."""

    name: str
    command: Callable[[Path], list[str]]
    answer: Callable[[Path], str]
    results: tuple[str, ...]  # names of what is left in the folder in the end
    ends: bool = True  # of itself
    once: bool = False  # it refuses to do again what is done
    seconds: float = 0.0  # an undisturbed life
    right: set[str] = field(default_factory=set)  # answers

    def made(self, folder: Path) -> bool:
        """Whether a killed process had only temporary files left to remove."""
        return self.once and (folder / self.results[0]).exists()


class KilledProcess:
    """One process of the command, with its own folder of temporary files."""

    def __init__(self, job: Victim, folder: Path) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        self._said, self.begin = folder / "said", time.monotonic()
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                job.command(folder), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": _path()},
            )  # fmt: skip

    def kill_after(self, seconds: float) -> bool:
        """Whether it was killed; otherwise it had ended before."""
        try:
            self._process.wait(max(0.0, self.begin + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._process.wait() == -signal.SIGKILL

    def end(self, seconds: float) -> str:
        """Wait for its end; nothing, or what was wrong with it."""
        if self.kill_after(seconds):
            return f"no end within {seconds:.0f} s"
        said = self._said.read_text(errors="replace").strip().splitlines()
        status = self._process.returncode
        return "" if status == 0 else f"status {status}: {said[-1] if said else 'no word'}"


def one_run(job: Victim, folder: Path, rng: random.Random) -> tuple[int, list[float], str]:
    """Kills, their moments, and what is wrong in the end, if anything."""
    folder.mkdir()
    kills, moments, wrong = 0, [], ""
    for _ in range(KILLS):
        moments.append(rng.uniform(0.0, job.seconds))
        process = KilledProcess(job, folder)
        if not process.kill_after(moments[-1]):
            wrong = process.end(0.0)
            if not kills:  # a whole life: the machine may be less busy than when it was measured
                job.seconds = time.monotonic() - process.begin
            break
        kills += 1
        if not job.ends:  # what is there must be whole at any time
            wrong = compare(job, folder)
        if wrong or job.made(folder):
            break
    if job.ends and not wrong:
        made = job.made(folder)
        said = KilledProcess(job, folder).end(PATIENCE + 10 * job.seconds)
        wrong = "" if made else said
    return kills, moments, wrong or compare(job, folder) or left_over(job, folder)


def compare(job: Victim, folder: Path) -> str:
    """Nothing, or how the result differs."""
    try:
        answer = job.answer(folder)
    except Exception as error:
        return f"the result cannot be read: {type(error).__name__}: {error}"
    return "" if answer in job.right else "the result has other bits"


def left_over(job: Victim, folder: Path) -> str:
    """Nothing, or what else is left: temporary names of killed processes stay with the user."""
    own = {"said", "tmp", "run", *job.results}
    found = [path.name for path in folder.iterdir() if path.name not in own]
    found += [f"tmp/{path.name}" for path in (folder / "tmp").iterdir()]
    found = [name for name in found if not name.startswith(".bayesmf-")]
    return f"left behind: {', '.join(sorted(found)[:5])}" if found else ""


# -- the four kinds -------------------------------------------------------------------------------


@contextmanager
def make_job(kind: str, folder: Path) -> Iterator[Victim]:
    """Context with a victim of this kind and the files that it needs."""
    from bayesmf import Synthetic

    ratings = folder / ("many.csv" if kind == "pack" else "ratings.csv")
    if not ratings.exists():
        shape = (20_000, 5_000, 1_000_000) if kind == "pack" else (300, 200, 9_000)
        Synthetic(*shape, random_state=1).ratings().write(ratings)
    fit = [sys.executable, "-m", "bayesmf", "fit", str(ratings), *FIT]
    with ExitStack() as stack:
        if kind == "fit":
            yield Victim(kind, lambda at: _fit(fit, at, "--epochs", "400"), _draws, ("model",))
        elif kind == "ray":
            from benchmarks.faults.nodes import nodes

            made = stack.enter_context(nodes(n_nodes=1, cpus=2))
            on = ("--epochs", "120", "--engine", "ray", "--ray-address", made.address)
            yield Victim(kind, lambda at: _fit(fit, at, *on, "--workers", "1"), _draws, ("model",))
        elif kind == "pack":
            pack = [sys.executable, "-m", "bayesmf", "pack", str(ratings), "--out"]
            yield Victim(
                kind, lambda at: [*pack, str(at / "packed")], _bytes, ("packed",), once=True
            )
        else:
            yield _saving(fit, folder)


def _fit(fit: list[str], folder: Path, *more: str) -> list[str]:
    return [*fit, *more, "--checkpoint", str(folder / "run"), "--out", str(folder / "model")]


def _saving(fit: list[str], folder: Path) -> Victim:
    """A process that saves two models over each other, until it is killed."""
    for name, seed in (("a", "1"), ("b", "2")):
        (folder / name).mkdir()
        command = [*_fit(fit, folder / name, "--epochs", "60"), "--seed", seed]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    saved = [str(folder / name / "model") for name in "ab"]
    save = [sys.executable, "-m", "benchmarks", "kills", "--save", *saved]

    def command(at: Path) -> list[str]:
        if not (at / "model").exists():  # from then on there is one at any time
            shutil.copyfile(saved[0], at / "model")
        return [*save, str(at / "model")]

    right = {_draws(folder / name) for name in "ab"}
    return Victim("save", command, _draws, ("model",), ends=False, right=right)


def save_by_turns(a: str, b: str, path: str) -> None:
    """Save two models in turn until killed."""
    from bayesmf import BayesianMF

    models = [BayesianMF.load(a), BayesianMF.load(b)]
    while True:
        for model in models:
            model.save(path)


def _draws(folder: Path) -> str:
    from bayesmf import BayesianMF
    from benchmarks.faults.driver import digest

    return digest(BayesianMF.load(folder / "model"))


def _bytes(folder: Path) -> str:
    return hashlib.sha256((folder / "packed").read_bytes()).hexdigest()


def _path() -> str:
    """Where this process found the package, for its children too."""
    return os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))


# -- all of a kind --------------------------------------------------------------------------------


def undisturbed(job: Victim, folder: Path) -> None:
    """Measure its time and the right answer by two runs; the first compiles."""
    for name in ("first", "second"):
        (folder / name).mkdir()
        process = KilledProcess(job, folder / name)
        if not job.ends:
            process.kill_after(3.0)
            job.seconds = 3.0
            return
        if wrong := process.end(10 * PATIENCE):
            raise SystemExit(f"kills: {job.name}, undisturbed: {wrong}")
        job.seconds = time.monotonic() - process.begin
        job.right.add(job.answer(folder / name))
    if len(job.right) > 1:
        raise SystemExit(f"kills: {job.name}: two undisturbed runs differ")


def measure(kind: str, args: argparse.Namespace, folder: Path) -> bool:
    """Kill as often as requested; return whether there are no findings."""
    begin, kills, runs, findings = time.monotonic(), 0, 0, 0
    with make_job(kind, folder) as job:
        undisturbed(job, folder)
        number = args.run or 0
        while kills < args.n if args.run is None else runs == 0:
            where = folder / f"run-{number}"
            more, moments, wrong = one_run(job, where, random.Random(f"{args.seed} {number}"))
            kills, runs = kills + more, runs + 1
            if wrong:
                findings += 1
                again = f"--what {kind} --seed {args.seed} --run {number}"
                line = {"what": kind, "finding": wrong, "moments": [round(m, 3) for m in moments]}
                print(json.dumps({**line, "again": again}), flush=True)
            else:
                shutil.rmtree(where)
            number += 1
    found: dict[str, Any] = {
        "what": kind, "seed": args.seed, "kills": kills, "runs": runs, "same": runs - findings,
        "findings": findings, "life": round(job.seconds, 2),
        "seconds": round(time.monotonic() - begin),
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    return findings == 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = BenchParser("kills", __doc__)
    parser.add_argument("--what", default=",".join(KINDS), help="by comma; all by default")
    parser.add_argument("--n", type=int, default=100, help="kills of each kind (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=int, help="this one alone: that of a finding")
    parser.add_argument("--save", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.what = args.what.split(",")
    for kind in args.what:
        if kind not in KINDS:
            parser.error(f"--what: {kind!r} is none of {', '.join(KINDS)}")
    if args.n < 1:
        parser.error("--n is a number of kills, 1 or more")
    if "ray" in args.what and importlib.util.find_spec("ray") is None:
        parser.error("--what ray needs Ray, which is not installed: pip install ray")
    return args


@command
def main(argv: list[str] | None = None) -> int:
    """A line of JSON for each kind, and one for each finding."""
    args = parse(argv)
    if args.save:
        save_by_turns(*args.save)
    good = True
    for kind in args.what:
        with tempfile.TemporaryDirectory(prefix="kills") as folder:
            good &= measure(kind, args, Path(folder))
    return 0 if good else 1
