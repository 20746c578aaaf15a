"""The posterior of a row, which everything else is made of, against plain float64 arithmetic."""

import numpy as np
import pytest
from scipy import stats

import naive
from bayesmf.kernels.pairs import draw_from_factors
from bayesmf.kernels.row_posterior import CHUNK, all_known, make_row_scratch, solve_rows
from bayesmf.kernels.types import readonly
from bayesmf.posterior.rows import RowPrecisions, factors_of, natural_priors, pad_rows, triangle
from row_cases import WIDTHS, Case, distance


class Rows:
    """Rows with the given numbers of ratings under some draws of the other side."""

    def __init__(self, width, counts, bias=True, full=False, n_draws=2, scale=1.0, seed=0):
        rng = np.random.default_rng(seed)
        self.width, self.D, self.n_draws = width, width - bias, n_draws
        self.other = rng.normal(size=(n_draws, 300, width)).astype(np.float32)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.index = rng.integers(300, size=self.starts[-1]).astype(np.int32)
        self.code = rng.integers(10, size=self.starts[-1]).astype(np.uint8)
        self.levels = (rng.normal(size=10) * (1 + width**0.5)).astype(np.float32)
        self.mu = rng.normal(size=(n_draws, width))
        self.tau = rng.uniform(0.5, 2, (n_draws, len(counts) + 1))  # the last: of no ratings
        self.weight = rng.uniform(0.5, 2, (n_draws, 300)).astype(np.float32)
        root = rng.normal(size=(n_draws, width, width)) / width**0.5
        diagonals = rng.uniform(1, 3, (n_draws, width))
        matrices = root @ root.transpose(0, 2, 1) + np.eye(width)
        self.Lambda = scale * (matrices if full else diagonals)

    def solve(self, rows, factors=True, coded=True, place=None):
        """(means, factors) as `solve_rows` leaves them."""
        value = self.code if coded else self.levels[self.code]
        place = np.arange(len(rows)) if place is None else place
        means = np.full((len(rows), self.n_draws, self.width), np.nan, np.float32)
        shape = (*means.shape[:2], triangle(self.width)) if factors else (0, 0, 0)
        found = np.full(shape, np.nan, np.float32)
        lists = map(readonly, (self.starts, self.index, value))
        weights = RowPrecisions(np.ones(self.n_draws), self.weight, np.ones((self.n_draws, 2)))
        solve_rows(
            means, found, self.tau[:, rows].T.copy(), place, readonly(rows),
            (*lists, self.levels), pad_rows(self.other, self.D, weights=weights),
            natural_priors(self.mu, self.Lambda), all_known(self.n_draws), self.D,
            make_row_scratch(self.width, self.D),
        )  # fmt: skip
        return means, found

    def plain(self, row, t):
        """Mean and precision matrix of a row under one draw."""
        mine = slice(self.starts[row], self.starts[row + 1]) if row >= 0 else slice(0, 0)
        partners, value = self.other[t, self.index[mine]], self.levels[self.code[mine]]
        Lambda = self.Lambda[t] if self.Lambda.ndim == 3 else np.diag(self.Lambda[t])
        X, target = naive.regression(partners, value, self.D, self.weight[t, self.index[mine]])
        return naive.row_posterior(X, target, self.mu[t], Lambda, self.tau[t, row])

    def check(self, rows, tolerance=2e-5):
        """Compare means, and L L^T with the precision, for all draws."""
        means, factors = self.solve(rows)
        for k, row in enumerate(rows):
            for t in range(self.n_draws):
                mean, precision = self.plain(row, t)
                assert distance(means[k, t], mean) < tolerance
                L = unpacked(factors[k, t], self.width)
                assert distance(L @ L.T, precision) < 1e-5


def unpacked(factor, width):
    """The matrix L of a stored factor, whose diagonal is inverted."""
    L = np.zeros((width, width))
    L[np.tril_indices(width)] = factor
    d = np.arange(width)
    L[d, d] = 1 / L[d, d]
    return L


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_means_and_factors(width, full, bias):
    Rows(width, [0, 1, 5, width, 150], bias, full).check([0, 1, 2, 3, 4, -1])


def test_means_and_factors_at_all_widths():
    for width in range(1, 102):
        turn = width + width // 8
        Rows(width, [2, 80], turn % 2 > 0, turn % 4 > 1, n_draws=1, seed=width).check([0, 1, -1])


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_several_chunks_and_many_draws(width):
    Rows(width, [CHUNK - 1, CHUNK, CHUNK + 1, 3000], full=True, n_draws=1).check(range(4))
    Rows(width, [40], n_draws=20).check([0])


