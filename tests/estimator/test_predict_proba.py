"""`predict_proba`, `predict_levels` and scores of stars, by brute force and planted truth."""

import json

import numpy as np
import pytest

from bayesmf import BayesianMF, DataWarning, Gibbs, InputError, NotFittedError, Synthetic
from bayesmf.posterior.levels import levels_of

pytestmark = pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
SAMPLER = Gibbs(epochs=14, burn_in=6, n_chains=1)


@pytest.fixture(scope="module")
def data():
    return Synthetic(80, 50, 1900, stars=True, random_state=3).ratings().split(0.2, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return BayesianMF(3, sampler=SAMPLER, random_state=0).fit(data[0])


# -- answers --------------------------------------------------------------------------------------


def test_shapes_and_single_pairs(model):
    many = model.predict_proba([1, 2, 3], [4, 5, 6])
    assert many.shape == (3, 5)
    np.testing.assert_array_equal(model.predict_proba(2, 5), many[1])
    np.testing.assert_array_equal(model.predict_proba([(1, 4), (2, 5), (3, 6)]), many)
    assert model.predict_proba([], []).shape == (0, 5)
    assert model.rating_levels_.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("values", [(0, 1), (-1, 0, 1)])
def test_zero_has_no_sign(values):
    """Levels come back from centred ratings, and zero from below must not be -0: "p_-0"."""
    rng = np.random.default_rng(0)
    user, item = (part.ravel() for part in np.mgrid[:40, :20])
    rating = rng.choice(values, len(user), p=[0.5, *[0.5 / (len(values) - 1)] * (len(values) - 1)])
    model = BayesianMF(2, sampler=SAMPLER, random_state=0).fit((user, item, rating))
    assert [str(level) for level in model.rating_levels_.tolist()] == [f"{v}.0" for v in values]


def test_ratings_without_levels_have_no_such_attribute():
    """`hasattr` and `inspect.getmembers` ask every attribute."""
    model = BayesianMF(2, sampler=SAMPLER, random_state=0)
    model.fit(Synthetic(60, 40, 1200, random_state=2).ratings())
    assert not hasattr(model, "rating_levels_")
    with pytest.raises(InputError, match="take more than 256"):
        _ = model.rating_levels_


def test_warnings_name_what_there_is(model):
    """`return_known` is an argument of predict alone."""
    for ask in (model.predict_proba, model.predict_levels, model.predict_interval):
        with pytest.warns(DataWarning, match=r"predict\(\.\.\., return_known=True\) returns which"):
            ask([901], [1])


def test_new_ratings_count_and_edges_stay(model):
    """Somebody who likes everything is likelier to give five stars, by the model's own edges."""
    liked = dict.fromkeys(range(1, 9), 5)
    with pytest.warns(DataWarning):
        nobody = model.predict_proba("nobody", [20, 21])
    fan = model.predict_proba(None, [20, 21], ratings=liked)
    assert (fan[:, 4] > nobody[:, 4]).all()
    known = model.predict_proba(1, [20, 21], ratings=liked)
    assert not np.allclose(known, model.predict_proba(1, [20, 21]))
    low, high, held = model.predict_levels(None, [20, 21], ratings=liked)
    for p, a, b, share in zip(fan, low, high, held, strict=True):
        assert share == pytest.approx(p[int(a) - 1 : int(b)].sum())


def test_rows_that_nobody_has_seen(model):
    with pytest.warns(DataWarning, match="not in the training data|prior"):
        found = model.predict_proba([901, 1, 901], [1, 902, 902])
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert (found > 0.001).all()  # little is known of them


def test_runs_hold_what_was_asked_for(model, data):
    test = data[1]
    proba = model.predict_proba(test)
    for level in (0.3, 0.9):
        low, high, held = model.predict_levels(test, level=level)
        assert (held >= level - 1e-12).all() and (low <= high).all()
        assert set(low) | set(high) <= set(model.rating_levels_)
        inside = (model.rating_levels_ >= low[:, None]) & (model.rating_levels_ <= high[:, None])
        np.testing.assert_allclose((proba * inside).sum(1), held)
    one = model.predict_levels(1, 2, 0.8)
    assert all(isinstance(x, float) for x in one)


def test_ratings_without_levels_are_refused_in_a_sentence():
    model = BayesianMF(2, sampler=SAMPLER, random_state=0)
    with pytest.raises(NotFittedError):
        model.predict_proba(1, 2)
    train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
    model.fit(train)
    for ask in (model.predict_proba, model.predict_levels):
        with pytest.raises(InputError, match="take more than 256: use predict_interval"):
            ask(1, 2)
    with pytest.raises(InputError, match="rating_levels_ is for ratings that take few values"):
        _ = model.rating_levels_
    scores = model.evaluate(test)
    assert scores.log_loss is scores.rps is scores.level_coverage is None
    assert "log_loss" not in repr(scores)
    assert json.loads(json.dumps(scores.as_dict()))["log_loss"] is None


@pytest.mark.parametrize("level", [0, 1, "0.9", float("nan")])
def test_levels_that_are_none(model, level):
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        model.predict_levels(1, 2, level)


# -- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [True, False])
def test_saved_models_answer_the_same(model, tmp_path, users):
    model.save(tmp_path / "m", users=users)
    loaded = BayesianMF.load(tmp_path / "m")
    assert levels_of(loaded.posterior_) == levels_of(model.posterior_)
    sent = {1: 5.0, 2: 3.0}
    np.testing.assert_array_equal(
        loaded.predict_proba(None, [4, 5], ratings=sent),
        model.predict_proba(None, [4, 5], ratings=sent),
    )
    loaded.save(tmp_path / "again", users=False)
    again = BayesianMF.load(tmp_path / "again")
    np.testing.assert_array_equal(again.rating_levels_, model.rating_levels_)


@pytest.mark.parametrize(
    ("levels", "edges"),
    [([1, 2, 3], [1.5]), ([2, 1], [1.5]), ([1, 2, 3], [2.5, 1.5]), ([], []), ([1, 1e31], [2])],
)
def test_levels_that_cannot_be(levels, edges):
    from bayesmf.model.contents import check_levels

    check_levels([1.0, 2.0, 3.0], [1.5, 1.5])
    with pytest.raises(ValueError, match=r"meta\.levels"):
        check_levels(levels, edges)


# -- scores ---------------------------------------------------------------------------------------


def test_scores_by_brute_force(model, data):
    test = data[1]
    scores, proba = model.evaluate(test), model.predict_proba(test)
    given = test.rating.astype(int) - 1
    assert scores.log_loss == pytest.approx(
        -np.mean(np.log(proba[np.arange(len(test)), given])), abs=1e-5
    )
    below, came = np.cumsum(proba, axis=1)[:, :4], given[:, None] <= np.arange(4)
    rps = ((below - came) ** 2).sum(1)
    assert scores.rps == pytest.approx(np.mean(rps), abs=1e-5)
    for level in (50, 90):
        low, high, held = model.predict_levels(test, level=level / 100)
        inside = np.mean((low <= test.rating) & (test.rating <= high))
        assert scores.level_coverage[str(level)] == pytest.approx(inside, abs=2 / len(test))
        assert scores.level_promised[str(level)] == pytest.approx(held.mean(), abs=1e-3)
    assert model.calibration(test).overall == scores
    table = scores.to_polars()
    assert {"log_loss", "rps", "level_coverage_90", "level_promised_90"} <= set(table.columns)


def test_a_rating_between_levels_has_no_log_loss(model, data):
    test = data[1].take(range(20))
    assert model.evaluate(test).log_loss is not None
    rating = np.append(test.rating[:-1], 3.5)
    assert model.evaluate((test.users, test.items, rating)).log_loss is None


# -- planted truth --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moody():
    """Users with noise of their own, from .3 to 1.7 and more: real ratings, train and test."""
    rng = np.random.default_rng(7)
    plan = Synthetic(300, 100, 18_000, noise=1e-3, n_factors=2, random_state=5)
    ratings = plan.ratings()
    noise = 0.8 * np.exp(0.5 * rng.standard_normal(301))[ratings.user_rows]
    rating = ratings.rating + noise * rng.standard_normal(len(ratings))
    train = rng.random(len(ratings)) < 0.7
    columns = ratings.users, ratings.items, rating
    return tuple(tuple(c[part] for c in columns) for part in (train, ~train))


def fitted(train, noise_by):
    sampler = Gibbs(epochs=40, burn_in=15, n_chains=1)
    return BayesianMF(2, sampler=sampler, noise_by=noise_by, random_state=0).fit(train)


def test_calibration_sees_noise_by_person(moody):
    """One noise for all: 90% intervals of the steadiest fifth hold far too much, of the moodiest
    too little: more than for any number of training ratings.
    """
    train, test = moody
    found = fitted(train, None).calibration(test)
    wrong = {gap.group.side for gap in found.gaps() if gap.counts and gap.group is not None}
    assert "error" in wrong
    by_error = [g.coverage["90"] for g in found.groups if g.side == "error"]
    assert by_error[0] > 0.97 and by_error[-1] < 0.80
    assert found.worst.group.side == "error"
    assert "with training errors of " in found.verdict


def test_noise_by_person_is_right_for_every_fifth(moody):
    train, test = moody
    found = fitted(train, "user").calibration(test)
    assert found.calibrated, found.verdict
    by_std = [g for g in found.groups if g.side == "std"]
    assert [g.name for g in by_std] == ["lowest", "second", "middle", "fourth", "highest"]
    assert by_std[-1].rmse > 2.5 * by_std[0].rmse


def test_probabilities_of_stars_are_reliable(moody):
    """Of all levels that were given 20% to 30%, 20% to 30% came: twelve shares within 4.5 standard
    errors of what was promised, or half a point.
    """
    (users, items, rating), (test_users, test_items, came) = moody
    model = fitted((users, items, np.clip(np.round(rating), 1, 5)), "user")
    came = np.clip(np.round(came), 1, 5)
    proba = model.predict_proba(test_users, test_items)
    hit = came[:, None] == model.rating_levels_
    for lo in np.arange(0, 0.6, 0.05):
        mine = (proba >= lo) & (proba < lo + 0.05)
        error = np.sqrt(proba[mine].mean() / mine.sum())
        assert abs(hit[mine].mean() - proba[mine].mean()) < max(4.5 * error, 0.005), lo
    scores = model.evaluate((test_users, test_items, came))
    for level in ("50", "80", "90", "95"):
        assert abs(scores.level_coverage[level] - scores.level_promised[level]) < 0.02
    shares = [np.mean(came == level) for level in model.rating_levels_]
    assert scores.log_loss < -sum(p * np.log(p) for p in shares) - 0.05
