"""Draws with a Gaussian prior for each row, and products of Gaussians, against plain ones."""

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.gather import N_SUMS, HalfSweep, RowRatings, regressors
from bayesmf.kernels.gaussians import (
    MomentSums,
    combine_gaussians,
    draw_gaussians,
    draw_products,
    make_gaussian_scratch,
    match_moments,
    triangle,
)
from bayesmf.kernels.keys import StreamCounter, make_key, stream_word
from bayesmf.kernels.row_posterior import make_row_scratch
from bayesmf.kernels.types import readonly
from row_cases import COUNTER, Case


def packed(matrices):
    return matrices[:, *np.tril_indices(matrices.shape[1])].astype(np.float32)


def unpacked(triangles, width):
    out = np.zeros((len(triangles), width, width))
    out[:, *np.tril_indices(width)] = triangles
    return out + np.tril(out, -1).transpose(0, 2, 1)


def drawn(case, sums, covariances, relax=0.0, old=0.0):
    """Rows and sums of ratings as `draw_gaussians` makes them of a case's rows."""
    mu, Lambda = (np.atleast_2d(case.mu), np.atleast_3d(case.Lambda.T).T)
    given = regressors(case.other, case.D, case.weight)
    ratings = RowRatings(
        case.numbers, case.starts, case.index, case.value, np.zeros(1, np.float32), *given
    )
    out = np.full((len(case.numbers), case.width), old, np.float32)
    told = np.zeros((len(out), N_SUMS))
    draw_gaussians(
        out, told, ratings, (readonly(mu.astype(np.float32)), readonly(packed(Lambda))),
        HalfSweep(case.D, case.tau, relax, COUNTER), make_row_scratch(case.width, case.D),
        make_gaussian_scratch(case.width), sums, covariances,
    )  # fmt: skip
    return out, told


def empty_sums(n, width):
    return MomentSums(np.zeros((n, width)), np.zeros((n, triangle(width))))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("relax", [0.0, 0.9])
@pytest.mark.parametrize("width", [1, 2, 8, 31])
def test_rows_and_moments_equal_plain_ones(width, relax, own):
    counts = [0, 1, width, 300]
    case = Case(width, counts, full=True).with_own_noise()
    case = case.with_own_priors() if own else case
    case.mu, case.Lambda = (x.astype(np.float32).astype(float) for x in (case.mu, case.Lambda))
    sums = empty_sums(len(counts), width)
    out, told = drawn(case, sums, 3.0, relax)
    twin = case.draw(relax=relax, old=0.0)[0]
    np.testing.assert_allclose(out, twin, atol=3e-5)
    np.testing.assert_allclose(told, case.told, rtol=1e-4, atol=1e-3)
    for k in range(len(counts)):
        mean, precision = case.posterior(k)
        second = 3 * np.linalg.inv(precision) + np.outer(mean, mean)
        np.testing.assert_allclose(sums.mean[k], mean, atol=3e-5)
        found = unpacked(sums.second[k : k + 1], width)[0]
        np.testing.assert_allclose(found, second, rtol=1e-4, atol=5e-4)
    alone = drawn(case, MomentSums(np.zeros((0, 1)), np.zeros((0, 1))), 0.0, relax)[0]
    assert np.array_equal(alone, out)


def gaussians(rng, n, width, least=0.5):
    root = rng.normal(size=(n, width, 2 * width))
    return rng.normal(size=(n, width)), root @ root.transpose(0, 2, 1) / width + least * np.eye(
        width
    )


def test_moments_become_gaussians():
    rng, n, width = np.random.default_rng(0), 6, 5
    mean, covariance = gaussians(rng, n, width)
    second = covariance + mean[:, :, None] * mean[:, None]
    sums = MomentSums(4 * mean, 4.0 * second[:, *np.tril_indices(width)])
    found, precision = np.empty((n, width), np.float32), np.empty((n, 15), np.float32)
    assert match_moments(found, precision, sums, 4, make_gaussian_scratch(width)) == 0
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(unpacked(precision, width), np.linalg.inv(covariance), atol=1e-4)


