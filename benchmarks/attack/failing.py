"""Every call of the writers' I/O fails in turn: `python -m benchmarks attack --failing`.

For each writer and each k the k-th call fails, once, or as on a disk that is full from then on.
Afterwards the complete old state or the complete new one must be there; the error must be one
sentence; and a repetition on a sound disk must succeed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.material import FIT, Material, answers, draws_of
from benchmarks.attack.shims import PreloadShim, PythonShim, Shim, compiled

QUICK = (
    "--sampler", "gibbs", "--factors", "3", "--epochs", "4", "--seed", "5",
    "--engine", "serial", "--json",
)  # fmt: skip


class Failed(Exception):
    """A command ended with a sentence, as it should."""


class Writer(NamedTuple):
    """Something that writes: how to begin, what to do, and which states are whole."""

    prepare: Callable[[Material, Path], Any]
    run: Callable[[Material, Path, Any], Any]
    state: Callable[[Material, Path], Any]
    """What is there now, compared by ==; raises where it is not whole."""
    kept: tuple[str, ...] = ()
    """Names that may be there after a failure, besides those that were before."""


def command(*argv: Any) -> None:
    """A command line; Failed where it says no."""
    from bayesmf.cli import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(arg) for arg in argv])
    said = err.getvalue()
    if "should not have (" in said or "Traceback" in said:
        raise RuntimeError(said)
    if status:
        raise Failed(said)


# -- writers ---------------------------------------------------------------------------------------


def _model(material: Material, name: str = "model") -> Any:
    from bayesmf import BayesianMF

    return BayesianMF.load(material.folder / name)


def _loaded(material: Material, place: Path) -> Any:
    """The digest of a model, once it was found whole; None where there is none."""
    from bayesmf import BayesianMF

    if not os.path.lexists(place):
        return None
    return answers(BayesianMF.load(place)).tobytes()


def _packed(material: Material, place: Path) -> Any:
    from bayesmf import PackedRatings

    if not os.path.lexists(place):
        return None
    PackedRatings.open(place, verify=True)
    return place.read_bytes()


def _pack(chunk: int) -> Callable[[Material, Path, Any], None]:
    """Ratings packed by chunks of this size; once they are there, packed over themselves."""

    def run(material: Material, work: Path, _: Any) -> None:
        from bayesmf import pack

        there = os.path.lexists(work / "packed")
        pack(work / "ratings.csv", work / "packed", chunk=chunk, stretch=chunk, overwrite=there)

    return run


def _short() -> Any:
    """A run with few checkpoints: each is some fifty calls."""
    from bayesmf import BayesianMF, Gibbs

    return BayesianMF(sampler=Gibbs(epochs=4, burn_in=1, n_chains=1), **FIT)


def _fit_kept(material: Material, work: Path, ratings: Any) -> None:
    from bayesmf import Checkpoint

    _short().fit(ratings, checkpoint=Checkpoint(work / "kept", every=0, resume=True))


def _resumed(material: Material, work: Path) -> Any:
    """The draws of the run, resumed from a copy of the current files."""
    from bayesmf import Checkpoint, Ratings

    ratings = Ratings.read(material.folder / "ratings.csv")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kept"
        if (work / "kept").exists():
            shutil.copytree(work / "kept", place)
        kept = Checkpoint(place, every=3600, resume=True)
        return draws_of(_short().fit(ratings, checkpoint=kept)).tobytes()


def _ratings(material: Material, work: Path) -> Any:
    from bayesmf import Ratings

    return Ratings.read(material.folder / "ratings.csv")


def _predict(suffix: str) -> Writer:
    name = f"out.{suffix}"

    def prepare(material: Material, work: Path) -> None:
        shutil.copyfile(material.folder / "pairs.csv", work / "pairs.csv")
        (work / name).write_bytes(b"old")

    def run(material: Material, work: Path, _: Any) -> None:
        command(
            "predict", material.folder / "model", work / "pairs.csv", "--out", work / name, "--json"
        )

    return Writer(prepare, run, lambda material, work: (work / name).read_bytes())


def _copied(material: Material, work: Path) -> Any:
    shutil.copyfile(material.folder / "model", work / "model")
    shutil.copyfile(material.folder / "ratings.csv", work / "ratings.csv")
    return _model(material, "model_str")


def _fit(material: Material, work: Path, _: Any) -> None:
    command("fit", work / "ratings.csv", "--out", work / "model", *QUICK)


WRITERS: dict[str, Writer] = {
    "save": Writer(
        lambda material, work: _model(material),
        lambda material, work, model: model.save(work / "model"),
        lambda material, work: _loaded(material, work / "model"),
    ),
    "save over": Writer(
        _copied, lambda material, work, model: model.save(work / "model"),
        lambda material, work: _loaded(material, work / "model"),
    ),
    "pack": Writer(
        lambda material, work: shutil.copyfile(material.folder / "ratings.csv",
            work / "ratings.csv"),
        _pack(1000), lambda material, work: _packed(material, work / "packed"),
    ),
    "checkpoint": Writer(_ratings, _fit_kept, _resumed, ("kept",)),
    "predict csv": _predict("csv"),
    "predict parquet": _predict("parquet"),
    "fit": Writer(_copied, _fit, lambda material, work: _loaded(material, work / "model")),
}  # fmt: skip


# Where a name could not be removed, its file is still there, and that cannot be helped; a folder is
# opened before what is in it is removed.
REMOVING = ("unlink", "remove", "rmdir", "rename", "replace", "open")


# -- one call --------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Outcome of one failing call of `calls`."""

    calls: int
    failed: str
    refused: bool
    findings: list[str]


