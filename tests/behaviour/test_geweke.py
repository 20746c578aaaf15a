"""Geweke's joint test of both Gibbs samplers, and proof that it can fail.

If "draw R given the parameters, then one sweep given R" is run as one chain, its parameters follow
the prior. So every function of them must have the same mean as under draws from the prior.
Functions are invariant to rotations and signs, bounded or of light tails.

Many short chains begin at draws from the prior, so they are where they belong from the first sweep
on, their means are independent, and a difference is as Student's t (Welch 1947): z is the normal
number of the same tail. Seeds are fixed; a right sampler has |z| > 5 for one of 28 functions once
in 60,000 tests, and all that is wrong here, mistakes that are easily made, has one of 7 and more.
"""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as t_law

import bayesmf.chains.chain
import bayesmf.chains.rounds.gibbs
import bayesmf.model.noise
import bayesmf.model.priors
import bayesmf.model.scale
import bayesmf.worker.row_tasks
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.gibbs import SETTLE, GibbsRounds
from bayesmf.chains.state import ChainState, RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import SSE
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import GammaPrior, Params, Precisions, WishartPrior
from bayesmf.model.scale import STEP, STEP_OUT, slice_sample
from bayesmf.samplers.gibbs import Gibbs
from densities import covariance, draw_prior
from driving import do, sweep
from mutants import told_of, with_density, with_noise

# As many more users than items as Jacobians need that are left out.
N_USERS, N_ITEMS, D, TAU_PRIOR = 8, 4, 2, (6.0, 6.0)
# Of precisions of rows: their rate is Gamma, the logarithm of their shape normal.
RATE_PRIOR, LOG_SHAPE = (6.0, 2.0), (1.5, 0.7)
N_CHAINS, FEWER, LENGTH = 80, 50, 10  # FEWER are enough to see a mistake
# Over-relaxed by 0.9 squares of rows would take ten sweeps to forget where they were.
RELAX = 0.5
SEEN, LARGEST = 7.0, 5.0
PRIORS = {
    "gamma": GammaPrior(6.0, 6.0),
    "wishart": WishartPrior(kappa_0=2.0, nu_0=10.0),
    "wishart-bias": WishartPrior(kappa_0=2.0, nu_0=10.0, bias=True),
}
SHIFTED = WishartPrior(kappa_0=2.0, nu_0=10.0, bias=True, mu_0=0.4, W_0=1.5)
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
    out, shapes = [], [LOG_SHAPE[0]]
    for own in (noise.users, noise.items) if noise is not None else (None, None):
        if own is None:
            out += [0.0, 0.0, 0.0]
        else:
            logs, shape = np.log(np.asarray(own.value)), np.log(own.shape)
            shapes.append(shape)
            out += [shape, logs.mean() - np.log(own.shape / own.rate), logs[0]]
    return [*out, np.sum(shapes), np.sum((np.array(shapes) - LOG_SHAPE[0]) ** 2)]


def _of_errors(state, z):
    """Functions of the ratings' errors in units of their noise, normal and independent of all.

    Their size, whose they are, and what they have to do with the items' features and biases.
    """
    p, logs = state.whole(), np.log(_precisions(state))
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


def _functions(above, state, z):
    p, prior = state.whole(), state.precisions
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
        # rows stand about their means, and these about zero; and what is new in precisions, given
        # the rows. And the two sides' shares of a size.
        np.log(np.mean(np.concatenate([_squares(side, x - side.mu) for side, x in sides]))),
        np.log1p(sum(_squares(side, side.mu[None])[0] for side, _ in sides)),
        sum(_news(above, side, x) for side, x in sides),
        np.log(np.mean(p.U**2) / np.mean(p.V**2)),
        *_of_noise(prior.noise),
        *_of_errors(state, z),
    ]


def _news(above, side, rows):
    """Logarithm of precisions in units of what rows and the hyper-prior make of them."""
    n, x = len(rows), rows.astype(float)
    if side.Lambda.ndim == 1:
        return np.log(side.Lambda * (above.beta_0 + 0.5 * (x**2).sum(0))).mean()
    mean = x.mean(0)
    scatter = (x - mean).T @ (x - mean)
    away = mean - above.mu_0
    scatter += above.kappa_0 * n / (above.kappa_0 + n) * np.outer(away, away)
    return np.linalg.slogdet(side.Lambda @ (np.eye(len(mean)) / above.W_0 + scatter))[1]


def _squares(side, x):
    """x^T Lambda x of each row x."""
    return np.einsum("nd,nd->n", x @ side.Lambda if side.Lambda.ndim == 2 else x * side.Lambda, x)


