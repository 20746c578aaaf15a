"""Cornac: its experiments take the model, and score it as we do."""

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, Synthetic

cornac = pytest.importorskip("cornac")

from bayesmf.integrations.cornac import BayesianMFRecommender  # noqa: E402

RATINGS = Synthetic(60, 40, 1200, stars=True, random_state=1).ratings()
ROWS = [(f"u{u}", f"i{i}", r) for u, i, r in RATINGS]


def recommender():
    return BayesianMFRecommender(BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0))


@pytest.fixture(scope="module")
def split():
    return cornac.eval_methods.RatioSplit(
        ROWS, test_size=0.2, rating_threshold=4, exclude_unknowns=False, seed=1
    )


def test_an_experiment_has_the_scores_of_evaluate(split, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where it writes a log
    metrics = [cornac.metrics.RMSE(), cornac.metrics.NDCG(k=10)]
    experiment = cornac.Experiment(split, [recommender()], metrics, user_based=False)
    experiment.run()
    found = experiment.result[0].metric_avg_results
    test = split.test_set.uir_tuple
    plain = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(split.train_set.uir_tuple)
    clipped = np.clip(plain.predict(test[0], test[1], return_known=True)[0], 1, 5)
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((clipped - test[2]) ** 2)), rel=1e-6)
    assert 0 < found["NDCG@10"] < 1


def test_scores_are_the_same_one_by_one_and_together(split):
    made = recommender().fit(split.train_set)
    users, items, _ = split.test_set.uir_tuple
    pairs = list(zip(users[:20], items[:20], strict=True))
    alone = [made.rate(*pair, clipping=False) for pair in pairs]
    made.transform(split.test_set)
    together = [
        made.rate(u, i, clipping=False) for u, i in zip(users[:20], items[:20], strict=True)
    ]
    np.testing.assert_allclose(alone, together, rtol=1e-12)
    every = made.score(3)
    assert every.shape == (made.num_items,) and every[5] == pytest.approx(made.score(3, 5))
    best = made.recommend("u1", k=1)[0]
    assert made.iid_map[best] == every_best(made, "u1")
    assert np.isfinite(made.score(10**6)).all()  # an unknown user


def every_best(made, user):
    return int(np.argmax(made.score(made.uid_map[user])))


def test_wrong_arguments(split):
    with pytest.raises(InputError, match="must be a BayesianMF, not a str"):
        BayesianMFRecommender("model.bmf")
    with pytest.raises(InputError, match="needs a fitted model"):
        BayesianMFRecommender(trainable=False).fit(split.train_set)
