"""Equations (26) to (33) as printed, with v summing to one over all blocks, beside our updates.

Ours have v as the share of rounds in which a block is active, which is larger by the number of
blocks in a group. So printed updates without noise are ours with as many times the step.
"""

import numpy as np
import pytest

from bayesmf import SGD, SGLD
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import make_key
from bayesmf.kernels.minibatch import draw_sorted
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.run.driver import make_rounds
from driving import sweep
from problems import random_data

D, M, EPSILON, TAU = 2, 5, 0.01, 2.0
DATA = random_data(9, 8, 50, seed=3)
LAMBDA = np.array([1.5, 2.0, 3.0])


def start():
    rng = np.random.default_rng(0)
    rows = [0.5 * rng.normal(size=(n, D + 1)).astype(np.float32) for n in (9, 8)]
    prior = RowPrior(np.zeros(D + 1), LAMBDA)
    return ChainState(0, make_key(4), Params(*rows, D), Precisions(prior, prior, TAU))


def printed(blocks, group, state):
    """Rows of users and items after one mini-batch in each block of a group; the last is a or b."""
    old = [np.asarray(side, float) for side in (state.params.users, state.params.items)]
    new, v = [side.copy() for side in old], 1 / len(blocks)
    triples = {}
    for block in blocks:
        user, item, rating = block.triples()
        triples[block.number] = block.user_rows[user], block.item_rows[item], rating
    hbar = [np.zeros(len(side)) for side in old]
    for own in triples.values():
        for side in range(2):
            N_i = np.bincount(own[side], minlength=len(old[side]))
            hbar[side] += v * (1 - (1 - N_i / len(own[2])) ** M)
    for number in group:
        user, item, rating = triples[number]
        index = np.empty(M, np.int64)
        draw_sorted(index, len(user), 0, number, state.key)
        g = [np.zeros_like(side) for side in old]
        for n in index:
            U, V = old[0][user[n]], old[1][item[n]]
            error = rating[n] - U[:D] @ V[:D] - U[D] - V[D]
            g[0][user[n]] += error * np.append(V[:D], 1.0) / M
            g[1][item[n]] += error * np.append(U[:D], 1.0) / M
        for side, rows in ((0, user), (1, item)):
            for i in set(rows[index].tolist()):
                pull = LAMBDA * old[side][i] / hbar[side][i]
                new[side][i] += EPSILON / 2 * (TAU * len(user) / v * g[side][i] - pull)
    return new


@pytest.mark.parametrize(
    ("grid", "size"),
    [((1, 1), 1), ((2, 2), 2), ((2, 2), 1), ((3, 3), 3), ((3, 3), 1), ((2, 3), 2), ((4, 1), 1)],
)
def test_printed_updates_are_ours_with_the_step_times_the_blocks_of_a_group(grid, size):
    rule = SGD(
        grid=grid, group_size=size, minibatch="replacement", batch_size=M, round_length=1, epochs=1,
        step_size=size * EPSILON,
    )  # fmt: skip
    rounds = make_rounds(DATA, rule.resolve(data_shape(DATA)), 0)
    state = start()
    group = rounds.groups[rounds.rotation.group(0, 0)]
    assert len(group) == size
    users, items = printed([held.block for held in rounds.blocks], group, start())
    sweep(rounds, state, 0)
    found = state.whole()
    assert np.abs(users - np.asarray(start().params.users)).max() > 0.05
    np.testing.assert_allclose(found.users, users, atol=1e-5)
    np.testing.assert_allclose(found.items, items, atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "size"), [((1, 1), 1), ((2, 2), 2), ((2, 2), 1), ((2, 3), 2), ((2, 3), 1), ((4, 1), 1)]
)
def test_printed_noise_has_the_printed_step_as_variance(grid, size):
    """Matched noise of the same random numbers has `size` * epsilon / hbar."""
    common = {"grid": grid, "group_size": size, "minibatch": "replacement", "batch_size": M,
              "round_length": 1, "epochs": 1, "step_size": size * EPSILON}  # fmt: skip
    rules = SGD(**common), SGLD(**common, noise="paper"), SGLD(**common, burn_in=0)
    after = []
    for rule in rules:
        rounds = make_rounds(DATA, rule.resolve(data_shape(DATA)), 0)
        state = start()
        sweep(rounds, state, 0)
        after.append(state.whole().users)
    visited = np.flatnonzero((after[1] != after[0]).any(axis=1))
    printed, matched = (rows[visited] - after[0][visited] for rows in after[1:])
    hbar = np.zeros(9)
    for held, rate in zip(rounds.blocks, rounds.visit_rate, strict=True):
        counts = held.block.counts()[0]
        hbar[held.block.user_rows] += rate * (1 - (1 - counts / len(held)) ** M)
    np.testing.assert_allclose(
        printed / matched, np.sqrt(hbar[visited] / size)[:, None] + 0 * printed, rtol=2e-3
    )
    assert len(visited) >= 3
