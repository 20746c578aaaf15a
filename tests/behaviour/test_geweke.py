"""Geweke's joint test of both Gibbs samplers, and proof that it can fail.

If "draw R given the parameters, then one sweep given R" is run as one chain, its parameters follow
the prior. So every function of them must have the same mean as under draws from the prior.
Functions are invariant to rotations and signs, bounded or of light tails. With |z| < 4.5 for
fourteen functions the false-alarm rate of a test is below 1e-4; seeds are fixed.
"""

import dataclasses
import functools

import numpy as np
import pytest

import bayesmf.model.priors
import bayesmf.model.rescale
import bayesmf.worker.row_tasks
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.diagnostics.mixing import effective_sample_size
from bayesmf.kernels.keys import make_key
from bayesmf.model.params import Params, Precisions
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.samplers.gibbs import Gibbs
from driving import sweep
from mutants import with_noise

N_USERS, N_ITEMS, D, TAU_PRIOR = 6, 5, 2, (6.0, 6.0)
# More than the mutant needs that is hardest to see: what passes would not if it were wrong so.
N_SWEEPS = 1250
PRIORS = {
    "gamma": GammaPrior(6.0, 6.0),
    "wishart": WishartPrior(kappa_0=2.0, nu_0=10.0),
    "wishart-bias": WishartPrior(kappa_0=2.0, nu_0=10.0, bias=True),
}
# For seven columns; its tails are as light as those of ten degrees of freedom for three.
WIDE = WishartPrior(kappa_0=2.0, nu_0=30.0, bias=True)
CELLS = np.random.default_rng(0).permutation(N_USERS * N_ITEMS)[:17]
USER, ITEM = (CELLS // N_ITEMS).astype(np.int32), (CELLS % N_ITEMS).astype(np.int32)


@pytest.fixture(autouse=True)
def _light_tails(monkeypatch):
    monkeypatch.setattr(bayesmf.model.priors, "TAU_SHAPE", TAU_PRIOR[0])
    monkeypatch.setattr(bayesmf.model.priors, "TAU_RATE", TAU_PRIOR[1])


def _functions(state):
    p, prior = state.params, state.precisions
    pred = p.U @ p.V.T + p.a[:, None] + p.b[None, :]
    sides = (prior.users, p.users), (prior.items, p.items)
    return [
        np.log(prior.tau),
        np.log(prior.users.diagonal()).mean(),
        np.log(prior.items.diagonal()).mean(),
        np.log(prior.users.diagonal()[-1]),
        np.tanh(prior.items.mu[0]),
        np.log(np.mean(p.U**2)),
        np.log(np.mean(p.V**2)),
        np.tanh(pred[0, 0]),
        np.tanh(pred[0, 0] * pred[1, 1]),
        np.log(np.mean(pred**2)),
        np.tanh(np.mean(p.a) * np.mean(p.b)),
        # Of known law whatever the precisions, so that draws of them are nearly independent: how
        # rows stand about their means, and these about zero. And the two sides' shares of a size.
        np.log(np.mean(np.concatenate([_squares(side, x - side.mu) for side, x in sides]))),
        np.log1p(sum(_squares(side, side.mu[None])[0] for side, _ in sides)),
        np.log(np.mean(p.U**2) / np.mean(p.V**2)),
    ]


def _squares(side, x):
    """x^T Lambda x of each row x."""
    return np.einsum("nd,nd->n", x @ side.Lambda if side.Lambda.ndim == 2 else x * side.Lambda, x)


def _from_prior(prior, rng, D=D):
    users, items = prior.draw_prior(D, rng), prior.draw_prior(D, rng)
    rows = [
        (
            side.mu + rng.normal(size=(n, len(side.mu))) @ np.linalg.cholesky(side.covariance()).T
        ).astype(np.float32)
        for side, n in ((users, N_USERS), (items, N_ITEMS))
    ]
    tau = rng.gamma(TAU_PRIOR[0], 1 / TAU_PRIOR[1])
    return ChainState(0, make_key(1), Params(*rows, D), Precisions(users, items, tau))


def _ratings(state, rng):
    p = state.params
    mean = np.einsum("nd,nd->n", p.U[USER], p.V[ITEM]) + p.a[USER] + p.b[ITEM]
    value = mean + rng.normal(size=len(USER)) / state.precisions.tau**0.5
    return TrainingData.from_triples(USER, ITEM, value.astype(np.float32), N_USERS, N_ITEMS)


def _sweep(data, settings, state, t):
    """One round and the precisions, as a chain does them."""
    sweep(GibbsRounds(data, settings.sampler, 0), state, t)
    draw_precisions(state, settings, t, burning=False)


@functools.cache
def _under_the_prior(prior, D):
    """Functions of draws from the prior, once for all tests: no mutant has a part in them."""
    rng = np.random.default_rng(7)
    return np.array([_functions(_from_prior(prior, rng, D)) for _ in range(N_SWEEPS)])


def _z_scores(name, n=N_SWEEPS, joint=None, D=D):
    prior, rng = PRIORS[name], np.random.default_rng(8)
    independent = _under_the_prior(prior, D)
    state = _from_prior(prior, rng, D)
    settings = RunSettings(Gibbs(n_stripes=2, joint=joint), prior, D, None, seed=1, max_draws=1)
    joint = []
    for t in range(n):
        _sweep(_ratings(state, rng), settings, state, t)
        joint.append(_functions(state))
    joint = np.array(joint)
    ess = effective_sample_size(joint[None])
    error = np.sqrt(independent.var(0) / len(independent) + joint.var(0) / ess)
    return np.abs(independent.mean(0) - joint.mean(0)) / np.where(error > 0, error, 1), ess


@pytest.mark.parametrize("name", PRIORS)
def test_gibbs_passes(name):
    z, ess = _z_scores(name)
    assert np.nanmin(ess) > 85
    assert np.nanmax(z) < 4.5


@pytest.mark.parametrize(("prior", "joint"), [(WIDE, 4), (GammaPrior(6.0, 6.0), 1)])
def test_gibbs_by_columns_passes(prior, joint, monkeypatch):
    """Six columns and a bias: two groups of four."""
    monkeypatch.setitem(PRIORS, "wide", prior)
    z, ess = _z_scores("wide", 1600, joint=joint, D=6)
    assert np.nanmin(ess) > 60
    assert np.nanmax(z) < 4.5


def _too_cold(draw_rows):
    def mutant(out, means, stripe, regressors, prior, sweep, joint):
        cold = sweep._replace(tau=1.6 * sweep.tau)
        return draw_rows(out, means, stripe, regressors, prior, cold, joint)

    return mutant


@pytest.mark.parametrize("name", PRIORS)
def test_a_row_draw_at_the_wrong_temperature_is_caught(name, monkeypatch):
    monkeypatch.setattr(
        bayesmf.worker.row_tasks, "draw_rows", _too_cold(bayesmf.worker.row_tasks.draw_rows)
    )
    assert np.nanmax(_z_scores(name, 600)[0]) > 6


def test_a_wrong_gamma_shape_is_caught(monkeypatch):
    right = GammaPrior.draw

    def mutant(self, rows, rng):
        return right(dataclasses.replace(self, alpha_0=self.alpha_0 + 0.5), rows, rng)

    monkeypatch.setattr(GammaPrior, "draw", mutant)
    assert np.nanmax(_z_scores("gamma", 1000)[0]) > 6


def test_a_wrong_wishart_mean_is_caught(monkeypatch):
    right = WishartPrior.draw

    def mutant(self, rows, rng):
        return right(dataclasses.replace(self, kappa_0=self.kappa_0 + 3), rows, rng)

    monkeypatch.setattr(WishartPrior, "draw", mutant)
    assert np.nanmax(_z_scores("wishart", 300)[0]) > 6


def test_a_wrong_jacobian_of_the_scales_is_caught(monkeypatch):
    """(n_users - n_items) x left out of the density of a column's log scale."""
    right = bayesmf.model.rescale._slice

    def mutant(log_density, rng):
        return right(lambda x: log_density(x) - (N_USERS - N_ITEMS) * x, rng)

    monkeypatch.setattr(bayesmf.model.rescale, "_slice", mutant)
    assert np.nanmax(_z_scores("wishart-bias", 750)[0]) > 6


def test_a_wrong_share_of_fresh_noise_is_caught(monkeypatch):
    """1 - relax in place of sqrt(1 - relax^2)."""

    def share(relax):
        return (1 - relax) / (1 - relax**2) ** 0.5

    mutant = with_noise(bayesmf.worker.row_tasks.draw_rows, share)
    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", mutant)
    assert np.nanmax(_z_scores("wishart-bias", 200)[0]) > 6
