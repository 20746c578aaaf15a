"""Rows of one side under each draw: computed exactly if the side is not kept, else stored.

Given a draw of the other side, a row is Gaussian and depends on its own ratings alone
(kernels/row_posterior.py). The same code computes rows that were not stored, new rows, and rows
with new ratings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.gather import padded
from bayesmf.kernels.keys import STREAM_FOLD, generator, make_key
from bayesmf.kernels.pairs import draw_from_factors, pad_draws
from bayesmf.kernels.row_posterior import (
    GAMMA_TRIES,
    PaddedRows,
    UnknownNoise,
    all_known,
    make_row_scratch,
    solve_rows,
)
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.draws import Draws
from bayesmf.model.mapped import allocate
from bayesmf.model.priors import RowPrior
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Candidates for the quantile of the precision of an unseen row.
CANDIDATES = 255
# Steps between quantiles of users and of items, modulo one: both are spread evenly and are
# uncorrelated.
QUANTILE_STEPS = 0.6180339887498949, 0.5698402909980532
# Steps of Gibbs by which an unknown precision is drawn.
STEPS = 8


@dataclass(frozen=True)
class RowPrecisions:
    """Precisions of the ratings of one side's rows, without the weights of the other side.

    Attributes
    ----------
    plain : ndarray of float64, shape (draws,)
        Precision by draw, if rows have no precisions of their own.
    value : ndarray of float32, shape (draws, rows), or None
        Precisions of rows; None if rows have none, or if they are unknown and have to be drawn
        given the rows' ratings.
    prior : ndarray of float64, shape (draws, 2), or None
        Shape and rate of the Gamma distribution of a row's own precision.
    side : int
        Whose rows they are: those of users (0) or of items (1).
    """

    plain: Floats
    value: Rows | None = None
    prior: Floats | None = None
    side: int = 0

    def unseen(self) -> Floats:
        """Precision of a row without ratings under each draw: evenly spread quantiles."""
        if self.prior is None:
            return self.plain
        n = len(self.prior)
        rng = generator(make_key(0), (0, 3)[self.side], STREAM_FOLD)
        some = np.sort(rng.gamma(self.prior[:, :1], size=(n, CANDIDATES)), axis=1)
        quantile = (np.arange(n) + 0.5) * QUANTILE_STEPS[self.side] % 1.0
        at = (CANDIDATES * quantile).astype(np.int64)
        return np.asarray(some[np.arange(n), at] / self.prior[:, 1])

    def of(self, rows: Index) -> Floats:
        """Precisions of rows by number, (rows, draws); NaN if they have to be drawn."""
        if self.prior is None:
            return np.broadcast_to(self.plain, (len(rows), len(self.plain))).copy()
        out = np.full((len(rows), len(self.plain)), np.nan)
        if self.value is not None:
            known = rows >= 0
            out[known] = self.value[:, rows[known]].T
        if (rows < 0).any():
            out[rows < 0] = self.unseen()
        return out


def precisions_of(draws: Draws, side: int) -> RowPrecisions:
    """Precisions of the ratings of users (0) or items (1), given weights of the other side's."""
    found = weights_of(draws, side)
    # Where the other side's rows have precisions, these are the ratings' weights.
    return found if draws.noise_by else replace(found, plain=draws.tau)


def weights_of(draws: Draws, side: int) -> RowPrecisions:
    """Weights that ratings have by their row of users (0) or items (1): one where it has none."""
    value, prior = (
        (draws.user_tau, draws.user_tau_prior),
        (draws.item_tau, draws.item_tau_prior),
    )[side]
    return RowPrecisions(np.ones(len(draws)), value, prior, side)


def unknown_noise(prior: Floats | None, n_draws: int, width: int) -> UnknownNoise:
    """Input of the kernels for drawing unknown precisions; empty if rows have none."""
    if prior is None:
        return all_known(n_draws)
    return UnknownNoise(prior[:, 0].copy(), prior[:, 1].copy(), *_fold_numbers(n_draws, width))


