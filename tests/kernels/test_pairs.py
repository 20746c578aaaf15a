"""Predictions of pairs by the compiled kernels, against plain float64 arithmetic."""

import numpy as np
import pytest

from bayesmf.kernels.gather import padded
from bayesmf.kernels.pairs import (
    MOST,
    pad_draws,
    pair_components,
    sum_pair_means,
    unseen_spreads,
)
from bayesmf.posterior.rows import NOTHING, RowPrecisions, factors_of, pad_rows

DIMENSIONS = [(1, 0), (1, 1), (3, 1), (7, 1), (8, 0), (8, 1), (9, 1), (16, 0), (31, 1), (47, 1)]
N_OTHER = 40


class Asked:
    """Rows with Gaussian posteriors at odd places, and pairs of them with other rows."""

    def __init__(self, D, bias, counts=(3, 0, MOST + 5, 1, 40), n_draws=3, seed=0):
        rng = np.random.default_rng(seed)
        self.D, self.bias, self.width, self.n_draws = D, bias, D + bias, n_draws
        n = len(counts) + 2
        self.rows = rng.normal(size=(n, n_draws, self.width)).astype(np.float32)
        self.other = rng.normal(size=(n_draws, N_OTHER, self.width)).astype(np.float32)
        root = rng.normal(size=(n, n_draws, self.width, self.width)) / self.width**0.5
        self.precision = root @ root.swapaxes(-1, -2) + np.eye(self.width)
        self.factors = np.array([factors_of(one) for one in self.precision])
        self.place = rng.permutation(n)[: len(counts)]
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.slot = rng.integers(N_OTHER, size=self.starts[-1])
        self.noise = rng.uniform(0.1, 1, (len(counts), n_draws)).astype(np.float32)
        self.weight = rng.uniform(0.5, 2, (n_draws, N_OTHER)).astype(np.float32)

    def given(self):
        weights = self.weight[:, : self.other.shape[1]]
        prior = np.ones((self.n_draws, 2))
        own = RowPrecisions(np.ones(self.n_draws), weights, prior)
        return pad_rows(self.other, self.D, weights=own)

    def noise_of(self, n, t):
        """Of pair n under draw t."""
        k = np.searchsorted(self.starts, n, "right") - 1
        return self.noise[k, t] / self.weight[t, self.slot[n]]

    def components(self, factors=True, slot=None, starts=None, place=None, noise=None):
        slot = self.slot if slot is None else slot
        starts = self.starts if starts is None else starts
        shape = self.n_draws, len(slot)
        mu, var = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
        pair_components(
            self.rows, self.factors if factors else NOTHING,
            self.place if place is None else place, starts, slot,
            self.given(), self.D, self.noise if noise is None else noise, mu, var,
        )  # fmt: skip
        return mu, var

    def plain(self, n, t):
        """Mean, and variance without noise, of pair n under draw t."""
        place = self.place[np.searchsorted(self.starts, n, "right") - 1]
        row, x = self.rows[place, t].astype(float), self.other[t, self.slot[n]].astype(float)
        mean = row[: self.D] @ x[: self.D] + self.bias * (row[-1] + x[-1])
        if self.bias:
            x[-1] = 1.0
        return mean, x @ np.linalg.solve(self.precision[place, t], x)


def test_draws_are_laid_out():
    """In the order asked for; rows of -1, the last, and what fills up a vector are zero."""
    rng = np.random.default_rng(0)
    for D, bias in DIMENSIONS:
        rows = rng.normal(size=(2, 6, D + bias)).astype(np.float32)
        which, width = np.array([4, -1, 0, 4]), padded(D)
        features = np.full((2, 5 * width), np.nan, np.float32)
        biases = np.full((2, 5), np.nan, np.float32)
        pad_draws(rows, which, D, features, biases)
        table = features.reshape(2, 5, width)
        assert np.array_equal(table[:, [0, 2, 3], :D], rows[:, [4, 0, 4], :D])
        assert not table[:, [1, 4]].any() and not table[:, :, D:].any()
        expected = rows[:, [4, 0, 4], D] if bias else np.zeros((2, 3))
        assert np.array_equal(biases[:, [0, 2, 3]], expected)
        assert not biases[:, [1, 4]].any()


