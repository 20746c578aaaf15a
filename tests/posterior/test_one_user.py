"""One user is told what many are, on any number of threads."""

import threading
import time
import warnings

import numpy as np
import pytest

import naive
from bayesmf import SGLD, BayesianMF, Gibbs, InputError
from bayesmf.posterior import one_user, ranking
from bayesmf.posterior.one_user import UserScores
from bayesmf.posterior.posterior import POLICIES
from bayesmf.posterior.ranking import Question, draw_picks, rank_users
from bayesmf.system.threads import Pool, parts
from posteriors import random_posterior
from problems import planted

# -- one user -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize("D", [1, 5, 7, 12, 30])
def test_scores_of_one_user_are_those_of_its_components(policy, means, D):
    """Rows shorter than a vector, of one and of several, with and without columns left over."""
    posterior = random_posterior(D=D, means=means)
    scores, items = UserScores(posterior, policy, True, Pool(1)), np.arange(70)
    for user in (0, 17, 49, -1):
        expected = naive.policy_scores(posterior, user, policy, 4)
        found = posterior.scale * scores.for_user(user, 4, items)
        # All of a user may be moved alike: the order is the same.
        assert np.allclose(found - found[0], expected - expected[0], atol=2e-4 * D**0.5)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_item_has_the_same_bits_in_any_company(policy, monkeypatch):
    posterior = random_posterior(D=12)
    items = np.arange(70)
    whole = [UserScores(posterior, policy, True, Pool(1)).for_user(u, 2, items) for u in (3, -1)]
    monkeypatch.setattr(one_user, "STRETCH", 6 * 13 * 5)
    with Pool(3) as pool:
        scores = UserScores(posterior, policy, True, pool)
        for user, score in zip((3, -1), whole, strict=True):
            assert np.array_equal(scores.for_user(user, 2, items), score)
            some = np.array([61, 7, 20])
            assert np.array_equal(scores.for_user(user, 2, some), score[some])


def ask(posterior, users, n, policy, exclude_seen):
    picks = draw_picks(len(posterior.draws), 50, users, 1)
    return rank_users(posterior, users, Question(n, policy, exclude_seen, 0.9), picks, 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("kind", ["equal", "nearly", "groups"])
def test_items_that_are_alike_do_not_change_places_in_company(policy, exclude_seen, kind):
    """All items equal, all but for rounding, or in groups larger than what is spare."""
    posterior, rng = random_posterior(), np.random.default_rng(0)
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


def test_a_tie_beyond_the_spare_ones_is_looked_into(monkeypatch):
    posterior = random_posterior()
    posterior.draws.item_means[:] = posterior.draws.item_means[:, :1]
    expected, _ = ask(posterior, np.arange(50), 7, "mean", True)
    left = np.setdiff1d(np.arange(70), posterior.seen.for_user(0))
    assert expected[0].tolist() == left[:7].tolist()
    looked = []
    real = ranking.Ranker._top_of_one
    monkeypatch.setattr(
        ranking.Ranker, "_top_of_one", lambda *args: looked.append(args[2]) or real(*args)
    )
    ask(posterior, np.arange(50), 7, "mean", True)
    assert sorted(looked) == list(range(50))


@pytest.fixture(scope="module", params=["means", "no means"])
def model(request):
    n_factors, sampler = {
        "means": (8, Gibbs(epochs=12, burn_in=4)),
        "no means": (6, SGLD(epochs=12, burn_in=4)),
    }[request.param]
    data = planted(n_users=40, n_items=30, n_ratings=600)
    return BayesianMF(n_factors, sampler=sampler, random_state=0).fit(data)


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
    unseen = model.recommend_many([-7], 12, **asked)
    assert [r.item for r in model.recommend(-7, 12, **asked)] == unseen.items[0].tolist()


def test_one_user_with_strings():
    data = (["a", "a", "b", "c"], ["x", "y", "x", "z"], [3.0, 4.0, 5.0, 2.0])
    model = BayesianMF(2, sampler=SGLD(epochs=4), random_state=0).fit(data)
    assert {r.item for r in model.recommend("b")} == {"y", "z"}
    assert model.recommend("b", exclude_seen=False)[0].item in {"x", "y", "z"}
    assert {r.item for r in model.recommend("nobody")} == {"x", "y", "z"}
    assert isinstance(model.recommend("c")[0].item, str)


@pytest.mark.parametrize("level", [None, "0.9", 90, 1, 0, float("nan"), [0.9], 0.9 + 0j])
def test_a_level_that_is_none_is_refused(model, level):
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        model.recommend(model.user_ids_[0], level=level)


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
