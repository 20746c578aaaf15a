"""Predictive mixtures of pairs, block by block: what every question about pairs is answered from.

Pairs are put in the order of the rows that are worked out, users unless their draws are the ones
that were kept. A block is some of these rows with their pairs, under all draws: a few megabytes,
however many pairs there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import group_rows
from bayesmf.kernels.pairs import pair_components, sum_pair_means, unseen_spreads
from bayesmf.kernels.row_posterior import Given
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws
from bayesmf.posterior.rows import (
    RowPrecisions,
    RowSource,
    Solved,
    full_matrices,
    lay_out,
    rows_at_once,
    weights_of,
)
from bayesmf.process import Pool

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Components of one block of pairs over all draws, 8 bytes each.
COMPONENTS = 1 << 21
# A question about fewer than this share of the kept rows gets a copy of these alone.
SHARE = 0.25


class Block(NamedTuple):
    """Some rows, where the pairs of each begin, and for every pair a slot of the other side."""

    rows: Index
    starts: Index
    slot: Index
    rated: NDArray[np.bool_]


class Components(NamedTuple):
    """A block's mixtures, (draws, pairs), in units of the chains, and their expected values.

    Components are where draws put them; `expected`, by conditional means where there are any, is
    the better estimate of the mixtures' mean.
    """

    mu: NDArray[np.float32]
    var: NDArray[np.float32]
    expected: Floats

    def moved(self) -> NDArray[np.float32]:
        """Means of the components, each pair's moved together to its expected value."""
        shift = self.expected - self.mu.mean(0, dtype=np.float64)
        return np.asarray(self.mu + shift.astype(np.float32))


class Tables(NamedTuple):
    """Kept rows as kernels read them, all or some, and their conditional means where there are."""

    rows: Given
    means: Given | None


