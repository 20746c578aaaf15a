"""Explanations add up and say what a rating did; neighbours and vectors are those of the draws."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf import BayesianMF, DataWarning, Gibbs
from problems import stars

USER = 1


@pytest.fixture(scope="module", params=["gamma", "wishart", "wishart-bias"])
def model(request) -> BayesianMF:
    sampler = Gibbs(epochs=12, n_chains=2)
    # By item: weights of ratings, and a row that is linear in them.
    return BayesianMF(4, sampler=sampler, prior=request.param, noise_by="item", random_state=0).fit(
        stars()
    )


def own() -> dict[int, float]:
    mine = stars().take(stars().users == USER)
    return dict(zip(mine.items.tolist(), mine.rating.tolist(), strict=True))


def item() -> int:
    return next(i for i in stars().item_ids.ids.tolist() if i not in own())


def test_shares_add_up_to_the_prediction(model):
    for asked in (item(), next(iter(own()))):  # unrated and rated
        found = model.explain(USER, asked)
        assert abs(found.rest + found.shares.sum() - found.prediction) < 1e-6
        posterior = model.posterior_
        row, column = model.user_ids_.index(USER), model.item_ids_.index(asked)
        mean = next(posterior.chunks(np.array([row]), np.array([column]))).mean
        assert found.prediction == pytest.approx(mean[0], abs=1e-5)
        assert dict(zip(found.items.tolist(), found.ratings.tolist(), strict=True)) == own()


@pytest.mark.parametrize("noise_by", ["user", "both", None])
def test_shares_add_up_whoever_has_noise(noise_by):
    sampler = Gibbs(epochs=8, burn_in=4)
    model = BayesianMF(4, sampler=sampler, noise_by=noise_by, random_state=0).fit(stars())
    test_shares_add_up_to_the_prediction(model)
    sent = own()
    found = model.explain(item=item(), ratings=sent)
    assert abs(found.rest + found.shares.sum() - found.prediction) < 1e-6
    told = model.predict(None, [item()], ratings=sent)[0]
    assert found.prediction == pytest.approx(told, abs=1e-4)


def test_the_rest_is_what_somebody_nobody_knows_is_told(model):
    """However many ratings this person has; and a rating that everybody gives adds nothing."""
    one, sent = next(iter(own())), own()
    with pytest.warns(DataWarning):
        general = model.explain(item=one, ratings={}, draw=0).prediction
    # Of an item that the person has rated, where both take the item's row of the draw.
    found = model.explain(item=one, ratings=sent, draw=0)
    assert found.rest == pytest.approx(general, abs=1e-6)
    shares = model.explain(item=item(), ratings={one: general}, draw=0).shares
    assert shares == pytest.approx([0.0], abs=1e-6)
    assert abs(model.explain(item=item(), ratings={one: general + 1}, draw=0).shares[0]) > 1e-4


def test_a_share_is_linear_in_its_rating(model):
    """Half a star more changes the share of that rating, and nothing else."""
    sent = own()
    one = next(iter(sent))
    plain, more = (
        model.explain(item=item(), ratings=sent | {one: value}, draw=0)
        for value in (sent[one], sent[one] + 0.5)
    )
    share = {name: dict(zip(e.items.tolist(), e.shares.tolist(), strict=True))
             for name, e in (("plain", plain), ("more", more))}  # fmt: skip
    moved = share["more"][one] - share["plain"][one]
    assert more.prediction - plain.prediction == pytest.approx(moved, abs=1e-9)
    for other in sent:
        if other != one:
            assert share["more"][other] == pytest.approx(share["plain"][other], abs=1e-9)
    assert more.rest == pytest.approx(plain.rest, abs=1e-9)


def test_an_effect_is_what_taking_the_rating_away_does(model):
    sent = own()
    for draw in (0, -1):
        found = model.explain(item=item(), ratings=sent, draw=draw)
        for k in (0, 1, len(found) - 1):
            left = {i: r for i, r in sent.items() if i != found.items[k]}
            without = model.explain(item=item(), ratings=left, draw=draw).prediction
            assert found.prediction - without == pytest.approx(found.effects[k], abs=1e-6)


def test_the_mean_of_a_draw_is_the_row_worked_out_again(model):
    """The kernel's row gives the prediction that the explanation, in double precision, has."""
    user = model.rows(users=[USER], draw=2)
    columns = model.rows(items=stars().item_ids.ids, draw=2)
    mine = model.item_ids_.lookup(list(own()))
    for k in mine[:3]:  # rated: the item's own row counts
        told = model.explain(USER, int(stars().item_ids.ids[k]), draw=2)
        assert (user @ columns[k])[0] == pytest.approx(told.prediction, abs=1e-4)


