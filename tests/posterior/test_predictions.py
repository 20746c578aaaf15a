"""What a posterior predicts of pairs, against brute force by dense linear algebra in float64."""

import copy
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.posterior import pairs as pairs_module
from bayesmf.posterior import rows as rows_module
from bayesmf.posterior.rows import RowCache, all_rows, triangle
from naive import Exact
from posteriors import KEEPS, random_posterior

CASES = [
    (keep, full, bias, means)
    for keep in KEEPS
    for full in (False, True)
    for bias in (True, False)
    for means in (True, False)
]


def some_pairs(posterior, n=40, seed=0):
    """Pairs of all kinds: rated and not, one of them or both without training ratings."""
    rng = np.random.default_rng(seed)
    user, item, _ = posterior.ratings.triples()
    rated = rng.permutation(len(user))[:n]
    user = np.concatenate([user[rated], rng.integers(-1, posterior.n_users, n), [-1, -1, 0]])
    item = np.concatenate([item[rated], rng.integers(-1, posterior.n_items, n), [-1, 0, -1]])
    order = rng.permutation(len(user))
    return user[order].astype(np.int64), item[order].astype(np.int64)


# -- against brute force --------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "full", "bias", "means"), CASES)
def test_predictions_equal_brute_force(keep, full, bias, means):
    """Mean, standard deviation, interval and components, for every kind of posterior and pair."""
    posterior = random_posterior(
        12, 15, 4, 3, 60, means=means, keep=keep, full=full, bias=bias, coded=full
    )
    exact, (user, item) = Exact(posterior), some_pairs(posterior)
    rated = posterior.seen.rated(user, item)
    assert rated.sum() > 30 and (~rated & (user >= 0) & (item >= 0)).sum() > 15
    pairs = list(zip(user.tolist(), item.tolist(), strict=True))
    mixtures = [exact.mixture(*pair) for pair in pairs]
    mu, var = (np.array(part).T for part in zip(*mixtures, strict=True))
    (chunk,) = posterior.chunks(user, item)
    np.testing.assert_allclose(chunk.mu, mu, atol=2e-5)
    np.testing.assert_allclose(chunk.var, var, rtol=2e-5)
    mean, std = posterior.mean_std(user, item)
    np.testing.assert_allclose(mean, mu.mean(0), atol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(mu.var(0) + var.mean(0)), rtol=1e-5)
    assert np.array_equal(posterior.mean(user, item), mean)
    low, high = posterior.interval(user, item, 0.8)
    for k in range(0, len(pairs), 4):
        assert low[k] == pytest.approx(exact.quantile(0.1, *pairs[k]), abs=1e-4)
        assert high[k] == pytest.approx(exact.quantile(0.9, *pairs[k]), abs=1e-4)
    again = chunk.mean
    assert np.array_equal(again, mean)


@pytest.mark.parametrize("keep", KEEPS)
def test_many_factors_and_draws(keep):
    """Rows of several vectors and a rest."""
    posterior = random_posterior(9, 8, 30, 21, 50, keep=keep, full=True)
    exact, (user, item) = Exact(posterior), some_pairs(posterior, 10)
    expected = [exact.mean_std(*pair) for pair in zip(user.tolist(), item.tolist(), strict=True)]
    mean, std = posterior.mean_std(user, item)
    np.testing.assert_allclose(mean, [e[0] for e in expected], atol=3e-5)
    np.testing.assert_allclose(std, [e[1] for e in expected], rtol=3e-5)


@pytest.mark.parametrize("keep", KEEPS)
def test_conditional_means_move_all_but_rated_and_unseen_pairs(keep):
    """The brute force would pass if neither used them: they must make a difference."""
    with_means, without = (random_posterior(keep=keep, means=means) for means in (True, False))
    user, item = some_pairs(with_means)
    differ = with_means.mean(user, item) != without.mean(user, item)
    unrated = ~with_means.seen.rated(user, item) & (user >= 0) & (item >= 0)
    assert np.array_equal(differ, unrated)
    assert np.array_equal(with_means.mean_std(user, item)[1], without.mean_std(user, item)[1])


