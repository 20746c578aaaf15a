"""What writes, for failing.py: how each begins, what it does, and which states are whole."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.material import FIT, Material, answers, draws_of

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
    """Ratings packed by chunks of so many; once they are there, packed over themselves."""

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
    """The draws of the run, gone on with from what is there now; on a copy."""
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