@pytest.mark.parametrize(("D", "bias"), DIMENSIONS)
def test_components_are_those_of_plain_arithmetic(D, bias):
    asked = Asked(D, bias)
    mu, var = asked.components()
    for n in (0, 1, 2, 3, 50, 3 + MOST, 7 + MOST, 8 + MOST, 9 + MOST, len(asked.slot) - 1):
        for t in range(asked.n_draws):
            mean, spread = asked.plain(n, t)
            assert mu[t, n] == pytest.approx(mean, abs=1e-6 * D + 1e-6)
            assert var[t, n] == pytest.approx(spread + asked.noise_of(n, t), rel=1e-5)


@pytest.mark.parametrize(("D", "bias"), DIMENSIONS)
def test_sums_are_those_of_the_components(D, bias):
    asked = Asked(D, bias)
    mu, _ = asked.components()
    total = np.ones(len(asked.slot))
    given = pad_rows(asked.other, D)
    sum_pair_means(asked.rows, asked.place, asked.starts, asked.slot, given, D, total)
    assert np.allclose(total - 1, mu.sum(0, dtype=float), atol=1e-5)


def test_rows_that_are_points_add_no_variance():
    asked = Asked(9, 1)
    mu, var = asked.components(factors=False)
    assert np.array_equal(mu, asked.components()[0])
    pairs = range(len(asked.slot))
    exact = [[asked.noise_of(n, t) for n in pairs] for t in range(asked.n_draws)]
    np.testing.assert_allclose(var, exact, rtol=1e-6)


@pytest.mark.parametrize(("D", "bias"), [(3, 1), (9, 0), (31, 1)])
def test_a_pair_has_the_same_bits_in_any_company(D, bias):
    asked = Asked(D, bias)
    mu, var = asked.components()
    given = pad_rows(asked.other, D)
    total = np.zeros(len(asked.slot))
    sum_pair_means(asked.rows, asked.place, asked.starts, asked.slot, given, D, total)
    for n in (0, 2, 7, 3 + MOST, len(asked.slot) - 1):
        k = [np.searchsorted(asked.starts, n, "right") - 1]
        own, one, place = asked.slot[n : n + 1], np.array([0, 1]), asked.place[k]
        alone = asked.components(slot=own, starts=one, place=place, noise=asked.noise[k])
        assert np.array_equal(alone[0][:, 0], mu[:, n])
        assert np.array_equal(alone[1][:, 0], var[:, n])
        summed = np.zeros(1)
        sum_pair_means(asked.rows, place, one, own, given, D, summed)
        assert summed[0] == total[n]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("spread", [True, False])
def test_unseen_partners_match_simulation(bias, spread):
    """Mean and variance of pairs of 100,000 drawn rows, to 4.5 standard errors (1e-5 each).

    Row and partner are both Gaussian, so their product is not: its moments are simulated.
    """
    D, n = 3, 100_000
    asked, rng = Asked(D, bias, counts=(1, 1), n_draws=2), np.random.default_rng(5)
    mu = rng.normal(size=(2, D + bias))
    root = rng.normal(size=(2, D + bias, D + bias))
    covariance = root @ root.transpose(0, 2, 1) / 4 + 0.2 * np.eye(D + bias)
    out, factors = np.full((2, 2), np.nan), asked.factors if spread else NOTHING
    roots = np.linalg.cholesky(covariance[:, :D, :D])
    unseen_spreads(asked.rows, factors, asked.place, covariance, roots, D, out)
    asked.other, asked.weight[:] = mu.astype(np.float32)[:, None], 1.0
    mean, var = asked.components(factors=spread, slot=np.zeros(2, int))
    for k, place in enumerate(asked.place):
        for t in range(2):
            own = np.linalg.inv(asked.precision[place, t]) * spread
            x = rng.multivariate_normal(asked.rows[place, t], own, n)
            y = rng.multivariate_normal(mu[t], covariance[t], n)
            total = np.einsum("nd,nd->n", x[:, :D], y[:, :D]) + bias * (x[:, -1] + y[:, -1])
            assert mean[t, k] == pytest.approx(total.mean(), abs=4.5 * total.std() / n**0.5)
            fourth = np.mean((total - total.mean()) ** 4)
            error = 4.5 * ((fourth - total.var() ** 2) / n) ** 0.5
            expected = var[t, k] - asked.noise[k, t] + out[k, t]
            assert expected == pytest.approx(total.var(), abs=error + 1e-4)