def test_answers_are_clipped_and_intervals_are_not():
    posterior = random_posterior(keep="items")
    user, item = some_pairs(posterior)
    narrow = replace(posterior, low=2.5, high=3.5)
    mean = posterior.mean(user, item)
    assert mean.min() < 2.5 and mean.max() > 3.5
    assert np.array_equal(narrow.mean(user, item), np.clip(mean, 2.5, 3.5))
    assert np.array_equal(narrow.interval(user, item, 0.8), posterior.interval(user, item, 0.8))


# -- the same bits --------------------------------------------------------------------------------


def ask(posterior, user, item, threads=None):
    """All that is told of pairs."""
    found = [*posterior.mean_std(user, item, threads)]
    found += posterior.interval(user, item, 0.8, threads)
    found.append(posterior.mean(user, item, threads))
    return np.array(found)


@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize("keep", KEEPS)
def test_a_pair_is_told_the_same_bits_in_any_company(keep, means, monkeypatch):
    """Alone or not, on any threads, whole rows or parts of them; narrowed to some rows or not."""
    posterior = random_posterior(70, 70, 60, keep=keep, means=means, bias=means)
    user, item = some_pairs(posterior, 300)
    whole = ask(posterior, user, item, 1)
    for k in range(0, len(user), 40):
        assert np.array_equal(ask(posterior, user[k : k + 1], item[k : k + 1])[:, 0], whole[:, k])
    few = np.arange(5, 12)
    assert np.array_equal(ask(posterior, user[few], item[few]), whole[:, few])
    monkeypatch.setattr(pairs_module, "COMPONENTS", 60 * 7)
    for threads in (2, 5):
        assert np.array_equal(ask(posterior, user, item, threads), whole)


@pytest.mark.parametrize("keep", ["items", "users"])
def test_rows_in_the_cache_are_told_the_same_bits(keep, monkeypatch):
    posterior = random_posterior(70, 70, 60, keep=keep)
    user, item = some_pairs(posterior, 300)
    cold = ask(posterior, user, item)
    source = posterior.sides.source
    assert (source.cache.places(np.arange(70)) < 0).all()
    monkeypatch.setattr(rows_module, "BULK", 1)
    assert np.array_equal(ask(posterior, user, item), cold)
    own = user if keep == "items" else item
    assert (source.cache.places(own[own >= 0]) >= 0).all()
    assert np.array_equal(ask(posterior, user, item), cold)
    # From now on from the cache, also for one pair.
    monkeypatch.setattr("bayesmf.posterior.rows.solve_rows", None)
    assert np.array_equal(ask(posterior, user[own >= 0], item[own >= 0]), cold[:, own >= 0])


def test_no_pairs_at_all():
    nothing = np.empty(0, np.int64)
    for keep in KEEPS:
        mean, std = random_posterior(keep=keep).mean_std(nothing, nothing)
        assert len(mean) == len(std) == 0


# -- the cache ------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 17, 18, 69, 70, 1000])
def test_the_cache_never_exceeds_its_budget(room):
    posterior = random_posterior(70, 30, 4, keep="items")
    width = 6
    budget = room * 4 * 4 * (width + triangle(width) + 1) + 17
    source = replace(posterior.sides.source, budget=budget)
    means = source.solve(np.arange(70)).means
    for first in (0, 30, 60, 0):
        rows = np.arange(first, min(first + 40, 70))
        solved = source.solve(rows, bulk=True)
        assert np.array_equal(solved.means[solved.place], means[rows])
        places = source.cache.places(np.arange(70))
        assert sum(array.nbytes for array in source.cache.arrays) <= budget
        assert places.max() < source.cache.room
    found = places[places >= 0]
    # None where these would be less than a quarter of all.
    assert len(found) == len(set(found)) == (min(room, 70) if room >= 18 else 0)


