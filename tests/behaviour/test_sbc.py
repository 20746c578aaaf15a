"""Simulation-based calibration of the default sampler, and proof that it can fail.

Parameters from the prior and ratings given them are a draw of their joint law, so the truth is
one more draw of the posterior: its rank among draws of a chain is uniform (Cook, Gelman and Rubin
2006). Chains begin at the truth, as they would after an endless burn-in, and keep every fifth
state: correlations from one to the next are about 0.1, too small to tell from ranks.
Each of seven functions is tested at level 1e-4, so the false-alarm rate of a test is below 1e-3;
seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import chi2

import bayesmf.model.priors
import bayesmf.worker.row_tasks
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.gibbs import SETTLE, GibbsRounds
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.params import Params, Precisions
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.samplers.gibbs import Gibbs
from driving import sweep
from mutants import with_noise

N_USERS, N_ITEMS, N_RATINGS, D, N_PAIRS = 12, 10, 60, 2, 3
TAU_PRIOR = (6.0, 6.0)
# Light tails, and ratings that tell noise from taste.
PRIORS = {
    "wishart-bias": WishartPrior(kappa_0=2.0, nu_0=10.0, bias=True),
    "gamma": GammaPrior(6.0, 1.0),
}
N_DRAWS, THIN = 9, 5
LEVEL = 1e-4


@pytest.fixture(autouse=True)
def _light_tails(monkeypatch):
    monkeypatch.setattr(bayesmf.model.priors, "TAU_SHAPE", TAU_PRIOR[0])
    monkeypatch.setattr(bayesmf.model.priors, "TAU_RATE", TAU_PRIOR[1])


def _truth(prior, rng, seed):
    users, items = prior.draw_prior(D, rng), prior.draw_prior(D, rng)
    rows = [_rows(users, N_USERS, rng), _rows(items, N_ITEMS, rng)]
    tau = rng.gamma(TAU_PRIOR[0], 1 / TAU_PRIOR[1])
    return ChainState(0, make_key(seed), Params(*rows, D), Precisions(users, items, tau))


def _rows(side, n, rng):
    root = np.linalg.cholesky(side.covariance())
    return (side.mu + rng.normal(size=(n, len(root))) @ root.T).astype(np.float32)


def _predictions(params):
    return params.U @ params.V.T + params.a[:, None] + params.b[None, :]


def _ratings(state, cells, rng):
    user, item = np.divmod(cells.astype(np.int32), np.int32(N_ITEMS))
    noise = rng.normal(size=len(cells)) / state.precisions.tau**0.5
    value = _predictions(state.params)[user, item] + noise
    return TrainingData.from_triples(user, item, value.astype(np.float32), N_USERS, N_ITEMS)


def _functions(state, cells):
    """tau, predictions of some cells, the size of all, and how tight both priors are."""
    above, prediction = state.precisions, _predictions(state.params)
    spread = [np.linalg.slogdet(side.covariance())[1] for side in (above.users, above.items)]
    return [above.tau, *prediction.ravel()[cells], np.vdot(prediction, prediction), *spread]


def _ranks(name, seed):
    """Of the true functions among those of a chain's draws."""
    rng, settings = np.random.default_rng(seed), RunSettings(Gibbs(), PRIORS[name], D, None, 0, 1)
    state, cells = _truth(PRIORS[name], rng, seed), rng.permutation(N_USERS * N_ITEMS)
    unrated = cells[N_RATINGS : N_RATINGS + N_PAIRS]
    rounds = GibbsRounds(_ratings(state, cells[:N_RATINGS], rng), Gibbs(n_stripes=1), 0)
    truth, rank = np.array(_functions(state, unrated)), 0
    for t in range(SETTLE, SETTLE + N_DRAWS * THIN):  # past the plain sweeps of a start
        sweep(rounds, state, t)
        draw_precisions(state, settings, t, burning=False)
        if (t - SETTLE) % THIN == THIN - 1:
            rank = rank + (np.array(_functions(state, unrated)) < truth)
    return rank


def _p_values(name, n):
    """Chi-square tests that the ranks of each function are uniform, over n replications."""
    ranks = np.array([_ranks(name, seed) for seed in range(n)])
    counts = np.array([np.bincount(r, minlength=N_DRAWS + 1) for r in ranks.T])
    expected = n / (N_DRAWS + 1)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(1), N_DRAWS)


@pytest.mark.parametrize("name", PRIORS)
def test_the_truth_is_like_a_draw(name):
    """With more than twice the replications that the mutant below needs, 15 for each rank."""
    assert _p_values(name, 150).min() > LEVEL


def test_a_wrong_temperature_is_caught(monkeypatch):
    hot = with_noise(bayesmf.worker.row_tasks.draw_rows, 1.5**0.5)
    monkeypatch.setattr(bayesmf.worker.row_tasks, "draw_rows", hot)
    assert _p_values("gamma", 60).min() < LEVEL / 10
