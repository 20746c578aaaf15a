"""StreamCounter-based random numbers: known answers, moments, independence of streams."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from bayesmf.kernels.gather import padded
from bayesmf.kernels.keys import (
    StreamCounter,
    fill_normals,
    generator,
    log32,
    make_key,
    philox,
    stream_word,
)
from bayesmf.kernels.noise import fill_noise, make_noise_scratch


@njit
def _philox(words, out):
    w = philox(words[0], words[1], words[2], words[3], words[4], words[5])
    for k in range(4):
        out[k] = w[k]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(words, answer):
    """The vectors published with Random123."""
    out = np.zeros(4, np.uint32)
    _philox(np.array(words, np.uint32), out)
    assert out.tolist() == answer


def _normals(n, row=0, iteration=0, stream=0, seed=0):
    out = np.empty(4 * n, np.float32)
    key = make_key(seed)
    fill_normals(out, n, row, iteration, np.uint32(stream), key[0], key[1])
    return out


def test_normals_are_standard_normal():
    """KS and four moments at fixed seed; each has a false-alarm rate of 1e-4 over seeds."""
    z = _normals(250_000).astype(float)
    n = len(z)
    assert np.isfinite(z).all()
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for moment, value, sd in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs(np.mean(z**moment) - value) < 3.9 * sd / n**0.5


@pytest.mark.parametrize("other", [{"row": 1}, {"iteration": 1}, {"stream": 1}, {"seed": 1}])
def test_counters_are_independent(other):
    """Correlation at two counters is within 3.9 standard errors (false-alarm rate 1e-4)."""
    n = 50_000
    a, b = _normals(n), _normals(n, **other)
    assert abs(np.corrcoef(a, b)[0, 1]) < 3.9 / (4 * n) ** 0.5
    assert np.array_equal(a, _normals(n))


@njit
def _fill(noise, n, width, padded_width, counter):
    fill_noise(noise, np.uint64(n), width, np.uint64(padded_width), counter)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 31, 33, 101])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_of_many_rows_is_that_of_each(width, dtype):
    """Bit for bit, for full buffers and for one row; the row of zeros behind them stays."""
    key, padded_width, n_quads = make_key(1), padded(width), (width + 3) // 4
    noise = make_noise_scratch(width, padded_width, dtype)
    for n in (len(noise.number), 1):
        noise.number[:] = 7 * np.arange(len(noise.number)) + n
        _fill(noise, n, width, padded_width, StreamCounter(5, np.uint32(9), key))
        for s in range(n):
            alone = np.empty(4 * n_quads, np.float32)
            fill_normals(alone, n_quads, int(noise.number[s]), 5, np.uint32(9), *key)
            row = noise.z[s * padded_width : s * padded_width + width]
            assert np.array_equal(row, alone[:width])
    assert not noise.z[-padded_width:].any()


def test_log32():
    x = np.concatenate([np.geomspace(2.0**-24, 1, 4001), [1.0]]).astype(np.float32)
    values = np.array([_log(v) for v in x])
    assert np.max(np.abs(values - np.log(x.astype(float)))) < 2e-6


@njit
def _log(x):
    return log32(x)


def test_keys_differ_by_seed_and_chain():
    keys = {tuple(make_key(seed, chain)) for seed in range(20) for chain in range(20)}
    assert len(keys) == 400
    assert make_key(2**80, 3).shape == (2,)


def test_generator_depends_on_its_counter_alone():
    key = make_key(5)
    a = generator(key, 3, 1, 2).random(4)
    assert np.array_equal(a, generator(key, 3, 1, 2).random(4))
    assert not np.array_equal(a, generator(key, 4, 1, 2).random(4))


def test_stream_word_keeps_block_and_stream_apart():
    words = {int(stream_word(s, b)) for s in range(1, 8) for b in (0, 1, 2**24 - 1)}
    assert len(words) == 21
