"""A fitted model's answers, from its draws and the ratings, by dense linear algebra in float64."""

import itertools

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs
from naive import Exact
from posteriors import KEEPS
from problems import planted

N_USERS, N_ITEMS, N_RATINGS = 9, 8, 40
SAMPLERS = {
    "gibbs": Gibbs(epochs=8, burn_in=4),
    "columns": Gibbs(epochs=8, burn_in=4, joint=4),
    "sgld": SGLD(epochs=8, burn_in=4),  # without conditional means
}
PRIORS = ("gamma", "wishart", "wishart-bias")


def fitted(prior, keep, tau, sampler, standardize=True, whole=False, noise_by=None):
    user, item, value = planted(N_USERS, N_ITEMS, N_RATINGS)
    data = user, item, np.round(value) if whole else value
    model = BayesianMF(
        3, prior=prior, keep=keep, tau=tau, sampler=SAMPLERS[sampler], standardize=standardize,
        random_state=0, noise_by=noise_by,
    )  # fmt: skip
    return data, model.fit(data)


def brute_force(model, data):
    """The posterior by brute force; its ratings must be those that the model was fitted to."""
    posterior = model.posterior_
    user, item, value = posterior.ratings.triples()
    value = posterior.center + posterior.scale * value
    found = {
        (int(model.user_ids_[int(i)]), int(model.item_ids_[int(j)])): r
        for i, j, r in zip(user, item, value, strict=True)
    }
    told = {(int(i), int(j)): r for i, j, r in zip(*data, strict=True)}
    assert found.keys() == told.keys()
    assert all(found[pair] == pytest.approx(told[pair], abs=1e-5) for pair in told)
    return Exact(posterior)


@pytest.mark.parametrize(
    ("prior", "keep", "tau", "sampler"),
    list(itertools.product(PRIORS, KEEPS, ("sample", 1.3), SAMPLERS)),
)
def test_predictions_are_those_of_brute_force(prior, keep, tau, sampler):
    """Mean, standard deviation and interval of all pairs, unknown users and items included."""
    at = PRIORS.index(prior) + KEEPS.index(keep)
    data, model = fitted(prior, keep, tau, sampler, standardize=at % 2 == 0, whole=at % 3 == 0)
    draws = model.posterior_.draws
    assert (draws.users is None, draws.items is None) == (keep == "items", keep == "users")
    assert (draws.tau == draws.tau[0]).all() == (tau != "sample")
    _compare(data, model)


@pytest.mark.parametrize("noise_by", ["user", "item", "both"])
@pytest.mark.parametrize(("prior", "keep"), list(itertools.product(PRIORS, KEEPS)))
def test_predictions_with_noise_of_rows_are_those_of_brute_force(prior, keep, noise_by):
    sampler = "columns" if (prior, noise_by) == ("gamma", "both") else "gibbs"
    data, model = fitted(prior, keep, "sample", sampler, noise_by=noise_by)
    draws = model.posterior_.draws
    assert (draws.user_tau is None) == (noise_by == "item")
    assert (draws.item_tau is None) == (noise_by == "user")
    _compare(data, model)


def _compare(data, model):
    exact = brute_force(model, data)
    users, items = [*model.user_ids_.ids.tolist(), -5], [*model.item_ids_.ids.tolist(), -5]
    pairs = list(itertools.product(range(-1, len(users) - 1), range(-1, len(items) - 1)))
    pairs = pairs[:: 1 + len(pairs) // 60]
    asked = np.array([users[i] for i, _ in pairs]), np.array([items[j] for _, j in pairs])
    expected = np.array([exact.mean_std(*pair) for pair in pairs]).T
    mean, std = model.predict(*asked, return_std=True)
    np.testing.assert_allclose(mean, model.posterior_.clip(expected[0]), atol=3e-5)
    np.testing.assert_allclose(std, expected[1], rtol=3e-5)
    low, high = model.predict_interval(*asked, level=0.9)
    for k in range(0, len(pairs), 20):
        assert low[k] == pytest.approx(exact.quantile(0.05, *pairs[k]), abs=1e-4)
        assert high[k] == pytest.approx(exact.quantile(0.95, *pairs[k]), abs=1e-4)


@pytest.mark.parametrize("noise_by", [None, "both"])
@pytest.mark.parametrize("keep", KEEPS)
def test_recommendations_are_those_of_brute_force(keep, noise_by):
    data, model = fitted("wishart-bias", keep, "sample", "gibbs", noise_by=noise_by)
    exact = brute_force(model, data)
    for policy in ("mean", "lcb", "ucb"):
        for user in (0, 4, -1):
            left = np.setdiff1d(np.arange(N_ITEMS), model.posterior_.seen.for_user(user))
            scores = [exact.score(policy, user, int(item), len(exact.draws)) for item in left]
            best = left[np.argsort(scores)[::-1][:3]]
            found = model.recommend(
                -5 if user < 0 else int(model.user_ids_[user]), 3, policy=policy
            )
            assert [r.item for r in found] == [int(model.item_ids_[int(j)]) for j in best]
            for one, item in zip(found, best.tolist(), strict=True):
                mean, std = exact.mean_std(user, item)
                assert one.mean == pytest.approx(float(model.posterior_.clip(mean)), abs=3e-5)
                assert one.std == pytest.approx(std, rel=3e-5)