def test_neighbours_are_correlations_over_people(model):
    """Against 40,000 people drawn from the prior of each draw; z below 5, some 1e-5 by chance."""
    posterior, D = model.posterior_, 4
    found = model.similar_items(item(), n=60)
    assert item() not in found.ids.tolist()
    assert (np.diff(found.similarity) <= 0).all()
    draws, rng = posterior.draws, np.random.default_rng(0)
    total = np.zeros(draws.items.shape[1])
    n = 40_000
    for t in range(len(draws)):
        Lambda = draws.user_Lambda[t]
        full = Lambda if Lambda.ndim == 2 else np.diag(Lambda)
        people = rng.multivariate_normal(np.zeros(D), np.linalg.inv(full)[:D, :D], n)
        taste = people @ draws.items[t][:, :D].T
        total += np.corrcoef(taste.T)[model.item_ids_.index(item())]
    wanted = total / len(draws)
    rows = model.item_ids_.lookup(found.ids)
    assert np.abs(found.similarity - wanted[rows]).max() < 5 / np.sqrt(n * len(draws))


@pytest.mark.parametrize("keep", ["items", "users", "both"])
def test_similar_users_of_kept_rows_and_of_rows_worked_out(keep):
    """Correlations over items that follow their prior, by the users' rows under each draw."""
    sampler = Gibbs(epochs=12, burn_in=4)
    model = BayesianMF(4, sampler=sampler, keep=keep, random_state=0).fit(stars())
    found, draws, D = model.similar_users(USER, n=79), model.posterior_.draws, 4
    assert sorted([USER, *found.ids.tolist()]) == model.user_ids_.ids.tolist()
    assert (np.diff(found.similarity) <= 0).all()
    wanted = []
    for t in range(len(draws)):
        rows = (
            model.rows(users=model.user_ids_.ids, draw=t)
            if keep == "items"
            else draws.user_means[t]
        )
        rows, Lambda = rows[:, :D].astype(float), draws.item_Lambda[t]
        full = Lambda if Lambda.ndim == 2 else np.diag(Lambda)
        products = rows @ np.linalg.inv(full)[:D, :D] @ rows.T
        size = np.sqrt(np.diag(products))
        wanted.append((products / np.outer(size, size))[model.user_ids_.index(USER)])
    others = model.user_ids_.lookup(found.ids)
    np.testing.assert_allclose(found.similarity, np.mean(wanted, 0)[others], atol=1e-5)
    np.testing.assert_allclose(found.std, np.std(wanted, 0)[others], atol=1e-5)


def test_tables_and_texts(model):
    found = model.explain(USER, item())
    names = ["item", "rating", "share", "share_std", "effect", "effect_std"]
    assert found.to_polars().columns == names
    assert repr(found).startswith("Explanation(")
    assert "rated" in repr(found)
    assert model.similar_items(item()).to_pandas().columns.tolist() == ["id", "similarity", "std"]
    assert "Neighbours(" in repr(model.similar_items(item()))
    assert (np.diff(np.abs(found.shares)) <= 1e-12).all()


def test_who_is_not_known_has_nothing_to_explain(model):
    for user, sent in (("nobody", None), (None, {}), ("nobody", [("other", item(), 5.0)])):
        with pytest.warns(DataWarning, match="no rating of"):
            assert len(model.explain(user, item(), ratings=sent)) == 0