def attempt(name: str, k: int, full: bool, shim: Shim, material: Material, box: Path) -> Outcome:
    """Let the k-th call of a writer fail, and look at what is there afterwards."""
    writer = WRITERS[name]
    shutil.rmtree(box, ignore_errors=True)
    work, tmp = box / "work", box / "tmp"
    work.mkdir(parents=True)
    tmp.mkdir()
    findings: list[str] = []
    refused, said = False, ""
    with _quiet(tmp):
        given = writer.prepare(material, work)
        old, names = writer.state(material, work), set(os.listdir(work))
        shim.arm(k, full)
        try:
            writer.run(material, work, given)
        except BaseException as error:
            refused, said = True, str(error)
            if not _is_sentence(error):
                findings.append(f"{type(error).__name__}: {error}")
        finally:
            seen = shim.disarm()
        if k:
            findings += _states(writer, material, work, old, refused, said, names, seen.failed)
    return Outcome(seen.calls, seen.failed, refused, [" ".join(f.split())[:300] for f in findings])


def _states(
    writer: Writer, material: Material, work: Path, old: Any, refused: bool, said: str,
    names: set[str], failed: str,
) -> list[str]:  # fmt: skip
    """Old or new, nothing left behind, and all well at the next try."""
    findings = []
    now: Any = None
    try:
        now = writer.state(material, work)
    except BaseException as error:
        findings.append(f"what is there is not whole: {type(error).__name__}: {error}")
    left = {
        p for p in [*work.iterdir(), *work.parent.joinpath("tmp").iterdir()] if p.name not in names
    }
    left = {
        p for p in left if p.name not in (*writer.kept, "model", "packed") and str(p) not in said
    }
    if left and failed not in REMOVING:
        findings.append(f"{sorted(left)[0].name} was left behind")
    try:
        writer.run(material, work, _given(writer, material))
        new = writer.state(material, work)
    except BaseException as error:
        return [*findings, f"the next try fails: {type(error).__name__}: {error}"]
    if not findings and now not in (old, new):
        findings.append("what is there is neither the old nor the new")
    if not findings and not refused and now != new:
        findings.append("it went well, but the new is not there")
    hidden = [n for n in os.listdir(work) if n.startswith(".") and n not in names]
    if hidden and failed not in REMOVING:
        findings.append(f"{hidden[0]} is there after the next try")
    return findings