@dataclass(frozen=True)
class Sides:
    """The side whose rows are worked out (`source`), and the kept side that they meet.

    `prior` is that of kept rows: means (draws, width) and covariances; `weights` are those of
    their ratings.
    """

    source: RowSource
    kept: Rows
    kept_means: Rows
    prior: tuple[NDArray[np.float64], NDArray[np.float64]]
    weights: RowPrecisions
    n_factors: int

    @property
    def n_draws(self) -> int:
        """Components of a mixture."""
        return len(self.kept)

    @property
    def has_means(self) -> bool:
        """Whether expected values are found from conditional means of kept rows."""
        return self.kept_means is not self.kept

    @cached_property
    def everything(self) -> Tables:
        """All kept rows, laid out once."""
        means = lay_out(self.kept_means, self.n_factors) if self.has_means else None
        return Tables(self.source.everything, means)

    def tables(self, slot: Index) -> tuple[Tables, Index]:
        """Kept rows that pairs ask for, and where each pair finds its own; all if they are many."""
        if "everything" in self.__dict__ or len(slot) > SHARE * self.kept.shape[1]:
            return self.everything, slot
        which = np.unique(slot)
        which = which[which >= 0]
        rows = lay_out(self.kept, self.n_factors, which, self.weights)
        means = lay_out(self.kept_means, self.n_factors, which) if self.has_means else None
        return Tables(rows, means), np.where(slot >= 0, np.searchsorted(which, slot), -1)

    def with_source(self, source: RowSource) -> Sides:
        """The same kept side, with all that was laid out of it, for other rows."""
        made = replace(self, source=source)
        for name in ("everything", "unseen", "roots"):
            if name in self.__dict__:
                made.__dict__[name] = self.__dict__[name]
        return made

    @cached_property
    def unseen(self) -> Given:
        """A kept row that nobody has seen: its prior's mean."""
        found = lay_out(self.prior[0].astype(np.float32)[:, None], self.n_factors)
        found.root[:, 0] = np.sqrt(self.weights.unseen())
        return found

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """Cholesky factors of the covariance of kept rows' features."""
        D = self.n_factors
        return np.asarray(np.linalg.cholesky(self.prior[1][:, :D, :D]), np.float64)

    def components(self, block: Block, solved: Solved, tables: Tables) -> Components:
        """The mixtures of a block's pairs."""
        shape, unseen = (self.n_draws, len(block.slot)), block.slot < 0
        expected = self.expected(block, solved, tables)
        mu, var = np.empty(shape, np.float32), np.empty(shape, np.float32)
        if not unseen.any():
            self._fill(block, solved, tables.rows, mu, var)
            return Components(mu, var, expected)
        known = self.components(pairs_where(block, ~unseen), solved, tables)
        mu[:, ~unseen], var[:, ~unseen] = known.mu, known.var
        mu[:, unseen], var[:, unseen] = self._unseen(pairs_where(block, unseen), solved)
        return Components(mu, var, expected)

    def _fill(
        self, block: Block, solved: Solved, given: Given, mu: NDArray[Any], var: NDArray[Any]
    ) -> None:
        pair_components(
            solved.means, solved.factors, solved.place, block.starts, block.slot, given,
            self.n_factors, solved.noise, mu, var,
        )  # fmt: skip

    def expected(self, block: Block, solved: Solved, tables: Tables) -> Floats:
        """Expected predictions of a block's pairs, by conditional means where that is right.

        For a rated pair, or a row without ratings, it is the row's own mean and the draw of the
        kept row that count (docs/sampler.md).
        """
        plain = block.rated | np.repeat(block.rows < 0, np.diff(block.starts))
        plain |= not self.has_means
        unseen, out = block.slot < 0, np.empty(len(block.slot))
        cases = [
            (~plain & ~unseen, solved.locations, tables.means),
            (plain & ~unseen, solved.means, tables.rows),
            (unseen, solved.means, self.unseen if unseen.any() else None),
        ]
        for chosen, rows, given in cases:
            if chosen.any():
                some = block if chosen.all() else pairs_where(block, chosen)
                slot, total = np.maximum(some.slot, 0), np.zeros(len(some.slot))
                sum_pair_means(rows, solved.place, some.starts, slot, given, self.n_factors, total)
                out[chosen] = total / self.n_draws
        return out

    def _unseen(
        self, block: Block, solved: Solved
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Components of pairs with a kept row that nobody has seen: it follows its prior."""
        asked = np.flatnonzero(np.diff(block.starts))
        shape, nobody = (self.n_draws, len(asked)), np.zeros(len(asked), np.int64)
        mu, var = np.empty(shape, np.float32), np.empty(shape, np.float32)
        few = solved._replace(place=solved.place[asked], noise=solved.noise[asked])
        one_each = Block(block.rows[asked], np.arange(len(asked) + 1), nobody, nobody > 0)
        self._fill(one_each, few, self.unseen, mu, var)
        more = np.empty(shape[::-1])
        unseen_spreads(
            few.means, few.factors, few.place, self.prior[1], self.roots, self.n_factors, more
        )
        var += more.T.astype(np.float32)
        again = np.repeat(np.arange(len(asked)), np.diff(block.starts)[asked])
        return mu[:, again], var[:, again]


def sides_of(draws: Draws, source: RowSource, n_factors: int) -> Sides:
    """The kept side of draws, and the rows that are worked out from it."""
    users_kept = draws.items is None
    mu, Lambda = (
        (draws.user_mu, draws.user_Lambda) if users_kept else (draws.item_mu, draws.item_Lambda)
    )
    prior = mu, covariances(Lambda)
    weights = weights_of(draws, 0 if users_kept else 1)
    return Sides(source, draws.kept, draws.kept_means, prior, weights, n_factors)


def covariances(Lambda: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance matrices of precisions, which are given as matrices or as their diagonals."""
    if Lambda.ndim == 3:
        return np.asarray(np.linalg.inv(Lambda), np.float64)
    return full_matrices(1.0 / Lambda)


def pairs_where(block: Block, chosen: NDArray[np.bool_]) -> Block:
    """A block with some of its pairs alone."""
    before = np.concatenate([[0], np.cumsum(chosen)])
    return Block(block.rows, before[block.starts], block.slot[chosen], block.rated[chosen])


Progress = Callable[[int], Any]
Rated = Callable[[Index, Index], NDArray[np.bool_]]
# Called with the positions of a block's pairs in the question, the block, its rows, and tables.
Work = Callable[[Index, Block, Solved, Tables], None]


def each_block(
    sides: Sides, pairs: tuple[Index, Index], rated: Rated, pool: Pool, work: Work, factors: bool,
    progress: Progress | None = None,
) -> None:  # fmt: skip
    """Put pairs in order, work out their rows block by block, and hand them to `work`.

    `pairs` are row numbers on the side that is worked out and on the kept side, -1 for those nobody
    has seen. Blocks are on all threads of the pool at once; `progress` is told of pairs.
    """
    own, slot = pairs
    lock = threading.Lock()
    if not len(own):
        return
    order = order_of(own)
    own, slot = own[order], slot[order]
    first = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    rows, starts = own[first], np.append(first, len(own))
    marks = rated(own, slot)
    tables, slot = sides.tables(slot)
    bulk = sides.source.prepare(len(rows))

    def run(part: slice) -> None:
        lo, hi = part.start, part.stop
        some = slice(*np.searchsorted(starts, [lo + 1, hi]) - [1, 0])
        begin = np.clip(starts[some.start : some.stop + 1], lo, hi) - lo
        block = Block(rows[some], begin, slot[lo:hi], marks[lo:hi])
        work(order[lo:hi], block, sides.source.solve(block.rows, factors, bulk), tables)
        if progress is not None:
            with lock:
                progress(hi - lo)

    pool.each(run, _blocks(starts, sides.n_draws))


def order_of(own: Index) -> Index:
    """Positions in the order of row numbers, -1 first; equals stay in the order given."""
    if len(own) < 1 << 14:
        return np.argsort(own, kind="stable")
    row, nothing = own + 1, np.zeros(len(own), np.int32)
    lists = group_rows(row.astype(np.int32), nothing, np.arange(len(own)), int(row.max()) + 1)
    return np.asarray(lists.value)


def _blocks(starts: Index, n_draws: int) -> list[slice]:
    """Stretches of pairs, of a few rows and a few pairs; a row with many pairs is cut."""
    most, found, at, end = max(1, COMPONENTS // n_draws), [], 0, int(starts[-1])
    n_rows = rows_at_once(n_draws)
    while at < end:
        row = int(np.searchsorted(starts, at, "right")) - 1
        stop = int(starts[min(row + n_rows, len(starts) - 1)])
        if stop > at + most:
            whole = int(starts[np.searchsorted(starts, at + most, "right") - 1])
            stop = whole if whole > at else at + most
        found.append(slice(at, stop))
        at = stop
    return found
