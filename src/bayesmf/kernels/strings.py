"""Hash tables of ids (strings and integers), and parsing of integers.

A string is `bytes[start:end]`. Hashes use two secret numbers, so that collisions cannot be crafted.
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
    for k in range(n):  # comparing all bytes vectorizes, and is faster than an early exit
        differ |= a[a_start + k] ^ b[b_start + k]
    return differ == 0


@njit(**EXACT)
def fill_table(text, starts, ends, secret, table):
    """Fill a table with the numbers of distinct strings; its length is a power of two.

    A row is a part of the hash, and the number or -1. At least half of the rows stay empty.
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
    """Numbers of strings in a table, -1 for those that are not in it.

    Each step runs over all strings, so that many reads of memory overlap.
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
    """Read integers in their usual form: no leading zeros, no plus sign, 64 bits at most."""
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
        # The negative of -2^63 has the same bits.
        out[k] = np.int64(np.uint64(0) - value if negative else value) if ok[k] else 0


@njit(**WITHIN)
def _slot(value, secret, mask):
    return (((np.uint64(value) ^ secret[0]) * secret[1]) >> _S32) & mask


@njit(**EXACT)
def fill_integers(values, secret, keys, table):
    """Fill a table with the numbers of distinct integers; `keys` are the integers in its slots."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(values)):
        at = _slot(values[k], secret, mask)
        while table[at] >= 0:
            at = (at + _ONE) & mask
        table[at], keys[at] = k, values[k]


@njit(**EXACT)
def number_integers(values, secret, keys, table, codes, firsts, begin, found):
    """Number integers from `begin` on in order of first occurrence.

    Stops when the table is half full; returns the position, and the number of distinct integers.
    """
    mask, most = np.uint64(len(table) - 1), len(table) // 2
    for k in range(begin, len(values)):
        if found == most:
            return k, found
        at = _slot(values[k], secret, mask)
        while table[at] >= 0 and keys[at] != values[k]:
            at = (at + _ONE) & mask
        if table[at] < 0:
            table[at], keys[at], firsts[found] = found, values[k], k
            found += 1
        codes[k] = table[at]
    return len(values), found


@njit(**EXACT)
def hash_strings(text, starts, ends, secret, out):
    """Hash each string to 64 bits."""
    for k in range(len(starts)):
        out[k] = np.int64(_hashed(text, starts[k], ends[k], secret))


@njit(**EXACT)
def all_equal(text, starts, ends, codes, other, other_starts, other_ends):
    """Whether each string equals the one with its code."""
    same = True
    for k in range(len(codes)):
        at = codes[k]
        same &= _equal(text, starts[k], ends[k], other, other_starts[at], other_ends[at])
    return same


@njit(**EXACT)
def copy_strings(text, starts, ends, out):
    """Copy strings behind each other."""
    to = 0
    for k in range(len(starts)):
        for at in range(starts[k], ends[k]):
            out[to] = text[at]
            to += 1


@njit(**EXACT)
def ascend(text, starts, ends):
    """Whether each string is greater than the one before it."""
    for k in range(1, len(starts)):
        before, at = starts[k - 1], starts[k]
        while before < ends[k - 1] and at < ends[k] and text[before] == text[at]:
            before += 1
            at += 1
        if at == ends[k] or (before < ends[k - 1] and text[before] > text[at]):
            return False
    return True
