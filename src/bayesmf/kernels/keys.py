"""Counter-based random numbers: Philox4x32-10, keyed, without state.

A number is a pure function of (seed, chain) and of its counter (round, block, row, position). The
same seed gives the same bits on any number of threads, in any order of completion, and a lost round
can be repeated anywhere.

Philox is that of Salmon, Moraes, Dror, Shaw (SC 2011); the tests have its reference values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import EXACT, njit
from bayesmf.kernels.simd import fma

# Streams keep uses of the same (round, row) apart. They are the top byte of the last counter
# word; the block number has the 24 bits below.
STREAM_INIT = 1
STREAM_USERS = 2
STREAM_ITEMS = 3
STREAM_BATCH = 4
STREAM_SERVER = 5
STREAM_LAYOUT = 6
STREAM_SYNTHETIC = 7
STREAM_STRIPES = 8
STREAM_ROTATION = 9
STREAM_PROBE = 10
STREAM_SCALES = 11
STREAM_THOMPSON = 12
STREAM_FOLD = 13
STREAM_UPDATE = 14
STREAM_NOISE = 15
STREAM_AMPLITUDES = 16

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_U32 = np.uint32
_MASK = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


class StreamCounter(NamedTuple):
    """Part of the counter that is common to many rows.

    Philox's counter has four words, of which the row number and the position in the row vary.
    """

    round: int
    word: np.uint32  # of `stream_word`: stream and block
    key: NDArray[np.uint32]  # of `make_key`


def make_key(seed: int, chain: int = 0, *more: int) -> np.ndarray:
    """64 key bits from a seed of any size, a chain number and perhaps others, as two uint32."""
    # A spawn key, not a second word of entropy: those are padded, and (7, 5) would be 7 + 5 * 2^32.
    state = np.random.SeedSequence(seed, spawn_key=(chain, *more)).generate_state(2, np.uint32)
    return np.asarray(state, dtype=np.uint32)


def generator(key: np.ndarray, round_: int, stream: int, block: int = 0) -> np.random.Generator:
    """NumPy's generator for what the server draws (precisions), keyed the same way."""
    words = (int(key[0]), int(key[1]), round_, stream, block)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


@njit(inline="always")
def stream_word(stream, block):
    """stream << 24 | block, the last word of a counter."""
    return _U32((np.uint64(stream) << np.uint64(24)) | np.uint64(block))