@lru_cache(maxsize=4)
def _fold_numbers(n_draws: int, width: int) -> tuple[NDArray[np.float32], Floats]:
    """Normals and uniforms for drawing unknown precisions: the same for every query.

    Their sampling error is therefore shared by all users. The normals of Gamma variates are
    stratified, one from each of n_draws equal parts of the distribution, in random order, so that a
    user's noise averaged over draws hardly depends on them.
    """
    rng = generator(make_key(0), 1, STREAM_FOLD)
    normals = rng.standard_normal((n_draws, STEPS, width + GAMMA_TRIES), dtype=np.float32)
    uniforms = rng.random((n_draws, STEPS, GAMMA_TRIES + 1))
    normal, parts = NormalDist(), np.arange(n_draws)
    for step in range(STEPS):
        quantiles = np.maximum(rng.permutation(parts) + rng.random(n_draws), 1e-9) / n_draws
        normals[:, step, width] = [normal.inv_cdf(quantile) for quantile in quantiles.tolist()]
    return normals, uniforms


# Bytes of cached means and factors of rows; no cache if it holds less than this share of all rows.
CACHE_BYTES, LEAST_CACHED = 1 << 30, 0.25
# Queries of at least this many rows are cached.
BULK = 256
# Queries of up to this many rows pad only the rows they need of the other side.
FEW = 8
# Maximum number of rows computed together, and of rows times draws: some ten megabytes at 30
# factors.
MOST_ROWS, ROW_DRAWS = 256, 1 << 14
NOTHING = np.empty((0, 0, 0), np.float32)


class Solved(NamedTuple):
    """Some rows under all draws: row k is at place[k] of arrays (places, draws, ...).

    `factors` are Cholesky factors of precisions, empty if rows are points. `locations` are the rows
    for expected values: conditional means, if the side's draws are stored.
    """

    means: Rows
    factors: Rows
    place: Index
    locations: Rows
    noise: Rows  # (rows, draws): variance of a rating of weight one of row k


def pad_rows(
    rows: Rows, n_factors: int, which: Index | None = None, weights: RowPrecisions | None = None
) -> PaddedRows:
    """Rows under all draws, or some rows, padded for kernels; the last row is zero.

    `weights` are those of the rows' ratings, one by default.
    """
    which = np.arange(rows.shape[1]) if which is None else which
    width, n = padded(n_factors), len(which) + 1
    features = np.empty((len(rows), n * width), np.float32)
    bias = np.empty((len(rows), n), np.float32)
    pad_draws(readonly(rows), readonly(which), n_factors, features, bias)
    root = np.ones(bias.shape, np.float32)
    if weights is not None:
        root[:, :-1] = np.sqrt(weights.of(which)).T
    return PaddedRows(features, bias, root)