@pytest.mark.parametrize("full", [True, False])
def test_a_row_without_ratings_follows_its_prior(full):
    rows = Rows(6, [0, 30], full=full, n_draws=3)
    means, factors = rows.solve([-1, 0])
    assert np.array_equal(means[0], means[1]) and np.array_equal(factors[0], factors[1])
    assert np.allclose(means[0], rows.mu, atol=1e-6)
    assert np.allclose(factors[0], factors_of(rows.Lambda), atol=1e-6)


def test_codes_stand_for_ratings():
    rows = Rows(9, [0, 7, 300])
    for one, other in zip(rows.solve([0, 1, 2]), rows.solve([0, 1, 2], coded=False), strict=True):
        assert np.array_equal(one, other)


def test_a_row_has_the_same_bits_in_any_company():
    rows = Rows(9, [3, 0, 300, 8, 41], full=True, n_draws=3)
    means, factors = rows.solve([0, 1, 2, 3, 4])
    turned, place = np.array([4, 2, 0]), np.array([1, 2, 0])
    some = rows.solve(turned, place=place)
    assert np.array_equal(some[0][place], means[turned])
    assert np.array_equal(some[1][place], factors[turned])
    alone, none = rows.solve([2], factors=False)
    assert np.array_equal(alone[0], means[2])
    assert not none.size


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("n_ratings", [3, 31, 40, 20_000])
def test_a_vague_prior_costs_no_accuracy(n_ratings, full):
    """Precisions 1e8 times below those of the ratings: float32 sums alone would be noise."""
    Rows(31, [n_ratings], full=full, scale=1e-8 * max(n_ratings, 31)).check([0], tolerance=1e-4)


def test_collinear_regressors():
    """Two columns equal but for a part in ten thousand: their pivot has four digits fewer.

    Without weights: these round the columns as float32 does, each in its own way.
    """
    rows = Rows(8, [400], bias=False, scale=1e-3)
    rows.weight[:] = 1.0
    rows.other[:, :, 3] = rows.other[:, :, 2] + 1e-4 * rows.other[:, :, 3]
    rows.check([0])
    precision = rows.plain(0, 0)[1]
    assert np.linalg.cond(precision) > 1e5
    pivots = np.diag(unpacked(rows.solve([0])[1][0, 0], 8))
    assert np.allclose(pivots, np.diag(np.linalg.cholesky(precision)), rtol=1e-5)


@pytest.mark.parametrize("n_ratings", [0, 3, 40])
def test_draws_from_factors_have_the_posterior_covariance(n_ratings):
    """20,000 draws, 20 statistics: false-alarm rate 1e-4 a test."""
    width, n = 5, 20_000
    rows = Rows(width, [n_ratings], full=True, n_draws=1)
    means, factors = (np.repeat(part, n, 0) for part in rows.solve([0]))
    out = np.empty_like(means)
    z = np.random.default_rng(4).standard_normal(means.shape)
    draw_from_factors(means, factors, z, out)
    mean, precision = rows.plain(0, 0)
    white = (out[:, 0] - mean) @ np.linalg.cholesky(precision)
    # Independent standard normals: every mean, variance and covariance has its known spread.
    second, spread = white.T @ white / n, np.sqrt((1 + np.eye(width)) / n)
    scores = np.concatenate(
        [white.mean(0) * n**0.5, ((second - np.eye(width)) / spread)[np.tril_indices(width)]]
    )
    assert np.abs(scores).max() < stats.norm.isf(1e-4 / 2 / len(scores))
    expected = means[:3, 0] + np.linalg.solve(np.linalg.cholesky(precision).T, z[:3, 0].T).T
    assert np.allclose(out[:3, 0], expected, atol=1e-5)


# -- priors of their own --------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_may_have_priors_of_their_own(width, bias):
    """Means and draws by `draw_rows`; with few ratings the prior is most of what is known."""
    case = Case(width, [0, 1, 3, width, CHUNK + 1, 2], bias).with_own_priors()
    out, means, sse = case.draw()
    for k in range(len(out)):
        assert distance(means[k], case.posterior(k)[0]) < 2e-5
        assert distance(out[k], case.expected_draw(k)) < 2e-5
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-5)


def test_a_prior_of_its_own_goes_with_its_row():
    case = Case(7, [3, 0, 40, 8]).with_own_priors()
    out, means, _ = case.draw()
    for rows in ([2], [3, 0], [1, 3, 2]):
        some, some_means, _ = case.draw(rows)
        assert np.array_equal(some, out[rows])
        assert np.array_equal(some_means, means[rows])


def test_equal_priors_are_one_prior():
    case = Case(7, [3, 0, 40, 8], full=True)
    out, means, sse = case.draw()
    case.mu, case.Lambda = np.tile(case.mu, (4, 1)), np.tile(case.Lambda, (4, 1, 1))
    again = case.draw()
    assert np.array_equal(out, again[0]) and np.array_equal(means, again[1])
    assert sse == again[2]