def combined(first, others, width):
    n = len(first[0])
    mean, factor = np.empty((n, width), np.float32), np.empty((n, triangle(width)), np.float32)
    own = (readonly(first[0].astype(np.float32)), readonly(packed(first[1])))
    rest = (
        np.array([o[0] for o in others], np.float32).reshape(len(others), n, width),
        np.array([packed(o[1]) for o in others], np.float32).reshape(
            len(others), n, triangle(width)
        ),
    )
    less = combine_gaussians(mean, factor, own, rest, 0.3, make_gaussian_scratch(width))
    L = np.tril(unpacked(factor, width))
    d = np.arange(width)
    L[:, d, d] = 1 / L[:, d, d]
    return mean, L @ L.transpose(0, 2, 1), less


@pytest.mark.parametrize("n_others", [0, 1, 3])
def test_products_count_the_first_once(n_others):
    """first * prod (other / first), where each other has the first in it."""
    rng, n, width = np.random.default_rng(1), 7, 6
    mu, Q = gaussians(rng, n, width)
    messages = [gaussians(rng, n, width, 0.0) for _ in range(n_others)]
    others = []
    for m, P in messages:
        shift = np.einsum("nde,ne->nd", Q, mu) + np.einsum("nde,ne->nd", P, m)
        others.append((np.linalg.solve(Q + P, shift[..., None])[..., 0], Q + P))
    mean, precision, less = combined((mu, Q), others, width)
    total = Q + sum(P for _, P in messages)
    shift = np.einsum("nde,ne->nd", Q, mu) + sum(np.einsum("nde,ne->nd", P, m) for m, P in messages)
    assert less == 0
    np.testing.assert_allclose(precision, total, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(mean, np.linalg.solve(total, shift[..., None])[..., 0], atol=1e-3)


def test_gaussians_that_do_not_agree_count_in_part():
    """Others that are wider than their prior would leave a precision below zero."""
    Q, mu = np.array([np.eye(3), np.eye(3)]), np.zeros((2, 3))
    wide = (mu + 1, np.array([0.55 * np.eye(3), 2 * np.eye(3)]))
    mean, precision, less = combined((mu, Q), [wide, wide], 3)
    assert less == 1
    np.testing.assert_allclose(precision[0], 0.55 * np.eye(3), atol=1e-6)  # 1 + 2 (0.55 - 1) / 2
    np.testing.assert_allclose(precision[1], 3 * np.eye(3), atol=1e-6)
    assert (np.linalg.eigvalsh(precision) > 0.3).all() and np.isfinite(mean).all()


def test_draws_from_products_have_their_moments():
    """20,000 rows of the same Gaussian; false-alarm rate 1e-4."""
    n, width, rng = 20_000, 5, np.random.default_rng(2)
    mu, Q = (np.repeat(x, n, axis=0) for x in gaussians(rng, 1, width))
    mean, factor = np.empty((n, width), np.float32), np.empty((n, 15), np.float32)
    nothing = np.empty((0, n, width), np.float32), np.empty((0, n, 15), np.float32)
    own = readonly(mu.astype(np.float32)), readonly(packed(Q))
    combine_gaussians(mean, factor, own, nothing, 0.3, make_gaussian_scratch(width))
    out = np.empty((n, width), np.float32)
    counter = StreamCounter(3, stream_word(2, 9), make_key(1))
    numbers = readonly(np.arange(n, dtype=np.int32))
    draw_products(
        out, readonly(mean), readonly(factor), numbers, counter, make_gaussian_scratch(width)
    )
    white = (out - mu) @ np.linalg.cholesky(Q[0])
    second = white.T @ white / n
    spread = np.sqrt((1 + np.eye(width)) / n)
    scores = np.concatenate(
        [white.mean(0) * n**0.5, ((second - np.eye(width)) / spread)[np.tril_indices(width)]]
    )
    assert np.abs(scores).max() < stats.norm.isf(1e-4 / 2 / len(scores))
