"""Rows of one side under each draw: exact where the side is not kept, else as they were stored.

Given a draw of the other side, a row is Gaussian and depends on its own ratings alone
(kernels/row_posterior.py). So a row that was never stored, a new one, and an old one with new
ratings are the same thing.
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
from bayesmf.kernels.pairs import draw_from_factors, lay_out_draws
from bayesmf.kernels.row_posterior import (
    GAMMA_TRIES,
    Given,
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

# Candidates among which the quantile of a precision that nothing is known of is found.
CANDIDATES = 255
# Quantiles of users and of items go up in steps of these, modulo one: where neither is known both
# are spread evenly, and one tells nothing of the other.
QUANTILE_STEPS = 0.6180339887498949, 0.5698402909980532
# Steps of Gibbs by which an unknown precision is drawn.
STEPS = 8


@dataclass(frozen=True)
class RowPrecisions:
    """Precisions of the ratings of one side's rows, but for the weights of the other side's.

    Attributes
    ----------
    plain : ndarray of float64, shape (draws,)
        What they are where rows have none of their own.
    value : ndarray of float32, shape (draws, rows), or None
        Those of single rows; None where they have none, or where they are not known and have to be
        drawn given the rows' ratings.
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
        """Precisions of rows by number, (rows, draws); NaN where they have to be drawn."""
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
    """What kernels draw unknown precisions from; nothing where rows have none of their own."""
    if prior is None:
        return all_known(n_draws)
    return UnknownNoise(prior[:, 0].copy(), prior[:, 1].copy(), *_fold_numbers(n_draws, width))


@lru_cache(maxsize=4)
def _fold_numbers(n_draws: int, width: int) -> tuple[NDArray[np.float32], Floats]:
    """Normals and uniforms by which unknown precisions are drawn: the same for every question.

    What they have by chance is therefore the same for all people. So of the normals that Gamma
    variates are made of one comes from each of as many equal parts of their distribution as there
    are draws, in a random order: a person's noise, averaged over draws, hardly depends on them.
    """
    rng = generator(make_key(0), 1, STREAM_FOLD)
    normals = rng.standard_normal((n_draws, STEPS, width + GAMMA_TRIES), dtype=np.float32)
    uniforms = rng.random((n_draws, STEPS, GAMMA_TRIES + 1))
    normal, parts = NormalDist(), np.arange(n_draws)
    for step in range(STEPS):
        quantiles = np.maximum(rng.permutation(parts) + rng.random(n_draws), 1e-9) / n_draws
        normals[:, step, width] = [normal.inv_cdf(quantile) for quantile in quantiles.tolist()]
    return normals, uniforms


# Bytes of means and factors that a model remembers of rows it has worked out in bulk; none where
# these are fewer than that share of all rows.
CACHE_BYTES, LEAST_CACHED = 1 << 30, 0.25
# Rows in one question from which on what is worked out is remembered.
BULK = 256
# Rows in one question for which the other side is not laid out as a whole.
FEW = 8
# Most rows that are worked out together, and rows times draws: some ten megabytes at 30 factors.
MOST_ROWS, ROW_DRAWS = 256, 1 << 14
NOTHING = np.empty((0, 0, 0), np.float32)


class Solved(NamedTuple):
    """Some rows under all draws: row k is at place[k] of arrays (places, draws, ...).

    `factors` are of precisions, and empty where rows are points. `locations` are the rows that
    expected values are found from: conditional means, where the side's draws are stored.
    """

    means: Rows
    factors: Rows
    place: Index
    locations: Rows
    noise: Rows  # (rows, draws): variance of a rating of weight one of row k


def lay_out(
    rows: Rows, n_factors: int, which: Index | None = None, weights: RowPrecisions | None = None
) -> Given:
    """Rows of all draws, or some of them, as kernels read them; a last one is zero.

    `weights` are those of the rows' ratings, one by default.
    """
    which = np.arange(rows.shape[1]) if which is None else which
    width, n = padded(n_factors), len(which) + 1
    features = np.empty((len(rows), n * width), np.float32)
    bias = np.empty((len(rows), n), np.float32)
    lay_out_draws(readonly(rows), readonly(which), n_factors, features, bias)
    root = np.ones(bias.shape, np.float32)
    if weights is not None:
        root[:, :-1] = np.sqrt(weights.of(which)).T
    return Given(features, bias, root)


