"""One user is told what many are, on any number of threads."""

import threading
import time
import warnings

import numpy as np
import pytest

import naive
from bayesmf import SGLD, BayesianMF, Gibbs, InputError
from bayesmf.posterior import ranking
from bayesmf.posterior.ranking import (
    BONUS_DRAWS,
    POLICIES,
    Catalogue,
    Question,
    UserScores,
    own_rows,
    rank_users,
    thompson_pick,
)
from bayesmf.process import Pool, parts
from naive import Exact
from posteriors import KEEPS, random_posterior
from problems import planted

# -- one user -------------------------------------------------------------------------------------


def scores_of(posterior, policy, pool, user, items=None):
    """Scores of items for one user by number, and the posterior that they are scores of."""
    ranked = posterior if policy == "mean" else posterior.with_items
    catalogue = Catalogue.of(ranked)
    scores = UserScores(catalogue, policy, True, pool)
    own = own_rows(catalogue.users(np.array([user])), 0)
    sizes = len(posterior.draws), catalogue.rows.shape[2]
    pick = thompson_pick(0, user + 1, *sizes, policy != "thompson-items")
    items = np.arange(posterior.n_items) if items is None else items
    return scores.for_user(user, own, pick, items), ranked


@pytest.mark.parametrize("policy", ["mean", "ucb", "lcb"])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(("D", "means", "bias"), [(1, 1, 1), (5, 0, 1), (7, 1, 0), (12, 1, 1)])
def test_scores_of_one_user_are_those_of_brute_force(policy, keep, D, means, bias):
    """Mean -/+ the root of the variance of predictions, a user's own averaged over a few draws.

    Rows shorter than a vector, of one and of several, with and without columns left over.
    """
    posterior = random_posterior(10, 12, 20, D, 50, means=means, keep=keep, bias=bias)
    assert BONUS_DRAWS <= 8
    for user in (0, 7, -1):
        found, ranked = scores_of(posterior, policy, Pool(1), user)
        exact = Exact(ranked)
        expected = [exact.score(policy, user, item) for item in range(12)]
        assert np.allclose(found, expected, atol=3e-5 * D**0.5)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("full", [True, False])
def test_thompson_takes_a_draw_of_the_row_given_the_items_of_one_draw(keep, full):
    posterior = random_posterior(10, 12, 5, keep=keep, full=full, n_seen=50)
    for user in (0, 7, -1):
        found, ranked = scores_of(posterior, "thompson", Pool(1), user)
        exact, pick = Exact(ranked), thompson_pick(0, user + 1, 5, 6)
        row, covariance = exact.row("user", user, pick.draw)
        if covariance.any():
            factor = np.linalg.cholesky(np.linalg.inv(covariance))
            row = row + np.linalg.solve(factor.T, pick.noise)
        items = [exact.row("item", item, pick.draw)[0] for item in range(12)]
        # Without the user's bias, which lifts all items alike.
        expected = [naive.predict(row, item, 5) - row[5] for item in items]
        assert np.allclose(found, expected, atol=5e-5)


@pytest.mark.parametrize("keep", KEEPS)
def test_thompson_of_items_takes_the_row_that_is_expected_given_one_draw(keep):
    posterior = random_posterior(10, 12, 5, keep=keep, n_seen=50)
    for user in (0, 7, -1):
        found, ranked = scores_of(posterior, "thompson-items", Pool(1), user)
        exact, draw = Exact(ranked), thompson_pick(0, user + 1, 5, 6).draw
        row, _ = exact.row("user", user, draw)
        items = [exact.row("item", item, draw)[0] for item in range(12)]
        expected = [naive.predict(row, item, 5) - row[5] for item in items]
        assert np.allclose(found, expected, atol=5e-5)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("keep", KEEPS)
def test_an_item_has_the_same_bits_in_any_company(policy, keep, monkeypatch):
    posterior = random_posterior(D=12, keep=keep)
    whole = [scores_of(posterior, policy, Pool(1), user)[0] for user in (3, -1)]
    monkeypatch.setattr(ranking, "STRETCH", 6 * 13 * 5)
    with Pool(3) as pool:
        for user, score in zip((3, -1), whole, strict=True):
            assert np.array_equal(scores_of(posterior, policy, pool, user)[0], score)
            some = np.array([61, 7, 20])
            assert np.array_equal(scores_of(posterior, policy, pool, user, some)[0], score[some])


