"""Updates written in NumPy: the compiled ones to rounding, on all grids and ways of drawing."""

import numpy as np
import pytest

from bayesmf import SGD, SGLD
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.kinds import make_rounds
from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from driving import sweep
from plain_rules import PlainSGD, PlainSGLD
from problems import random_data


def _after(data, rule, full, n_rounds, by=None, d=3):
    """Where a chain is after some rounds, and the errors that the last one met."""
    width = d if full else d + 1
    rng = np.random.default_rng(2)
    rows = (
        rng.normal(size=(n, width)).astype(np.float32) / 2 for n in (data.n_users, data.n_items)
    )
    Lambda = np.cov(rng.normal(size=(width, 9))) if full else rng.uniform(1, 3, width)
    prior = RowPrior(rng.normal(size=width) / 5, Lambda)
    noise = by and Noise(
        None if by == "item" else RowNoise(rng.gamma(3, 0.5, data.n_users).astype(np.float32)),
        None if by == "user" else RowNoise(rng.gamma(3, 0.3, data.n_items).astype(np.float32)),
    )
    now = Precisions(prior, prior, 1.7, noise=noise)
    state = ChainState(0, make_key(7), Params(*rows, d), now)
    rounds = make_rounds(data, rule.resolve(data_shape(data)), 5)
    for t in range(n_rounds):
        sweep(rounds, state, t)
    return state


@pytest.mark.parametrize(("full", "by"), [(False, None), (True, None), (False, "both")])
@pytest.mark.parametrize(
    ("plain", "compiled", "settings"),
    [
        (PlainSGLD, SGLD, {}),
        (PlainSGLD, SGLD, {"grid": (2, 3), "round_length": 5}),
        (PlainSGLD, SGLD, {"minibatch": "replacement", "batch_size": 40}),
        (PlainSGLD, SGLD, {"noise": "paper", "grid": (2, 1)}),
        (PlainSGD, SGD, {"grid": (1, 2)}),
    ],
)
def test_the_definition_of_an_update_is_what_is_compiled(plain, compiled, settings, full, by):
    data = random_data(30, 20, 300)
    settings = {"step_size": 1e-3, "epochs": 9, **settings}
    one, other = (_after(data, rule(**settings), full, 6, by) for rule in (plain, compiled))
    np.testing.assert_allclose(one.whole().users, other.whole().users, atol=2e-5)
    np.testing.assert_allclose(one.whole().items, other.whole().items, atol=2e-5)
    assert one.sse == pytest.approx(other.sse, rel=1e-5)
    assert one.count == other.count > 0
