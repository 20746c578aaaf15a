"""What the amplitude move is told of the ratings, against plain sums over them."""

import numpy as np
import pytest

import bayesmf.chains.chain
from bayesmf import Gibbs
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.state import RunSettings
from bayesmf.kernels.gather import BB, BT, FB, FF, FT
from bayesmf.model.priors import GammaPrior, WishartPrior
from driving import do, start_chain, sweep
from problems import random_data

D = 3


@pytest.mark.parametrize("joint", [None, 1, 4])
@pytest.mark.parametrize("by", [None, "user", "item", "both"])
@pytest.mark.parametrize("prior", [GammaPrior(), WishartPrior()])
def test_sums_are_of_all_ratings_by_their_precisions(prior, by, joint, monkeypatch):
    """Also when the sizes of users' and items' precisions have been exchanged in between."""
    data = random_data(30, 20, 300)
    settings = RunSettings(Gibbs(joint=joint, n_stripes=2), prior, D, None, 0, 1, noise_by=by)
    state, rounds = (
        start_chain(0, settings, data_shape(data)),
        GibbsRounds(data, settings.sampler, 0),
    )
    told = []
    monkeypatch.setattr(
        bayesmf.chains.chain,
        "draw_amplitudes",
        lambda rows, n_factors, prior, sums, rng: told.append(sums) or np.ones(len(rows.total)),
    )
    for t in range(6):
        sweep(rounds, state, t)
        do(rounds.draw_noise(state, t), rounds)
        draw_precisions(state, settings, t, burning=False)
    for name, value in _plain(data, state).items():
        assert told[-1][name] == pytest.approx(value, rel=2e-4, abs=1e-3), name


def _plain(data, state):
    """Scales that have been drawn since leave products as they were."""
    user, item, value = data.triples()
    now, p = state.precisions, state.whole()
    weights = now.weights(1)
    precision = now.of_rows(0, 30)[user] * (1.0 if weights is None else weights[item])
    f, b, rest = np.sum(p.U[user] * p.V[item], 1), p.b[item], value - p.a[user]
    pairs = {FT: f * rest, BT: b * rest, FF: f * f, FB: f * b, BB: b * b}
    return {name: np.sum(precision * x) for name, x in pairs.items()}
