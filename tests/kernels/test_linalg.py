"""The small compiled algebra against NumPy's."""

import numpy as np
import pytest

from bayesmf.kernels.linalg import cholesky, multiply, outer_square, solve_upper


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_against_numpy(n):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    A = root @ root.T + np.eye(n)
    L = cholesky(np.tril(A))
    assert np.allclose(L, np.linalg.cholesky(A), rtol=1e-10)
    B, x = rng.normal(size=(n, 3)), rng.normal(size=n)
    assert np.allclose(L.T @ solve_upper(L, B), B)
    assert np.allclose(outer_square(B), B @ B.T)
    assert np.allclose(multiply(L, x), L @ x)
    assert np.allclose(outer_square(solve_upper(L, np.eye(n))), np.linalg.inv(A))


def test_what_is_not_positive_is_not_a_number():
    assert np.isnan(cholesky(np.array([[1.0, 0.0], [2.0, 1.0]]))[1, 1])
