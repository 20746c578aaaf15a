"""Predictions from conditional means: the same expectation as from draws, with less noise.

The same small problem, precisions held, is put side by side 300 times on one diagonal: the blocks
do not touch, so one chain is 300 independent ones, and their spread is the Monte Carlo error.
With |z| < 4.5 for the at most 150 comparisons of a test its false-alarm rate is 1e-3; seeds are
fixed.
"""

import dataclasses

import numpy as np
import pytest

import naive
from bayesmf import SGLD, BayesianMF, Gibbs
from bayesmf.chains.pairs import WatchedPairs, rated_pairs
from bayesmf.chains.rounds.gibbs import SETTLE, GibbsRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.training import RatedItems, TrainingData
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import make_key
from bayesmf.kernels.pairs import pair_components
from bayesmf.model.draw_store import DrawStore
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.posterior.rows import ExactRows, RowPrecisions, natural_priors, pad_rows
from driving import do, sweep
from posteriors import random_posterior
from problems import planted, random_data

N_USERS, N_ITEMS, D, TAU, COPIES = 6, 5, 2, 3.0, 300
CELLS = np.random.default_rng(0).permutation(N_USERS * N_ITEMS)[:17]
RATED = np.isin(np.arange(N_USERS * N_ITEMS), CELLS)
# U_i . V_j and, of a state alone, U_i . m_j and m_i . m_j: the means by which rows were drawn.
DRAWN, MIXED, DOUBLE = range(3)
# Of a draw with items kept: m_i(V) . V_j and m_i(V) . m_j; with users kept the other way round.
ITEMS, ITEMS_DOUBLE, USERS, USERS_DOUBLE = range(3, 7)


def _side_by_side(cells):
    """User and item of cells of one block, in all blocks: (copies, cells)."""
    user, item = np.divmod(cells, N_ITEMS)
    copy = np.arange(COPIES)[:, None]
    return (user + N_USERS * copy).astype(np.int32), (item + N_ITEMS * copy).astype(np.int32)


def _data():
    value = 1.5 * np.random.default_rng(1).normal(size=len(CELLS))
    user, item = (x.ravel() for x in _side_by_side(CELLS))
    rating = np.tile(value, COPIES).astype(np.float32)
    return TrainingData.from_triples(user, item, rating, N_USERS * COPIES, N_ITEMS * COPIES)


def _start(data):
    prior = RowPrior(np.array([0.5, -0.3, 0.2]), np.array([1.0, 1.5, 2.0]))
    params = Params.initial(data.n_users, data.n_items, D, bias=True, key=make_key(3))
    return ChainState(0, make_key(3), params, Precisions(prior, prior, TAU))


def _source(other, prior, lists, levels):
    """The exact rows of one side given the other."""
    own = natural_priors(prior.mu[None], prior.Lambda[None])
    tau, weights = RowPrecisions(np.array([TAU])), RowPrecisions(np.ones(1))
    return ExactRows(other[None], own, tau, weights, lists, levels, D)


def _exact(state, data):
    """Exact means of users given items and of items given users, and the users' factors."""
    params = state.whole()
    sides = (params.items, data.by_user), (params.users, data.by_item)
    priors = state.precisions.users, state.precisions.items
    solved = []
    for (other, lists), prior in zip(sides, priors, strict=True):
        source = _source(other, prior, lists, data.levels)
        solved.append(source.solve(np.arange(len(lists.starts) - 1)))
    return solved[0].means[:, 0], solved[1].means[:, 0], solved[0].factors


def _predictions(state, pairs, data):
    """All estimators of all cells, (7, copies, cells); and what users' own rows leave open."""
    params, means = state.whole(), state.means
    means = Params(np.asarray(means.users), np.asarray(means.items), D)
    users, items, factors = _exact(state, data)
    out = np.empty((7, len(pairs.user)), np.float32)
    sides = (
        (params.users, params.items), (params.users, means.items), (means.users, means.items),
        (users, params.items), (users, means.items), (params.users, items), (means.users, items),
    )  # fmt: skip
    for one, (x, y) in zip(out, sides, strict=True):
        predict_pairs(x, y, pairs.user, pairs.item, D, one)
    mu, var = np.empty((1, len(pairs.user)), np.float32), np.empty((1, len(pairs.user)), np.float32)
    starts = N_ITEMS * np.arange(data.n_users + 1)
    pair_components(
        users[:, None], factors, np.arange(data.n_users), starts, pairs.item.astype(np.int64),
        pad_rows(params.items[None], D), D, np.zeros((data.n_users, 1), np.float32), mu, var,
    )  # fmt: skip
    return out.reshape(7, COPIES, -1).astype(np.float64), var.reshape(COPIES, -1).astype(float)


