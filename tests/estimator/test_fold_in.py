"""Ratings that come with a question: who sends them is told what a learnt user would be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, DataWarning, Gibbs, InputError, Ratings
from bayesmf.estimator.questions import folded_in
from problems import stars

USER = 1


@pytest.fixture(scope="module")
def model() -> BayesianMF:
    """Noise by item: a user's row follows from ratings alone, and these have weights."""
    return BayesianMF(4, sampler=Gibbs(epochs=16), noise_by="item", random_state=0).fit(stars())


def ratings_of(user: int) -> dict[int, float]:
    own = stars().take(stars().users == user)
    return dict(zip(own.items.tolist(), own.rating.tolist(), strict=True))


def unrated(user: int, n: int = 5) -> list[int]:
    return [i for i in stars().item_ids.ids.tolist() if i not in ratings_of(user)][:n]


def test_who_sends_all_ratings_is_the_user_they_are_of(model):
    """To the last bit: rows follow from ratings, wherever these come from."""
    items, sent = [*unrated(USER), *list(ratings_of(USER))[:3]], ratings_of(USER)
    known = model.predict(USER, items, return_std=True)
    for user in (None, "somebody"):
        new = model.predict(user, items, ratings=sent, return_std=True)
        assert np.array_equal(new, known)
    assert model.recommend(ratings=sent) == model.recommend(USER)
    assert np.array_equal(
        model.predict_interval(None, items, ratings=sent), model.predict_interval(USER, items)
    )
    table = [("somebody", i, r) for i, r in sent.items()]
    many = model.recommend_many(ratings=table, n=5)
    assert many.items.tolist() == model.recommend_many([USER], n=5).items.tolist()
    assert many.users.tolist() == ["somebody"]


@pytest.mark.parametrize("user", [None, "somebody", USER])
def test_several_questions_of_ratings_that_are_folded_in_once(model, user):
    sent = dict.fromkeys(unrated(USER)[:3], 2.0)
    items, folded = unrated(USER, 9), folded_in(model, user, sent)
    assert folded.recommend(user, 4) == model.recommend(user, 4, ratings=sent)
    for ask in ("predict", "predict_proba", "predict_interval"):
        found = getattr(model, ask)(user, items, ratings=sent)
        assert np.array_equal(getattr(folded, ask)(user, items), found)
    found, same = folded.explain(user, items[5]), model.explain(user, items[5], ratings=sent)
    assert np.array_equal(found.shares, same.shares)
    assert folded.report_ is model.report_
    assert model.recommend(USER, 4) != folded.recommend(user, 4)
    folded = folded_in(model, user, {})
    assert (folded._fitted().left_out, model._fitted().left_out) == (False, False)


def test_what_is_sent_counts_beside_what_is_known(model):
    """A known user with some ratings sent is one with all of them; the last of two counts."""
    sent = ratings_of(USER)
    some = dict(list(sent.items())[:4])
    items = unrated(USER)
    left = {i: r for i, r in sent.items() if i not in some}
    assert np.array_equal(
        model.predict(None, items, ratings=list(left.items()) + list(some.items())),
        model.predict(USER, items),
    )
    other = {item: 6 - rating for item, rating in some.items()}
    assert np.array_equal(
        model.predict(USER, items, ratings=other), model.predict(None, items, ratings=sent | other)
    )
    assert not np.array_equal(model.predict(USER, items, ratings=other), model.predict(USER, items))


def test_of_two_ratings_sent_for_an_item_the_last_counts(model):
    one, other, *items = unrated(USER)
    sent = [(one, 1), (other, 2), (one, 5), (other, 4), (other, 3)]
    for user in (None, USER):
        assert np.array_equal(
            model.predict(user, items, ratings=sent),
            model.predict(user, items, ratings={other: 3, one: 5}),
        )


def test_the_model_stays_as_it_is(model):
    items = unrated(USER)
    before, ids = model.predict(USER, items, return_std=True), len(model.user_ids_)
    model.recommend(ratings={items[0]: 5})
    model.recommend_many(ratings=[("ann", items[0], 5)])
    assert np.array_equal(model.predict(USER, items, return_std=True), before)
    assert len(model.user_ids_) == ids


