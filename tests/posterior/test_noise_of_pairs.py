"""Precisions of people nobody has seen, and of new ones: against exact laws in one dimension.

A new person's precision, the row integrated out, has a density known up to a constant: that of the
ratings is a Gaussian of covariance X Lambda^-1 X^T + 1 / (tau w). `solve_rows` draws it by a few
steps of Gibbs from the prior's mean, so it is near that law and not of it.
"""

import numpy as np
import pytest
from scipy import stats

import naive
from bayesmf.kernels.noise import KNOWN_TO
from bayesmf.kernels.row_posterior import make_row_scratch, solve_rows
from bayesmf.kernels.types import readonly
from bayesmf.posterior.rows import RowPrecisions, natural_priors, pad_rows, unknown_noise

N_DRAWS, WIDTH, D = 4000, 5, 4


def _problem(n_ratings, shape, seed=0, sd=0.6):
    """Ratings of one person, the items' rows and weights, the same under all draws."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(40, WIDTH)).astype(np.float32)
    weight = rng.gamma(4.0, 0.25, 40).astype(np.float32)
    rated = rng.choice(40, n_ratings, replace=False).astype(np.int32)
    mu, Lambda = 0.3 * rng.normal(size=WIDTH), rng.uniform(1, 3, WIDTH)
    row = mu + rng.normal(size=WIDTH) / Lambda**0.5
    X, zero = naive.regression(items[rated], np.zeros(n_ratings), D)
    value = X @ row - zero + sd * rng.normal(size=n_ratings) / weight[rated] ** 0.5
    return items, weight, rated, value.astype(np.float32), mu, Lambda, (shape, 0.5 * shape)


def _exact(problem):
    """Mean and standard deviation of log tau, by quadrature."""
    items, weight, rated, value, mu, Lambda, (shape, rate) = problem
    X, target = naive.regression(items[rated], value, D, weight[rated])
    covariance, errors = X @ np.diag(1 / Lambda) @ X.T, target - X @ mu
    x = np.linspace(-25, 8, 3301)
    density = stats.gamma.logpdf(np.exp(x), shape, scale=1 / rate) + x
    values, vectors = np.linalg.eigh(covariance)
    along = vectors.T @ errors
    variance = values[:, None] + np.exp(-x)
    density += -0.5 * (np.log(variance) + along[:, None] ** 2 / variance).sum(0)
    p = np.exp(density - density.max())
    p /= p.sum()
    return p @ x, np.sqrt(p @ x**2 - (p @ x) ** 2)


def _drawn(problem):
    """log tau as it is drawn for a new person, by draw; and the rows' means."""
    items, weight, rated, value, mu, Lambda, prior = problem
    weights = RowPrecisions(np.ones(1), weight[None], np.ones((1, 2)))
    given = pad_rows(items[None], D, weights=weights)
    given = type(given)(*(np.repeat(part, N_DRAWS, 0) for part in given))
    own = natural_priors(np.tile(mu, (N_DRAWS, 1)), np.tile(Lambda, (N_DRAWS, 1)))
    tau, means = np.full((1, N_DRAWS), np.nan), np.empty((1, N_DRAWS, WIDTH), np.float32)
    solve_rows(
        means, np.empty((0, 0, 0), np.float32), tau, np.arange(1), readonly(np.array([0])),
        (*map(readonly, (np.array([0, len(rated)]), rated, value)), np.zeros(1, np.float32)),
        given, own, unknown_noise(np.tile(prior, (N_DRAWS, 1)), N_DRAWS, WIDTH), D,
        make_row_scratch(WIDTH, D),
    )  # fmt: skip
    return np.log(tau[0]), means[0]


CASES = [(0, 3.0), (0, 0.25), (1, 3.0), (1, 0.4), (3, 3.0), (3, 1.0), (8, 3.0), (8, 1.0), (30, 3.0)]