class Averages:
    """Of each copy over its sweeps, (estimators, copies, cells)."""

    def __init__(self, request):
        (relax, joint), burn_in, n = request.param, 60, 150
        data = _data()
        user, item = (x.ravel() for x in _side_by_side(np.arange(N_USERS * N_ITEMS)))
        pairs = WatchedPairs(user, item, rated_pairs(user, item, data))
        rule = Gibbs(overrelax=relax, joint=joint, n_stripes=1)
        rounds, state = GibbsRounds(data, rule, 0), _start(data)
        total = squares = used = second = 0.0
        for t in range(SETTLE, SETTLE + burn_in + n):
            sweep(rounds, state, t)
            if t >= SETTLE + burn_in:
                now, own = _predictions(state, pairs, data)
                total, squares = total + now, squares + now**2
                second = second + now[ITEMS] ** 2 + own
                found = do(pairs.score(state, rounds), rounds)
                used = used + found.expected.reshape(COPIES, -1)
        self.mean, self.used = total / n, used / n
        self.variance = (squares / n - self.mean**2).mean(1)  # over sweeps
        # Second moments of a prediction: as drawn, and by mean and own variance.
        self.drawn_squares, self.squares = squares[DRAWN] / n, second / n


@pytest.fixture(scope="module", params=[(0.0, None), (0.9, None), (0.9, 1)], ids=str)
def chains(request):
    """Of whole rows, and of coordinate Gibbs: there means are those of columns given the rest."""
    return Averages(request)


def _z(difference):
    """(copies, cells) to the z scores of the cells."""
    return difference.mean(0) / (difference.std(0, ddof=1) / COPIES**0.5)


def _gap(chains, name):
    return _z(chains.mean[name] - chains.mean[DRAWN])


def test_the_estimators_agree_where_they_should(chains):
    for name in (MIXED, ITEMS, USERS):
        assert np.abs(_gap(chains, name)).max() < 4.5
    for name in (DOUBLE, ITEMS_DOUBLE, USERS_DOUBLE):
        assert np.abs(_gap(chains, name)[~RATED]).max() < 4.5


def test_the_variance_is_that_of_means_and_of_the_rows_own(chains):
    """E[(m_i . V_j)^2 + V_j^T A_i^-1 V_j] = E[(U_i . V_j)^2]: the law of total variance."""
    assert np.abs(_z(chains.squares - chains.drawn_squares)).max() < 4.5


@pytest.mark.parametrize("name", [DOUBLE, ITEMS_DOUBLE, USERS_DOUBLE])
def test_the_double_mean_is_wrong_for_rated_pairs(chains, name):
    assert np.median(np.abs(_gap(chains, name)[RATED])) > 8


def test_conditional_means_have_less_noise(chains):
    """Of a single state; and of the average over a chain, whose states hang together."""
    variance = chains.variance / chains.variance[DRAWN]
    assert variance[[DOUBLE, ITEMS_DOUBLE, USERS_DOUBLE]][:, ~RATED].max() < 0.9
    assert variance[[MIXED, ITEMS, USERS]].max() < 1
    of_average = chains.mean.var(1).mean(-1)
    assert of_average[[MIXED, ITEMS, USERS]].max() < of_average[DRAWN]


def test_pairs_choose_the_right_estimator(chains):
    mean, used = chains.mean, chains.used
    assert np.allclose(used[:, RATED], mean[MIXED][:, RATED], atol=1e-5)
    assert np.allclose(used[:, ~RATED], mean[DOUBLE][:, ~RATED], atol=1e-5)


def _conditional_means(row, rows, other, index, value, prior):
    """Of all rows of one side given the other."""
    out = []
    for i in range(len(rows)):
        mine = row == i
        X, target = naive.regression(other[index[mine]], value[mine], D)
        out.append(naive.row_posterior(X, target, prior.mu, np.diag(prior.Lambda), TAU)[0])
    return np.array(out)


@pytest.mark.parametrize("relax", [0.0, 0.9])
def test_means_are_those_of_the_conditionals(relax):
    """Users' given the items before the sweep, items' given the users after it."""
    data = random_data(9, 7, 40)
    rounds, state = GibbsRounds(data, Gibbs(overrelax=relax, n_stripes=2), 0), _start(data)
    prior = state.precisions.users
    for t in range(SETTLE, SETTLE + 5):
        before = state.whole().items
        sweep(rounds, state, t)
    user, item, value = data.triples()
    params = state.whole()
    users = _conditional_means(user, params.users, before, item, value, prior)
    items = _conditional_means(item, params.items, params.users, user, value, prior)
    assert np.allclose(np.asarray(state.means.users), users, atol=1e-4)
    assert np.allclose(np.asarray(state.means.items), items, atol=1e-4)


