"""Precisions of single users and items under mini-batch rules: how they are drawn, what follows."""

import numpy as np
import pytest
from scipy import stats

from bayesmf import SGD, SGHMC, SGLD, SGNHT, BayesianMF, InputError, Ratings
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.run.driver import make_rounds
from driving import do, sweep
from problems import random_data

N_USERS, N_ITEMS, D = 30, 20, 3
PRIOR = RowPrior(np.zeros(D + 1), np.full(D + 1, 2.0))


def _noise(by, seed=0):
    rng = np.random.default_rng(seed)
    users, items = (rng.gamma(3.0, 0.5, n).astype(np.float32) for n in (N_USERS, N_ITEMS))
    return Noise(
        None if by == "item" else RowNoise(users, 3.0, 2.0),
        None if by == "user" else RowNoise(items, 2.0, 2.0, mean_one=by == "both"),
    )


def _state(noise, tau=1.7):
    params = Params.initial(N_USERS, N_ITEMS, D, bias=True, key=make_key(3))
    return ChainState(0, make_key(3), params, Precisions(PRIOR, PRIOR, tau, noise=noise))


def _rounds(rule, data):
    shape = data_shape(data)
    return make_rounds(data, rule.choose(shape, D, 1).resolve(shape), 5)


def _weigh(rounds, state):
    state.cut(rounds.layouts)
    do(rounds.weigh(state), rounds)


def _precision_of_ratings(data, noise):
    user, item, _ = data.triples()
    out = np.ones(len(user))
    if noise.users is not None:
        out *= noise.users.value[user]
    if noise.items is not None:
        out *= noise.items.value[item]
    return out


@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
@pytest.mark.parametrize("by", ["user", "item", "both"])
def test_ratings_are_counted_by_their_precision(by, grid):
    data, noise = random_data(N_USERS, N_ITEMS, 300), _noise(by)
    rounds, state = _rounds(SGLD(grid=grid), data), _state(noise)
    _weigh(rounds, state)
    user, item, _ = data.triples()
    each = _precision_of_ratings(data, noise) / state.precisions.tau
    users, items = np.bincount(user, each, N_USERS), np.bincount(item, each, N_ITEMS)
    np.testing.assert_allclose(np.asarray(state.weighed.users), users, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(state.weighed.items), items, rtol=1e-5)
    assert state.weighed.total == pytest.approx(users.sum(), rel=1e-6)
    busy = np.quantile(np.concatenate([users, items]), 0.9, method="higher")
    assert busy / 1.05 <= state.weighed.busy <= busy * 1.05  # counted in bins
    most = max(users.max(), items.max())
    assert state.weighed.most <= most * max(grid) * (1 + 1e-5)
    if grid == (1, 1):
        assert state.weighed.most == pytest.approx(most, rel=1e-5)
        # A step is for one curvature: with every precision twice as large it is half as long.
        step = rounds.step(state, 0)
        busy = 2 * state.weighed.busy
        state.weighed = state.weighed._replace(busy=busy, most=2 * most)
        assert rounds.step(state, 0) == pytest.approx(step / 2)
    with pytest.raises(StopIteration):  # once for each draw of precisions
        next(rounds.weigh(state))


@pytest.mark.parametrize(("by", "turns"), [("user", [0, 0]), ("item", [1, 1]), ("both", [0, 1])])
def test_precisions_given_errors_are_gamma(by, turns):
    """Of 1,000 draws given one state, by normal scores under the law that each was drawn with.

    Means and variances of all rows to five standard errors (6e-7 each).
    """
    data, noise = random_data(N_USERS, N_ITEMS, 300), _noise(by)
    rounds, state = _rounds(SGLD(grid=(2, 2), precision_every=1), data), _state(noise)
    before = state.precisions
    state.cut(rounds.layouts)
    do(rounds.exact_errors(state), rounds)
    errors = state.errors_by_row
    user, item, value = data.triples()
    x, y = (rows.astype(float) for rows in (state.whole().users, state.whole().items))
    fit = (x[user, :D] * y[item, :D]).sum(1) + x[user, D] + y[item, D]
    squares = (value - fit) ** 2
    assert state.sse == pytest.approx(squares.sum(), rel=1e-5)  # these are as they are
    for t, side in enumerate(turns):
        own, other = (user, item) if side == 0 else (item, user)
        weights = before.weights(1 - side)
        sums = np.bincount(own, squares if weights is None else squares * weights[other])
        found = rounds.layouts[side].join([np.sum(parts, axis=0) for parts in errors[side]])
        np.testing.assert_allclose(found, sums, rtol=1e-4)
        drawn = []
        for k in range(1000):
            state.precisions, state.errors_by_row = before, errors
            do(rounds.draw_noise(state, 2 * k + t), rounds)
            found = state.precisions.noise.side(side)
            law = stats.gamma(
                found.shape + 0.5 * np.bincount(own), scale=1 / (found.rate + 0.5 * sums)
            )
            drawn.append(stats.norm.ppf(law.cdf(np.asarray(found.value))))
            unmoved = state.precisions.noise.side(1 - side)
            assert unmoved is before.noise.side(1 - side)
        scores, n = np.array(drawn), len(drawn)
        assert np.abs(scores.mean(0)).max() * np.sqrt(n) < 5
        assert np.abs(scores.var(0) - 1).max() * np.sqrt(n / 2) < 5


@pytest.mark.parametrize("rule", [SGLD(step_size=1e-3), SGHMC(), SGNHT()])
def test_equal_precisions_are_one_tau(rule):
    """tau for all, and as precisions of users, of items or both, are the same to rounding."""
    data = random_data(N_USERS, N_ITEMS, 300)

    def after(noise):
        rounds, state = _rounds(rule, data), _state(noise, 1.5)
        for t in range(6):
            sweep(rounds, state, t)
        return state.whole().users

    def rows(n, value):
        return RowNoise(np.full(n, value, np.float32))

    one = after(None)
    for noise in (
        Noise(rows(N_USERS, 1.5), None),
        Noise(None, rows(N_ITEMS, 1.5)),
        Noise(rows(N_USERS, 3.0), rows(N_ITEMS, 0.5)),
    ):
        np.testing.assert_allclose(after(noise), one, atol=2e-4)


def test_who_draws_them():
    for rule in (SGLD(), SGHMC(), SGNHT()):
        assert rule.row_noise and rule.rescales
    printed = SGLD(noise="paper")
    assert not (printed.row_noise or printed.rescales or SGD().row_noise or SGD().rescales)
    ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1.0, 2.0, 3.0, 5.0])
    with pytest.raises(InputError, match="SGD does not"):
        BayesianMF(1, sampler=SGD(), noise_by="user").fit(ratings)


@pytest.mark.parametrize("rule", [SGLD(epochs=150), SGHMC(epochs=80)])
def test_noisy_users_are_found(rule):
    """A third of the users rate with three times the noise."""
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.choice(90 * 60, 3600, replace=False), 60)
    a, b = rng.normal(size=90), rng.normal(size=60)
    loud = np.arange(90) < 30
    value = a[user] + b[item] + np.where(loud[user], 1.2, 0.4) * rng.normal(size=len(user))
    model = BayesianMF(1, sampler=rule, random_state=0, progress=False)
    draws = model.fit(Ratings(user, item, value)).posterior_.draws
    found = draws.user_tau.mean(0)
    assert found[~loud].mean() / found[loud].mean() == pytest.approx(9, rel=0.3)
    assert np.mean(found[~loud] > found[loud].max()) > 0.9
    assert np.std(np.log(draws.item_tau.mean(0))) < 0.2  # items are alike