def _from_prior(prior, rng, D=D, by=None, seed=1):
    users, items = draw_prior(prior, D, rng), draw_prior(prior, D, rng)
    rows = [
        (
            side.mu + rng.normal(size=(n, len(side.mu))) @ np.linalg.cholesky(covariance(side)).T
        ).astype(np.float32)
        for side, n in ((users, N_USERS), (items, N_ITEMS))
    ]
    tau = rng.gamma(TAU_PRIOR[0], 1 / TAU_PRIOR[1])
    noise = None if by is None else _from_noise_prior(by, rng)
    tau = tau if noise is None else noise.typical()
    return ChainState(
        0, make_key(seed), Params(*rows, D), Precisions(users, items, tau, noise=noise)
    )


def _ratings(state, rng):
    value = _means(state) + rng.normal(size=len(USER)) / _precisions(state) ** 0.5
    return value.astype(np.float32)


def _means(state):
    p = state.whole()
    return np.einsum("nd,nd->n", p.U[USER], p.V[ITEM]) + p.a[USER] + p.b[ITEM]


def _sweep(value, settings, state, t):
    """One round and the precisions, as a chain does them."""
    data = TrainingData.from_triples(USER, ITEM, value, N_USERS, N_ITEMS)
    rounds = GibbsRounds(data, settings.sampler, 0)
    sweep(rounds, state, t)
    do(rounds.draw_noise(state, t), rounds)
    draw_precisions(state, settings, t, burning=False)


@functools.cache
def _under_the_prior(prior, D, by):
    """Functions of draws from the prior, once for all tests: no mutant has a part in them."""
    rng = np.random.default_rng(7)
    states = (_from_prior(prior, rng, D, by) for _ in range(1000))
    return np.array([_functions(prior, state, rng.normal(size=len(USER))) for state in states])


def _chain_means(prior, settings, seed):
    """Means of the functions over one chain, past the plain sweeps that a start would have."""
    rng = np.random.default_rng([8, seed])
    state, found = _from_prior(prior, rng, settings.n_factors, settings.noise_by, seed), []
    for t in range(SETTLE, SETTLE + LENGTH):
        value = _ratings(state, rng)
        _sweep(value, settings, state, t)
        errors = (value - _means(state)) * _precisions(state) ** 0.5
        found.append(_functions(prior, state, errors))
    return np.mean(found, 0)


def _worst(name, n_chains=N_CHAINS, joint=None, D=D, by=None):
    """The largest |z| of all functions."""
    prior = PRIORS[name]
    sampler = Gibbs(n_stripes=1, joint=joint, overrelax=RELAX)
    settings = RunSettings(sampler, prior, D, None, seed=1, max_draws=1, noise_by=by)
    alone = _under_the_prior(prior, D, by)
    chains = np.array([_chain_means(prior, settings, seed) for seed in range(n_chains)])
    moves = alone.var(0) > 0
    chains, alone = chains[:, moves], alone[:, moves]
    own, other = chains.var(0, ddof=1) / n_chains, alone.var(0) / len(alone)
    far = np.abs(chains.mean(0) - alone.mean(0)) / np.sqrt(own + other)
    freedom = (n_chains - 1) * (1 + other / own) ** 2
    return norm.isf(t_law.sf(far, freedom)).max()


@pytest.mark.parametrize("name", PRIORS)
def test_gibbs_passes(name):
    assert _worst(name) < LARGEST


def test_gibbs_with_other_hyper_parameters_passes(monkeypatch):
    monkeypatch.setitem(PRIORS, "shifted", SHIFTED)
    assert _worst("shifted", FEWER) < LARGEST


@pytest.mark.parametrize(
    ("prior", "joint", "by"), [(WIDE, 4, "user"), (GammaPrior(6.0, 6.0), 1, "both")]
)
def test_gibbs_by_columns_passes(prior, joint, by, monkeypatch):
    """Six columns and a bias: two groups of four."""
    monkeypatch.setitem(PRIORS, "wide", prior)
    assert _worst("wide", joint=joint, D=6, by=by) < LARGEST


@pytest.mark.parametrize("name", PRIORS)
def test_twice_the_precision_is_caught(name, monkeypatch):
    """The half of exp(-tau e^2 / 2) left out of a draw of rows."""
    right = bayesmf.worker.row_tasks.draw_rows

    def mutant(out, means, stripe, regressors, prior, sweep, *how):
        return right(out, means, stripe, regressors, prior, sweep._replace(tau=2 * sweep.tau), *how)

    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", mutant)
    assert _worst(name, FEWER) > SEEN


