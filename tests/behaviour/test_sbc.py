"""Simulation-based calibration of the default sampler, and proof that it can fail.

Parameters from the prior and ratings given them are a draw of their joint law, so the truth is
one more draw of the posterior: its rank among draws of a chain is uniform (Cook, Gelman and Rubin
2006). Chains begin at the truth, as they would after an endless burn-in, and keep few states, far
apart: correlations from one to the next are about 0.1, too small to tell from ranks.
Each of up to 14 functions is tested at level 1e-4: the false-alarm rate of a test is below 2e-3;
seeds are fixed. Mistakes that are easily made have p-values below 1e-12 with fewer replications.
"""

import numpy as np
import pytest
from scipy.stats import chi2

import bayesmf.model.noise
import bayesmf.model.priors
import bayesmf.worker.row_tasks
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.gibbs import SETTLE, GibbsRounds
from bayesmf.chains.state import ChainState, RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import GammaPrior, Params, Precisions, WishartPrior
from bayesmf.samplers.gibbs import Gibbs
from densities import covariance, draw_prior
from driving import do, sweep
from mutants import with_noise

N_USERS, N_ITEMS, N_RATINGS, D, N_PAIRS = 12, 10, 60, 2, 3
TAU_PRIOR = (6.0, 6.0)
# Of precisions of rows: their rate is Gamma, the logarithm of their shape normal.
RATE_PRIOR, LOG_SHAPE = (6.0, 2.0), (1.1, 0.4)
# Light tails, and ratings that tell noise from taste.
PRIORS = {
    "wishart-bias": WishartPrior(kappa_0=2.0, nu_0=10.0, bias=True),
    "gamma": GammaPrior(6.0, 1.0),
}
N_DRAWS, THIN = 4, 5
LEVEL, SEEN = 1e-4, 1e-12


@pytest.fixture(autouse=True)
def _light_tails(monkeypatch):
    monkeypatch.setattr(bayesmf.model.priors, "TAU_SHAPE", TAU_PRIOR[0])
    monkeypatch.setattr(bayesmf.model.priors, "TAU_RATE", TAU_PRIOR[1])
    monkeypatch.setattr(bayesmf.model.noise, "RATE_SHAPE", RATE_PRIOR[0])
    monkeypatch.setattr(bayesmf.model.noise, "RATE_RATE", RATE_PRIOR[1])
    monkeypatch.setattr(bayesmf.model.noise, "log_shape_prior", _log_prior_of_shape)


def _log_prior_of_shape(log_k):
    """log k ~ N(LOG_SHAPE)."""
    return -0.5 * ((log_k - LOG_SHAPE[0]) / LOG_SHAPE[1]) ** 2


def _true_noise(rng):
    """Precisions of users and items, from their prior."""
    k, own = np.exp(rng.normal(*LOG_SHAPE, size=2))
    rate = rng.gamma(RATE_PRIOR[0]) / RATE_PRIOR[1]
    users, items = rng.gamma(k, size=N_USERS) / rate, rng.gamma(own, size=N_ITEMS) / own
    return Noise(
        RowNoise(users.astype(np.float32), k, rate),
        RowNoise(items.astype(np.float32), own, own, mean_one=True),
    )


def _truth(prior, rng, seed, noisy=False):
    users, items = draw_prior(prior, D, rng), draw_prior(prior, D, rng)
    rows = [_rows(users, N_USERS, rng), _rows(items, N_ITEMS, rng)]
    tau = rng.gamma(TAU_PRIOR[0], 1 / TAU_PRIOR[1])
    noise = _true_noise(rng) if noisy else None
    tau = tau if noise is None else noise.typical()
    above = Precisions(users, items, tau, noise=noise)
    return ChainState(0, make_key(seed), Params(*rows, D), above)


def _rows(side, n, rng):
    root = np.linalg.cholesky(covariance(side))
    return (side.mu + rng.normal(size=(n, len(root))) @ root.T).astype(np.float32)