def natural_priors(
    mu: NDArray[np.float64], Lambda: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lambda mu and Lambda, as a matrix, of each draw."""
    return RowPrior(mu, Lambda if Lambda.ndim == 3 else full_matrices(Lambda)).natural()


def full_matrices(diagonals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrices with these diagonals."""
    return np.asarray(diagonals[:, :, None] * np.eye(diagonals.shape[1]))


def rows_at_once(n_draws: int) -> int:
    """Number of rows computed together, under all draws."""
    return max(1, min(MOST_ROWS, ROW_DRAWS // n_draws))


def triangle(width: int) -> int:
    """Numbers in the lower half of a matrix."""
    return width * (width + 1) // 2


class RowCache:
    """Cache of rows, up to a number of bytes, without eviction.

    Without a lock: two threads that compute the same row store the same numbers. A copy of a model
    starts with an empty cache.
    """

    def __init__(self, n_rows: int, n_draws: int, width: int, budget: int) -> None:
        self._sizes = n_rows, n_draws, width, budget
        per_row = 4 * n_draws * (width + triangle(width) + 1)
        self.room = min(n_rows, budget // per_row)
        if self.room < LEAST_CACHED * n_rows:  # too few to be useful
            self.room = 0
        self._next, self._place = count(), np.full(n_rows, -1, np.int64)
        self._arrays: dict[str, tuple[Rows, Rows, Rows]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RowCache, self._sizes

    @property
    def arrays(self) -> tuple[Rows, Rows, Rows]:
        """Arrays for means, factors and noise; pages are allocated as they are filled."""
        found = self._arrays.get("all")
        if found is None:
            _, n_draws, width, _ = self._sizes
            try:
                made = self._taken(n_draws, width)
            except MemoryError:  # then rows are computed each time
                self.room = 0
                made = self._taken(n_draws, width)
            # Two threads must get the same arrays.
            found = self._arrays.setdefault("all", made)
        return found

    def _taken(self, n_draws: int, width: int) -> tuple[Rows, Rows, Rows]:
        means = np.empty((self.room, n_draws, width), np.float32)
        factors = np.empty((self.room, n_draws, triangle(width)), np.float32)
        return means, factors, np.empty((self.room, n_draws), np.float32)

    def places(self, rows: Index) -> Index:
        """Positions of rows in the cache, -1 if absent."""
        return np.where(rows >= 0, self._place[rows], -1) if len(self._place) else rows

    def add(self, rows: Index, *found: Rows) -> None:
        """Store means, factors and noise of rows, as far as there is room."""
        for k, row in enumerate(rows):
            if row < 0 or self._place[row] >= 0:
                continue
            place, arrays = next(self._next), self.arrays
            if place >= self.room:
                return
            for array, part in zip(arrays, found, strict=True):
                array[place] = part[k]
            self._place[row] = place  # last: other threads read it from now on


@dataclass(frozen=True)
class ExactRows:
    """Rows of the side that is not kept, given each draw of the other side.

    `prior` is that of this side's rows by draw, as `natural_priors` gives it; `lists` are its
    ratings, in the chain's units by way of `levels`. The precision of a rating is that of its row
    (`tau`) times the weight of the other side's.
    """

    other: Rows
    prior: tuple[NDArray[np.float64], NDArray[np.float64]]
    tau: RowPrecisions
    weights: RowPrecisions
    lists: RowLists
    levels: NDArray[np.float32]
    n_factors: int
    budget: int = CACHE_BYTES
    own: PaddedRows | None = None  # `other`, if padded before

    @cached_property
    def cache(self) -> RowCache:
        """Cache of rows."""
        n_draws, _, width = self.other.shape
        return RowCache(len(self.lists.starts) - 1, n_draws, width, self.budget)

    @cached_property
    def everything(self) -> PaddedRows:
        """All rows of the other side, padded once: a copy of about the same size."""
        if self.own is not None:
            return self.own
        return pad_rows(self.other, self.n_factors, weights=self.weights)

    def prepare(self, n_rows: int) -> bool:
        """Prepare for a query about many rows; returns whether rows may be cached."""
        if n_rows > FEW:
            _ = self.everything
        return n_rows >= BULK and self.cache.room > 0

    def solve(self, rows: Index, factors: bool = True, bulk: bool = False) -> Solved:
        cache = self.cache  # read once: another thread may replace it
        cached = cache.places(rows)
        if len(rows) and cached.min() >= 0:
            means, triangles, noise = cache.arrays
            return Solved(means, triangles, cached, means, noise[cached])
        n_draws, _, width = self.other.shape
        means = np.empty((len(rows), n_draws, width), np.float32)
        shape = (len(rows), n_draws, triangle(width)) if factors or bulk else (0, 0, 0)
        triangles, place = np.empty(shape, np.float32), np.arange(len(rows))
        lists, chosen, given = self._met_by(rows)
        tau = self.tau.of(rows)
        solve_rows(
            means, triangles, tau, place, readonly(chosen),
            (readonly(lists.starts), readonly(lists.other), readonly(lists.value), self.levels),
            given, self.prior, self.unknown, self.n_factors,
            make_row_scratch(width, self.n_factors),
        )  # fmt: skip
        noise = (1.0 / tau).astype(np.float32)
        if bulk:
            cache.add(rows, means, triangles, noise)
        return Solved(means, triangles, place, means, noise)

    def precisions(self, rows: Index) -> NDArray[np.float64]:
        found = self.tau.of(rows)
        unknown = np.isnan(found).any(axis=1)
        if unknown.any():
            found[unknown] = 1.0 / self.solve(rows[unknown], factors=False).noise
        return found

    @cached_property
    def unknown(self) -> UnknownNoise:
        """Input for drawing unknown precisions: of new users, or of users with new ratings."""
        n_draws, _, width = self.other.shape
        return unknown_noise(self.tau.prior, n_draws, width)

    def _met_by(self, rows: Index) -> tuple[RowLists, Index, PaddedRows]:
        """Ratings, row numbers in them, and the other side; for few rows, only rated rows of it."""
        if len(rows) > FEW or self.own is not None or "everything" in self.__dict__:
            return self.lists, rows, self.everything
        lists = take_rows(self.lists, rows)
        which = np.unique(lists.other)
        other = np.searchsorted(which, lists.other).astype(np.int32)
        given = pad_rows(self.other, self.n_factors, which.astype(np.int64), self.weights)
        return RowLists(lists.starts, other, lists.value), np.arange(len(rows)), given


@dataclass(frozen=True)
class StoredRows:
    """Rows of a side whose draws were kept too.

    They are not cached, and only those without ratings have factors. `prior` is
    (mu, Lambda) by draw, Lambda as matrices or as their diagonals.
    """

    rows: Rows
    means: Rows
    other: Rows
    prior: tuple[NDArray[np.float64], NDArray[np.float64]]
    tau: RowPrecisions
    weights: RowPrecisions
    n_factors: int

    @cached_property
    def everything(self) -> PaddedRows:
        """All rows of the other side."""
        return pad_rows(self.other, self.n_factors, weights=self.weights)

    def prepare(self, n_rows: int) -> bool:
        return False

    def precisions(self, rows: Index) -> NDArray[np.float64]:
        return self.tau.of(rows)

    def solve(self, rows: Index, factors: bool = True, bulk: bool = False) -> Solved:
        means = _by_row(self.rows, rows)
        locations = means if self.means is self.rows else _by_row(self.means, rows)
        place, unseen = np.arange(len(rows)), rows < 0
        noise = (1.0 / self.tau.of(rows)).astype(np.float32)
        if not unseen.any():
            return Solved(means, NOTHING, place, locations, noise)
        mu, Lambda = self.prior
        means[unseen] = locations[unseen] = mu.astype(np.float32)
        found = np.zeros((*means.shape[:2], triangle(means.shape[2])), np.float32)
        found[unseen] = factors_of(Lambda)
        return Solved(means, found, place, locations, noise)


RowSource = ExactRows | StoredRows


def stored_users(draws: Draws, n_factors: int) -> StoredRows:
    """Stored rows of users."""
    assert draws.users is not None
    means = draws.users if draws.user_means is None else draws.user_means
    noise = precisions_of(draws, 0), weights_of(draws, 1)
    other = draws.users if draws.items is None else draws.items
    return StoredRows(
        draws.users, means, other, (draws.user_mu, draws.user_Lambda), *noise, n_factors
    )


def _by_row(part: Rows, rows: Index) -> Rows:
    return np.ascontiguousarray(part[:, np.maximum(rows, 0)].transpose(1, 0, 2))


def factors_of(Lambda: NDArray[np.float64]) -> NDArray[np.float32]:
    """Cholesky factors of precisions as `solve_rows` stores them, with inverted diagonals."""
    L = np.linalg.cholesky(Lambda if Lambda.ndim == 3 else full_matrices(Lambda))
    d = np.arange(L.shape[1])
    L[:, d, d] = 1.0 / L[:, d, d]
    return np.asarray(L[:, *np.tril_indices(L.shape[1])], np.float32)


def take_rows(lists: RowLists, rows: Index) -> RowLists:
    """The ratings of some rows, in the order given; -1 has none."""
    if len(rows) == 1 and rows[0] >= 0:  # without a copy
        lo, hi = int(lists.starts[rows[0]]), int(lists.starts[rows[0] + 1])
        return RowLists(np.array([0, hi - lo]), lists.other[lo:hi], lists.value[lo:hi])
    first, counts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    known = rows[rows >= 0]
    first[rows >= 0] = lists.starts[known]
    counts[rows >= 0] = lists.starts[known + 1] - lists.starts[known]
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    at = np.arange(starts[-1]) + np.repeat(first - starts[:-1], counts)
    return RowLists(starts, lists.other[at], lists.value[at])


def all_rows(source: ExactRows, draw: bool = False) -> tuple[Rows, Rows]:
    """Means of all rows and, if asked for, a draw of each; (draws, rows, width), mapped if large.

    Given a draw of the kept side, rows are independent: one draw of each of them makes a draw of
    both sides.
    """
    n_draws, _, width = source.other.shape
    n_rows, key = len(source.lists.starts) - 1, make_key(0)
    means, drawn = (allocate(n, (n_rows, width)) for n in (n_draws, n_draws if draw else 0))
    _ = source.everything  # once, before there are threads

    def run(part: slice) -> None:
        solved = source.solve(np.arange(part.start, part.stop), factors=draw)
        found = solved.means[solved.place]
        means[:, part] = found.transpose(1, 0, 2)
        if draw:
            z = generator(key, part.start, STREAM_FOLD).standard_normal(found.shape)
            out = np.empty_like(found)
            draw_from_factors(found, solved.factors[solved.place], z, out)
            drawn[:, part] = out.transpose(1, 0, 2)

    with Pool() as pool:
        pool.each(run, parts(n_rows, rows_at_once(n_draws)))
    return means, drawn
