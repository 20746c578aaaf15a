"""V held fixed, the posterior of every user is a known Gaussian: mean AND variance are compared.

Users come in classes of 3, 12 and 60 ratings, with more users where a chain moves slower. Given V
they are independent, so the spread over them gives the Monte Carlo error. Variances are taken about
the known mean, where a run of any length has the right ones. Each comparison allows four standard
errors (false-alarm rate 6e-5) plus what a finite step leaves: eps kappa (1 + 1/q) / 4 for a row of
curvature kappa whose ratings are each seen with probability q, at most 2.5% here.
"""

import numpy as np
import pytest

import naive
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.run.driver import make_rounds
from bayesmf.samplers.sgld import SGLD
from bayesmf.worker.block_tasks import GradientTask

# Ratings of a user of each class, and how many users it has.
CLASSES, N_ITEMS, D, TAU = {3: 100, 12: 60, 60: 30}, 80, 2, 1.0
N_USERS, N = sum(CLASSES.values()), sum(n * users for n, users in CLASSES.items())
WIDTH = D + 1
PRIOR = RowPrior(np.zeros(WIDTH), np.array([1.5, 2.0, 3.0]))


def _data(seed=0):
    rng = np.random.default_rng(seed)
    user, item = [], []
    for k, n in enumerate(np.repeat([*CLASSES], [*CLASSES.values()])):
        user += [k] * n
        item += rng.permutation(N_ITEMS)[:n].tolist()
    value = rng.normal(size=len(user)).astype(np.float32)
    items = (0.8 * rng.normal(size=(N_ITEMS, WIDTH))).astype(np.float32)
    return TrainingData.from_triples(
        np.array(user, np.int32), np.array(item, np.int32), value, N_USERS, N_ITEMS
    ), items


def _weights(by, seed=1):
    """Precisions of users and items by a factor of three or so, of one side or of both."""
    rng = np.random.default_rng(seed)
    users, items = (rng.gamma(4.0, 0.25, n).astype(np.float32) for n in (N_USERS, N_ITEMS))
    return Noise(
        None if by == "item" else RowNoise(users),
        None if by == "user" else RowNoise(items, mean_one=by == "both"),
    )


def _exact(data, items, noise=None):
    means, variances = [], []
    for i in range(data.n_users):
        user, item, value = data.triples()
        mine = user == i
        X, target = naive.regression(items[item[mine]], value[mine], D)
        if noise is not None:
            own = 1.0 if noise.users is None else noise.users.value[i]
            other = 1.0 if noise.items is None else noise.items.value[item[mine]]
            root = np.sqrt(own * other * np.ones(len(X)))
            X, target = X * root[:, None], target * root
        mean, precision = naive.row_posterior(X, target, PRIOR.mu, np.diag(PRIOR.Lambda), TAU)
        means.append(mean)
        variances.append(np.diag(np.linalg.inv(precision)))
    return np.array(means), np.array(variances)


def _chain(sampler, data, items, about, n_rounds, seed=0, noise=None):
    """Mean of every user's row over a long run, the items held, and variance about one; and hbar.

    Rounds are laid out and scheduled as in a fit; only the items' step is set to zero.
    """
    rounds = make_rounds(data, sampler.resolve(data_shape(data)), seed)
    params = Params(np.zeros((data.n_users, WIDTH), np.float32), items.copy(), D)
    state = ChainState(0, make_key(seed), params, Precisions(PRIOR, PRIOR, TAU, noise=noise))
    hbar = np.zeros(data.n_users)
    for one in rounds.held:
        hbar[one.block.user_rows] = 1 / one.prior_weight[0]
    total, square, n = np.zeros(params.users.shape), np.zeros(params.users.shape), 0
    for t in range(n_rounds):
        round_, results = rounds.round(state, t), None
        while True:
            try:
                tasks = round_.send(results)
            except StopIteration:
                break
            results = [_still(k).execute(rounds.held[k.partition]) for k in tasks]
        if t > n_rounds // 10:
            users = state.whole().users.astype(float)
            total += users
            square += users**2
            n += 1
    assert np.array_equal(state.whole().items, items)
    mean = total / n
    return mean, square / n - mean**2 + (mean - about) ** 2, hbar


