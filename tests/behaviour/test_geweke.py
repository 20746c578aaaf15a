"""Geweke's joint test of both Gibbs samplers, and proof that it can fail.

If "draw R given the parameters, then one sweep given R" is run as one chain, its parameters follow
the prior. So every function of them must have the same mean as under draws from the prior.
Functions are invariant to rotations and signs, bounded or of light tails. With |z| < 4.5 for
25 functions the false-alarm rate of a test is below 2e-4; seeds are fixed.
"""

import dataclasses
import functools

import numpy as np
import pytest

import bayesmf.chains.chain
import bayesmf.chains.rounds.exact_rows
import bayesmf.chains.rounds.gibbs
import bayesmf.model.amplitude
import bayesmf.model.noise
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
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.params import Params, Precisions
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.samplers.gibbs import Gibbs
from driving import sweep
from mutants import with_density, with_noise

N_USERS, N_ITEMS, D, TAU_PRIOR = 6, 5, 2, (6.0, 6.0)
# Of precisions of rows: their rate is Gamma, the logarithm of their shape normal.
RATE_PRIOR, LOG_SHAPE = (6.0, 2.0), (1.1, 0.4)
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
    monkeypatch.setattr(bayesmf.model.noise, "RATE_SHAPE", RATE_PRIOR[0])
    monkeypatch.setattr(bayesmf.model.noise, "RATE_RATE", RATE_PRIOR[1])
    monkeypatch.setattr(bayesmf.model.noise, "log_shape_prior", _log_prior_of_shape)


def _log_prior_of_shape(log_k):
    """log k ~ N(SHAPE): in place of half-normal 1 / sqrt(k), whose precisions have heavy tails."""
    return -0.5 * ((log_k - LOG_SHAPE[0]) / LOG_SHAPE[1]) ** 2


def _from_noise_prior(by, rng):
    shape = [np.exp(rng.normal(*LOG_SHAPE)) for _ in range(2)]
    rate = rng.gamma(RATE_PRIOR[0]) / RATE_PRIOR[1]
    users = RowNoise((rng.gamma(shape[0], size=N_USERS) / rate).astype(np.float32), shape[0], rate)
    if by == "user":
        return Noise(users, None)
    both = by == "both"
    own = shape[1] if both else rate
    value = (rng.gamma(shape[1], size=N_ITEMS) / own).astype(np.float32)
    return Noise(users if both else None, RowNoise(value, shape[1], own, mean_one=both))


def _of_noise(noise):
    """Functions of each side's precisions, their shape and rate; zeros where there are none."""
    out = []
    for own in (noise.users, noise.items) if noise is not None else (None, None):
        if own is None:
            out += [0.0, 0.0, 0.0]
        else:
            logs = np.log(own.value)
            out += [np.log(own.shape), logs.mean() - np.log(own.shape / own.rate), logs[0]]
    return out


def _of_errors(state, z):
    """Functions of the ratings' errors in units of their noise, normal and independent of all.

    Their size, whose they are, and what they have to do with the items' features and biases.
    """
    p, logs = state.params, np.log(_precisions(state))
    f, b = np.einsum("nd,nd->n", p.U[USER], p.V[ITEM]), p.b[ITEM]
    return [
        np.log(np.mean(z**2)),
        np.mean((logs - logs.mean()) * z**2),
        np.tanh(f @ z / np.linalg.norm(f)),
        np.tanh(b @ z / np.linalg.norm(b)) if b.any() else 0.0,
        np.mean(z * f) / np.mean(f * f + b * b),
    ]


def _precisions(state):
    """Of all ratings."""
    weights = state.precisions.weights(1)
    tau = state.precisions.of_rows(0, N_USERS)[USER].astype(float)
    return tau if weights is None else tau * weights[ITEM]


def _functions(state, z):
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
        *_of_noise(prior.noise),
        *_of_errors(state, z),
    ]


def _squares(side, x):
    """x^T Lambda x of each row x."""
    return np.einsum("nd,nd->n", x @ side.Lambda if side.Lambda.ndim == 2 else x * side.Lambda, x)


def _from_prior(prior, rng, D=D, by=None):
    users, items = prior.draw_prior(D, rng), prior.draw_prior(D, rng)
    rows = [
        (
            side.mu + rng.normal(size=(n, len(side.mu))) @ np.linalg.cholesky(side.covariance()).T
        ).astype(np.float32)
        for side, n in ((users, N_USERS), (items, N_ITEMS))
    ]
    tau = rng.gamma(TAU_PRIOR[0], 1 / TAU_PRIOR[1])
    noise = None if by is None else _from_noise_prior(by, rng)
    tau = tau if noise is None else noise.typical()
    return ChainState(0, make_key(1), Params(*rows, D), Precisions(users, items, tau, noise=noise))


def _ratings(state, rng):
    value = _means(state) + rng.normal(size=len(USER)) / _precisions(state) ** 0.5
    return value.astype(np.float32)


def _means(state):
    p = state.params
    return np.einsum("nd,nd->n", p.U[USER], p.V[ITEM]) + p.a[USER] + p.b[ITEM]


def _sweep(value, settings, state, t):
    """One round and the precisions, as a chain does them."""
    data = TrainingData.from_triples(USER, ITEM, value, N_USERS, N_ITEMS)
    rounds = GibbsRounds(data, settings.sampler, 0)
    sweep(rounds, state, t)
    rounds.draw_noise(state, t)
    draw_precisions(state, settings, t, burning=False)


