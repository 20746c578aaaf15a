"""Rounds of SGD and SGLD in blocks: compiled ones equal their plain twin, on all grids."""

import numpy as np
import pytest

import naive
from bayesmf import SGD, SGLD
from bayesmf.blocks.blocks import batch_order
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, make_key, stream_word
from bayesmf.kernels.minibatch import draw_sorted
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.run.driver import make_rounds
from bayesmf.worker.block_tasks import GradientTask, RoundResult, row_weights, value_of
from driving import sweep
from problems import random_data


class PlainTask(GradientTask):
    """The same round in plain Python, in double precision."""

    def execute(self, held):
        shared, block = self.shared, held.block
        rows = [np.asarray(value_of(part), float) for part in (self.users, self.items)]
        every = np.array(list(zip(*block.triples(), strict=True)))
        sse, count, end = 0.0, 0, shared.first_iteration + shared.length
        order = batch_order(
            shared.key, block.number, block.n_batches, shared.first_batch, shared.length
        )
        for k, iteration in enumerate(range(shared.first_iteration, end)):
            index = np.arange(*block.rating_starts[order[k] : order[k] + 2])
            if held.replacement_size is not None:
                index = np.empty(held.replacement_size, np.int64)
                draw_sorted(index, len(block), iteration, block.number, shared.key)
            ratings = [(int(i), int(j), r) for i, j, r in every[index]]
            *rows, errors = naive.update_batch(
                *rows, ratings, shared.n_factors, held.scale * shared.precisions.tau,
                [self._plain(held, side, rows[side]) for side in range(2)],
                [self._normals(held, side, rows[side], iteration) for side in range(2)],
            )  # fmt: skip
            sse, count = sse + errors, count + len(ratings)
        return RoundResult(*(x.astype(np.float32) for x in rows), shared.fixed, sse, count)

    def _plain(self, held, side, rows):
        prior = (self.shared.precisions.users, self.shared.precisions.items)[side]
        Lambda = np.diag(prior.Lambda) if prior.Lambda.ndim == 1 else prior.Lambda
        weight = row_weights((self.user_weight, self.item_weight)[side], rows)
        noise = held.noise[side] * self.shared.noise_share
        return self.shared.step, held.prior_weight[side], weight, noise, prior.mu, Lambda

    def _normals(self, held, side, rows, iteration):
        word = stream_word((STREAM_USERS, STREAM_ITEMS)[side], held.block.number)
        numbers = held.numbers(side)
        z = naive.normals(numbers, rows.shape[1], iteration, word, self.shared.key)
        return {k: z[number] for k, number in enumerate(numbers.tolist())}


def _after(data, rule, full, n_rounds, by, plain, monkeypatch, d=3):
    """State of a chain after some rounds, and the errors that the last one met."""
    width = d if full else d + 1
    rng = np.random.default_rng(2)
    rows = (
        rng.normal(size=(n, width)).astype(np.float32) / 2 for n in (data.n_users, data.n_items)
    )
    Lambda = np.cov(rng.normal(size=(width, 9))) if full else rng.uniform(1, 3, width)
    prior = RowPrior(rng.normal(size=width) / 5, Lambda)
    noise = by and Noise(
        RowNoise(rng.gamma(3, 0.5, data.n_users).astype(np.float32)),
        RowNoise(rng.gamma(3, 0.3, data.n_items).astype(np.float32)),
    )
    now = Precisions(prior, prior, 1.7, noise=noise)
    state = ChainState(0, make_key(7), Params(*rows, d), now)
    rounds = make_rounds(data, rule.resolve(data_shape(data)), 5)
    if plain:
        monkeypatch.setattr("bayesmf.chains.rounds.gradient.GradientTask", PlainTask)
    for t in range(n_rounds):
        sweep(rounds, state, t)
    return state


@pytest.mark.parametrize(("full", "by"), [(False, None), (True, None), (False, "both")])
@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (SGLD, {"grid": (2, 3), "round_length": 5}),
        (SGLD, {"minibatch": "replacement", "batch_size": 40}),
        (SGLD, {"noise": "paper", "grid": (2, 1)}),
        (SGD, {"grid": (1, 2)}),
    ],
)
def test_rounds_equal_plain_ones(rule, settings, full, by, monkeypatch):
    data, rule = random_data(30, 20, 300), rule(**{"step_size": 1e-3, "epochs": 9, **settings})
    other, one = (_after(data, rule, full, 3, by, plain, monkeypatch) for plain in (False, True))
    np.testing.assert_allclose(one.whole().users, other.whole().users, atol=2e-5)
    np.testing.assert_allclose(one.whole().items, other.whole().items, atol=2e-5)
    assert one.sse == pytest.approx(other.sse, rel=1e-5)
    assert one.count == other.count > 0
