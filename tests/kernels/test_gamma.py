"""Gamma variates of rows, by their distribution and by what they depend on.

Kolmogorov-Smirnov at a level of 1e-4 for each of five shapes: a false alarm in 5e-4 of all seeds.
"""

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.noise import draw_gammas

KEY = np.array([3, 5], np.uint32)


def _draw(shape, numbers, round_=1):
    out = np.empty(len(numbers))
    shapes = np.full(len(numbers), shape)
    draw_gammas(out, shapes, np.asarray(numbers, np.int32), round_, np.uint32(7), KEY[0], KEY[1])
    return out


@pytest.mark.parametrize("shape", [0.2, 0.9, 1.0, 4.5, 3000.0])
def test_they_are_gamma(shape):
    found = _draw(shape, np.arange(20_000))
    assert stats.kstest(found, stats.gamma(shape).cdf).pvalue > 1e-4
    assert found.var() == pytest.approx(shape, rel=0.12 if shape < 1 else 0.06)


def test_they_belong_to_their_rows():
    """In any order, in any company."""
    numbers = np.arange(100)
    found = _draw(2.0, numbers)
    assert np.array_equal(_draw(2.0, numbers[::-1]), found[::-1])
    assert np.array_equal(_draw(2.0, numbers[40:60]), found[40:60])
    assert not np.isin(_draw(2.0, numbers, round_=2), found).any()