@functools.cache
def _under_the_prior(prior, D, by):
    """Functions of draws from the prior, once for all tests: no mutant has a part in them."""
    rng = np.random.default_rng(7)
    states = (_from_prior(prior, rng, D, by) for _ in range(2 * N_SWEEPS))
    return np.array([_functions(state, rng.normal(size=len(USER))) for state in states])


def _z_scores(name, n=N_SWEEPS, joint=None, D=D, by=None):
    prior, rng = PRIORS[name], np.random.default_rng(8)
    independent = _under_the_prior(prior, D, by)
    state = _from_prior(prior, rng, D, by)
    settings = RunSettings(
        Gibbs(n_stripes=2, joint=joint), prior, D, None, seed=1, max_draws=1, noise_by=by
    )
    joint = []
    for t in range(n):
        value = _ratings(state, rng)
        _sweep(value, settings, state, t)
        joint.append(_functions(state, (value - _means(state)) * _precisions(state) ** 0.5))
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
    mutant = with_density(lambda x: -(N_USERS - N_ITEMS) * x)
    monkeypatch.setattr(bayesmf.model.rescale, "slice_sample", mutant)
    assert np.nanmax(_z_scores("wishart-bias", 750)[0]) > 6


def test_a_wrong_share_of_fresh_noise_is_caught(monkeypatch):
    """1 - relax in place of sqrt(1 - relax^2)."""

    def share(relax):
        return (1 - relax) / (1 - relax**2) ** 0.5

    mutant = with_noise(bayesmf.worker.row_tasks.draw_rows, share)
    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", mutant)
    assert np.nanmax(_z_scores("wishart-bias", 500)[0]) > 6


# -- noise that is not one number ------------------------------------------------------------------

NOISE = [
    ("gamma", "user", None), ("gamma", "both", None), ("wishart", "item", None),
    ("wishart-bias", "both", None), ("wishart-bias", "user", 4), ("gamma", "both", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "by", "joint"), NOISE)
def test_noise_of_rows_passes(name, by, joint):
    z, ess = _z_scores(name, joint=joint, by=by)
    assert np.nanmin(ess[np.isfinite(ess)]) > 40
    assert np.nanmax(z) < 4.5


def _forgets_weights(regressors):
    def mutant(rows, n_factors, weight=None):
        return regressors(rows, n_factors, weight if len(rows) == N_ITEMS else None)

    return mutant


def test_a_forgotten_weight_is_caught(monkeypatch):
    """Items are drawn as if all users had the same noise."""
    mutant = _forgets_weights(bayesmf.chains.rounds.exact_rows.regressors)
    monkeypatch.setattr(bayesmf.chains.rounds.exact_rows, "regressors", mutant)
    assert np.nanmax(_z_scores("gamma", 900, by="user")[0]) > 6


def test_errors_of_another_state_are_caught(monkeypatch):
    """Precisions of users from the errors that they have with the items' next rows."""
    right = bayesmf.chains.rounds.gibbs.draw_row_noise

    def mutant(state, t, side, counts, errors):
        p = state.params
        mean = (state.means.users if side == 0 else state.means.items).astype(float)
        rows, other = (p.users, p.items) if side == 0 else (p.items, p.users)
        scale = np.sum((rows - mean) ** 2 * np.mean(other**2, 0), 1)
        right(state, t, side, counts, np.maximum(errors - counts * scale, 0.0))

    monkeypatch.setattr(bayesmf.chains.rounds.gibbs, "draw_row_noise", mutant)
    assert np.nanmax(_z_scores("gamma", 900, by="both")[0]) > 6


def test_n_in_place_of_half_of_it_is_caught(monkeypatch):
    right = RowNoise.draw
    monkeypatch.setattr(RowNoise, "draw", lambda self, n, sse, rng: right(self, 2 * n, sse, rng))
    assert np.nanmax(_z_scores("gamma", 300, by="user")[0]) > 6


@pytest.mark.parametrize("size", [N_ITEMS * D, N_ITEMS])
def test_a_wrong_jacobian_of_the_amplitudes_is_caught(size, monkeypatch):
    mutant = with_density(lambda x: -size * x)
    monkeypatch.setattr(bayesmf.model.amplitude, "slice_sample", mutant)
    assert np.nanmax(_z_scores("gamma", 600, by="user")[0]) > 6


def test_a_wrong_jacobian_of_the_exchange_is_caught(monkeypatch):
    """That of the users' side left out."""
    mutant = with_density(lambda x: -N_USERS * x, only=0.0)
    monkeypatch.setattr(bayesmf.model.noise, "slice_sample", mutant)
    assert np.nanmax(_z_scores("gamma", 600, by="both")[0]) > 6


def test_a_prior_of_the_shape_that_is_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(bayesmf.model.noise, "log_shape_prior", lambda log_k: 0.0)
    assert np.nanmax(_z_scores("gamma", 900, by="user")[0]) > 6


def test_amplitudes_by_other_precisions_are_caught(monkeypatch):
    """Sums with a fifth of the weight that ratings have."""
    right = bayesmf.chains.chain.draw_amplitudes

    def mutant(rows, n_factors, prior, sums, rng):
        right(rows, n_factors, prior, 0.2 * sums, rng)

    monkeypatch.setattr(bayesmf.chains.chain, "draw_amplitudes", mutant)
    assert np.nanmax(_z_scores("gamma", 900, by="both")[0]) > 6
