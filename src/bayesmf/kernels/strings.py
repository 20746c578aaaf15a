"""Loops over the bytes of strings: a table to look them up by, and those that are integers.

A string is `bytes[start:end]`. Tables are hashed with two secret numbers, so that nobody can send
strings that all collide.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.jit import EXACT, WITHIN, njit

_ONE, _S29, _S32 = np.uint64(1), np.uint64(29), np.uint64(32)
_ZERO, _NINE, _MINUS = 48, 57, 45
# The digits of the largest 64-bit integer.
_DIGITS = 19
_LARGEST = np.uint64(2**63 - 1)


@njit(**WITHIN)
def _hashed(text, start, end, secret):
    found = secret[0] ^ np.uint64(end - start)
    for at in range(start, end):
        found = (found ^ np.uint64(text[at])) * secret[1]
        found ^= found >> _S29
    return found


@njit(**WITHIN)
def _equal(a, a_start, a_end, b, b_start, b_end):
    n = a_end - a_start
    if b_end - b_start != n:
        return False
    differ = np.uint8(0)
    for k in range(n):  # all of them: many at once are quicker than to stop at the first
        differ |= a[a_start + k] ^ b[b_start + k]
    return differ == 0


@njit(**EXACT)
def fill_table(text, starts, ends, secret, table):
    """Put the numbers of distinct strings into a table of a power of two rows, half empty.

    A row is a part of the hash, and the number, -1 where there is none.
    """
    mask = np.uint64(len(table) - 1)
    hashes = np.empty(len(starts), np.uint64)
    for k in range(len(starts)):
        hashes[k] = _hashed(text, starts[k], ends[k], secret)
    for k in range(len(starts)):
        at = hashes[k] & mask
        while table[at, 1] >= 0:
            at = (at + _ONE) & mask
        table[at, 0] = np.int32(hashes[k] >> _S32)
        table[at, 1] = k


@njit(**WITHIN)
def _probe(table, found, at):
    """The index from `at` on where the hash is, or where it would be."""
    mask, tag = np.uint64(len(table) - 1), np.int32(found >> _S32)
    at &= mask
    while table[at, 1] >= 0 and table[at, 0] != tag:
        at = (at + _ONE) & mask
    return at


@njit(**EXACT)
def find_rows(text, starts, ends, secret, table, asked, asked_starts, asked_ends, out):
    """Numbers of the strings that are asked for, -1 for those that are not there.

    Step by step for all of them: so the processor waits for many pieces of memory at once.
    """
    n = len(asked_starts)
    hashes, indices = np.empty(n, np.uint64), np.empty(n, np.uint64)
    ends_alike = np.empty(n, np.bool_)
    for k in range(n):
        hashes[k] = _hashed(asked, asked_starts[k], asked_ends[k], secret)
    for k in range(n):
        indices[k] = _probe(table, hashes[k], hashes[k])
        out[k] = table[indices[k], 1]
    for k in range(n):
        row, start, end = out[k], asked_starts[k], asked_ends[k]
        ends_alike[k] = (
            row >= 0
            and ends[row] - starts[row] == end - start
            and (
                start == end
                or (text[starts[row]] == asked[start]) & (text[ends[row] - 1] == asked[end - 1])
            )
        )
    for k in range(n):
        row, start, end = out[k], asked_starts[k], asked_ends[k]
        if ends_alike[k] and _equal(text, starts[row], ends[row], asked, start, end):
            continue
        while row >= 0 and not _equal(text, starts[row], ends[row], asked, start, end):
            indices[k] = _probe(table, hashes[k], indices[k] + _ONE)
            row = table[indices[k], 1]
        out[k] = row


@njit(**EXACT)
def read_integers(text, starts, ends, out, ok):
    """Integers in their usual form: no leading zeros, no plus, and they fit into 64 bits."""
    for k in range(len(starts)):
        at, end = starts[k], ends[k]
        negative = at < end and text[at] == _MINUS
        at += negative
        ok[k] = 0 < end - at <= _DIGITS and (text[at] != _ZERO or (end - at == 1 and not negative))
        value = np.uint64(0)
        while ok[k] and at < end:
            digit = text[at]
            if digit < _ZERO or digit > _NINE:
                ok[k] = False
            value = value * np.uint64(10) + np.uint64(digit - _ZERO)
            at += 1
        if value > _LARGEST + np.uint64(negative):
            ok[k] = False
        # Minus 2^63 has no positive of its own: the bits of both are the same.
        out[k] = np.int64(np.uint64(0) - value if negative else value) if ok[k] else 0
