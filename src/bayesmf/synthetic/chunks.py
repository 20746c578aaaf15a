"""Chunks of synthetic ratings: which users they come from, and what of them is held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bayesmf.kernels.keys import STREAM_SYNTHETIC, generator, make_key
from bayesmf.kernels.plant import alias_table, fill, hold
from bayesmf.synthetic.plan import SyntheticPlan

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

_STRIPES = 64  # a shuffled chunk comes from about so many stretches of the users


def make_parts(
    plan: SyntheticPlan, max_ratings: int, held: int = 0, shuffle: bool = False
) -> Iterator[tuple[Arrays, Arrays]]:
    """Chunks of a plan's ratings, each as what is left and what is held out of it."""
    maker = Maker(plan, held)
    for number, group in enumerate(maker.groups(max_ratings, shuffle)):
        columns, tested = maker.make(group)
        if shuffle:
            order = _generator(plan, number + 1).permutation(len(tested))
            columns, tested = _take(columns, order), tested[order]
        if held:
            yield _take(columns, ~tested), _take(columns, tested)
        else:
            yield columns, empty(0)


class Maker:
    """What all users' ratings need, made once: item tables and where each user's ratings begin."""

    def __init__(self, plan: SyntheticPlan, held: int = 0) -> None:
        self.plan = plan
        activity = plan.activity()
        self.offsets = np.concatenate(([0], np.cumsum(activity)))
        # Rounding the running total as in `activity`, but of what each can spare.
        spare = np.cumsum(activity - 1)
        self.held = np.diff(spare * held // max(1, spare[-1]), prepend=0)
        chance = plan.popularity()
        self.tables = (*alias_table(chance), (1.0 / chance).astype(np.float32))
        self.item_rows = plan.item_factors(0, plan.n_items)

    def pieces(self, max_ratings: int) -> Iterator[tuple[int, int]]:
        """Ranges of users with at most `max_ratings` ratings, or of one user."""
        first = 0
        while first < self.plan.n_users:
            end = self.offsets[first] + max_ratings
            last = max(first + 1, int(np.searchsorted(self.offsets, end, side="right")) - 1)
            yield first, last
            first = last

    def groups(self, max_ratings: int, shuffle: bool) -> Iterator[list[tuple[int, int]]]:
        """The ranges of users whose ratings make a chunk: one, or many from all over."""
        if not shuffle:
            yield from ([piece] for piece in self.pieces(max_ratings))
            return
        pieces = list(self.pieces(max(1, max_ratings // _STRIPES)))
        group: list[tuple[int, int]] = []
        size = 0
        for k in _generator(self.plan, 0).permutation(len(pieces)):
            n = self.size(pieces[k])
            if group and size + n > max_ratings:
                yield group
                group, size = [], 0
            group.append(pieces[k])
            size += n
        yield group

    def size(self, piece: tuple[int, int]) -> int:
        """Number of ratings of a range of users."""
        return int(self.offsets[piece[1]] - self.offsets[piece[0]])

    def make(self, group: list[tuple[int, int]]) -> tuple[Arrays, np.ndarray]:
        """The ratings of some ranges of users, and which of them are held out."""
        total = sum(map(self.size, group))
        out, tested, begin = empty(total), np.zeros(total, dtype=bool), 0
        for piece in group:
            at = slice(begin, begin := begin + self.size(piece))
            self._fill(*piece, _take(out, at), tested[at])
        return out, tested

    def _fill(self, first: int, last: int, out: Arrays, tested: np.ndarray) -> None:
        plan, key = self.plan, make_key(self.plan.random_state)
        rows = (*plan.user_factors(first, last), *self.item_rows)
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        scalars = np.float32(plan.mean), np.float32(plan.noise), bool(plan.stars)
        fill(out, first, bounds, rows, self.tables, scalars, key)
        hold(tested, first, bounds, self.held[first:last], *key)


def empty(n: int) -> Arrays:
    return np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)


def _take(columns: Arrays, at: Any) -> Arrays:
    user, item, rating = columns
    return user[at], item[at], rating[at]


def _generator(plan: SyntheticPlan, number: int) -> np.random.Generator:
    return generator(make_key(plan.random_state), number, STREAM_SYNTHETIC)
