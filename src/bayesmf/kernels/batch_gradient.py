"""Gradients of a mini-batch and noise as plain arrays, for rules whose update is written in NumPy.

Rows are not padded here, and a mini-batch's gradients stand in arrays of all rows: what compiled
rules do in one pass (kernels/gradient.py) is done in several.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.jit import EXACT, njit
from bayesmf.kernels.keys import fill_normals
from bayesmf.kernels.minibatch import draw_batch


@njit(**EXACT)
def add_gradients(data, lo, hi, X, Y, weights, n_factors, user_gradients, item_gradients):
    """Add the likelihood's gradients of the segments from lo to hi; returns squared errors.

    Without tau: the gradient of -1/2 sum of errors^2, each times the weights of its user's and of
    its item's ratings. Squared errors are as they are.
    """
    own, other = weights
    sse, width = 0.0, X.shape[1]
    for k in range(lo, hi):
        i = data.segment_user[k]
        for n in range(data.segment_starts[k], data.segment_starts[k + 1]):
            j = data.item[n]
            error = np.float64(rating_at(data.value, data.levels, n))
            for d in range(n_factors):
                error -= X[i, d] * Y[j, d]
            for d in range(n_factors, width):
                error -= X[i, d] + Y[j, d]
            sse += error * error
            error *= np.float64(own[i]) * np.float64(other[j])
            for d in range(n_factors):
                user_gradients[i, d] += error * Y[j, d]
                item_gradients[j, d] += error * X[i, d]
            for d in range(n_factors, width):
                user_gradients[i, d] += error
                item_gradients[j, d] += error
    return sse


@njit(**EXACT)
def fill_noise(z, numbers, iteration, stream, key):
    """Standard normals of rows by their numbers; rows of z are whole fours wide."""
    for k in range(numbers.shape[0]):
        fill_normals(z[k], z.shape[1] // 4, numbers[k], iteration, stream, key[0], key[1])


@njit(**EXACT)
def draw_with_replacement(index, drawn, data, iteration, block, key):
    """Draw a mini-batch into `drawn`; returns how many segments it has."""
    return draw_batch(index, drawn, data, iteration, block, key)
