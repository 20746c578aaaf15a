"""V held fixed, the posterior of every user is a known Gaussian: mean AND variance are compared.

Users come in classes of 3, 12 and 60 ratings, forty of each. Given V they are independent, so the
spread over the forty gives the Monte Carlo error. Each comparison allows four standard errors
(false-alarm rate 6e-5) plus what a finite step leaves: eps kappa (1 + 1/q) / 4 for a row of
curvature kappa whose ratings are each seen with probability q, at most 2.5% here.
"""

import numpy as np
import pytest

import naive
from bayesmf.batches import TrainingData, make_blocks
from bayesmf.grid import Grid, Rotation
from bayesmf.keys import make_key
from bayesmf.params import Precisions, RowPrior
from bayesmf.rounds import hold_blocks
from bayesmf.samplers import SGLD
from bayesmf.worker import RoundTask, run_round

CLASSES, EACH, N_ITEMS, D, TAU = (3, 12, 60), 40, 80, 2, 1.0
WIDTH = D + 1
PRIOR = RowPrior(np.zeros(WIDTH), np.array([1.5, 2.0, 3.0]))


def _data(seed=0):
    rng = np.random.default_rng(seed)
    user, item = [], []
    for k, n in enumerate(np.repeat(CLASSES, EACH)):
        user += [k] * n
        item += rng.permutation(N_ITEMS)[:n].tolist()
    value = rng.normal(size=len(user)).astype(np.float32)
    items = (0.8 * rng.normal(size=(N_ITEMS, WIDTH))).astype(np.float32)
    return TrainingData(
        np.array(user, np.int32), np.array(item, np.int32), value, len(CLASSES) * EACH, N_ITEMS
    ), items


def _exact(data, items):
    means, variances = [], []
    for i in range(data.n_users):
        mine = data.user == i
        ratings = list(zip(data.item[mine], data.value[mine].astype(float), strict=True))
        mean, precision = naive.row_posterior(
            items.astype(float), ratings, PRIOR.mu, np.diag(PRIOR.Lambda), TAU, D, WIDTH
        )
        means.append(mean)
        variances.append(np.diag(np.linalg.inv(precision)))
    return np.array(means), np.array(variances)


def _chain(rule, data, items, step, n_rounds, seed=0):
    """Mean and variance of every user's row over a long run, the items held; and hbar."""
    shape = rule.grid
    rotation = Rotation([1] * max(shape.rows, shape.cols), 1)
    groups = shape.groups()
    rates = np.empty(len(shape))
    for group, rate in zip(groups, rotation.rates, strict=True):
        rates[group] = rate
    blocks = make_blocks(data, shape, rule.n_batches_fixed, seed)
    held = hold_blocks(data, blocks, rates, rule.rule)
    users = np.zeros((data.n_users, WIDTH), np.float32)
    hbar = np.empty(data.n_users)
    for one in held:
        hbar[one.block.user_rows] = 1 / one.prior_weight_user
    total, square, n = np.zeros(users.shape), np.zeros(users.shape), 0
    visits = dict.fromkeys(range(len(groups)), 0)
    for t in range(n_rounds):
        g = rotation.group(0, t)
        for place in groups[g]:
            block = held[place].block
            result = run_round(
                held[place],
                RoundTask(
                    place, users[block.user_rows], items[block.item_rows], D,
                    Precisions(PRIOR, PRIOR, TAU), step, 0.0, t * rule.length,
                    visits[g] * rule.length, rule.length, make_key(seed),
                ),
            )  # fmt: skip
            users[block.user_rows] = result.users
        visits[g] += 1
        if t > n_rounds // 10:
            total += users
            square += users.astype(float) ** 2
            n += 1
    mean = total / n
    return mean, square / n - mean**2, hbar


class _Rule:
    """The settings of one comparison."""

    def __init__(self, noise, minibatch, grid=(1, 1), n_batches=2, length=40):
        self.grid, self.length = Grid.of(grid), length
        size = sum(CLASSES) * EACH // len(self.grid) // n_batches
        self.rule = SGLD(grid=self.grid, noise=noise, minibatch=minibatch, batch_size=size)
        self.n_batches_fixed = n_batches if minibatch == "shuffled" else 1


def _by_class(values):
    """(mean, standard error) of a per-user quantity for each class of users."""
    out = []
    for k in range(len(CLASSES)):
        part = values[k * EACH : (k + 1) * EACH].mean(1)
        out.append((part.mean(), part.std(ddof=1) / EACH**0.5))
    return out


@pytest.mark.parametrize(
    ("minibatch", "grid"),
    [("replacement", (1, 1)), ("shuffled", (1, 1)), ("shuffled", (2, 2)), ("replacement", (3, 1))],
)
def test_matched_noise_has_the_exact_mean_and_variance(minibatch, grid):
    data, items = _data()
    exact_mean, exact_variance = _exact(data, items)
    rule = _Rule("matched", minibatch, grid)
    step = 5e-4 / max(grid)
    mean, variance, hbar = _chain(rule, data, items, step, 2500 * max(grid))
    assert hbar[:EACH].mean() < 0.9  # rare rows: without the correction they would be cold
    for ratio, error in _by_class(variance / exact_variance):
        assert error < 0.03
        assert abs(ratio - 1) < 4 * error + 0.025
    for shift, error in _by_class((mean - exact_mean) / exact_variance**0.5):
        assert error < 0.05
        assert abs(shift) < 4 * error


def test_the_printed_rule_has_variance_h():
    """Noise eps on visits only: row i runs at temperature h_i, so its variance is h_i too small."""
    data, items = _data()
    exact_mean, exact_variance = _exact(data, items)
    rule = _Rule("paper", "replacement", n_batches=8)
    mean, variance, hbar = _chain(rule, data, items, 2e-4, 5000)
    h = [hbar[k * EACH] for k in range(len(CLASSES))]
    assert h[0] < 0.4 < 0.75 < h[1] < h[2]
    for (ratio, error), temperature in zip(_by_class(variance / exact_variance), h, strict=True):
        assert error < 0.03
        assert abs(ratio - temperature) < 4 * error + 0.03
    for shift, error in _by_class((mean - exact_mean) / exact_variance**0.5):
        assert abs(shift) < 4 * error
