"""The lowest error in reach: against plain twins, exact integrals, and a model that learns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import norm

import experiments.oracle
from bayesmf import BayesianMF, Gibbs, Synthetic
from bayesmf.errors import InputError
from experiments.oracle import lists_by_user, oracle_rmse
from experiments.oracle_kernels import expected_star, pull_of_star

PLAIN = Synthetic(150, 100, 4000, n_factors=3, random_state=2)
STARS = Synthetic(150, 100, 4000, n_factors=3, random_state=2, stars=True)
SMALL = Synthetic(40, 30, 400, n_factors=2, random_state=2, stars=True)


def ask(plan, train, test, **changes):
    lists = lists_by_user(train.user_rows, train.item_rows, train.rating, plan.n_users)
    told = (test.user_rows, test.item_rows, test.rating)
    return oracle_rmse(*lists, None, plan.truth()._replace(**changes), *told)


def rmse(predicted, test):
    return np.sqrt(np.mean((predicted - test.rating) ** 2))


def sides(truth):
    """Of both sides: the rows that are known, their biases, deviations of what is learnt."""
    scale = [truth.factor] * truth.U.shape[1]
    return (
        (
            "given_items",
            truth.V,
            truth.b,
            np.array([*scale, truth.bias_user]),
            ("user_rows", "item_rows"),
        ),
        (
            "given_users",
            truth.U,
            truth.a,
            np.array([*scale, truth.bias_item]),
            ("item_rows", "user_rows"),
        ),
    )


def star_chance(star, centre, deviation):
    low = np.where(star <= 1, -np.inf, star - 0.5)
    high = np.where(star >= 5, np.inf, star + 0.5)
    chance = norm.cdf((high - centre) / deviation) - norm.cdf((low - centre) / deviation)
    return np.maximum(chance, 1e-300)  # where an optimiser or a lattice looks in vain


def mean_star(centre, deviation):
    return sum(k * star_chance(k, centre, deviation) for k in range(1, 6))


def ridge(X, rating, deviations, noise):
    """Mean and covariance of a row's Gaussian posterior."""
    cov = np.linalg.inv(np.diag(1 / deviations**2) + X.T @ X / noise**2)
    return cov @ X.T @ rating / noise**2, cov


def censored(X, star, known, deviations, noise):
    """Peak of a row's posterior given its stars, and the inverse of the curvature there."""

    def height(x):
        chance = star_chance(star, known + X @ x, noise)
        return 0.5 * np.sum((x / deviations) ** 2) - np.log(chance).sum()

    found = optimize.minimize(height, np.zeros(X.shape[1]), tol=1e-9).x
    step, centre = 1e-4, known + X @ found
    logs = [np.log(star_chance(star, centre + d, noise)) for d in (-step, 0, step)]
    bend = -(logs[0] - 2 * logs[1] + logs[2]) / step**2
    return found, np.linalg.inv(np.diag(1 / deviations**2) + (X.T * bend) @ X)


@pytest.mark.parametrize("plan", [PLAIN, SMALL])
def test_the_plain_twin(plan):
    train, test = plan.split(0.1)
    truth, found = plan.truth(), ask(plan, train, test)
    for name, known, bias, deviations, (mine, other) in sides(truth):
        predicted = np.empty(len(test))
        X, offset = np.column_stack([known, np.ones(len(known))]), truth.mean + bias
        for row in np.unique(getattr(test, mine)):
            at, asked = getattr(train, mine) == row, getattr(test, mine) == row
            had, wanted = getattr(train, other)[at], getattr(test, other)[asked]
            rating = train.rating[at]
            if plan.stars:
                x, cov = censored(X[had], rating, offset[had], deviations, truth.noise)
                spread = np.einsum("nd,de,ne->n", X[wanted], cov, X[wanted])
                centre = offset[wanted] + X[wanted] @ x
                predicted[asked] = mean_star(centre, np.sqrt(truth.noise**2 + spread))
            else:
                x, _ = ridge(X[had], rating - offset[had], deviations, truth.noise)
                predicted[asked] = offset[wanted] + X[wanted] @ x
        assert found[name] == pytest.approx(rmse(predicted, test), rel=1e-5)
    centre = truth.mean + truth.a[test.user_rows] + truth.b[test.item_rows]
    centre += np.einsum("nd,nd->n", truth.U[test.user_rows], truth.V[test.item_rows])
    best = mean_star(centre, truth.noise) if plan.stars else centre
    assert found["truth"] == pytest.approx(rmse(best, test), rel=1e-6)
    assert found["bound"] == max(found["truth"], found["given_items"], found["given_users"])


def test_a_gaussian_at_the_peak_costs_little():
    # One factor and a bias: the exact posterior given stars is a sum over a lattice.
    plan = Synthetic(150, 200, 3000, n_factors=1, random_state=4, stars=True)
    train, test = plan.split(0.2)
    truth = plan.truth()
    axis = np.linspace(-4, 4, 33)
    row = np.stack(np.meshgrid(truth.factor * axis, truth.bias_user * axis), -1).reshape(-1, 2)
    log_prior = -0.5 * np.sum((row / [truth.factor, truth.bias_user]) ** 2, axis=1)
    stars = np.arange(1, 6)[:, None, None]
    predicted = np.empty(len(test))
    for user in np.unique(test.user_rows):
        had, asked = train.user_rows == user, test.user_rows == user
        centre = [
            truth.mean + truth.b[at] + row[:, :1] * truth.V[at, 0] + row[:, 1:]
            for at in (train.item_rows[had], test.item_rows[asked])
        ]
        chance = star_chance(train.rating[had], centre[0], truth.noise)
        weight = np.exp(log_prior + np.log(chance).sum(axis=1))
        weight /= weight.sum()
        mean = (stars * star_chance(stars, centre[1], truth.noise)).sum(axis=0)
        predicted[asked] = weight @ mean
    exact = rmse(predicted, test)
    assert ask(plan, train, test)["given_items"] == pytest.approx(exact, rel=5e-4)


