"""The benchmarks that compare, with our own samplers on a few planted ratings."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bayesmf import Ratings, Synthetic

ROOT = Path(__file__).resolve().parents[1]


def race(*options):
    command = [sys.executable, "-m", "benchmarks.time_to_rmse", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.fixture
def at_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


def test_a_race_writes_checkpoints_table_and_figure(tmp_path):
    done = race(
        "--synthetic", 0.001, "--systems", "gibbs,sgld,myfm", "--quick", "--repeats", 1,
        "--factors", 4, "--target", 1.2, 1.0, "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "time_to_rmse.csv").open() as file:
        rows = list(csv.DictReader(file))
    for system in ("gibbs", "sgld"):
        lines = [row for row in rows if row["system"] == system]
        seconds = [float(row["seconds"]) for row in lines]
        assert len(lines) == 8
        assert seconds == sorted(seconds)
        assert 0.8 < min(float(row["rmse"]) for row in lines) < 1.3
    table = (tmp_path / "time_to_rmse.md").read_text()
    assert "| bayesmf Gibbs |" in table and "s to 1.0000" in table
    # No environment of the peers was named: said so, and the rest ran.
    assert "| myFM |" in table and "missing: no environment" in table
    assert (tmp_path / "time_to_rmse.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "name some data"),
        (["--synthetic", "2"], "--synthetic"),
        (["--synthetic", "0.001", "--systems", "nobody"], "nobody"),
        (["--ml-1m", "no-such-folder"], "no-such-folder"),
    ],
)
def test_bad_input_is_one_sentence(options, said, capsys, at_root):
    from benchmarks.time_to_rmse import main

    assert main(options) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1


def test_defaults_on_the_data_sets_of_a_folder(tmp_path, capsys, at_root):
    from benchmarks.datasets import main

    (tmp_path / "ml-latest-small").mkdir()
    made = Synthetic(60, 40, 900, stars=True).ratings()
    lines = [f"{u},{i},{r}" for u, i, r in zip(made.users, made.items, made.rating, strict=True)]
    text = "\n".join(["userId,movieId,rating", *lines, ""])
    (tmp_path / "ml-latest-small/ratings.csv").write_text(text)
    out = tmp_path / "out"
    options = ["--folder", str(tmp_path), "--sets", "ml-latest-small", "--out", str(out)]
    # An interpreter without myFM: said so, and ours are there.
    assert main([*options, "--peers-python", sys.executable]) == 0
    printed = capsys.readouterr()
    assert "no myFM" in printed.err and "| ml-latest-small | 810 | 90 |" in printed.out
    with (out / "datasets.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert 0.5 < float(row["rmse"]) < 1.5 and 0.7 < float(row["coverage_90"]) <= 1
    assert row["repairs"] == "0" and row["myfm_rmse"] == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--folder", "no-such-folder"], "no-such-folder"),
        (["--folder", "."], "no data set"),
        (["--folder", ".", "--peers-python", "no-such-python"], "no-such-python"),
        (["--folder", ".", "--seed", "-1"], "--seed"),
    ],
)
def test_bad_input_of_datasets_is_one_sentence(options, said, capsys, at_root, tmp_path):
    from benchmarks.datasets import main

    assert main([o if o != "." else str(tmp_path) for o in options]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1


def test_variants_are_what_they_are_called(at_root):
    from benchmarks import data_sets

    split = Synthetic(200, 80, 4000, stars=True).ratings().split(0.1, seed=0)
    train, test = data_sets.scaled(-10, 10)(split)
    assert train.range() == (-10, 10) and test.range() == (-10, 10)
    halves = data_sets.half_stars(split)[0].rating
    assert np.array_equal(2 * halves, np.round(2 * halves)) and halves.max() <= 5
    before = np.bincount(split[0].user, minlength=200)
    train, test = data_sets.lonely("user")(split)
    after = np.bincount(train.user, minlength=200)
    assert (after == 1).sum() == 60 and set(after) <= {1, *before}
    assert np.array_equal(test.rating, split[1].rating)


def test_the_skewed_set_has_nearly_all_ratings_on_few_items(at_root):
    from benchmarks import data_sets

    train, test = data_sets.skewed()
    assert isinstance(train, Ratings)
    counts = np.sort(np.bincount(train.item) + np.bincount(test.item, minlength=train.n_items))
    assert counts[-20:].sum() / counts.sum() == pytest.approx(0.99, abs=1e-3)
