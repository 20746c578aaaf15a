"""Benchmarks of the kept side, of new users and of early errors, on a few planted ratings."""

import csv
from pathlib import Path

import numpy as np
import pytest

from bayesmf import BayesianMF, DataWarning, Gibbs, InputError, Synthetic

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture(scope="module")
def ratings():
    return Synthetic(60, 110, 2500, stars=True, random_state=3).ratings()


@pytest.fixture(scope="module")
def data(ratings, tmp_path_factory):
    """A folder as that of the data sets is, with a few planted ratings in place of ML-1M."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "ml-1m").mkdir()
    rows = zip(ratings.users.tolist(), ratings.items.tolist(), ratings.rating, strict=True)
    lines = "".join(f"{user}::{item}::{rating:g}::978300760\n" for user, item, rating in rows)
    (folder / "ml-1m" / "ratings.dat").write_text(lines)
    return folder


def _run(monkeypatch, module, *args):
    monkeypatch.setattr("sys.argv", [module.__name__, *map(str, args)])
    module.main()


# -- kept_side ------------------------------------------------------------------------------------


def test_both_sides_and_one_are_scored_from_the_same_draws(data, monkeypatch, capsys):
    from benchmarks import kept_side

    monkeypatch.setattr(kept_side, "DRAWS", (1, 4))
    _run(monkeypatch, kept_side, "--data", data, "--factors", 2)
    head, _, one, four = capsys.readouterr().out.splitlines()
    assert "both sides kept" in head
    cells = [[cell.split(" / ") for cell in line.strip("| ").split(" | ")] for line in (one, four)]
    assert [row[0] for row in cells] == [["1"], ["4"]]
    both, items = ([[float(x) for x in row[k]] for row in cells] for k in (1, 2))
    # Alike on so few ratings, but not the same.
    assert both != items and np.allclose(both, items, rtol=0.05)
    assert all(0.3 < rmse < 2 and rmse < nll for rmse, nll in both + items)
    held = [float(x) for x in cells[1][3][0].split(", ")]
    assert held == sorted(held) and 20 < held[0] < 80 < held[3]


def test_scores_of_the_table_are_those_of_the_model(ratings):
    """With all draws, both kept: as `evaluate` has them."""
    from benchmarks import kept_side

    train, test = ratings.split(0.1, random_state=0)
    model = BayesianMF(2, sampler=Gibbs(epochs=8, burn_in=2), keep="both", random_state=0)
    test = test.take(np.isin(test.items, train.items))
    model.fit(train)
    n = len(model.posterior_.draws)
    ((told, both, items),) = _table(kept_side, model, test, n)
    own = model.evaluate(test)
    assert told == n and (both.rmse, both.nll) == (own.rmse, own.nll)
    assert items.rmse != both.rmse and items.n == both.n == len(test)


def _table(kept_side, model, test, n):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_side, "DRAWS", (n, 10**6))
        return kept_side.table(model, test)


# -- fold_in --------------------------------------------------------------------------------------


def test_users_are_apart_and_no_rating_is_lost(ratings):
    from benchmarks.fold_in import joined, split

    old, sent, asked = split(ratings, 0)
    new = set(sent.users.tolist()) | set(asked.users.tolist())
    assert len(new) == 6 and not new & set(old.users.tolist())
    assert abs(len(sent) - len(asked)) < 5 * len(asked) ** 0.5
    every = joined(joined(old, sent), asked)
    assert sorted(zip(every.users, every.items, every.rating, strict=True)) == sorted(
        zip(ratings.users, ratings.items, ratings.rating, strict=True)
    )


def test_new_users_are_compared_and_timed(data, monkeypatch, capsys):
    from benchmarks import fold_in

    one_user = fold_in.one_user
    monkeypatch.setattr(fold_in, "one_user", lambda model: one_user(model, n=20, times=5))
    monkeypatch.setattr(fold_in, "Gibbs", lambda epochs, joint: Gibbs(epochs=16, joint=joint))
    _run(monkeypatch, fold_in, "--data", data, "--factors", 2, "--many", 200)
    told = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("| 0")]
    assert [row[1] for row in rows] == ["sent with the question", "seen in training", "ratio"]
    sent, seen, ratio = (float(row[2]) for row in rows)
    assert ratio == pytest.approx(sent / seen, abs=1e-3) and 0.9 < ratio < 1.1
    assert "row posteriors" in told and "'users': 200" in told and "'threads'" in told


def test_what_is_sent_counts(ratings):
    from benchmarks.fold_in import errors, split

    old, sent, asked = split(ratings, 0)
    model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0).fit(old)
    known = np.isin(asked.items, old.items)
    found = errors(model, asked.take(known), sent)
    with pytest.warns(DataWarning):
        without = errors(model, asked.take(known), None)
    assert found["rmse"] < without["rmse"]
    assert found["50"] < found["80"] < found["95"] <= 100


# -- early_errors ---------------------------------------------------------------------------------


def test_every_system_is_followed_told_and_drawn(data, tmp_path, capsys):
    from benchmarks import early_errors

    asked = ["--data", data / "ml-1m", "--out", tmp_path / "out", "--factors", 2, "--passes", 3]
    asked = [*map(str, asked), "--seeds", "1"]
    assert early_errors.main(asked) == 0
    with (tmp_path / "out" / "early_errors.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(early_errors.SYSTEMS)
    assert {row["system"] for row in rows} == set(early_errors.SYSTEMS)
    assert all(0.2 < float(row["rmse"]) < 3 and float(row["seconds"]) > 0 for row in rows)
    told = capsys.readouterr().out
    assert (tmp_path / "out" / "early_errors.md").read_text() == told
    assert told.count("- ") == 4 and "DSGLD-C: " in told and "below (per seed" in told
    assert (tmp_path / "out" / "early_errors.png").stat().st_size > 10_000
    # What is done is not done again.
    path = tmp_path / "out" / "early_errors.csv"
    found = early_errors.run_all(early_errors.make_parser().parse_args(asked), path)
    assert found == early_errors.read(path) and len(found) == len(rows)
    assert [str(row["rmse"]) for row in found] == [row["rmse"] for row in rows]


def _curves(**rmse):
    """Rows of two seeds, a pass a second."""
    return [
        {"system": name, "seed": seed, "pass": k + 1, "seconds": k + 1.0, "rmse": value}
        for name, values in rmse.items()
        for seed in (0, 1)
        for k, value in enumerate(values)
    ]


def test_verdicts_say_where_a_sampler_is_behind():
    from benchmarks.early_errors import best_by, table, verdicts

    rows = _curves(SGD=[1.0, 0.9, 0.8, 0.8, 0.8], SGLD=[1.1, 0.9, 0.8, 0.75, 0.72])
    (told,) = verdicts(rows)
    assert "above SGD's in passes 1 of some seed; from pass 4 on at or below" in told
    assert "in the end 10.00% below (per seed 10.00, 10.00)" in told
    assert "behind SGD at 2 of 10 passes" in told
    (late,) = verdicts(_curves(SGD=[1.0] * 5, SGLD=[0.9, 0.9, 0.9, 0.9, 1.1]))
    assert "passes 5" in late and "from pass 4" not in late and "-10.00% below" in late
    (always,) = verdicts(_curves(SGD=[1.0] * 5, RowClock=[0.9] * 5))
    assert "in every pass of every seed below" in always
    assert table(rows)[2] == "| 1 | 1.0000 ± 0.0000 | 1.1000 ± 0.0000 |"
    assert best_by(np.array([3.0, 2.0]), np.array([1.0, 2.0]), 1.5) == 3.0
    assert best_by(np.array([3.0, 2.0]), np.array([1.0, 2.0]), 0.5) == np.inf


# -- bad input ------------------------------------------------------------------------------------


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    from benchmarks import early_errors, fold_in, kept_side

    with pytest.raises(SystemExit):
        _run(monkeypatch, kept_side, "--data", tmp_path)
    with pytest.raises(InputError, match="there is no file"):
        _run(monkeypatch, fold_in, "--data", tmp_path)
    assert "there is no file" in capsys.readouterr().err
    for asked, sentence in (
        (["--data", str(tmp_path)], "must name a folder with ratings.dat"),
        (["--draw", "--out", str(tmp_path / "none")], "to draw from"),
        (["--draw", "--passes", "0"], "--passes must be a whole number"),
    ):
        assert early_errors.main(asked) == 2
        assert sentence in capsys.readouterr().err