def ask(posterior, users, n, policy, exclude_seen):
    return rank_users(posterior, users, Question(n, policy, exclude_seen, 0.9, seed=1), 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("kind", ["equal", "nearly", "groups"])
@pytest.mark.parametrize("keep", ["items", "both"])
def test_items_that_are_alike_do_not_change_places_in_company(policy, exclude_seen, kind, keep):
    """All items equal, all but for rounding, or in groups larger than what is spare."""
    posterior, rng = random_posterior(keep=keep), np.random.default_rng(0)
    for rows in (posterior.draws.items, posterior.draws.item_means):
        if kind == "groups":
            rows[:] = rows[:, np.arange(70) % 9]
        else:
            rows[:] = rows[:, :1]
        if kind != "equal":
            rows += 1e-6 * rng.normal(size=rows.shape).astype(np.float32)
    items, numbers = ask(posterior, np.arange(50), 7, policy, exclude_seen)
    for user in range(50):
        alone, told = ask(posterior, np.array([user]), 7, policy, exclude_seen)
        assert np.array_equal(alone[0], items[user])
        assert all(np.array_equal(a[0], b[user]) for a, b in zip(told, numbers, strict=True))


@pytest.mark.parametrize("keep", ["items", "both"])
def test_a_tie_beyond_the_spare_ones_is_looked_into(keep, monkeypatch):
    posterior = random_posterior(keep=keep)
    posterior.draws.item_means[:] = posterior.draws.item_means[:, :1]
    expected, _ = ask(posterior, np.arange(50), 7, "mean", True)
    left = np.setdiff1d(np.arange(70), posterior.seen.for_user(0))
    assert expected[0].tolist() == left[:7].tolist()
    looked = []
    real = ranking.Ranker._top_of_one
    monkeypatch.setattr(
        ranking.Ranker,
        "_top_of_one",
        lambda *args: looked.append(int(args[2].number[args[3]])) or real(*args),
    )
    ask(posterior, np.arange(50), 7, "mean", True)
    assert sorted(looked) == list(range(50))


@pytest.fixture(scope="module", params=["means", "no means", "users", "both"])
def model(request):
    n_factors, sampler, keep = {
        "means": (8, Gibbs(epochs=12, burn_in=4), "items"),
        "no means": (6, SGLD(epochs=12, burn_in=4), "items"),
        "users": (8, Gibbs(epochs=12, burn_in=4), "users"),
        "both": (8, Gibbs(epochs=12, burn_in=4), "both"),
    }[request.param]
    data = planted(n_users=40, n_items=30, n_ratings=600)
    return BayesianMF(n_factors, sampler=sampler, keep=keep, random_state=0).fit(data)


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_is_told_what_many_are(model, policy, exclude_seen):
    """The same items and the same bits, "thompson" with one seed included."""
    asked = {"policy": policy, "exclude_seen": exclude_seen, "level": 0.8, "random_state": 5}
    users = model.user_ids_.ids
    many = model.recommend_many(n=12, **asked)
    for k, user in enumerate(users.tolist()):
        alone, n = model.recommend(user, 12, **asked), many.counts[k]
        assert [r.item for r in alone] == many.items[k, :n].tolist()
        for name in ("mean", "std", "low", "high"):
            assert [getattr(r, name) for r in alone] == getattr(many, name)[k, :n].tolist()
        # And by predict.
        items = many.items[k, :n]
        told = np.array([*model.predict(user, items, return_std=True)])
        assert np.array_equal(told, [many.mean[k, :n], many.std[k, :n]])
        bounds = np.array(model.predict_interval(user, items, 0.8))
        assert np.array_equal(bounds, [many.low[k, :n], many.high[k, :n]])
    unseen = model.recommend_many([-7], 12, **asked)
    assert [r.item for r in model.recommend(-7, 12, **asked)] == unseen.items[0].tolist()


NO_LEVELS = [None, "0.9", 90, 10**400, 1, 0, float("nan"), [0.9], 0.9 + 0j, 1 - 2**-53]


@pytest.mark.parametrize("level", [*NO_LEVELS, np.float32(1 - 2**-24)])
def test_a_level_that_is_none_is_refused(model, level):
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        model.recommend(model.user_ids_[0], level=level)
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        model.predict_interval(model.user_ids_[0], model.item_ids_[0], level=level)


@pytest.mark.parametrize("level", [5e-324, 1 - 2**-52, np.float32(1 - 2**-23)])
def test_levels_at_the_ends_have_an_interval(model, level):
    best = model.recommend(model.user_ids_[0], level=level)[0]
    assert -np.inf < best.low <= best.high < np.inf


# -- threads --------------------------------------------------------------------------------------


def test_the_one_who_asks_works_too():
    """All parts are done once, also where no other thread can be had."""
    for broken in (False, True):
        done = []
        with Pool(3) as pool:
            if broken:
                pool.each(bool, parts(6, 2))
                pool._executor.shutdown()  # as at the interpreter's end
            pool.each(done.append, parts(50, 3))
        assert sorted(part.start for part in done) == list(range(0, 50, 3))


def test_others_stop_after_an_error():
    done = []

    def fail(part):
        done.append(part.start)
        if part.start == 2:
            raise ValueError("part 2")
        time.sleep(0.001)

    with Pool(2) as pool, pytest.raises(ValueError, match="part 2"):
        pool.each(fail, parts(1000, 1))
    assert len(done) < 500


def test_answers_come_from_one_fit_while_another_replaces_it():
    """Rows of a large fit must never be looked up in the posterior of a small one."""
    sampler = Gibbs(epochs=2, burn_in=1)
    model = BayesianMF(2, sampler=sampler, random_state=0).fit(planted(30, 20, 300))
    large = planted(3000, 50, 9000)
    asked = np.unique(large[0])
    over, wrong = threading.Event(), []

    def ask():
        while not over.is_set():
            try:
                assert np.isfinite(model.predict(asked, int(large[1][0]))).all()
                assert len(model.recommend_many(asked[:50], 2).users) == 50
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for k in range(12):
            model.fit(large if k % 2 else planted(30, 20, 300))
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong
