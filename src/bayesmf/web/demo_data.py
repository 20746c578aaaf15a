"""What `bayesmf demo --serve` serves: a model of invented films, their titles, and a test set."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

from bayesmf.data.ratings import Ratings
from bayesmf.demo import Sizes
from bayesmf.errors import captured_warnings
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.plots.style import make_folder
from bayesmf.storage.atomic import replacing
from bayesmf.synthetic.synthetic import Synthetic
from bayesmf.synthetic.titles import film_titles


class DemoData(NamedTuple):
    """Paths of a model's folder, a table of its films, and held-out ratings."""

    model: Path
    films: Path
    test: Path


def write_demo(out: Path, seed: int, sizes: Sizes | None = None) -> DemoData:
    """Make stars with a planted truth, fit them with the defaults, and write all of it to a folder.

    Parameters
    ----------
    out : Path
        The folder, made if missing.
    seed : int
        Seed of the ratings, the split and the chains.
    sizes : Sizes, optional
        Smaller ones for tests.

    Returns
    -------
    DemoData
        What was written.

    Raises
    ------
    InputError
        If the folder cannot be written to.
    """
    sizes = sizes or Sizes()
    make_folder(out)
    made = Synthetic(
        sizes.users, sizes.items, sizes.ratings,
        n_factors=6, noise=0.7, factor_strength=0.6, stars=True, random_state=seed,
    ).ratings()  # fmt: skip
    items = [f"film {k}" for k in made.items]
    data = [f"user {k}" for k in made.users], items, made.rating
    train, test = Ratings.from_data(data).split(0.1, random_state=seed)
    with (
        captured_warnings()
    ):  # a short run, and a few films that are held out with all of their ratings
        model = BayesianMF(random_state=seed).fit(train, validation=test)
    found = DemoData(out / "invented-films", out / "films.csv", out / "held-out.csv")
    model.save(found.model)
    ids = [f"film {k}" for k in range(1, sizes.items + 1)]
    _write(pl.DataFrame({"item": ids, "title": film_titles(len(ids), seed)}), found.films)
    held_out = {"user": test.users, "item": test.items, "rating": test.rating}
    _write(pl.DataFrame(held_out), found.test)
    return found


def _write(frame: pl.DataFrame, path: Path) -> None:
    with replacing(path) as file:
        frame.write_csv(file)
