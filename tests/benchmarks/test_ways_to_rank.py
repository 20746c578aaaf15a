"""The benchmark of ways to rank, on a few ratings."""

import json

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, Synthetic
from bayesmf.data.training import RatedItems


def quick(random_state):
    return BayesianMF(2, sampler=Gibbs(epochs=8), random_state=random_state)


def test_ways_to_rank_are_compared(tmp_path, monkeypatch, capsys):
    from benchmarks.ranking import ranking

    monkeypatch.setattr(ranking, "FILES", {"few": "few.csv"})
    monkeypatch.setattr(ranking, "SETS", ("few",))
    monkeypatch.setattr(ranking, "BayesianMF", quick)
    monkeypatch.setattr(ranking, "BLOCK", 40 * 7)
    ratings = Synthetic(60, 40, 1200, stars=True, random_state=1).ratings()
    ratings.write(tmp_path / "few.csv")
    asked = ["--data", str(tmp_path), "--seeds", "1", "--k", "5", "--relevant", "3.5"]
    assert ranking.main([*asked, "--json"]) == 0
    rows = {row["way"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    # What the model and popularity find is what `evaluate_ranking` says.
    train, test = ratings.split(ranking.HELD_OUT)
    found = quick(0).fit(train).evaluate_ranking(test, k=5, relevant=3.5)
    for way, scores in (("expected rating", found.model), ("popularity", found.popularity)):
        for name in ranking.SHOWN:
            assert rows[way][name] == pytest.approx(getattr(scores, name), rel=1e-9)
    # What is left open is chosen by the inner split, not by these scores.
    for row in rows.values():
        assert row["tried"][str(row["chosen"])] == max(row["tried"].values())
        assert 0 <= row["order"] <= 1
    assert rows["expected rating"]["order"] > 0.5
    assert ranking.main(asked) == 0
    table = capsys.readouterr().out
    assert f"| popularity | {found.popularity.ndcg:.3f} |" in table and "{" not in table


def test_ease_is_the_regression_that_it_says():
    from benchmarks.ranking.ranking import Ease, UserBatch

    rng = np.random.default_rng(0)
    X = (rng.random((12, 7)) < 0.4).astype(float)
    user, item = np.nonzero(X)
    seen = RatedItems(np.searchsorted(user, np.arange(13)), item.astype(np.int32))
    P = np.linalg.inv(X.T @ X + 3.0 * np.eye(7))
    weights = -P / np.diag(P)
    np.fill_diagonal(weights, 0)
    scores = Ease(seen, 7, 3.0)(UserBatch(X, X, np.arange(12), {}))
    assert np.allclose(scores[X == 0], (X @ weights)[X == 0])


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--seeds", "0"], "--seeds"), (["--sets", "ml-1m"], "there is no data set")],
)
def test_bad_input_is_one_sentence(options, said, tmp_path, capsys):
    from benchmarks.ranking.ranking import main

    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_text("1\t1\t5\t0\n")
    assert main(["--data", str(tmp_path), *options]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and said in told