class Still(GradientTask):
    """A round with the items held."""

    def side(self, held, side, common):
        made = super().side(held, side, common)
        return made._replace(step=made.step * 0) if side else made


def _still(task):
    return Still(**vars(task)) if isinstance(task, GradientTask) else task


def _sampler(noise, minibatch, grid=(1, 1), n_batches=2, step=5e-4):
    size = N // (grid[0] * grid[1]) // n_batches
    return SGLD(
        grid=grid, noise=noise, minibatch=minibatch, batch_size=size, round_length=40,
        step_size=step / max(grid), decay=0.0,
    )  # fmt: skip


def _by_class(values):
    """(mean, standard error) of a per-user quantity for each class of users."""
    parts = np.split(values.mean(1), np.cumsum([*CLASSES.values()])[:-1])
    return [(part.mean(), part.std(ddof=1) / len(part) ** 0.5) for part in parts]


@pytest.mark.parametrize(
    ("minibatch", "grid"),
    [("replacement", (1, 1)), ("shuffled", (1, 1)), ("shuffled", (2, 2)), ("replacement", (3, 1))],
)
def test_matched_noise_has_the_exact_mean_and_variance(minibatch, grid):
    data, items = _data()
    exact_mean, exact_variance = _exact(data, items)
    mean, variance, hbar = _chain(
        _sampler("matched", minibatch, grid), data, items, exact_mean, 1000 * max(grid)
    )
    assert hbar[: CLASSES[3]].mean() < 0.9  # rare rows: without the correction they would be cold
    for ratio, error in _by_class(variance / exact_variance):
        assert error < 0.03
        assert abs(ratio - 1) < 4 * error + 0.025
    for shift, error in _by_class((mean - exact_mean) / exact_variance**0.5):
        assert error < 0.05
        assert abs(shift) < 4 * error


@pytest.mark.parametrize(
    ("by", "minibatch", "grid"),
    [("user", "shuffled", (1, 1)), ("item", "shuffled", (2, 2)), ("both", "replacement", (1, 1)),
     ("both", "shuffled", (3, 1))],
)  # fmt: skip
def test_ratings_of_unequal_precision(by, minibatch, grid):
    """Users and items have precisions of their own, which are given: mean and variance as above."""
    data, items = _data()
    noise = _weights(by)
    exact_mean, exact_variance = _exact(data, items, noise)
    alike = _exact(data, items)[1]
    assert np.abs(alike / exact_variance - 1).mean() > 0.08  # weights left out would be noticed
    sampler = _sampler("matched", minibatch, grid, step=3e-4)
    mean, variance, _ = _chain(sampler, data, items, exact_mean, 1200 * max(grid), noise=noise)
    for ratio, error in _by_class(variance / exact_variance):
        assert error < 0.03
        assert abs(ratio - 1) < 4 * error + 0.025
    for shift, error in _by_class((mean - exact_mean) / exact_variance**0.5):
        assert abs(shift) < 4 * error


def test_the_printed_rule_has_variance_h():
    """Noise eps on visits only: row i runs at temperature h_i, so its variance is h_i too small."""
    data, items = _data()
    exact_mean, exact_variance = _exact(data, items)
    sampler = _sampler("paper", "replacement", n_batches=8, step=2e-4)
    mean, variance, hbar = _chain(sampler, data, items, exact_mean, 2000)
    h = hbar[np.cumsum([0, *CLASSES.values()])[:-1]]
    assert h[0] < 0.4 < 0.75 < h[1] < h[2]
    for (ratio, error), temperature in zip(_by_class(variance / exact_variance), h, strict=True):
        assert error < 0.03
        assert abs(ratio - temperature) < 4 * error + 0.03
    for shift, error in _by_class((mean - exact_mean) / exact_variance**0.5):
        assert abs(shift) < 4 * error