def test_without_means_pairs_predict_from_the_state():
    data = random_data(7, 6, 20)
    params = Params.initial(7, 6, D, bias=True, key=make_key(0))
    prior = RowPrior(np.zeros(3), np.ones(3))
    state = ChainState(0, make_key(0), params, Precisions(prior, prior, 1.0))
    user, item, _ = data.triples()
    pairs = WatchedPairs(user, item, np.ones(20, bool))
    expected = (params.U[user] * params.V[item]).sum(1) + params.a[user] + params.b[item]
    rounds = GibbsRounds(data, Gibbs(n_stripes=2), 0)
    found = do(pairs.score(state, rounds), rounds)
    assert np.allclose(found.expected, expected, atol=1e-6)
    assert np.array_equal(found.expected, found.drawn)


# -- draws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [None, 1])
@pytest.mark.parametrize("prior", ["gamma", "wishart-bias"])
def test_draws_have_the_precisions_that_their_rows_were_drawn_under(prior, joint):
    """Items' means given the users of the same draw, its precisions and tau, by brute force."""
    sampler = Gibbs(epochs=12, burn_in=6, joint=joint, overrelax=0.5)
    model = BayesianMF(2, sampler=sampler, prior=prior, keep="both", random_state=0)
    posterior = model.fit(planted(12, 10, 70)).posterior_
    draws = posterior.draws
    given_users = naive.Exact(
        dataclasses.replace(posterior, draws=dataclasses.replace(draws, items=None))
    )
    for t in range(len(draws)):
        for j in range(10):
            mean, covariance = given_users.row("item", j, t)
            if joint == 1:
                # The last column is drawn given the others as they stand in the draw.
                precision, row = np.linalg.inv(covariance), draws.items[t, j].astype(float)
                mean[2] -= precision[2, :2] @ (row[:2] - mean[:2]) / precision[2, 2]
            own = slice(2, 3) if joint == 1 else slice(None)
            assert np.allclose(draws.item_means[t, j, own], mean[own], atol=1e-4)


@pytest.mark.parametrize("keep", ["items", "users", "both"])
def test_rows_and_means_are_stored_apart(keep):
    kept = random_posterior(8, 7, 5, D, 25).draws
    store, prior = DrawStore(1, 5, keep), RowPrior(np.zeros(3), np.ones(3))
    for t in range(5):
        rows = Params(kept.users[t], kept.items[t], D)
        means = Params(kept.user_means[t], kept.item_means[t], D)
        parts = store.parts(rows, Precisions(prior, prior, 1.0), means)
        if t == 0:
            store.reserve(0, 5, parts)
        store.add(0, parts, Precisions(prior, prior, 1.0))
    for side in ("user", "item"):
        for name in (f"{side}s", f"{side}_means"):
            found = getattr(store.draws(), name)
            if keep in (f"{side}s", "both"):
                assert np.array_equal(found, getattr(kept, name)), name
            else:
                assert found is None


def _all_pairs(n_users, n_items):
    user, item = np.divmod(np.arange(n_users * n_items), n_items)
    return user, item


def test_seen_knows_the_pairs():
    data = random_data(30, 20, 150)
    known = set(zip(*(x.tolist() for x in data.triples()[:2]), strict=True))
    seen, (user, item) = RatedItems.from_training(data), _all_pairs(30, 20)
    expected = [pair in known for pair in zip(user.tolist(), item.tolist(), strict=True)]
    assert seen.rated(user, item).tolist() == expected
    assert rated_pairs(user.astype(np.int32), item.astype(np.int32), data).tolist() == expected
    assert not seen.rated(np.full(21, -1), np.arange(-1, 20)).any()
    assert not seen.rated(np.arange(30), np.full(30, -1)).any()


def test_seen_of_users_without_ratings():
    data = TrainingData.from_triples(
        np.array([1, 1, 3], np.int32), np.array([2, 0, 1], np.int32), np.ones(3, np.float32), 5, 3
    )
    user, item = _all_pairs(5, 3)
    assert np.flatnonzero(RatedItems.from_training(data).rated(user, item)).tolist() == [3, 5, 10]


# -- fitted models --------------------------------------------------------------------------------


def test_rules_without_means_keep_none():
    model = BayesianMF(2, sampler=SGLD(epochs=4), random_state=0).fit(planted(30, 25, 300))
    assert model.posterior_.draws.item_means is None
    assert "item_means" not in model.posterior_.draws.arrays()
