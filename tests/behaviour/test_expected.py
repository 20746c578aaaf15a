"""Predictions from conditional means: the same expectation as from draws, with less noise.

The same small problem, precisions held, is put side by side 300 times on one diagonal: the blocks
do not touch, so one chain is 300 independent ones, and their spread is the Monte Carlo error.
With |z| < 4.5 for the 60 comparisons of a test its false-alarm rate is 4e-4; seeds are fixed.
"""

import dataclasses

import numpy as np
import pytest

import naive
from bayesmf import SGLD, BayesianMF, Gibbs
from bayesmf.chains.pairs import WatchedPairs, rated_pairs
from bayesmf.chains.rounds.gibbs import SETTLE, GibbsRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import make_key
from bayesmf.model.draws import Draws, DrawStore
from bayesmf.model.params import Params, Precisions, RowPrior
from bayesmf.posterior.posterior import Posterior
from bayesmf.posterior.ranking import Question, rank_users
from contract import draws_digest
from driving import sweep
from problems import planted, random_data

N_USERS, N_ITEMS, D, TAU, COPIES = 6, 5, 2, 3.0, 300
CELLS = np.random.default_rng(0).permutation(N_USERS * N_ITEMS)[:17]
RATED = np.isin(np.arange(N_USERS * N_ITEMS), CELLS)
DRAWN, MIXED, DOUBLE = range(3)  # U_i . V_j, U_i . m_j(U), m_i(V) . m_j(U)


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


def _predictions(state, pairs):
    """The three estimators of all cells, (3, copies, cells)."""
    params, means, out = state.params, state.means, np.empty((3, len(pairs.user)), np.float32)
    sides = (params.users, params.items), (params.users, means.items), (means.users, means.items)
    for one, (users, items) in zip(out, sides, strict=True):
        predict_pairs(users, items, pairs.user, pairs.item, D, one)
    return out.reshape(3, COPIES, -1)


@pytest.fixture(scope="module", params=[(0.0, None), (0.9, None), (0.9, 1)], ids=str)
def chains(request):
    """Averages of each chain over its sweeps, variances over sweeps, and of `predict`.

    Of whole rows, and of coordinate Gibbs: there means are those of columns given the rest.
    """
    (relax, joint), burn_in, n = request.param, 60, 300
    data = _data()
    user, item = (x.ravel() for x in _side_by_side(np.arange(N_USERS * N_ITEMS)))
    pairs = WatchedPairs(user, item, rated_pairs(user, item, data))
    rule = Gibbs(overrelax=relax, joint=joint, n_stripes=1)
    rounds, state = GibbsRounds(data, rule, 0), _start(data)
    total, squares, used = 0.0, 0.0, 0.0
    for t in range(SETTLE, SETTLE + burn_in + n):
        sweep(rounds, state, t)
        if t >= SETTLE + burn_in:
            now = _predictions(state, pairs).astype(np.float64)
            total, squares = total + now, squares + now**2
            used = used + pairs.predict(state).reshape(COPIES, -1)
    mean = total / n
    return mean, (squares / n - mean**2).mean(1), used / n


def _z(difference):
    """(copies, cells) to the z scores of the cells."""
    return difference.mean(0) / (difference.std(0, ddof=1) / COPIES**0.5)


def test_the_estimators_agree_where_they_should(chains):
    mean, _, _ = chains
    assert np.abs(_z(mean[MIXED] - mean[DRAWN])).max() < 4.5
    assert np.abs(_z(mean[DOUBLE] - mean[DRAWN])[~RATED]).max() < 4.5


def test_the_double_mean_is_wrong_for_rated_pairs(chains):
    mean, _, _ = chains
    assert np.median(np.abs(_z(mean[DOUBLE] - mean[DRAWN])[RATED])) > 10