@pytest.mark.parametrize(("n_ratings", "shape"), CASES)
def test_a_new_person_has_the_right_precision(n_ratings, shape):
    """log tau within .06 of its deviation in the mean, and 6% in the deviation.

    4,000 draws have errors of .016 and some 1.5%: eight steps are not to be told from 32.
    """
    worst = np.zeros(2)
    for seed in range(3):
        problem = _problem(n_ratings, shape, seed)
        mean, sd = _exact(problem)
        found = _drawn(problem)[0]
        worst = np.maximum(worst, np.abs([(found.mean() - mean) / sd, found.std() / sd - 1]))
    assert worst.max() < 0.06, worst


def test_a_person_without_errors_has_some_noise():
    """A rating is known to the root of KNOWN_TO at best: 30 add 15 times that to the rate."""
    problem = (*_problem(30, 3.0, sd=0.0)[:-1], (3.0, 1e-6))
    most = stats.gamma(3.0 + 15).median() / (15 * KNOWN_TO)
    assert 0.7 * most < np.exp(np.median(_drawn(problem)[0])) < most


def test_rows_are_those_of_their_precision():
    """What is told of the row is its posterior at the precision that was drawn."""
    problem = _problem(6, 3.0)
    items, weight, rated, value, mu, Lambda, _ = problem
    log_tau, means = _drawn(problem)
    X, target = naive.regression(items[rated], value, D, weight[rated])
    for t in range(5):
        mean, _ = naive.row_posterior(X, target, mu, np.diag(Lambda), np.exp(log_tau[t]))
        assert np.allclose(means[t], mean, atol=1e-5)


# -- people nobody has seen ------------------------------------------------------------------------


@pytest.mark.parametrize("n_draws", [60, 400, 4000])
def test_a_rating_of_nobody_known_is_a_student_t(n_draws):
    """Precisions of the unseen mix normals to Student's t, 2 k degrees of freedom.

    Evenly spread quantiles do so better than draws would: intervals are right to .4 points and
    more from 60 draws on, and the variance, k / beta's inverse moment, to 6%.
    """
    shape, rate = 4.0, 2.0
    prior = np.tile([shape, rate], (n_draws, 1))
    sd = RowPrecisions(np.ones(n_draws), None, prior).unseen() ** -0.5
    exact = stats.t(2 * shape, scale=(rate / shape) ** 0.5)
    for p in (0.005, 0.05, 0.25, 0.75, 0.95):
        assert stats.norm.cdf(exact.ppf(p), 0, sd).mean() == pytest.approx(p, abs=0.004)
    assert np.mean(sd**2) == pytest.approx(exact.var(), rel=0.06)
    tau = sd**-2
    assert tau.mean() == pytest.approx(shape / rate, rel=0.02)
    assert tau.var() == pytest.approx(shape / rate**2, rel=0.06)


def test_the_unseen_have_the_precisions_of_each_draw():
    prior = np.column_stack([np.tile([1.5, 30.0], 500), np.tile([3.0, 10.0], 500)])
    found = RowPrecisions(np.ones(1000), None, prior).unseen()
    for one in (0, 1):
        exact = stats.gamma(prior[one, 0], scale=1 / prior[one, 1])
        assert stats.kstest(found[one::2], exact.cdf).pvalue > 1e-4


@pytest.mark.parametrize("n_draws", [60, 400])
def test_an_unseen_user_tells_nothing_of_an_unseen_item(n_draws):
    """Precisions of a pair of which neither is known are products of independent ones."""
    tau, w = (
        RowPrecisions(np.ones(n_draws), None, np.tile(prior, (n_draws, 1)), side).unseen()
        for side, prior in enumerate(([4.0, 2.0], [3.0, 3.0]))
    )
    assert abs(stats.spearmanr(tau, w).statistic) < 0.1
    exact = 2.0 / 3.0 * 3.0 / 2.0  # E[1 / tau] E[1 / w]
    assert np.mean(1 / (tau * w)) == pytest.approx(exact, rel=0.15)