def test_threads_that_come_first_together_share_the_cache(monkeypatch):
    """Each makes the arrays before the other has: one of them must give its own up."""
    cache, barrier = RowCache(4, 2, 3, 1 << 20), threading.Barrier(2, timeout=20)
    real = np.empty

    def wait(shape, dtype):
        barrier.wait()
        return real(shape, dtype)

    def add(row):
        cache.add(
            np.array([row]), np.full((1, 2, 3), row), np.full((1, 2, 6), row), np.full((1, 2), row)
        )

    monkeypatch.setattr(rows_module.np, "empty", wait)
    threads = [threading.Thread(target=add, args=(row,)) for row in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    for row in (1, 3):
        place = cache.places(np.array([row]))[0]
        assert all((array[place] == row).all() for array in cache.arrays)


def test_rows_without_ratings_are_not_cached():
    cache = RowCache(5, 2, 3, 1 << 20)
    rows, one = np.array([-1, 3]), np.ones((2, 2, 3), np.float32)
    cache.add(rows, one, np.ones((2, 2, 6), np.float32), np.ones((2, 2), np.float32))
    assert cache.places(np.array([-1, 3, 4])).tolist() == [-1, 0, -1]


def test_copies_do_not_carry_what_was_worked_out():
    posterior = random_posterior(300, 300, 20, keep="items")
    bare = len(pickle.dumps(posterior))
    user, item = np.arange(300), np.arange(300)
    mean = posterior.mean(user, item)
    posterior.sides.source.solve(np.arange(300), bulk=True)
    assert posterior.sides.source.cache.places(np.arange(300)).min() >= 0
    data = pickle.dumps(posterior)
    assert len(data) == bare
    for again in (pickle.loads(data), copy.deepcopy(posterior)):
        assert "sides" not in vars(again) and "seen" not in vars(again)
        assert again.sides.source.cache.places(np.arange(300)).max() < 0
        assert np.array_equal(again.mean(user, item), mean)
    cache = pickle.loads(pickle.dumps(posterior.sides.source.cache))
    assert cache.places(np.arange(300)).max() < 0


# -- all rows of the side that is not kept --------------------------------------------------------


@pytest.mark.parametrize("keep", ["items", "users"])
def test_all_rows_are_means_and_draws_of_the_exact_rows(keep, monkeypatch):
    """Draws whitened by the brute force's covariance: 2 x 4,200 numbers, false-alarm rate 1e-4."""
    monkeypatch.setattr(rows_module, "rows_at_once", lambda n_draws: 16)
    posterior = random_posterior(70, 70, 12, 4, keep=keep, full=True)
    exact, side = Exact(posterior), "user" if keep == "items" else "item"
    means, drawn = all_rows(posterior.sides.source, draw=True)
    white = np.empty(means.shape)
    for t in range(12):
        for k in range(70):
            mean, covariance = exact.row(side, k, t)
            assert np.allclose(means[t, k], mean, atol=2e-5)
            white[t, k] = np.linalg.solve(np.linalg.cholesky(covariance), drawn[t, k] - mean)
    n = white.size
    # Normal bounds, a quarter of the rate to each of two sums, two-sided: z = 4.06.
    assert abs(white.mean()) * n**0.5 < 4.06
    assert abs((white**2).mean() - 1) * (n / 2) ** 0.5 < 4.06
    assert np.array_equal(all_rows(posterior.sides.source, draw=True)[1], drawn)


def test_a_cache_that_there_is_no_memory_for_stays_empty(monkeypatch):
    cache = RowCache(4, 2, 3, 1 << 20)
    empty = np.empty

    def scarce(shape, dtype):
        if 0 not in shape:
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr("bayesmf.posterior.rows.np.empty", scarce)
    rows = np.arange(4)
    cache.add(rows, np.ones((4, 2, 3), np.float32), np.ones((4, 2, 6), np.float32))
    assert cache.room == 0 and (cache.places(rows) == -1).all()