def natural_priors(
    mu: NDArray[np.float64], Lambda: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lambda mu and Lambda, as a matrix, of each draw."""
    return RowPrior(mu, Lambda if Lambda.ndim == 3 else full_matrices(Lambda)).natural()


def full_matrices(diagonals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrices with these diagonals."""
    return np.asarray(diagonals[:, :, None] * np.eye(diagonals.shape[1]))


def rows_at_once(n_draws: int) -> int:
    """Rows that are worked out together, under all draws."""
    return max(1, min(MOST_ROWS, ROW_DRAWS // n_draws))


def triangle(width: int) -> int:
    """Numbers in the lower half of a matrix."""
    return width * (width + 1) // 2


class RowCache:
    """Rows that were worked out in bulk, up to a number of bytes; first come, first kept.

    Without a lock: of two threads that work out the same row either may be first, with the same
    numbers. A copy of a model begins with an empty one.
    """

    def __init__(self, n_rows: int, n_draws: int, width: int, budget: int) -> None:
        self._sizes = n_rows, n_draws, width, budget
        per_row = 4 * n_draws * (width + triangle(width) + 1)
        self.room = min(n_rows, budget // per_row)
        if self.room < LEAST_CACHED * n_rows:  # too few to make a difference
            self.room = 0
        self._next, self._place = count(), np.full(n_rows, -1, np.int64)
        self._arrays: dict[str, tuple[Rows, Rows, Rows]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RowCache, self._sizes

    @property
    def arrays(self) -> tuple[Rows, Rows, Rows]:
        """Room for means, factors and noise: taken from the system as it is filled."""
        found = self._arrays.get("all")
        if found is None:
            _, n_draws, width, _ = self._sizes
            try:
                made = self._taken(n_draws, width)
            except MemoryError:  # rows are worked out each time then
                self.room = 0
                made = self._taken(n_draws, width)
            # Of two threads that come first, both get the same: rows of the other would be lost.
            found = self._arrays.setdefault("all", made)
        return found

    def _taken(self, n_draws: int, width: int) -> tuple[Rows, Rows, Rows]:
        means = np.empty((self.room, n_draws, width), np.float32)
        factors = np.empty((self.room, n_draws, triangle(width)), np.float32)
        return means, factors, np.empty((self.room, n_draws), np.float32)

    def places(self, rows: Index) -> Index:
        """Where rows are, -1 for those that are not here."""
        return np.where(rows >= 0, self._place[rows], -1) if len(self._place) else rows

    def add(self, rows: Index, *found: Rows) -> None:
        """Remember means, factors and noise of rows, as far as there is room."""
        for k, row in enumerate(rows):
            if row < 0 or self._place[row] >= 0:
                continue
            place, arrays = next(self._next), self.arrays
            if place >= self.room:
                return
            for array, part in zip(arrays, found, strict=True):
                array[place] = part[k]
            self._place[row] = place  # last: from now on others read it


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
    own: Given | None = None  # where `other` was laid out before

    @cached_property
    def cache(self) -> RowCache:
        """Rows that were worked out in bulk."""
        n_draws, _, width = self.other.shape
        return RowCache(len(self.lists.starts) - 1, n_draws, width, self.budget)

    @cached_property
    def everything(self) -> Given:
        """All rows of the other side, laid out once: as large as they are themselves."""
        if self.own is not None:
            return self.own
        return lay_out(self.other, self.n_factors, weights=self.weights)

    def prepare(self, n_rows: int) -> bool:
        """Make ready for a question about many rows; returns whether rows may be remembered."""
        if n_rows > FEW:
            _ = self.everything
        return n_rows >= BULK and self.cache.room > 0

    def solve(self, rows: Index, factors: bool = True, bulk: bool = False) -> Solved:
        cache = self.cache  # once: another thread may put its own in its place
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
        """What precisions are drawn from that are not known: of new users, or with new ratings."""
        n_draws, _, width = self.other.shape
        return unknown_noise(self.tau.prior, n_draws, width)

    def _met_by(self, rows: Index) -> tuple[RowLists, Index, Given]:
        """Ratings, row numbers in them, and the other side: for few rows what these have rated."""
        if len(rows) > FEW or self.own is not None or "everything" in self.__dict__:
            return self.lists, rows, self.everything
        lists = take_rows(self.lists, rows)
        which = np.unique(lists.other)
        other = np.searchsorted(which, lists.other).astype(np.int32)
        given = lay_out(self.other, self.n_factors, which.astype(np.int64), self.weights)
        return RowLists(lists.starts, other, lists.value), np.arange(len(rows)), given


@dataclass(frozen=True)
class StoredRows:
    """Rows of a side whose draws were kept beside those of the other side.

    They cost nothing: none are remembered, and only those without ratings have factors. `prior` is
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
    def everything(self) -> Given:
        """All rows of the other side."""
        return lay_out(self.other, self.n_factors, weights=self.weights)

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
    """Users' rows as they were stored."""
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
    """Cholesky factors of precisions, laid out as `solve_rows` does: their diagonals inverted."""
    L = np.linalg.cholesky(Lambda if Lambda.ndim == 3 else full_matrices(Lambda))
    d = np.arange(L.shape[1])
    L[:, d, d] = 1.0 / L[:, d, d]
    return np.asarray(L[:, *np.tril_indices(L.shape[1])], np.float32)


def take_rows(lists: RowLists, rows: Index) -> RowLists:
    """The ratings of some rows, in the order given; -1 has none."""
    if len(rows) == 1 and rows[0] >= 0:  # as it lies, without a copy
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