def test_many_senders_are_answered_as_each_alone(model):
    items, users = stars().item_ids.ids, stars().user_ids.ids[:20]
    rng = np.random.default_rng(0)
    sent = [(u, int(i), int(rng.integers(1, 6))) for u in users for i in rng.choice(items, 6)]
    table = Ratings(*map(list, zip(*sent, strict=True)))
    asked = unrated(USER, 9)
    pairs = np.repeat(users, len(asked)), np.tile(asked, len(users))
    mean, std = model.predict(*pairs, ratings=table, return_std=True)
    many = model.recommend_many(ratings=table, n=3)
    for k, user in enumerate(users[:6].tolist()):
        own = [(i, r) for u, i, r in zip(table.users, table.items, table.rating, strict=True)
               if u == user]  # fmt: skip
        alone = model.predict(user, asked, ratings=own, return_std=True)
        some = slice(k * len(asked), (k + 1) * len(asked))
        assert np.array_equal((mean[some], std[some]), alone)
        best = [found.item for found in model.recommend(user, 3, ratings=own)]
        assert many.items[k].tolist() == best


def test_a_rating_moves_predictions_towards_it_and_narrows_them(model):
    item = stars().item_ids.ids[0]
    for rating, sign in ((5, 1), (1, -1)):
        sent = dict.fromkeys(stars().item_ids.ids[1:21].tolist(), rating)
        with pytest.warns(DataWarning, match="is not in the training data"):
            nobody = model.predict("nobody", item, return_std=True)
        mean, std = model.predict(None, item, ratings=sent, return_std=True)
        assert sign * (mean - nobody[0]) > 0
        assert std < nobody[1]


@pytest.mark.parametrize("keep", ["users", "both"])
def test_whatever_was_kept_new_users_are_answered(keep, model):
    sampler = Gibbs(epochs=16)
    other = BayesianMF(4, sampler=sampler, keep=keep, noise_by="item", random_state=0)
    other.fit(stars())
    sent, items = ratings_of(USER), unrated(USER)
    found = other.predict(None, items, ratings=sent, return_std=True)
    wanted = model.predict(None, items, ratings=sent, return_std=True)
    if keep == "both":  # the same draws of items
        assert np.array_equal(found, wanted)
    assert np.allclose(found, wanted, atol=0.25)
    for policy in ("mean", "ucb", "lcb", "thompson"):
        assert len(other.recommend(ratings=sent, n=4, policy=policy, random_state=0)) == 4


@pytest.mark.parametrize("noise_by", ["user", "both"])
def test_a_new_user_has_a_precision_of_their_own(noise_by):
    """Drawn, given the ratings sent: who sends all of a known user's ratings is near that user.

    Within .05 stars and 5% of the deviation, over some 150 draws; and not the same.
    """
    sampler = Gibbs(epochs=90, burn_in=10, n_chains=2)
    model = BayesianMF(
        4, sampler=sampler, noise_by=noise_by, max_draws=200, random_state=0
    ).fit(stars())  # fmt: skip
    for user in (USER, int(stars().user_ids.ids[11])):
        items, sent = unrated(user, 20), ratings_of(user)
        mean, std = model.predict(user, items, return_std=True)
        new_mean, new_std = model.predict(None, items, ratings=sent, return_std=True)
        assert np.abs(new_mean - mean).max() < 0.05
        assert np.abs(new_std / std - 1).max() < 0.05
        assert not np.array_equal(std, new_std)
        again = model.predict(["a", "b"], items[:2], ratings=[("a", i, r) for i, r in sent.items()])
        assert again[0] == new_mean[0]  # whoever else is asked for


def test_mini_batch_models_fold_in():
    model = BayesianMF(4, sampler=SGLD(epochs=20), random_state=0).fit(stars())
    items = unrated(USER)
    # A new user's noise is drawn anew, so not to the last digit: the spread of a draw is .3.
    np.testing.assert_allclose(
        model.predict(None, items, ratings=ratings_of(USER)), model.predict(USER, items), atol=0.05
    )


# -- asking ---------------------------------------------------------------------------------------


def test_candidates_and_exclusions(model):
    items = unrated(USER, 12)
    chosen = model.recommend(USER, 20, items=items, exclude=items[:2])
    assert sorted(found.item for found in chosen) == sorted(items[2:])
    everything = {found.item: found for found in model.recommend(USER, 60)}
    assert all(everything[found.item] == found for found in chosen)
    many = model.recommend_many([USER, USER + 1], 4, items=items)
    assert many.items[0].tolist() == [f.item for f in model.recommend(USER, 4, items=items)]
    with pytest.warns(DataWarning, match="1 of the 2 ids in items is not in the training data"):
        model.recommend(USER, items=[items[0], 10**9])


