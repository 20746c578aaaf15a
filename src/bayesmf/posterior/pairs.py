"""Predictive mixtures of pairs, computed block by block.

Pairs are sorted by row of the integrated side: users, unless their draws were kept. A block is some
of these rows with their pairs, under all draws: a few megabytes for any number of pairs.
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
from bayesmf.kernels.row_posterior import PaddedRows
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws
from bayesmf.posterior.rows import (
    RowPrecisions,
    RowSource,
    Solved,
    full_matrices,
    pad_rows,
    rows_at_once,
    weights_of,
)
from bayesmf.process import Pool

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Components of one block of pairs over all draws, 8 bytes each.
COMPONENTS = 1 << 21
# A query about less than this share of the kept rows copies these rows only.
SHARE = 0.25


class PairBlock(NamedTuple):
    """Some rows, where the pairs of each begin, and for every pair a slot of the other side."""

    rows: Index
    starts: Index
    slot: Index
    rated: NDArray[np.bool_]


class Components(NamedTuple):
    """A block's mixtures, (draws, pairs), in units of the chains, and their expected values.

    `expected` is a better estimate of a mixture's mean, from conditional means if available.
    """

    mu: NDArray[np.float32]
    var: NDArray[np.float32]
    expected: Floats

    def moved(self) -> NDArray[np.float32]:
        """Means of the components, shifted so that each pair's mean is its expected value."""
        shift = self.expected - self.mu.mean(0, dtype=np.float64)
        return np.asarray(self.mu + shift.astype(np.float32))


class Tables(NamedTuple):
    """Kept rows as kernels read them, all or some, and their conditional means, if any."""

    rows: PaddedRows
    means: PaddedRows | None


@dataclass(frozen=True)
class Sides:
    """The integrated side (`source`), and the kept side.

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
        """Whether expected values are computed from conditional means of kept rows."""
        return self.kept_means is not self.kept

    @cached_property
    def everything(self) -> Tables:
        """All kept rows, padded once."""
        means = pad_rows(self.kept_means, self.n_factors) if self.has_means else None
        return Tables(self.source.everything, means)

    def tables(self, slot: Index) -> tuple[Tables, Index]:
        """Kept rows of the pairs, and the pairs' positions among them; all rows if many."""
        if "everything" in self.__dict__ or len(slot) > SHARE * self.kept.shape[1]:
            return self.everything, slot
        which = np.unique(slot)
        which = which[which >= 0]
        rows = pad_rows(self.kept, self.n_factors, which, self.weights)
        means = pad_rows(self.kept_means, self.n_factors, which) if self.has_means else None
        return Tables(rows, means), np.where(slot >= 0, np.searchsorted(which, slot), -1)

    def with_source(self, source: RowSource) -> Sides:
        """The same kept side, and its padded copies, with another source."""
        made = replace(self, source=source)
        for name in ("everything", "unseen", "roots"):
            if name in self.__dict__:
                made.__dict__[name] = self.__dict__[name]
        return made

    @cached_property
    def unseen(self) -> PaddedRows:
        """An unseen kept row: its prior's mean."""
        found = pad_rows(self.prior[0].astype(np.float32)[:, None], self.n_factors)
        found.root[:, 0] = np.sqrt(self.weights.unseen())
        return found

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """Cholesky factors of the covariance of kept rows' features."""
        D = self.n_factors
        return np.asarray(np.linalg.cholesky(self.prior[1][:, :D, :D]), np.float64)

    def components(self, block: PairBlock, solved: Solved, tables: Tables) -> Components:
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
        self,
        block: PairBlock,
        solved: Solved,
        given: PaddedRows,
        mu: NDArray[Any],
        var: NDArray[Any],
    ) -> None:
        pair_components(
            solved.means, solved.factors, solved.place, block.starts, block.slot, given,
            self.n_factors, solved.noise, mu, var,
        )  # fmt: skip

    def expected(self, block: PairBlock, solved: Solved, tables: Tables) -> Floats:
        """Expected predictions of a block's pairs, from conditional means where valid.

        A rated pair, or a row without ratings, uses the row's own mean and the draw of the kept
        row (docs/sampler.md).
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
        self, block: PairBlock, solved: Solved
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Components of pairs with an unseen kept row, which follows its prior."""
        asked = np.flatnonzero(np.diff(block.starts))
        shape, zeros = (self.n_draws, len(asked)), np.zeros(len(asked), np.int64)
        mu, var = np.empty(shape, np.float32), np.empty(shape, np.float32)
        few = solved._replace(place=solved.place[asked], noise=solved.noise[asked])
        one_each = PairBlock(block.rows[asked], np.arange(len(asked) + 1), zeros, zeros > 0)
        self._fill(one_each, few, self.unseen, mu, var)
        more = np.empty(shape[::-1])
        unseen_spreads(
            few.means, few.factors, few.place, self.prior[1], self.roots, self.n_factors, more
        )
        var += more.T.astype(np.float32)
        again = np.repeat(np.arange(len(asked)), np.diff(block.starts)[asked])
        return mu[:, again], var[:, again]


def sides_of(draws: Draws, source: RowSource, n_factors: int) -> Sides:
    """The kept side of draws, and the source of the other side's rows."""
    users_kept = draws.items is None
    mu, Lambda = (
        (draws.user_mu, draws.user_Lambda) if users_kept else (draws.item_mu, draws.item_Lambda)
    )
    prior = mu, covariances(Lambda)
    weights = weights_of(draws, 0 if users_kept else 1)
    return Sides(source, draws.kept, draws.kept_means, prior, weights, n_factors)


def covariances(Lambda: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance matrices from precisions, matrices or diagonals."""
    if Lambda.ndim == 3:
        return np.asarray(np.linalg.inv(Lambda), np.float64)
    return full_matrices(1.0 / Lambda)


def pairs_where(block: PairBlock, chosen: NDArray[np.bool_]) -> PairBlock:
    """A block with some of its pairs alone."""
    before = np.concatenate([[0], np.cumsum(chosen)])
    return PairBlock(block.rows, before[block.starts], block.slot[chosen], block.rated[chosen])


Progress = Callable[[int], Any]
Rated = Callable[[Index, Index], NDArray[np.bool_]]
# Called with the positions of a block's pairs in the query, the block, its rows, and tables.
Work = Callable[[Index, PairBlock, Solved, Tables], None]


def each_block(
    sides: Sides, pairs: tuple[Index, Index], rated: Rated, pool: Pool, work: Work, factors: bool,
    progress: Progress | None = None,
) -> None:  # fmt: skip
    """Sort pairs, compute their rows block by block, and call `work` with each block.

    `pairs` are row numbers on the integrated and on the kept side, -1 for unseen rows. Blocks run
    on all threads of the pool; `progress` is called with numbers of pairs.
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
        block = PairBlock(rows[some], begin, slot[lo:hi], marks[lo:hi])
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
    """Slices of few rows and few pairs; a row with many pairs is split."""
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