@pytest.mark.parametrize("centre", [-8.0, 0.7, 3.1, 4.5, 9.0])
@pytest.mark.parametrize("noise", [0.3, 0.85])
def test_stars(centre, noise):
    mean, square = expected_star(centre, noise)
    chances = [float(star_chance(k, centre, noise)) for k in range(1, 6)]
    assert mean == pytest.approx(sum(k * p for k, p in enumerate(chances, 1)))
    assert square == pytest.approx(sum(k * k * p for k, p in enumerate(chances, 1)))
    for star in range(1, 6):
        log, slope, bend = pull_of_star(float(star), centre, noise)
        if chances[star - 1] > 1e-12:
            assert log == pytest.approx(np.log(chances[star - 1]), abs=1e-3)
        beside = [pull_of_star(float(star), centre + d, noise) for d in (-1e-4, 1e-4)]
        assert slope == pytest.approx((beside[1][0] - beside[0][0]) / 2e-4, rel=1e-4, abs=1e-6)
        assert bend == pytest.approx((beside[0][1] - beside[1][1]) / 2e-4, rel=1e-3, abs=1e-6)
    # Further out than any number: still a pull to the interval.
    _, slope, bend = pull_of_star(3.0, -1e4, noise)
    assert slope == pytest.approx((2.5 + 1e4) / noise**2)
    assert bend == pytest.approx(1 / noise**2)


@pytest.mark.parametrize("plan", [PLAIN, STARS])
def test_the_floor_is_the_error_that_the_truth_leaves(plan):
    _, test = plan.split(3000)
    found = ask(plan, *plan.split(3000))
    # A squared normal error has the relative deviation sqrt(2), half that for its root: four.
    assert found["truth"] == pytest.approx(found["floor"], rel=4 * np.sqrt(0.5 / len(test)))
    assert (found["floor"] == pytest.approx(plan.noise)) == (not plan.stars)


@pytest.mark.parametrize("plan", [PLAIN, STARS])
def test_blocks_and_codes_change_nothing(plan, monkeypatch):
    train, test = plan.split(0.1)
    plain = ask(plan, train, test)
    done = []
    monkeypatch.setattr(experiments.oracle, "_BLOCK", 300)
    levels, codes = np.unique(train.rating, return_inverse=True)
    lists = lists_by_user(
        train.user_rows,
        train.item_rows,
        codes.astype(np.uint8 if plan.stars else np.uint16),
        plan.n_users,
    )
    told = (test.user_rows, test.item_rows, test.rating)
    assert oracle_rmse(*lists, levels, plan.truth(), *told, done.append) == plain
    assert sum(done) == 2 * len(train)
    assert max(done) < 400


def test_who_has_no_ratings_is_predicted_from_the_prior():
    _, test = PLAIN.split(500)
    truth = PLAIN.truth()
    found = ask(PLAIN, test.take([]), test)
    assert found["given_items"] == pytest.approx(rmse(truth.mean + truth.b[test.item_rows], test))
    assert found["given_users"] == pytest.approx(rmse(truth.mean + truth.a[test.user_rows], test))


@pytest.mark.parametrize("stars", [False, True])
def test_a_model_comes_near_the_bound_and_not_below(stars):
    plan = Synthetic(600, 300, 40_000, n_factors=3, random_state=1, stars=stars)
    train, test = plan.split(0.1)
    found = ask(plan, train, test)
    model = BayesianMF(3, sampler=Gibbs(epochs=60, burn_in=20), random_state=0).fit(train)
    reached = rmse(model.predict(test.users, test.items), test)
    # Errors of model and bound are of the same ratings: their difference has a deviation of
    # about sqrt(excess / n), 0.3% here.
    assert 0.995 * found["bound"] < reached < 1.03 * found["both"]
    assert found["truth"] < found["bound"] < found["both"]


BAD = {
    "noise": ({"noise": 0.0}, "Without noise"),
    "users": ({"a": np.zeros(3, np.float32)}, "ascending"),
    "items": ({"b": np.zeros(3, np.float32)}, "rows of the truth"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_bad_truths(changes, message):
    with pytest.raises(InputError, match=message):
        ask(STARS, *STARS.split(0.1), **changes)


def test_bad_lists():
    train, test = PLAIN.split(0.1)
    starts, other, value = lists_by_user(train.user_rows, train.item_rows, train.rating, 150)
    told, truth = (test.user_rows, test.item_rows, test.rating), PLAIN.truth()
    with pytest.raises(InputError, match="3600 entries"):
        oracle_rmse(starts, other[1:], value, None, truth, *told)
    with pytest.raises(InputError, match="not empty"):
        oracle_rmse(starts, other, value, None, truth, *(x[:0] for x in told))
    with pytest.raises(InputError, match="codes with their levels"):
        oracle_rmse(starts, other, value.astype(np.uint8), None, truth, *told)
    with pytest.raises(InputError, match="codes below 2"):
        oracle_rmse(starts, other, value.astype(np.uint8), np.ones(2, np.float32), truth, *told)