def test_n_minus_one_rows_are_caught(monkeypatch):
    """As if the mean of the rows had been estimated."""
    right = GammaPrior.draw

    def mutant(self, rows, rng):
        return right(dataclasses.replace(self, alpha_0=self.alpha_0 - 0.5), rows, rng)

    monkeypatch.setattr(GammaPrior, "draw", mutant)
    assert _worst("gamma", FEWER) > SEEN


def test_a_mean_without_its_prior_is_caught(monkeypatch):
    """kappa_0 left out."""
    right = WishartPrior.draw

    def mutant(self, rows, rng):
        return right(dataclasses.replace(self, kappa_0=1e-9), rows, rng)

    monkeypatch.setattr(WishartPrior, "draw", mutant)
    assert _worst("wishart", FEWER) > SEEN


def test_a_forgotten_jacobian_of_the_scales_is_caught(monkeypatch):
    """(n_users - n_items) x left out of the density of a column's log scale."""
    mutant = with_density(lambda x: -(N_USERS - N_ITEMS) * x, width=STEP_OUT)
    monkeypatch.setattr(bayesmf.model.scale, "slice_sample", mutant)
    assert _worst("wishart-bias", FEWER) > SEEN


def test_a_wrong_share_of_fresh_noise_is_caught(monkeypatch):
    """1 - relax in place of sqrt(1 - relax^2)."""

    def share(relax):
        return (1 - relax) / (1 - relax**2) ** 0.5

    mutant = with_noise(bayesmf.worker.row_tasks.draw_rows, share)
    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", mutant)
    assert _worst("wishart-bias", FEWER) > SEEN


# -- noise that is not one number ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "by"), [("gamma", "both"), ("wishart", "item"), ("wishart-bias", "user")]
)
def test_noise_of_rows_passes(name, by):
    assert _worst(name, by=by) < LARGEST


def test_a_forgotten_weight_is_caught(monkeypatch):
    """Items are drawn as if all users had the same noise."""
    right = bayesmf.worker.row_tasks.regressors_of

    def mutant(parts, n_factors, weights):
        known = len(parts[0]) == N_ITEMS
        return right(parts, n_factors, weights if known else [None] * len(parts))

    monkeypatch.setattr(bayesmf.worker.row_tasks, "regressors_of", mutant)
    assert _worst("gamma", N_CHAINS, by="user") > SEEN


def test_errors_of_the_means_are_caught(monkeypatch):
    """Precisions go by the errors of the conditional means, not by those of the rows drawn."""
    right = bayesmf.worker.row_tasks.draw_rows

    def mutant(out, means, stripe, regressors, prior, sweep, *how):
        told = right(out, means, stripe, regressors, prior, sweep, *how)
        told[:, SSE] = told_of(means, stripe, regressors, sweep.n_factors)[:, SSE]
        return told

    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", mutant)
    assert _worst("gamma", FEWER, by="both") > SEEN


def test_n_in_place_of_half_of_it_is_caught(monkeypatch):
    right = RowNoise.draw_values
    monkeypatch.setattr(RowNoise, "draw_values", lambda self, n, *more: right(self, 2 * n, *more))
    assert _worst("gamma", FEWER, by="user") > SEEN


@pytest.mark.parametrize("sizes", [(N_ITEMS * D, 0), (0, N_ITEMS)])
def test_a_forgotten_jacobian_of_the_amplitudes_is_caught(sizes, monkeypatch):
    """That of the features, or that of the biases: they are drawn in turn."""
    turns = itertools.cycle([with_density(lambda x, size=size: -size * x) for size in sizes])

    def mutant(*given):
        return (next(turns) if given[2] == STEP else slice_sample)(*given)

    monkeypatch.setattr(bayesmf.model.scale, "slice_sample", mutant)
    assert _worst("gamma", FEWER, by="user") > SEEN


def test_a_forgotten_jacobian_of_the_exchange_is_caught(monkeypatch):
    """(n_users - n_items) x left out; of the slices of noise this one begins at zero."""
    mutant = with_density(lambda x: -(N_USERS - N_ITEMS) * x, only=0.0)
    monkeypatch.setattr(bayesmf.model.noise, "slice_sample", mutant)
    assert _worst("gamma", FEWER, by="both") > SEEN


def test_a_forgotten_jacobian_of_the_shape_is_caught(monkeypatch):
    """The prior's density of k taken for that of log k, by which it is drawn."""
    monkeypatch.setattr(
        bayesmf.model.noise, "log_shape_prior", lambda log_k: _log_prior_of_shape(log_k) - log_k
    )
    assert _worst("gamma", FEWER, by="both") > SEEN
