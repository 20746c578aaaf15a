"""exp and erfc that compile to vector code, with the bits of glibc's.

Predictive distributions are made of these: calls of the C library take three times as long.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import WITHIN, njit
from bayesmf.kernels.simd import fma, recast

NEAR = 2.85  # greatest argument, either way, of erfc_near; exp_near takes -500 to 500

_U = np.uint64
_STEPS = 128  # powers of two between one and two


def _powers() -> NDArray[np.uint64]:
    """2^(k / 128) less its exponent k << 45, as bits, after the share that is lost by rounding."""
    one = 1 << 256
    root, power, out = 2 * one, one, np.empty(2 * _STEPS, np.uint64)
    for _ in range(7):
        root = math.isqrt(root * one)
    for k in range(_STEPS):
        rounded = power / one
        exact = int(rounded * 2**60) << 196
        lost = np.array([(power - exact) / exact, rounded]).view(np.uint64)
        out[2 * k : 2 * k + 2] = lost - np.array([0, k << 45], np.uint64)
        power = power * root >> 256
    return out


_POWERS = _powers()
_PER_POWER = float.fromhex("0x1.71547652b82fep0") * _STEPS  # 128 / log 2
_LOG_HIGH, _LOG_LOW = (
    float.fromhex(x) for x in ("-0x1.62e42fefa0000p-8", "-0x1.cf79abc9e3b39p-47")
)
_SHIFT = 1.5 * 2**52  # added, rounds to a whole number, which is then in the last bits
_E2, _E3, _E4, _E5 = (
    float.fromhex(x)
    for x in (
        "0x1.ffffffffffdbdp-2",
        "0x1.555555555543cp-3",
        "0x1.55555cf172b91p-5",
        "0x1.1111167a4d017p-7",
    )
)
_ERX = 8.45062911510467529297e-01


@njit(**WITHIN)
def exp_near(x):
    """exp(x) as glibc finds it: 2^(n / 128) exp(r), the second factor by a polynomial."""
    shifted = fma(_PER_POWER, x, _SHIFT)
    n, whole = recast(shifted), shifted - _SHIFT
    r = fma(whole, _LOG_LOW, fma(whole, _LOG_HIGH, x))
    at, rr = (n & _U(_STEPS - 1)) << _U(1), r * r
    low = fma(rr, fma(r, _E3, _E2), recast(_POWERS[at]) + r)
    tail = fma(rr * rr, fma(r, _E5, _E4), low)
    power = recast(_POWERS[at + _U(1)] + (n << _U(45)))
    return fma(power, tail, power)


@njit(**WITHIN)
def erfc_near(x):
    """erfc(x) by the three rational approximations of fdlibm, without branches."""
    a, z = abs(x), x * x
    small, large = a < 0.84375, a >= 1.25
    p0, q0 = _small(z)
    p1, q1 = _middle(a - 1.0)
    p2, q2 = _large(1.0 / z)
    y = (p0 if small else (p2 if large else p1)) / (q0 if small else (q2 if large else q1))
    near = 1.0 - (x + x * y) if x < 0.25 else 0.5 - (x * y + (x - 0.5))
    about_one = (1.0 - _ERX) - y if x >= 0.0 else 1.0 + (_ERX + y)
    high = recast(recast(a) & _U(0xFFFFFFFF00000000))
    tail = exp_near(-high * high - 0.5625) * exp_near((high - a) * (high + a) + y) / a
    far = tail if x > 0.0 else 2.0 - tail
    return near if small else (far if large else about_one)


@njit(**WITHIN)
def _small(z):
    zz = z * z
    p = 1.28379167095512558561e-01 + z * -3.25042107247001499370e-01
    p += zz * (-2.84817495755985104766e-02 + z * -5.77027029648944159157e-03)
    p += zz * zz * -2.37630166566501626084e-05
    q = 1.0 + z * 3.97917223959155352819e-01
    q += zz * (6.50222499887672944485e-02 + z * 5.08130628187576562776e-03)
    return p, q + zz * zz * (1.32494738004321644526e-04 + z * -3.96022827877536812320e-06)


@njit(**WITHIN)
def _middle(s):
    s2, s4 = s * s, (s * s) * (s * s)
    p = -2.36211856075265944077e-03 + s * 4.14856118683748331666e-01
    p += s2 * (-3.72207876035701323847e-01 + s * 3.18346619901161753674e-01)
    p += s4 * (-1.10894694282396677476e-01 + s * 3.54783043256182359371e-02)
    q = 1.0 + s * 1.06420880400844228286e-01
    q += s2 * (5.40397917702171048937e-01 + s * 7.18286544141962662868e-02)
    q += s4 * (1.26171219808761642112e-01 + s * 1.36370839120290507362e-02)
    return p + s4 * s2 * -2.16637559486879084300e-03, q + s4 * s2 * 1.19844998467991074170e-02


@njit(**WITHIN)
def _large(s):
    s2, s4 = s * s, (s * s) * (s * s)
    p = -9.86494403484714822705e-03 + s * -6.93858572707181764372e-01
    p += s2 * (-1.05586262253232909814e01 + s * -6.23753324503260060396e01)
    p += s4 * (-1.62396669462573470355e02 + s * -1.84605092906711035994e02)
    p += s4 * s2 * (-8.12874355063065934246e01 + s * -9.81432934416914548592e00)
    q = 1.0 + s * 1.96512716674392571292e01
    q += s2 * (1.37657754143519042600e02 + s * 4.34565877475229228821e02)
    q += s4 * (6.45387271733267880336e02 + s * 4.29008140027567833386e02)
    q += s4 * s2 * (1.08635005541779435134e02 + s * 6.57024977031928170135e00)
    return p, q + s4 * s4 * -6.04244152148580987438e-02