def _predictions(params):
    return params.U @ params.V.T + params.a[:, None] + params.b[None, :]


def _ratings(state, cells, rng):
    user, item = np.divmod(cells.astype(np.int32), np.int32(N_ITEMS))
    now, weights = state.precisions, state.precisions.weights(1)
    tau = now.of_rows(0, N_USERS)[user] * (1.0 if weights is None else weights[item])
    noise = rng.normal(size=len(cells)) / tau**0.5
    value = _predictions(state.whole())[user, item] + noise
    return TrainingData.from_triples(user, item, value.astype(np.float32), N_USERS, N_ITEMS)


def _functions(state, cells):
    """tau, predictions of some cells, the size of all, and how tight both priors are."""
    above, prediction = state.precisions, _predictions(state.whole())
    spread = [np.linalg.slogdet(covariance(side))[1] for side in (above.users, above.items)]
    found = [above.tau, *prediction.ravel()[cells], np.vdot(prediction, prediction), *spread]
    if above.noise is None:
        return found
    users, items = above.noise.users, above.noise.items
    tau, weight = np.asarray(users.value), np.asarray(items.value)
    one = tau[0] * weight[0], tau[1], weight[1]
    return [*found, users.shape, users.rate, items.shape, *one, np.log(tau).mean()]


def _ranks(name, seed, noisy=False):
    """Of the true functions among those of a chain's draws."""
    by = "both" if noisy else None
    rng = np.random.default_rng(seed)
    settings = RunSettings(Gibbs(), PRIORS[name], D, None, 0, 1, noise_by=by)
    state, cells = _truth(PRIORS[name], rng, seed, noisy), rng.permutation(N_USERS * N_ITEMS)
    unrated = cells[N_RATINGS : N_RATINGS + N_PAIRS]
    rounds = GibbsRounds(_ratings(state, cells[:N_RATINGS], rng), Gibbs(n_stripes=1), 0)
    truth, rank = np.array(_functions(state, unrated)), 0
    thin = 2 * THIN if noisy else THIN
    for t in range(SETTLE, SETTLE + N_DRAWS * thin):  # past the plain sweeps of a start
        sweep(rounds, state, t)
        do(rounds.draw_noise(state, t), rounds)
        draw_precisions(state, settings, t, burning=False)
        if (t - SETTLE) % thin == thin - 1:
            rank = rank + (np.array(_functions(state, unrated)) < truth)
    return rank


def _p_values(name, n, noisy=False):
    """Chi-square tests that the ranks of each function are uniform, over n replications."""
    ranks = np.array([_ranks(name, seed, noisy) for seed in range(n)])
    counts = np.array([np.bincount(r, minlength=N_DRAWS + 1) for r in ranks.T])
    expected = n / (N_DRAWS + 1)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(1), N_DRAWS)


@pytest.mark.parametrize("name", PRIORS)
def test_the_truth_is_like_a_draw(name):
    assert _p_values(name, 120).min() > LEVEL


@pytest.mark.parametrize("name", PRIORS)
def test_the_true_noise_of_rows_is_like_a_draw(name):
    """Shapes, rate and precisions of users and items besides; every tenth state is kept."""
    assert _p_values(name, 80, noisy=True).min() > LEVEL


def test_n_in_place_of_half_of_it_is_caught(monkeypatch):
    right = RowNoise.draw_values
    monkeypatch.setattr(RowNoise, "draw_values", lambda self, n, *more: right(self, 2 * n, *more))
    assert _p_values("gamma", 30, noisy=True).min() < SEEN


def test_all_of_the_noise_beside_a_leap_is_caught(monkeypatch):
    """sqrt(1 - relax^2) left out of an over-relaxed draw."""
    hot = with_noise(bayesmf.worker.row_tasks.draw_rows, lambda relax: (1 - relax**2) ** -0.5)
    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", hot)
    assert _p_values("gamma", 30).min() < SEEN
