"""Benchmarks of the kept side, printed runs, new users and early errors, on planted ratings."""

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, DataWarning, Gibbs, Synthetic


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
    from benchmarks.accuracy import kept_side

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
    from benchmarks.accuracy import kept_side

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


# -- printed --------------------------------------------------------------------------------------


def test_printed_runs_are_predicted_in_both_ways(data, monkeypatch, capsys):
    from benchmarks.accuracy import printed

    few = ("--factors", "2", "--scale", "0.0001", "--epochs", "2", "--noise", "paper")
    assert printed.main([*few, "--beta-0", "300"]) == 0
    monkeypatch.setattr(printed, "SGLD", lambda noise: SGLD(noise=noise, epochs=6))
    assert printed.main(["--factors", "2", "--data", str(data / "ml-1m/ratings.dat")]) == 0
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    as_printed, own = lines[2], lines[5]
    assert as_printed[:3] == ["paper", "300", "2"] and own[:3] == ["paper", "1", "default"]
    for row in (as_printed, own):
        averaged, exact, alone, *_, first, last = (float(x.rstrip("%")) for x in row[4:])
        assert len({averaged, exact, alone}) == 3 and max(averaged, exact, alone) < 2
        assert last < first  # a training rating helps to solve its user


# -- fold_in --------------------------------------------------------------------------------------


def test_new_users_are_compared_and_timed(data, monkeypatch, capsys):
    from benchmarks.accuracy import fold_in

    one_user = fold_in.one_user
    monkeypatch.setattr(fold_in, "one_user", lambda model: one_user(model, n=20, times=5))
    monkeypatch.setattr(fold_in, "Gibbs", lambda epochs, joint: Gibbs(epochs=16, joint=joint))
    _run(monkeypatch, fold_in, "--data", data, "--factors", 2, "--many", 200)
    told = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("| 0")]
    assert [row[1] for row in rows] == ["sent with the request", "seen in training", "ratio"]
    sent, seen, ratio = (float(row[2]) for row in rows)
    assert ratio == pytest.approx(sent / seen, abs=1e-3) and 0.9 < ratio < 1.1
    assert "row posteriors" in told and "'users': 200" in told and "'threads'" in told


def test_what_is_sent_counts(ratings):
    from benchmarks.accuracy.fold_in import errors, split

    old, sent, asked = split(ratings, 0)
    model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0).fit(old)
    known = np.isin(asked.items, old.items)
    found = errors(model, asked.take(known), sent)
    with pytest.warns(DataWarning):
        without = errors(model, asked.take(known), None)
    assert found["rmse"] < without["rmse"]
    assert found["50"] < found["80"] < found["95"] <= 100


# -- bad input ------------------------------------------------------------------------------------


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    from benchmarks.accuracy import fold_in, kept_side

    for module in (kept_side, fold_in):
        assert module.main(["--data", str(tmp_path)]) == 2
        assert "there is no data set" in capsys.readouterr().err