def test_conditional_means_have_less_noise(chains):
    """Of a single state; and of the average over a chain, whose states hang together."""
    mean, variance, _ = chains
    assert (variance[DOUBLE] / variance[DRAWN])[~RATED].max() < 0.9
    assert (variance[MIXED] / variance[DRAWN]).max() < 1
    of_average = mean.var(1).mean(-1)
    assert of_average[MIXED] < of_average[DRAWN]


def test_pairs_choose_the_right_estimator(chains):
    mean, _, used = chains
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
        before = state.params.items.copy()
        sweep(rounds, state, t)
    user, item, value = data.triples()
    users = _conditional_means(user, state.params.users, before, item, value, prior)
    items = _conditional_means(item, state.params.items, state.params.users, user, value, prior)
    assert np.allclose(state.means.users, users, atol=1e-4)
    assert np.allclose(state.means.items, items, atol=1e-4)


def test_without_means_pairs_predict_from_the_state():
    data = random_data(7, 6, 20)
    params = Params.initial(7, 6, D, bias=True, key=make_key(0))
    prior = RowPrior(np.zeros(3), np.ones(3))
    state = ChainState(0, make_key(0), params, Precisions(prior, prior, 1.0))
    user, item, _ = data.triples()
    pairs = WatchedPairs(user, item, np.ones(20, bool))
    expected = (params.U[user] * params.V[item]).sum(1) + params.a[user] + params.b[item]
    assert np.allclose(pairs.predict(state), expected, atol=1e-6)
    assert np.array_equal(pairs.predict(state), pairs.draw(state))


# -- answers --------------------------------------------------------------------------------------


def _posterior(seed=0, n_draws=5, n_users=8, n_items=7):
    """Arrays that no chain made: every part is told from every other."""
    rng, width = np.random.default_rng(seed), D + 1
    shapes = [(n_draws, n_users, width), (n_draws, n_items, width)]
    rows = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    means = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    mu = rng.normal(size=(2, n_draws, width))
    Lambda, tau = rng.uniform(1, 3, (2, n_draws, width)), rng.uniform(1, 2, n_draws)
    draws = Draws(
        *rows, mu[0], Lambda[0], mu[1], Lambda[1], tau, np.zeros(n_draws, np.int64), *means
    )
    seen = RatedItems.from_training(random_data(n_users, n_items, 25))
    return Posterior(draws, seen, D, 3.0, 1.7, -100.0, 100.0)


def _plain(x, y):
    """Predictions of (draws, users, width) and (draws, items, width), for all pairs."""
    return x[..., :D] @ y[..., :D].transpose(0, 2, 1) + x[..., D:] + y[..., D][:, None]


def _all_pairs(n_users=8, n_items=7):
    user, item = np.divmod(np.arange(n_users * n_items), n_items)
    return user, item


def _expected(posterior):
    draws = posterior.draws
    double = _plain(draws.user_means, draws.item_means).mean(0)
    mixed = _plain(draws.users, draws.item_means).mean(0)
    rated = {(i, j) for i in range(8) for j in posterior.seen.for_user(i)}
    is_rated = np.array([[(i, j) in rated for j in range(7)] for i in range(8)])
    assert 0 < is_rated.sum() < is_rated.size
    return np.where(is_rated, mixed, double).ravel()


def test_the_mean_is_the_average_of_expected_predictions():
    posterior = _posterior()
    mean, _ = posterior.mean_std(*_all_pairs())
    assert np.allclose(mean, 3.0 + 1.7 * _expected(posterior), atol=1e-5)


def test_the_spread_is_that_of_the_draws():
    posterior = _posterior()
    draws = posterior.draws
    predictions = _plain(draws.users, draws.items).reshape(5, -1)
    variance = 1.7**2 * (predictions.var(0) + np.mean(1 / draws.tau))
    _, std = posterior.mean_std(*_all_pairs())
    assert np.allclose(std, np.sqrt(variance), rtol=1e-5)
    low, high = posterior.interval(*_all_pairs(), 0.9)
    center = 3.0 + 1.7 * _expected(posterior)
    assert np.all((low < center) & (center < high))