def test_unknown_items_and_odd_scales_are_told(model):
    item = stars().item_ids.ids[0]
    with pytest.warns(DataWarning, match="1 of the 2 ratings sent is of items"):
        found = model.predict(None, [item], ratings={item: 4, 10**9: 5})
    assert found == model.predict(None, [item], ratings={item: 4})
    with pytest.warns(DataWarning, match="lie outside 1 to 5"):
        model.recommend(ratings={item: 8})


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.recommend(), "say for whom"),
        (lambda m: m.predict(None, [1]), "say for whom"),
        (
            lambda m: m.recommend(ratings={1: "five"}),
            "a rating must be a finite number, not 'five'",
        ),
        (lambda m: m.recommend(ratings={1: float("nan")}), "a rating must be a finite number"),
        (lambda m: m.recommend(ratings={1: [5, 4]}), "a rating must be a finite number"),
        (lambda m: m.recommend(ratings={"item": [1], "rating": [5]}), "send ratings as"),
        (lambda m: m.recommend(ratings={1: 1e300}), "must be a finite number"),
        (lambda m: m.recommend_many(ratings=[("a", 1, 1e30)]), "of another scale"),
        (lambda m: m.recommend(ratings={1: 1e39}), "a rating must be a finite number"),
        (lambda m: m.recommend(ratings={1: 10**400}), "a rating must be a finite number"),
        (lambda m: m.recommend(ratings={1: [4.0, 3.0]}), "a rating must be a finite number"),
        (lambda m: m.recommend(ratings={1: 1e30}), "is of another scale"),
        (lambda m: m.recommend(ratings=[("a", 1, 5.0), ("b", 2, 3.0)]), "for recommend_many"),
        (lambda m: m.recommend_many(ratings={1: 5}), "need to say whose they are"),
        (lambda m: m.predict([1, 2], [1, 2], ratings={1: 5}), "need to say whose they are"),
        (lambda m: m.recommend(USER, policy="best"), "policy"),
        (lambda m: m.explain(USER, "nothing"), "item 'nothing' is not in the training data"),
        (lambda m: m.explain(item=1), "say for whom"),
        (lambda m: m.explain(USER, 1, draw=10**6), "draw must be a whole number"),
        (lambda m: m.similar_items("x"), "item 'x' is not in the training data"),
        (lambda m: m.similar_users([1, 2]), "give the id of one user"),
        (
            lambda m: m.rows(users=np.array([USER, 10**6])),
            "user 1000000 is not in",
        ),
        (lambda m: m.rows(), "give one of them"),
        (lambda m: m.rows(items=[1], users=[1]), "give one of them"),
    ],
)
def test_mistakes_get_a_sentence(model, ask, words):
    with pytest.raises(InputError, match=words):
        ask(model)


def test_nothing_sent_is_the_prior(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        items = unrated(USER)
        nobody = model.predict("nobody", items, return_std=True)
        assert np.array_equal(model.predict(None, items, ratings={}, return_std=True), nobody)


@pytest.mark.parametrize("policy", ["mean", "ucb", "lcb", "thompson"])
@pytest.mark.parametrize("users", [1, 10])
def test_nothing_to_choose_from_is_no_recommendation(model, policy, users):
    asked = stars().user_ids.ids[:users]
    assert model.recommend(USER, items=[], policy=policy) == []
    assert model.recommend_many(asked, items=[], policy=policy).items.shape == (users, 0)
    every = model.item_ids_.ids
    assert model.recommend_many(asked, exclude=every, policy=policy).items.shape == (users, 0)


@pytest.mark.parametrize("sent", [{}, {10_000: 5.0}])
def test_nothing_of_use_sent_is_told_of_without_an_id(model, sent):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.recommend(ratings=sent)
    assert any("no rating was sent that can be used" in str(one.message) for one in told)
    assert not any("user 0" in str(one.message) for one in told)


def test_only_who_has_sent_ratings_is_answered(model):
    """Part of a table still knows the ids of the whole."""
    some = stars().take(stars().users == USER)
    assert model.recommend_many(ratings=some, n=2).users.tolist() == [USER]
