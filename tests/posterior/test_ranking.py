"""Many users at once are told what each would be told alone; so are many pairs."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs, InputError, NotFittedError
from bayesmf.kernels.ranking import select_top
from bayesmf.posterior import POLICIES, ranking, rows
from bayesmf.posterior.ranking import Question, rank_users
from naive import Exact
from posteriors import KEEPS, random_posterior
from problems import planted

SAMPLERS = {
    "means": {"sampler": Gibbs(epochs=12, burn_in=4)},
    "no bias": {"sampler": Gibbs(epochs=12, burn_in=4), "prior": "wishart"},
    "no means": {"sampler": SGLD(epochs=12, burn_in=4)},
    "users": {"sampler": Gibbs(epochs=12, burn_in=4), "keep": "users"},
    "both": {"sampler": Gibbs(epochs=12, burn_in=4), "keep": "both"},
}


@pytest.fixture(scope="module", params=list(SAMPLERS))
def model(request):
    data = planted(n_users=40, n_items=30, n_ratings=600)
    return BayesianMF(3, random_state=0, **SAMPLERS[request.param]).fit(data)


# -- pairs ----------------------------------------------------------------------------------------


def test_large_offsets_do_not_cancel():
    """Draws that agree to six digits: the spread is what they differ by, not rounding."""
    posterior = random_posterior(means=False)
    draws = posterior.draws
    draws.users[:, :, 0], draws.items[:, :, 0] = 30.0, 30.0
    draws.users[:, :, 1:], draws.items[:, :, 1:] = draws.users[:1, :, 1:], draws.items[:1, :, 1:]
    draws.users[:, :, -1] += np.linspace(0, 0.01, 6, dtype=np.float32)[:, None]
    sharp = dataclasses.replace(draws, tau=np.full(6, 1e12))
    _, std = dataclasses.replace(posterior, draws=sharp).mean_std(np.arange(50), np.arange(50))
    assert np.allclose(std, 1.5 * np.linspace(0, 0.01, 6).std(), rtol=0.02)


# -- selection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 10, 99, 100])
@pytest.mark.parametrize("ties", [False, True])
def test_select_top_is_a_sort(n, ties):
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(40, 100)).astype(np.float32)
    if ties:
        scores = np.round(scores)
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    scores[0] = -np.inf
    scores[1] = np.arange(100)
    out = np.empty((40, n), np.int64)
    select_top(scores, np.empty(n, np.float32), out)
    order = np.argsort(-scores, axis=1, kind="stable")
    order[np.take_along_axis(scores, order, 1) == -np.inf] = -1
    assert np.array_equal(out, order[:, :n])


# -- users ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("policy", ["mean", "ucb"])
def test_many_users_are_told_what_each_is(model, policy, exclude_seen):
    users = [*model.user_ids_.ids.tolist(), -7]  # the last one is unknown
    options = {"policy": policy, "exclude_seen": exclude_seen, "level": 0.8}
    found = model.recommend_many(users, 12, **options)
    assert found.items.shape == found.mean.shape == (41, 12)
    for k, user in enumerate(users):
        alone = model.recommend(user, 12, **options)
        n = found.counts[k]
        assert n == len(alone) == found.filled[k].sum()
        assert found.items[k, :n].tolist() == [r.item for r in alone]
        for name in ("mean", "std", "low", "high"):
            expected = [getattr(r, name) for r in alone]
            assert np.allclose(getattr(found, name)[k, :n], expected, rtol=1e-6)


@pytest.mark.parametrize("policy", ["mean", "ucb", "lcb"])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_blocks_and_stacks_rank_as_brute_force_does(policy, keep, exclude_seen, monkeypatch):
    """Blocks of 8 users, products of a few items: the scores of one user at a time, in order."""
    monkeypatch.setattr(ranking, "BLOCK", 1)
    monkeypatch.setattr(ranking, "SMALL", 8 * 6 * 8)
    posterior = random_posterior(20, 24, keep=keep, n_seen=120, bias=exclude_seen)
    users = np.array([*range(19, -1, -1), -1, -1, 3])
    found, _ = rank_users(posterior, users, Question(8, policy, exclude_seen, None), 2)
    exact = Exact(posterior)
    for user, items in zip(users.tolist(), found, strict=True):
        score = np.array([exact.score(policy, user, item) for item in range(24)])
        if exclude_seen:
            score[posterior.seen.for_user(user)] = -np.inf
        assert items.tolist() == np.argsort(-score, kind="stable")[:8].tolist()


@pytest.mark.parametrize("policy", ["ucb", "lcb"])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("n_users", [1, 20])
def test_lists_with_a_bonus_are_in_the_order_of_what_is_told(policy, keep, n_users):
    """Mean plus or minus the standard deviation without noise, by all draws."""
    posterior = random_posterior(20, 24, 40, keep=keep, n_seen=120)
    posterior = dataclasses.replace(posterior, low=-1e6, high=1e6)
    users, sign = np.arange(n_users), 1 if policy == "ucb" else -1
    found, (mean, std) = rank_users(posterior, users, Question(8, policy, True, None), 2)
    score = mean + sign * np.sqrt(std**2 - posterior.noise())
    assert np.all(np.diff(score, axis=1) <= 1e-9)
    exact = Exact(posterior)
    for user in users[:3].tolist():
        every = np.array([exact.score(policy, user, item, n_draws=40) for item in range(24)])
        every[posterior.seen.for_user(user)] = -np.inf
        assert found[user].tolist() == np.argsort(-every, kind="stable")[:8].tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("keep", KEEPS)
def test_rows_in_the_cache_rank_the_same_bits(policy, keep, monkeypatch):
    """Cold, while the cache fills, from the cache; of all items or some of them."""
    users = np.array([*range(50), -1])
    for items in (None, np.array([2, 3, 30, 61])):
        posterior = random_posterior(keep=keep)
        question = Question(5, policy, True, 0.8, items, seed=3)
        cold = rank_users(posterior, users, question, 2)
        monkeypatch.setattr(rows, "BULK", 1)
        for _ in range(2):
            again = rank_users(posterior, users, question, 2)
            assert np.array_equal(again[0], cold[0])
            for one, other in zip(again[1], cold[1], strict=True):
                assert np.array_equal(one, other, equal_nan=True)
        monkeypatch.undo()
        if items is not None:
            assert set(cold[0].ravel()) <= {-1, *items.tolist()}


def test_thompson_draws(model):
    many = model.recommend_many(n=5, policy="thompson", random_state=3)
    again = model.recommend_many(n=5, policy="thompson", random_state=3)
    assert np.array_equal(many.items, again.items)
    # A user's draw is its own: neither the company nor the order matters.
    some = model.recommend_many(many.users[[9, 2]], 5, policy="thompson", random_state=3)
    assert np.array_equal(some.items, many.items[[9, 2]])
    other = model.recommend_many(n=5, policy="thompson", random_state=4)
    assert not np.array_equal(many.items, other.items)


def test_what_is_left_and_what_is_asked(model):
    everything = model.recommend_many(n=1000)
    assert everything.items.shape == (40, 30)
    assert len(everything.users) == 40 and everything.low is None
    rated = model.posterior_.seen.user_counts(np.arange(40))
    assert everything.counts.tolist() == (30 - rated).tolist()
    assert np.all(everything.items[~everything.filled] == -1)
    assert np.isnan(everything.std[~everything.filled]).all()
    assert model.recommend_many(model.user_ids_[3], 2).items.shape == (1, 2)
    assert model.recommend_many([], 2).items.shape == (0, 2)
    counted = []
    model.recommend_many(n=1, progress=counted.append)
    assert sum(counted) == 40


def test_refusals(model):
    with pytest.raises(NotFittedError, match="fit"):
        BayesianMF().recommend_many()
    for options, words in (
        ({"policy": "best"}, "policy 'best'"),
        ({"n": 0}, "n must be"),
        ({"level": 90}, "level"),
        ({"random_state": -1}, "random_state"),
    ):
        with pytest.raises(InputError, match=words):
            model.recommend_many(**options)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_users_x_items_array(policy):
    """6,000 x 5,000 scores would be 120 MB."""
    posterior = random_posterior(6_000, 5_000, 2, 2, 1000, keep="items")
    question = Question(3, policy, True, None)
    users = np.arange(6_000)
    rank_users(posterior, users[:10], question)  # compiled before memory is watched
    tracemalloc.start()
    rank_users(posterior, users, question)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