def test_rows_and_means_are_stored_apart():
    kept = _posterior().draws
    store, prior = DrawStore(1, 5), RowPrior(np.zeros(3), np.ones(3))
    for t in range(5):
        rows = Params(kept.users[t], kept.items[t], D)
        means = Params(kept.user_means[t], kept.item_means[t], D)
        if t == 0:
            store.reserve(0, 5, rows, means)
        store.add(0, rows, Precisions(prior, prior, 1.0), means)
    for name in ("users", "items", "user_means", "item_means"):
        assert np.array_equal(getattr(store.draws(), name), getattr(kept, name)), name


def test_ranking_goes_by_expected_predictions():
    posterior = _posterior()
    question = Question(7, "mean", exclude_seen=False, level=None)
    best, _ = rank_users(posterior, np.array([2]), question, np.array([0]))
    assert best[0].tolist() == np.argsort(-_expected(posterior).reshape(8, 7)[2]).tolist()


def test_unseen_rows_keep_the_prior():
    posterior = _posterior()
    draws, one = posterior.draws, np.array([-1])
    without = dataclasses.replace(
        posterior, draws=dataclasses.replace(draws, user_means=None, item_means=None)
    )
    for user, item in ((one, np.array([3])), (np.array([2]), one), (one, one)):
        assert posterior.mean_std(user, item) == without.mean_std(user, item)
    nobody = draws.user_mu[:, None], draws.item_mu[:, None]
    assert posterior.mean_std(one, one)[0][0] == pytest.approx(3 + 1.7 * _plain(*nobody).mean())
    # The same where a chunk has both kinds.
    user, item = np.array([-1, 2, 2]), np.array([3, -1, 3])
    together = posterior.mean_std(user, item)[0]
    alone = [posterior.mean_std(user[k : k + 1], item[k : k + 1])[0][0] for k in range(3)]
    assert np.allclose(together, alone, atol=1e-6)


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


@pytest.fixture(scope="module")
def model():
    user, item, value = planted(30, 25, 300)
    return BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0).fit((user, item, value))


def _ask(model):
    user, item = _all_pairs(30, 25)
    return model.posterior_.mean_std(user, item)


def test_a_saved_model_gives_the_same_bits(model, tmp_path):
    model.save(tmp_path / "model")
    again = BayesianMF.load(tmp_path / "model")
    assert draws_digest(again) == draws_digest(model)
    assert again.posterior_.draws.user_means is not None
    for one, other in zip(_ask(again), _ask(model), strict=True):
        assert np.array_equal(one, other)


def _without_means(model):
    draws = dataclasses.replace(model.posterior_.draws, user_means=None, item_means=None)
    old = BayesianMF(2)
    old.__dict__.update(vars(model))
    posterior = dataclasses.replace(model.posterior_, draws=draws)
    old._found = model._found._replace(posterior=posterior)
    return old


def test_a_folder_without_means_predicts_from_its_draws(model, tmp_path):
    _without_means(model).save(tmp_path / "old")
    old = BayesianMF.load(tmp_path / "old")
    draws, posterior = old.posterior_.draws, old.posterior_
    assert draws.user_means is None and draws.item_means is None
    mean, std = _ask(old)
    plain = posterior.center + posterior.scale * _plain(draws.users, draws.items).mean(0).ravel()
    assert np.allclose(mean, posterior.clip(plain), atol=1e-4)
    assert np.allclose(std, _ask(model)[1], rtol=1e-5)
    assert not np.allclose(mean, _ask(model)[0], atol=1e-3)


def test_rules_without_means_keep_none():
    model = BayesianMF(2, sampler=SGLD(epochs=4), random_state=0).fit(planted(30, 25, 300))
    assert model.posterior_.draws.user_means is None
    assert "user_means" not in model.posterior_.draws.arrays()