@njit(inline="always")
def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox4x32: four counter words and two key words to four random words.

    Words are stored in 64 bits; the upper half is cleared only before a product reads it, because
    vector multiplication uses the lower halves.
    """
    x0, x1, x2, x3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    y0, y1 = np.uint64(k0), np.uint64(k1)
    for _ in range(10):
        p0 = _M0 * (x0 & _MASK)
        p1 = _M1 * (x2 & _MASK)
        x0 = (p1 >> _S32) ^ x1 ^ y0
        x2 = (p0 >> _S32) ^ x3 ^ y1
        x1, x3 = p1, p0
        y0 = y0 + _W0
        y1 = y1 + _W1
    return _U32(x0 & _MASK), _U32(x1 & _MASK), _U32(x2 & _MASK), _U32(x3 & _MASK)


@njit(inline="always")
def unit(word):
    """Uniform on (0, 1], 24 bits: never zero, so that its logarithm is finite."""
    return np.float32(np.int32(word >> _U32(8)) + np.int32(1)) * np.float32(5.9604645e-08)


@njit(inline="always")
def log32(x):
    """Natural logarithm of a positive normal float32 by exponent and polynomial, to 1e-7.

    A library call would prevent vectorization of the loop.
    """
    bits = np.float32(x).view(np.int32)
    # Mantissa in [sqrt(1/2), sqrt(2)): the polynomial is then used around its centre, log(1) = 0.
    shifted = np.int32(bits - np.int32(0x3F3504F3))
    exponent = np.int32(shifted >> np.int32(23))
    m = np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32)
    s = (m - np.float32(1.0)) / (m + np.float32(1.0))
    z = s * s
    # 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
    series = np.float32(2.0 / 9.0)
    series = fma(series, z, np.float32(2.0 / 7.0))
    series = fma(series, z, np.float32(2.0 / 5.0))
    series = fma(series, z, np.float32(2.0 / 3.0))
    series = fma(series, z, np.float32(2.0))
    return fma(s, series, np.float32(exponent) * np.float32(0.6931471805599453))


@njit(inline="always")
def sincos_turn(word):
    """Sine and cosine of an angle uniform over the full turn, from 32 random bits.

    Two bits choose the quadrant, 24 of the rest the angle t in (-1/2, 1/2] of a quarter turn,
    where short Taylor polynomials are exact to float32.
    """
    t = np.float32(np.int32((word >> _U32(6)) & _U32(0xFFFFFF)) - np.int32(8388607))
    x = t * np.float32(math.pi / 2 / 16777216.0)
    z = x * x
    sin = np.float32(-1.9515295891e-4)
    sin = fma(sin, z, np.float32(8.3321608736e-3))
    sin = fma(sin, z, np.float32(-1.6666654611e-1))
    sin = fma(x * z, sin, x)
    cos = np.float32(2.443315711809948e-5)
    cos = fma(cos, z, np.float32(-1.388731625493765e-3))
    cos = fma(cos, z, np.float32(4.166664568298827e-2))
    cos = fma(z * z, cos, fma(np.float32(-0.5), z, np.float32(1.0)))
    flip = (word & _U32(1)) != _U32(0)
    s, c = (cos, sin) if flip else (sin, cos)
    return signed(s, word & _U32(2)), signed(c, _U32(word + _U32(1)) & _U32(2))


@njit(**EXACT)
def signed(x, two):
    """-x if `two` is 2, x if it is 0."""
    return _U32(np.float32(x).view(np.uint32) ^ _U32(_U32(two) << _U32(30))).view(np.float32)


@njit(**EXACT)
def fill_normals(out, n_quads, row, round_, word3, k0, k1):
    """Standard normals for one row: out[: 4 * n_quads], float32, by Box-Muller.

    The four results of a counter go to four planes of `out`, so that stores are contiguous and
    the loop becomes vector code. Which position holds which normal does not matter.
    """
    for q in range(n_quads):
        a, b, c, d = four_normals(q, row, round_, word3, k0, k1)
        out[q] = a
        out[n_quads + q] = b
        out[2 * n_quads + q] = c
        out[3 * n_quads + q] = d


@njit(**EXACT)
def fill_rows(out, numbers, round_, word3, key):
    """Standard normals of rows by their numbers; rows of `out` are whole fours wide."""
    for k in range(numbers.shape[0]):
        fill_normals(out[k], out.shape[1] // 4, numbers[k], round_, word3, key[0], key[1])


@njit(**EXACT)
def fill_counters(out, room, n, row, quad, round_, word3, k0, k1):
    """Standard normals at n counters (quad[t], row[t]): out[t], out[room + t], ... out[3 room + t].

    Four times as many numbers as counters, in planes that are `room` apart.
    """
    for t in range(n):
        a, b, c, d = four_normals(quad[t], row[t], round_, word3, k0, k1)
        out[t] = a
        out[room + t] = b
        out[room + room + t] = c
        out[room + room + room + t] = d


@njit(inline="always")
def four_normals(quad, row, round_, word3, k0, k1):
    """Four standard normals at one counter, by Box-Muller from two pairs of uniforms."""
    two = np.float32(2.0)
    w0, w1, w2, w3 = philox(quad, row, round_, word3, k0, k1)
    first = math.sqrt(-two * log32(unit(w0)))
    s, c = sincos_turn(w1)
    second = math.sqrt(-two * log32(unit(w2)))
    t, d = sincos_turn(w3)
    return first * s, first * c, second * t, second * d
