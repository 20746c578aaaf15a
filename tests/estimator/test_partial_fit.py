"""Ratings that are added to a fitted model."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import SGD, SGLD, BayesianMF, DataWarning, Gibbs, InputError, Ratings
from bayesmf.estimator import update
from bayesmf.model.priors import WishartPrior
from bayesmf.run.driver import start_run
from bayesmf.run.settings import FitSettings
from problems import planted

D = 3


def _ratings(**kind):
    return Ratings(*planted(**kind))


@pytest.fixture(scope="module")
def halves():
    """Ratings to fit, ratings that come later (5%, with users and items of their own), and a test
    set."""
    train, test = _ratings(n_ratings=5000).split(0.2, random_state=0)
    new = np.isin(train.user_rows, [3, 50, 119]) | np.isin(train.item_rows, [0, 17, 89])
    new |= np.random.default_rng(0).random(len(train)) < 0.02
    return train.take(~new).compact(), train.take(new).compact(), test, train


@pytest.fixture(scope="module")
def fitted(halves):
    """A fitted model, as what `fit` found: `_model` makes a model of it."""
    return BayesianMF(D, sampler=Gibbs(epochs=40, n_chains=2), random_state=0).fit(halves[0])


def _model(fitted, **params):
    model = BayesianMF(**(fitted.get_params(deep=False) | params))
    model._found = fitted._found
    return model


def _rmse(model, ratings):
    return float(np.sqrt(np.mean((model.predict(ratings) - ratings.rating) ** 2)))


def _same(one, other):
    a, b = one.posterior_.draws.arrays(), other.posterior_.draws.arrays()
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f") for name in a
    )


def test_hyper_parameters_are_saved_and_used_again(halves, tmp_path, monkeypatch):
    hyper = {"mu_0": 0.3, "kappa_0": 5.0, "nu_0": 9.0, "W_0": 0.5}
    model = BayesianMF(D, sampler=Gibbs(epochs=8), random_state=0, **hyper).fit(halves[0])
    model.save(tmp_path / "model")
    loaded, priors = BayesianMF.load(tmp_path / "model"), []
    assert {name: loaded.get_params()[name] for name in hyper} == hyper
    right = update.update_draws

    def update_draws(draws, added, settings, *more):
        priors.append(settings.prior)
        return right(draws, added, settings, *more)

    monkeypatch.setattr(update, "update_draws", update_draws)
    assert _same(model.partial_fit(halves[1]), loaded.partial_fit(halves[1]))
    assert priors == [WishartPrior(bias=True, **hyper)] * 2


@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
def test_it_predicts_as_a_fit_on_all_does(halves, fitted):
    first, more, test, train = halves
    model = _model(fitted).partial_fit(more)
    refit = _model(fitted).fit(train)
    new = test.take(first.item_ids.lookup(test.items) < 0)
    assert len(new) > 10
    before, after, best = (_rmse(m, test) for m in (fitted, model, refit))
    assert after < 0.98 * before and after < 1.01 * best
    assert _rmse(model, new) < 0.8 * _rmse(fitted, new)
    assert _rmse(model, new) < 1.1 * _rmse(refit, new)
    # Intervals hold as before.
    low, high = model.predict_interval(test.users, test.items, level=0.8)
    assert 0.75 < np.mean((low <= test.rating) & (test.rating <= high)) < 0.85


def test_new_users_and_items_are_known_and_ratings_are_there(halves, fitted):
    _, more, _, train = halves
    model = _model(fitted).partial_fit(more)
    assert list(model.user_ids_) == list(train.user_ids)
    assert list(model.item_ids_) == list(train.item_ids)
    report, was = model.report_, fitted.report_
    assert (report["ratings"], report["users"], report["items"]) == (len(train), 120, 90)
    assert report["updates"] == 1 and "updates" not in was and report["draws"] == was["draws"]
    assert model.history_ is fitted.history_ and report["seconds"] == was["seconds"]
    user, item, value = model.posterior_.ratings.triples()
    p = model.posterior_
    found = {(u, j): p.center + p.scale * r for u, j, r in zip(user, item, value, strict=True)}
    told = zip(train.user_rows, train.item_rows, train.rating, strict=True)
    assert all(abs(found.pop((u, j)) - r) < 1e-4 for u, j, r in told) and not found
    draws = model.posterior_.draws
    assert draws.items.shape == (len(draws), 90, D + 1) and np.isfinite(draws.items).all()
    fresh = draws.missed == 0
    assert 0 < fresh.sum() < len(draws) and set(draws.missed[~fresh]) == {len(more)}


def test_a_rating_replaces_the_one_before(fitted):
    """And moves what the user is predicted, at once."""
    user, items = fitted.user_ids_[7], [fitted.item_ids_[j] for j in range(40)]
    low, high = (_model(fitted).partial_fit(([user] * 40, items, [r] * 40)) for r in (1.0, 6.0))
    assert low.report_["ratings"] == high.report_["ratings"]
    rated = fitted.posterior_.seen.rated(np.full(40, 7), np.arange(40)).sum()
    assert low.report_["ratings"] == fitted.report_["ratings"] + 40 - rated
    others = [fitted.item_ids_[j] for j in range(40, 87)]
    means = [model.predict([user] * 47, others).mean() for model in (low, fitted, high)]
    assert means[0] < means[1] < means[2] and means[2] - means[0] > 2


def test_range_and_values_widen(fitted):
    model = _model(fitted).partial_fit(([1000, 1001], [5, 6], [-9.0, 17.0]))
    assert (model.posterior_.low, model.posterior_.high) == (-9.0, 17.0)
    assert model.posterior_.center == fitted.posterior_.center


def test_the_same_bits_on_any_number_of_threads(halves, fitted):
    more = halves[1]
    one, two, again = (_model(fitted, n_workers=n).partial_fit(more) for n in (1, 2, 3))
    assert _same(one, two) and _same(one, again)
    assert not _same(one, fitted)
    # The next update has random numbers of its own.
    some = more.take([0, 1])
    assert not np.array_equal(
        one.partial_fit(some).posterior_.draws.items[-1],
        two.partial_fit(some).partial_fit(some).posterior_.draws.items[-1],
    )


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_model_as_it_was(error, halves, fitted, monkeypatch):
    model = _model(fitted)
    found, items = model._found, model.posterior_.draws.items.copy()
    monkeypatch.setattr(
        "bayesmf.run.update.draw_precisions", lambda *args, **more: (_ for _ in ()).throw(error)
    )
    with pytest.raises(error):
        model.partial_fit(halves[1])
    assert model._found is found and np.array_equal(model.posterior_.draws.items, items)


def test_a_model_that_was_not_fitted_is_fitted(halves):
    settings = {"sampler": Gibbs(epochs=4), "random_state": 0}
    one = BayesianMF(D, **settings).partial_fit(halves[0])
    assert _same(one, BayesianMF(D, **settings).fit(halves[0]))
    pairs = np.array([[1, 2], [1, 3], [2, 2]])
    assert BayesianMF(D, **settings).partial_fit(pairs, [1.0, 3.0, 2.0]).report_["ratings"] == 3


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"keep": "users"},
        {"keep": "both"},
        {"sampler": SGLD(epochs=30, n_chains=2)},
        {"sampler": Gibbs(epochs=40, joint=1), "prior": "gamma", "tau": 3.0},
        {"prior": "wishart"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
def test_other_settings(settings, halves):
    """Either side kept, other samplers and priors; without biases less is gained."""
    first, more, test, _ = halves
    given = {"sampler": Gibbs(epochs=40)} | settings
    model = BayesianMF(D, random_state=0, **given).fit(first)
    before = _rmse(model, test)
    shapes = {k: v.shape[2:] for k, v in model.posterior_.draws.arrays().items()}
    model.partial_fit(more)
    assert {**shapes, "missed": ()} == {
        k: v.shape[2:] for k, v in model.posterior_.draws.arrays().items()
    }
    least = 0.998 if settings.get("prior") == "wishart" else 0.99
    assert _rmse(model, test) < least * before
    if settings.get("tau"):
        assert np.allclose(model.posterior_.noise(), 1 / 3)


def test_many_updates_in_a_row(halves, fitted):
    _, more, test, train = halves
    model, order = _model(fitted), np.random.default_rng(0).permutation(len(more))
    for part in np.array_split(order, 8):
        model.partial_fit(more.take(part))
    refit = _model(fitted).fit(train)
    assert model.report_["ratings"] == len(train) and model.report_["updates"] == 8
    assert _rmse(model, test) < 1.01 * _rmse(refit, test)


@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
@pytest.mark.parametrize("keep", ["items", "users", "both"])
def test_new_rows_of_few_ratings_are_not_told_too_surely(keep):
    """Two ratings each, and a single new draw: it cannot tell how much is not known of them.

    Of ten runs with other seeds the ratio of spreads was .91 to 1.04; of rows that are no more than
    carried over, .57 to .68.
    """
    ratings = _ratings(n_ratings=5000)
    rows = ratings.user_rows if keep == "users" else ratings.item_rows
    new = np.flatnonzero(rows < 8)
    more = np.concatenate([new[rows[new] == j][:2] for j in range(8)])
    train = ratings.take(np.sort(np.append(np.flatnonzero(rows >= 8), more)))

    def settings(epochs):
        return {"sampler": Gibbs(epochs=epochs, n_chains=1), "keep": keep, "random_state": 0}

    model = BayesianMF(D, **settings(48)).fit(ratings.take(rows >= 8))
    model.partial_fit(ratings.take(more))
    assert (model.posterior_.draws.missed == 0).sum() == 1
    asked = ratings.take(np.setdiff1d(new, more))
    spreads = []
    for one in (model, BayesianMF(D, **settings(200)).fit(train)):
        std = one.predict(asked.users, asked.items, return_std=True)[1]
        spreads.append(np.sqrt(std**2 - np.mean(one.posterior_.noise())).mean())
    assert 0.8 < spreads[0] / spreads[1] < 1.2


def _told(model, asked):
    """Means, and spreads without the noise of ratings."""
    mean, std = model.predict(asked.users, asked.items, return_std=True)
    user = np.searchsorted(model.user_ids_, asked.users)
    item = np.searchsorted(model.item_ids_, asked.items)
    return mean, np.sqrt(std**2 - model.posterior_.noise_of(user, item))


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("share", [0.25, 0.6])
def test_new_ratings_that_contradict_old_ones_move_an_item(share, local, monkeypatch):
    """A share of one item's ratings are new, and all two lower: less than 1% of all ratings.

    Of the way to a refit, expected ratings went 1.02 to 1.04 with each of four seeds, and the ratio
    of spreads was .76 to .87: the law of precisions under a draw that stays has not seen such an
    item. Rows that are no more than carried over went .78 to 1.03, with 1.4 to 2.0. Where old draws
    keep the row of an item with a quarter of new ratings, .05.
    """
    if not local:  # on large data rows are no more than carried over
        monkeypatch.setattr("bayesmf.run.update.LEAST_LOCAL", 0)
        monkeypatch.setattr("bayesmf.run.update.LOCAL_COST", 0)
    ratings = _ratings(n_ratings=5000)
    item = int(np.argmax(np.bincount(ratings.item_rows)))
    own = np.flatnonzero(ratings.item_rows == item)
    new, values = own[: round(share * len(own))], ratings.rating.copy()
    values[new] -= 2.0
    ratings = Ratings(ratings.users, ratings.items, values)
    settings = {"sampler": Gibbs(epochs=60, n_chains=1), "random_state": 0}
    old = np.setdiff1d(np.arange(len(ratings)), new)
    model, refit = (BayesianMF(D, **settings).fit(r) for r in (ratings.take(old), ratings))
    users = np.setdiff1d(ratings.users, ratings.users[own])
    asked = Ratings(users, np.full(len(users), ratings.items[own[0]]), np.zeros(len(users)))
    (before, _), (wanted, spread) = _told(model, asked), _told(refit, asked)
    after, own_spread = _told(model.partial_fit(ratings.take(new)), asked)
    way = np.mean(after - before) / np.mean(wanted - before)
    ratio = own_spread.mean() / spread.mean()
    assert (0.95 < way < 1.06 and 0.7 < ratio < 1.2) if local else (way > 0.7 and 0.8 < ratio < 2)


@pytest.mark.parametrize(("keep", "by"), [("both", "user"), ("items", "item")])
def test_precisions_of_new_rows_come_from_the_law_of_all(keep, by):
    """Everybody has the same noise: a new row of two ratings has it too, under every draw.

    The spread of the logarithm was .17 to .27 with each of eight seeds; with shape and rate drawn
    given the new row alone, 1.1 and more.
    """
    rng = np.random.default_rng(0)
    users, items = np.repeat(np.arange(200), 30), np.tile(np.arange(60), 100)
    model = BayesianMF(
        1, sampler=Gibbs(epochs=60, burn_in=20), noise_by=by, keep=keep, random_state=0
    ).fit((users, items, rng.normal(size=len(users))))
    old, new = np.array([0, 1]), np.array([900, 900])
    pairs = (new, old) if by == "user" else (old, new)
    draws = model.partial_fit((*pairs, np.array([0.5, -0.5]))).posterior_.draws
    found = getattr(draws, f"{by}_tau")[draws.missed > 0, -1]
    assert len(found) > 30 and np.log(found).std() < 0.5


def test_the_posterior_is_that_of_all_ratings():
    """Nearly everything is new: means and spreads agree with those of a run on all ratings.

    Over 300 pairs that are not rated, the median difference of means was .015 to .018 of the spread
    of a new rating, and the median ratio of spreads .992 to 1.001, with each of eight seeds.
    """
    ratings = _ratings(n_users=25, n_items=20, n_ratings=200, d=1)
    settings = {"sampler": Gibbs(epochs=400, burn_in=50), "tau": 4.0, "prior": "gamma"}
    model = BayesianMF(2, random_state=0, **settings).fit(ratings.take(np.arange(12)))
    with pytest.warns(DataWarning, match="94% of the ratings are new"):
        model.partial_fit(ratings.take(np.arange(12, 200)))
    posterior = model.posterior_
    assert (posterior.draws.missed == 0).all()
    # Units stay those of the first ratings, and the prior with them.
    wanted = FitSettings(2, random_state=1, keep="items", **settings)
    done = start_run(posterior.ratings, wanted, scale=posterior.scale)
    other = replace(posterior, draws=done.draws)
    user, item = (part.ravel() for part in np.meshgrid(np.arange(25), np.arange(20)))
    rated = posterior.seen.rated(user, item)
    pairs = user[~rated], item[~rated]
    (mean, std), (other_mean, other_std) = (p.mean_std(*pairs) for p in (posterior, other))
    assert np.median(np.abs(mean - other_mean) / std) < 0.03
    assert abs(np.median(std / other_std) - 1) < 0.03


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ((["ann"], [5], [3.0]), "the user id 'ann' is text"),
        (([1000], [5], [np.nan]), "rating"),
        (([1000], [5], [1e9]), "of another scale"),
        (([], [], []), "no ratings|empty"),
        ("nowhere.csv", "nowhere.csv"),
        (7, "cannot be taken"),
    ],
    ids=str,
)
def test_bad_ratings_are_refused_in_a_sentence(more, sentence, fitted):
    model = _model(fitted)
    with pytest.raises(InputError, match=sentence):
        model.partial_fit(more)
    assert model._found is fitted._found


def test_points_have_no_draws_to_go_on_from(halves):
    model = BayesianMF(D, sampler=SGD(epochs=3), random_state=0).fit(halves[0])
    with pytest.raises(InputError, match="SGD has no draws"):
        model.partial_fit(halves[1])


def test_ratings_beyond_those_learnt_from_are_told_of(fitted, halves):
    model, first = _model(fitted), halves[0]
    far = float(first.rating.max()) + 15
    with pytest.warns(DataWarning, match="are they on the same scale"):
        model.partial_fit([(first.users[0], first.items[0], far)])


def test_nothing_to_add_and_other_scales(halves, fitted):
    with pytest.raises(InputError, match="no ratings to add"):
        _model(fitted).partial_fit(halves[0].take([]))
    far = float(halves[0].rating.max()) + 20
    with pytest.warns(DataWarning, match="ratings, such as .* lie outside"):
        _model(fitted).partial_fit(([1], [2], [far]))
