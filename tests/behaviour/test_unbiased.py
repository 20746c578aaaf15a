"""The estimator's expectation equals the gradient: every mini-batch enumerated.

With epsilon = 2 and no noise an update moves a row by just the estimate, so the kernel itself is
what is tested: compiled as fits run it, in float32, and to 1e-12 as plain Python, in float64.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import naive
from bayesmf.blocks.blocks import make_blocks
from bayesmf.blocks.grid import Grid, Rotation
from bayesmf.chains.rounds.blocks import data_shape, hold_blocks
from bayesmf.kernels.gather import padded
from bayesmf.kernels.gradient import LangevinSide, run_dealt
from bayesmf.kernels.keys import make_key, stream_word
from bayesmf.kernels.minibatch import make_columns, make_scratch, pad
from bayesmf.run.driver import make_rounds
from bayesmf.samplers.momentum import SGHMC
from bayesmf.samplers.sgld import SGD, SGLD
from bayesmf.worker.block_tasks import pad_precision
from interpreted import run_main
from problems import random_data

N_USERS, N_ITEMS, D, TAU = 4, 3, 2, 1.3


# Of the ratings of users and of items.
WEIGHTS = np.array([0.7, 1.6, 1.0, 2.3]), np.array([1.2, 0.4, 1.0])


def _side(rows, block_rows, weight, of_ratings, prior, scale):
    wide, dtype = padded(rows.shape[1]), rows.dtype.type
    return LangevinSide(
        pad(rows[block_rows], wide), block_rows, of_ratings[block_rows].astype(dtype),
        np.zeros(len(block_rows), dtype), pad(prior[0], wide, dtype),
        pad_precision(prior[1], wide, dtype), stream_word(0, 0), dtype(2.0), dtype(scale), weight,
    )  # fmt: skip


def _estimate(held, batch, users, items, priors):
    """What one mini-batch adds to each row of the whole matrix."""
    block = held.block
    x = _side(users, block.user_rows, held.prior_weight[0], WEIGHTS[0], priors[0], held.scale * TAU)
    y = _side(items, block.item_rows, held.prior_weight[1], WEIGHTS[1], priors[1], held.scale * TAU)
    width = users.shape[1]
    columns = make_columns(D, width, users.dtype)
    scratch = make_scratch(len(y.rows), columns)
    run_dealt(batch, np.array([0]), x, y, columns, 0, make_key(0), scratch)
    out = np.zeros_like(users), np.zeros_like(items)
    out[0][block.user_rows] = x.rows[:, :width] - users[block.user_rows]
    out[1][block.item_rows] = y.rows[:, :width] - items[block.item_rows]
    return out


def _batches(held, minibatch, m):
    """Every mini-batch of a block, all equally likely."""
    block = held.block
    if minibatch == "shuffled":
        cuts = itertools.pairwise(block.rating_starts)
        choices = [np.arange(lo, hi) for lo, hi in cuts]
    else:
        choices = [np.sort(c) for c in itertools.product(range(len(block)), repeat=m)]
    for index in choices:
        index = np.asarray(index, dtype=int)
        yield naive.as_batches(*(a[index] for a in block.triples()), np.array([0, len(index)]))


# Grids, turns of their groups, sizes of these.
SHAPES = [((1, 1), [1], None), ((2, 2), [1, 1], None), ((2, 2), [3, 1], None),
          ((3, 1), [1, 1, 1], None), ((3, 1), [4, 1, 2], None), ((2, 3), [1, 2, 1], None),
          ((1, 2), [2, 1], None), ((2, 2), [1] * 4, 1), ((2, 3), [2, 1, 1, 3, 1, 1], 1),
          ((3, 3), [1, 2, 1, 1, 3, 1], 2)]  # fmt: skip
MINIBATCHES, FULL = ("shuffled", "replacement"), (False, True)


def _compare(shape, slots, size, minibatch, full, dtype, tolerance):
    m, n_batches = 2, 3
    data = random_data(N_USERS, N_ITEMS, 9, seed=5)
    rng = np.random.default_rng(1)
    width = D if full else D + 1
    users, items = (rng.normal(size=(n, width)).astype(dtype) for n in (N_USERS, N_ITEMS))
    root = rng.normal(size=(width, width))
    Lambda = root @ root.T + np.eye(width) if full else rng.uniform(1, 3, width)
    priors = [(rng.normal(size=width), Lambda) for _ in range(2)]
    grid = Grid.parse(shape)
    rotation = Rotation(slots, 1)
    visit_rate = np.empty(len(grid))
    for group, rate in zip(grid.groups(size), rotation.rates, strict=True):
        visit_rate[group] = rate
    rule = SGD(grid=grid, minibatch=minibatch, batch_size=m)
    blocks = make_blocks(data, grid, n_batches if minibatch == "shuffled" else 1, seed=3)
    held = [one for one, *_ in hold_blocks(data, blocks, visit_rate, rule, dtype)]
    mean = np.zeros(users.shape), np.zeros(items.shape)
    for one, v in zip(held, visit_rate, strict=True):
        if not len(one.block):  # no ratings, no mini-batches, no update
            continue
        parts = [_estimate(one, b, users, items, priors) for b in _batches(one, minibatch, m)]
        for side in range(2):
            mean[side][:] += v * sum(p[side] for p in parts) / len(parts)
    ratings = list(zip(*data.triples(), strict=True))
    gx, gy, _ = naive.gradients(users, items, ratings, D, WEIGHTS)
    for got, rows, likelihood, (mu, L) in zip(mean, (users, items), (gx, gy), priors, strict=True):
        matrix = L if full else np.diag(L)
        gradient = TAU * likelihood - (rows - mu) @ matrix
        assert np.max(np.abs(got - gradient)) < tolerance * max(1, np.abs(gradient).max())


@pytest.mark.parametrize(("shape", "slots", "size"), SHAPES)
@pytest.mark.parametrize("minibatch", MINIBATCHES)
@pytest.mark.parametrize("full", FULL)
def test_expectation_is_the_gradient(shape, slots, size, minibatch, full):
    _compare(shape, slots, size, minibatch, full, np.float32, 5e-6)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [(SGLD(grid=(3, 3), group_size=2), [1] * 9), (SGLD(grid=(2, 3), group_size=1), [1] * 6),
     # The groups are 0, 48, 1, 56, 2 and 37.
     (SGLD(grid=(3, 3), group_size=2, visits=[1, 2, 1, 1, 1, 2]), [1, 1, 1, 2, 2, 1, 1, 2, 2]),
     (SGHMC(grid=(3, 3), group_size=2, n_chains=4), [1] * 9)],
)  # fmt: skip
def test_rounds_visit_blocks_at_the_rates_that_scale_their_gradients(rule, counts):
    """v of every block, counted over a cycle; N / v and 1 / hbar of its rows follow from it."""
    data = random_data(12, 9, 90, seed=5)
    rounds = make_rounds(data, rule.resolve(data_shape(data)), 0)
    for chain in range(rule.n_chains):
        turns = [rounds.rotation.group(chain, t) for t in range(len(rounds.rotation))]
        visits = np.bincount([b for g in turns for b in rounds.groups[g]])
        assert np.array_equal(visits, visits.min() * np.array(counts))
    hbar, v = np.zeros(data.n_users), visits / len(turns)
    for held, rate in zip(rounds.blocks, v, strict=True):
        assert held.scale == pytest.approx(held.block.n_batches / rate)
        hbar[held.numbers(0)] += rate * held.block.visits()[0] / held.block.n_batches
    for held in rounds.blocks:
        assert held.prior_weight[0] == pytest.approx(1 / hbar[held.numbers(0)])


def _compare_without_the_corrector(dtype, tolerance):
    data = random_data(N_USERS, N_ITEMS, 9, seed=5)
    rng = np.random.default_rng(1)
    users, items = (rng.normal(size=(n, D + 1)).astype(dtype) for n in (N_USERS, N_ITEMS))
    priors = [(np.zeros(D + 1), rng.uniform(1, 3, D + 1)) for _ in range(2)]
    rule = SGD(grid=Grid(), minibatch="replacement", batch_size=2)
    blocks = make_blocks(data, Grid(), 1, 3)
    ((held, *_),) = hold_blocks(data, blocks, np.ones(1), rule, dtype)
    bare = replace(held, prior_weight=(np.ones(N_USERS, dtype), np.ones(N_ITEMS, dtype)))
    parts = [_estimate(bare, b, users, items, priors)[0] for b in _batches(held, "replacement", 2)]
    ratings = list(zip(*data.triples(), strict=True))
    gx, _, _ = naive.gradients(users, items, ratings, D, WEIGHTS)
    hbar = 1 / held.prior_weight[0]
    G2 = TAU * gx - hbar[:, None] * users * priors[0][1]
    assert np.allclose(sum(parts) / len(parts), G2, atol=tolerance)
    assert hbar.max() < 0.7


def test_without_the_corrector_it_is_biased():
    """G2 of the paper: with h left out the prior's share comes out as hbar Lambda U."""
    _compare_without_the_corrector(np.float32, 1e-5)


def main():
    for shape, minibatch, full in itertools.product(SHAPES, MINIBATCHES, FULL):
        _compare(*shape, minibatch, full, np.float64, 1e-12)
    _compare_without_the_corrector(np.float64, 1e-12)


def test_to_the_last_digit():
    run_main(__file__)
