"""Vector operations equal NumPy's, in both precisions."""

import numpy as np
import pytest
from numba import njit

from bayesmf.kernels.simd import (
    fma,
    larger,
    load,
    prefetch,
    root,
    splat,
    store,
    total,
    transpose,
)  # fmt: skip


@njit
def _operate(a, b, c, out):
    x, y, z = load(a, 0), load(b, 0), load(c, 0)
    store(out, 0, fma(x, y, z))
    store(out, 8, x + y)
    store(out, 16, x - y)
    store(out, 24, x * y)
    store(out, 32, x / y)
    store(out, 40, root(y))
    store(out, 48, splat(a[3]))
    store(out, 56, larger(x, y))
    return total(x)


@njit
def _turn(a, out):
    prefetch(a, 8)
    t = transpose(
        load(a, 0), load(a, 8), load(a, 16), load(a, 24),
        load(a, 32), load(a, 40), load(a, 48), load(a, 56),
    )  # fmt: skip
    for i in range(8):
        store(out, 8 * i, t[i])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes(dtype):
    a, b, c = np.random.default_rng(0).uniform(0.5, 2.0, (3, 8)).astype(dtype)
    out = np.zeros(64, dtype)
    tolerance = 4 * np.finfo(dtype).eps
    assert _operate(a, b, c, out) == pytest.approx(a.sum(), rel=float(tolerance))
    expected = (a * b + c, a + b, a - b, a * b, a / b, np.sqrt(b), np.full(8, a[3]))
    np.testing.assert_allclose(out[:56].reshape(7, 8), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(out[56:], np.maximum(a, b))
    a[2] = np.nan
    _operate(a, b, c, out)
    assert out[58] == b[2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transpose(dtype):
    a, out = np.arange(64, dtype=dtype), np.zeros(64, dtype)
    _turn(a, out)
    np.testing.assert_array_equal(out.reshape(8, 8), a.reshape(8, 8).T)


def test_sums_take_halves_in_order():
    """1e8 + 1 loses the 1 in single precision: which terms meet first is fixed."""
    x = np.array([1e8, 1, 0, 0, -1e8, 1, 0, 0], np.float32)
    assert _operate(x, np.ones(8, np.float32), x, np.zeros(64, np.float32)) == 2.0
