"""Rules of numbers, against what they say in plain words."""

import itertools

import numpy as np
import pytest

from bayesmf.storage.contents import between, once_in_rows


def in_pieces(rule, numbers, size):
    """Whether a rule holds for all pieces of an array, as a file is read."""
    before = None
    for at in range(0, len(numbers), size):
        piece = numbers[at : at + size]
        if not rule.holds(piece, before, at):
            return False
        before = piece[-1]
    return True


def plainly(numbers, starts, n):
    rows = [numbers[a:b].tolist() for a, b in itertools.pairwise(starts)]
    return all(row == sorted(set(row)) for row in rows) and all(0 <= x < n for x in numbers)


@pytest.mark.parametrize("seed", range(40))
def test_numbers_once_in_rows(seed):
    rng, n = np.random.default_rng(seed), 12
    rows = [np.sort(rng.choice(n, rng.integers(0, 6), replace=False)) for _ in range(9)]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    good = np.concatenate(rows).astype(np.int32)
    told = set()
    for _ in range(12):
        numbers = good.copy()
        numbers[rng.integers(len(numbers))] = rng.integers(-1, n + 1)
        expected = plainly(numbers, starts, n)
        told.add(expected)
        for size in (1, 2, 3, 7, 100):
            assert in_pieces(once_in_rows(n, starts), good, size)
            assert in_pieces(once_in_rows(n, starts), numbers, size) == expected
    assert told == {True, False}


def test_starts_that_are_forged_harm_nothing():
    numbers = np.arange(50, dtype=np.int32) % 7
    for starts in ([0, 900, 2, 50], [0, -5, 60, 50], [10**18, -(10**18), 3], [0, 7, 7, 1, 50]):
        for size in (3, 50):
            in_pieces(once_in_rows(7, np.array(starts)), numbers, size)


def test_numbers_between_bounds():
    rule = between(-1.0, 2.0)
    assert rule.holds(np.array([-1.0, 0.5, 2.0]), None, 0)
    for wrong in (-1.1, 2.1, np.nan, np.inf, -np.inf):
        assert not rule.holds(np.array([0.0, wrong]), None, 0)
