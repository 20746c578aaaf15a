"""Ratings that `bayesmf fit` holds out, or is given to score: kept, judged, never in the way."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bayesmf import Ratings
from cli_tools import QUICK, Data, contents, run


def test_what_is_held_out_can_be_kept(data: Data, tmp_path: Path) -> None:
    """So that `diagnose --test` has ratings nobody learnt from, and judges as `fit` did."""
    model, kept = tmp_path / "m", tmp_path / "kept.csv"
    args = ("fit", data.train, "--out", model, "--holdout", 0.2, "--save-holdout", kept, "--json")
    fitted = run(*args).json["test"]
    assert fitted["n"] == len(Ratings.read(kept)) == 144 and fitted["learnt"] == 0
    told = run("diagnose", model, "--test", kept, "--json").json
    assert told["calibration"]["verdict"] == fitted["intervals"]
    assert told["calibration"]["calibrated"] is fitted["calibrated"]
    scored = run("evaluate", model, kept, "--json").json
    assert told["test"] == fitted == {name: scored[name] for name in fitted}
    shown = " ".join(run("evaluate", model, kept).out.split())
    assert f"intervals {fitted['intervals']}" in shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--save-holdout", "k.csv"), "--save-holdout needs --holdout"),
        (("--holdout", "0.1", "--save-holdout", "k.txt"), "must end in .csv or .parquet"),
        (("--holdout", "0.1", "--save-holdout", "train.csv"), "is also read from"),
        (
            ("--holdout", "0.1", "--validation", "v.csv", "--save-holdout", "v.csv"),
            "is also read from",
        ),
        (
            ("--holdout", "0.1", "--save-holdout", "e/k.csv", "--checkpoint", "e"),
            "is e or in it: choose",
        ),
    ],
)
def test_what_is_held_out_goes_into_a_file_of_its_own(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str], says: str
) -> None:
    for name in ("train.csv", "v.csv"):
        (tmp_path / name).write_bytes(data.train.read_bytes())
    (tmp_path / "e").mkdir()
    monkeypatch.chdir(tmp_path)
    ran = run("fit", "train.csv", "--out", "m", *options)
    assert ran.status == 2 and says in ran.sentence
    assert contents(tmp_path) == {"train.csv", "v.csv", "e"} and contents(tmp_path / "e") == set()


def test_ratings_in_a_folder_are_not_written_over(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be the one we are in; a new name in it is taken."""
    (tmp_path / "ratings.csv").write_bytes(before := data.train.read_bytes())
    monkeypatch.chdir(tmp_path)
    args = ("fit", ".", "--format", "movielens", "--out", "m", "--holdout", "0.2", *QUICK)
    ran = run(*args, "--save-holdout", "ratings.csv")
    assert ran.status == 2 and "is among what is read" in ran.sentence
    assert (tmp_path / "ratings.csv").read_bytes() == before and contents(tmp_path) == {
        "ratings.csv"
    }
    assert run(*args, "--save-holdout", "held-out.csv").status == 0
    assert len(Ratings.read("held-out.csv")) == 144


def test_unseen_ids_of_test_ratings_are_shown(data: Data, tmp_path: Path) -> None:
    """With what may have happened to them: here zeros that a spreadsheet took away."""
    padded = Ratings.read(data.train).to_polars()
    padded = padded.with_columns(pl.col("user").cast(pl.String).str.pad_start(4, "0"))
    padded.write_csv(tmp_path / "padded.csv")
    assert run("fit", tmp_path / "padded.csv", "--out", tmp_path / "m", *QUICK).status == 0
    told = " ".join(run("evaluate", tmp_path / "m", data.test).out.split())
    assert "180 of them with an unseen user or item, predicted from the prior (user 1" in told
    assert "is known: were leading zeros dropped?)" in told