def _given(writer: Writer, material: Material) -> Any:
    """What `run` is given, made again in a place of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return writer.prepare(material, Path(folder))


def _is_sentence(error: BaseException) -> bool:
    from bayesmf.errors import BayesMFError

    text = re.sub(r"^bayesmf: (warning|info).*\n", "", str(error), flags=re.MULTILINE).strip()
    return isinstance(error, BayesMFError | Failed) and 0 < len(text) < 2000


@contextlib.contextmanager
def _quiet(tmp: Path) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(tmp)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tempfile.tempdir = before


def every_call(
    name: str, shim: Shim, material: Material, box: Path, full: bool, first: int = 1
) -> Iterator[tuple[int, Outcome]]:
    """All k from `first` on, until no call is left to fail."""
    k = first
    while True:
        found = attempt(name, k, full, shim, material, box)
        if not found.failed:
            if found.findings:
                yield k, found
            return
        yield k, found
        k += 1


# -- the command -----------------------------------------------------------------------------------


def main(args: Any) -> int:
    """A line for each writer; 1 if there are findings."""
    with tempfile.TemporaryDirectory(prefix="failing-") as folder:
        scratch = Path(folder)
        library = compiled(scratch)
        material = args.material or scratch / "material"
        from benchmarks.attack.attack import ROOT, environment, make_material

        env, _ = environment(args, scratch)
        if not (material / "answers.npz").exists():
            make_material(material, env, [])
        orders = [
            (name, shim, full)
            for shim in (PythonShim.name, *((PreloadShim.name,) if library else ()))
            for name in args.writers or WRITERS
            for full in (False, True)
        ]
        if library is None:
            print("no C compiler: calls that NumPy and polars make themselves are left out")

        def run(k: int) -> dict[str, Any]:
            name, shim, full = orders[k]
            more = {"LD_PRELOAD": str(library)} if shim == PreloadShim.name else {}
            found = _in_process(name, full, material, scratch / f"box-{k}", {**env, **more}, ROOT)
            row = {"writer": name, "shim": shim, "how": "full" if full else "once", **found}
            _show(row)
            return row

        with ThreadPoolExecutor(args.jobs) as pool:
            rows = list(pool.map(run, range(len(orders))))
    if args.json:
        print(json.dumps(rows))
    return 1 if any(row["findings"] for row in rows) else 0


def _in_process(
    name: str, full: bool, material: Path, box: Path, env: dict[str, str], root: Path
) -> dict[str, Any]:
    """All k of a writer, in a process that is started again behind a k that ends it."""
    first, counts, findings = 1, Counter[str](), []
    while True:
        command = [sys.executable, "-m", "benchmarks.attack.failing"]
        command += [name, str(first), str(int(full)), str(material), str(box)]
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            k, failed, refused, found = json.loads(line)
            counts.update(calls=1, refused=int(refused), completed=int(not refused))
            findings += [f"k={k} ({failed}): {text}" for text in found]
            first = k + 1
        if done.returncode == 0:
            break
        findings.append(
            f"k={first}: the process ended with {done.returncode}: {done.stderr[-300:]}"
        )
        counts.update(calls=1)
        first += 1
        if len(findings) > 50:
            break
    return {**{n: counts[n] for n in ("calls", "refused", "completed")}, "findings": findings}


def _show(row: dict[str, Any]) -> None:
    print(
        f"{row['writer']:<16} {row['shim']:<8} {row['how']:<5} {row['calls']:>5} calls, "
        f"{row['refused']:>5} refused, {row['completed']:>5} went on, "
        f"{len(row['findings'])} findings",
        flush=True,
    )
    for text in row["findings"][:12]:
        print(f"    {text}", flush=True)


def child() -> None:
    """One writer from a k on: a line of JSON for each."""
    name, first, full, material, box = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    shim = (PreloadShim if "LD_PRELOAD" in os.environ else PythonShim)(Path(box))
    found = Material(Path(material))
    attempt(name, 0, False, shim, found, Path(box))  # kernels are loaded, modules imported
    for k, one in every_call(name, shim, found, Path(box), full == "1", int(first)):
        print(json.dumps([k, one.failed, one.refused, one.findings]), file=replies, flush=True)


if __name__ == "__main__":
    child()
