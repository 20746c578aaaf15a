"""Standard normals for many rows at once: the numbers that `fill_normals` gives row by row.

A row needs few counters, too few for vector code. Here the counters of several rows stand in one
list, row after row, and what comes out is put back into rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from bayesmf.kernels.jit import APART, njit
from bayesmf.kernels.keys import fill_counters
from bayesmf.kernels.simd import LANES, load, store

# Counters that are drawn at once, about: what they give stays in the first-level cache.
COUNTERS = 288

_U = np.uint64
_LANES = np.uint64(LANES)


class NoiseScratch(NamedTuple):
    """Buffers for the noise of a few rows."""

    number: NDArray[np.uint32]  # of each row
    row: NDArray[np.uint32]  # number of the row of each counter
    quad: NDArray[np.uint32]  # position in the row of each counter, in fours
    planes: NDArray[np.float32]  # what comes out, before it is put back into rows
    z: NDArray[np.float32]  # rows of noise, as wide as padded rows; the last is of zeros


def make_noise_scratch(width: int, padded_width: int, dtype: Any) -> NoiseScratch:
    """Allocate for rows of `width` columns that are stored in `padded_width`."""
    n_quads = (width + 3) // 4
    n_rows = max(COUNTERS // n_quads, LANES)
    counters = n_rows * n_quads + 2 * LANES
    return NoiseScratch(
        np.zeros(n_rows, np.uint32),
        np.zeros(counters, np.uint32),
        (np.arange(counters) % n_quads).astype(np.uint32),
        np.zeros(4 * counters, np.float32),
        np.zeros((n_rows + 2) * padded_width, dtype),
    )


@njit(**APART)
def fill_noise(noise, n_rows, width, padded_width, counter):
    """Standard normals for the first n_rows rows of `noise.number`.

    Row s is noise.z[s * padded_width :], of which the first `width` columns count.
    """
    number, row, planes, z = noise.number, noise.row, noise.planes, noise.z
    n_quads = _U((width + 3) // 4)
    room = _U(row.shape[0])
    for s in range(n_rows):
        for q in range(s * n_quads, s * n_quads + n_quads):
            row[q] = number[s]
    n = n_rows * n_quads
    n = (n + _LANES - _U(1)) // _LANES * _LANES
    key = counter.key
    fill_counters(planes, room, n, row, noise.quad, counter.round, counter.word, key[0], key[1])
    for s in range(n_rows):
        for p in range(_U(4)):
            # Whole vectors: what is too much is overwritten by what comes next.
            for q in range(_U(0), n_quads, _LANES):
                copy8(z, s * padded_width + p * n_quads + q, planes, p * room + s * n_quads + q)


def copy8(out: Any, to: Any, array: Any, at: Any) -> None:
    """In compiled code: out[to : to + 8] = array[at : at + 8], in the precision of `out`."""
    out[to : to + LANES] = array[at : at + LANES]


@overload(copy8, inline="always")
def _copy8(out, to, array, at):
    if out.dtype == array.dtype:
        return lambda out, to, array, at: store(out, to, load(array, at))

    def convert(out, to, array, at):
        for t in range(_LANES):
            out[to + t] = array[at + t]

    return convert
