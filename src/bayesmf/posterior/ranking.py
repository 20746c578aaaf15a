"""Top items of users: matrix products of blocks of users with all items; few users one by one.

A thread holds at most five arrays of one block's scores, for 64 users or BLOCK scores, whichever is
less, but at least 8 users: megabytes for any number of users and draws.

Products are split so that BLAS computes each on the calling thread. Larger products start BLAS
threads, whose spin locks are slow on busy cores.

The rounding of a product depends on its size. Where rounding could change the top items or their
order, scores are computed again by the kernels for one user, so no result depends on other users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import one_of
from bayesmf.kernels.keys import STREAM_THOMPSON, generator, make_key
from bayesmf.kernels.mixture import mixture_moments, mixture_quantile
from bayesmf.kernels.pairs import draw_from_factors, pair_components
from bayesmf.kernels.ranking import (
    add_block,
    add_bonus,
    forbid,
    select_top,
    sum_moments,
    sum_scores,
)
from bayesmf.kernels.row_posterior import PaddedRows
from bayesmf.kernels.simd import LANES
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.draws import spread_evenly
from bayesmf.posterior import DRAWN, POLICIES
from bayesmf.posterior.pairs import Components, PairBlock, Tables
from bayesmf.posterior.posterior import Floats, Index, Posterior, check_level
from bayesmf.posterior.rows import Solved, pad_rows, stored_users, weights_of
from bayesmf.process import Pool, parts

Scores = NDArray[np.float32]
# Score buffers of a thread for a block of users: the ranking scores, one product, and the first
# draw with sums of differences from it and of their squares.
SCORES, FOUND, FIRST, TOTAL, SQUARES = range(5)
Progress = Callable[[int], Any]

# Maximum number of scores of a block of users: 2 MB.
BLOCK = 500_000
# Maximum number of multiplications that OpenBLAS computes on the calling thread.
SMALL = 1 << 18
# Up to this many users are scored one by one.
FEW = 3
# Scores nearer to each other than this, times the largest of a row (or one) and the root of the
# number of draws, may be equal but for rounding: sums in float32 are off by a tenth of it.
NEAR = 1e-6
# Extra items, to find ties with the last one.
SPARE = 4
# Candidates for each requested item, by the bonus from a few draws; all draws choose from them.
CANDIDATES = 3
# Users between two calls of `progress`.
TOGETHER = 4096
# Numbers in one part of a thread's work, 16 MB: a millisecond or two, several times the start of a
# thread.
STRETCH = 1 << 22
# Maximum number of draws for the variance of a user's own row in the candidate search of "ucb" and
# "lcb": it costs width^2 for an item and draw.
BONUS_DRAWS = 8
# Standard deviations that a policy adds to the expected rating.
BONUS = {"ucb": 1.0, "lcb": -1.0}
# Draws in one matrix product: half again as fast as one by one, at 30 factors.
STACK = 16


class OwnRows(NamedTuple):
    """One user's rows under all draws, (draws, ...): see `Solved`."""

    means: Rows
    factors: Rows
    locations: Rows


@dataclass(frozen=True)
class Catalogue:
    """The candidate items under all draws, and rows of users.

    `rows` and `means` are those of `items`, (draws, items, width): expected scores use users'
    locations and `means`, all other scores use users' means and `rows`.
    """

    posterior: Posterior
    items: Index
    rows: Rows
    means: Rows

    @classmethod
    def of(cls, posterior: Posterior, items: Index | None = None) -> Catalogue:
        """All items, or some of them by row number, ascending."""
        if posterior.users_kept:
            rows = means = posterior.expected_rows
        else:
            rows, means = posterior.sides.kept, posterior.sides.kept_means
        everything = np.arange(rows.shape[1])
        if items is None or len(items) == len(everything):
            return cls(posterior, everything, rows, means)
        same = means is rows
        rows = rows[:, items]
        return cls(posterior, items, rows, rows if same else means[:, items])

    @cached_property
    def stacked(self) -> list[Rows]:
        """`means` of some draws side by side, (items, draws x width): for longer products."""
        n = self.means.shape[1]
        return [
            np.ascontiguousarray(self.means[part].transpose(1, 0, 2)).reshape(n, -1)
            for part in parts(len(self.means), STACK)
        ]

    @cached_property
    def where(self) -> Index:
        """Position of each item of the model among `items`, -1 if absent."""
        found = np.full(self.posterior.n_items, -1)
        found[self.items] = np.arange(len(self.items))
        return found

    def seen(self, user: int) -> Index:
        """Positions of the items that a user has rated."""
        at = self.where[self.posterior.seen.for_user(user)]
        return np.asarray(at[at >= 0])

    def users(self, rows: Index, bulk: bool = False) -> Solved:
        """Rows of users by number, -1 for one without ratings."""
        if self.posterior.users_kept:
            return stored_users(self.posterior.draws, self.posterior.n_factors).solve(rows)
        return self.posterior.sides.source.solve(rows, bulk=bulk)

    @cached_property
    def some_draws(self) -> Index:
        """Draws used for the variance of users' rows, spread evenly."""
        return spread_evenly(self.posterior.draws.chain, BONUS_DRAWS)

    @cached_property
    def _given(self) -> PaddedRows:
        return pad_rows(self.rows[self.some_draws], self.posterior.n_factors)

    def own_variance(self, own: OwnRows, items: Index) -> NDArray[np.float64]:
        """Variance of predictions due to the user's own row, for items by position."""
        if not len(own.factors):
            return np.zeros(len(items))
        some = self.some_draws
        means, factors = own.means[some][None], own.factors[some][None]
        shape = len(some), len(items)
        mu, var = np.empty(shape, np.float32), np.empty(shape, np.float32)
        pair_components(
            means, factors, np.zeros(1, np.int64), np.array([0, len(items)]), items, self._given,
            self.posterior.n_factors, np.zeros((1, len(some)), np.float32), mu, var,
        )  # fmt: skip
        return np.asarray(var.mean(0, dtype=np.float64))


def own_rows(solved: Solved, k: int) -> OwnRows:
    """The k-th of some users."""
    place = solved.place[k]
    factors = solved.factors[place] if len(solved.factors) else np.empty((0, 0), np.float32)
    return OwnRows(solved.means[place], factors, solved.locations[place])


class Pick(NamedTuple):
    """Random choice of "thompson" for a user: number of the draw, and noise for the user's row."""

    draw: int
    noise: Floats


def thompson_pick(seed: int, user: int, n_draws: int, width: int, person: bool = True) -> Pick:
    """Draw for a user, keyed by the seed and the user's number.

    Without `person` there is no noise: the row is its expected value given the draw of the items.
    """
    rng = generator(make_key(seed), user, STREAM_THOMPSON)
    draw = int(rng.integers(n_draws))
    return Pick(draw, rng.standard_normal(width) if person else np.zeros(width))


@dataclass(frozen=True)
class UserScores:
    """Scores of items for one user at a time, by a policy.

    `rated` may be False if no pair is rated; the expectation of rated pairs uses the item's own row
    (docs/sampler.md), so they must be looked up.
    """

    catalogue: Catalogue
    policy: str
    rated: bool
    pool: Pool

    def for_user(self, user: int, own: OwnRows, pick: Pick | None, items: Index) -> Floats:
        """Scores of items by position for a user by row number, -1 for one without ratings."""
        if self.policy in DRAWN:
            assert pick is not None
            row, rows = thompson_row(own, pick), self.catalogue.rows[pick.draw]
            return self._sums(row[None], rows[None], items)
        expected = self.expected(user, own, items)
        if self.policy == "mean":
            return expected
        variance = self._variance(own, items) + self.catalogue.own_variance(own, items)
        return expected + np.sqrt(variance) * BONUS[self.policy]

    def expected(self, user: int, own: OwnRows, items: Index) -> Floats:
        """Mean over draws, from conditional means where valid."""
        rows, means = self.catalogue.rows, self.catalogue.means
        if user < 0:
            return self._mean(own.means, rows, items)
        expected = self._mean(own.locations, means, items)
        if self.rated and not (own.locations is own.means and means is rows):
            seen = np.isin(items, self.catalogue.seen(user))
            expected[seen] = self._mean(own.means, rows, items[seen])
        return expected

    def _mean(self, own: Rows, rows: Rows, items: Index) -> Floats:
        bias = own[:, self.catalogue.posterior.n_factors :].sum(dtype=np.float64)
        return np.asarray((self._sums(own, rows, items) + bias) / len(own))

    def _sums(self, own: Any, rows: Rows, items: Index) -> Floats:
        """Sums over draws of the user's row . the item's row + the item's bias."""
        X, out = pad_user_rows(own, self.catalogue.posterior.n_factors), np.zeros(len(items))
        Y = readonly(np.ascontiguousarray(rows))

        def run(part: slice) -> None:
            sum_scores(X, Y, items[part], out[part])

        self._each(run, items, rows[:, :1].size)
        return out

    def _variance(self, own: OwnRows, items: Index) -> Floats:
        """Variance over draws of the predictions by the user's means."""
        rows, n, D = self.catalogue.rows, len(items), self.catalogue.posterior.n_factors
        X, Y = pad_user_rows(own.means, D), readonly(np.ascontiguousarray(rows))
        bias = np.asarray(own.means, np.float32)[:, D:].sum(1)
        first, total, squares = np.empty(n), np.zeros(n), np.zeros(n)

        def run(part: slice) -> None:
            some = first[part], total[part], squares[part]
            sum_moments(X, bias, Y, items[part], *some)

        self._each(run, items, rows[:, :1].size)
        total /= len(rows)
        squares /= len(rows)
        return np.asarray(np.maximum(squares - total * total, 0.0))

    def _each(self, run: Callable[[slice], None], items: Index, numbers: int) -> None:
        """Call `run` for parts of the items, on all threads; `numbers` is the size of an item."""
        self.pool.each(run, parts(len(items), max(1, STRETCH // numbers)))


def thompson_row(own: OwnRows, pick: Pick) -> Rows:
    """A draw of the user's row given the items of the picked draw: the two are a joint draw."""
    t = pick.draw
    row = np.array(own.means[t], np.float32)
    if len(own.factors):
        out = np.empty((1, 1, len(row)), np.float32)
        z = pick.noise[None, None]
        draw_from_factors(row[None, None], np.array(own.factors[t])[None, None], z, out)
        row = out[0, 0]
    return row


def pad_user_rows(own: Any, n_factors: int) -> NDArray[np.float32]:
    """A user's rows, with a one for the item's bias in place of the user's bias.

    Rows of at least eight columns are padded for `padded_dot`: whole vectors, then one for the last
    eight columns, with zeros for columns already covered.
    """
    rows = np.array(own, np.float32)
    rows[:, n_factors:] = 1.0
    n, width = rows.shape
    if width < LANES:
        return rows
    before = (width - 1) // LANES * LANES
    out = np.zeros((n, before + LANES), np.float32)
    out[:, :before] = rows[:, :before]
    out[:, before + LANES - (width - before) :] = rows[:, before:]
    return out


@dataclass(frozen=True)
class Question:
    """Settings of a recommendation: number of items, policy, whether to exclude rated items.

    `level` is the probability of intervals; None for no intervals. `items` are row numbers of the
    candidates, ascending; None for all. `seed` is that of "thompson".
    """

    n: int
    policy: str
    exclude_seen: bool
    level: float | None
    items: Index | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise InputError for an unknown policy or level."""
        one_of("policy", self.policy, POLICIES)
        if self.level is not None:
            check_level(self.level)


def rank_users(
    posterior: Posterior,
    users: Index,
    question: Question,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Index, list[Floats]]:
    """Rank the items of users by row number.

    Returns row numbers of the best items, shape (len(users), n), -1 where none is left; and arrays
    of mean, standard deviation and, where there is a level, bounds of the interval.
    """
    question.check()
    known = posterior.n_items if question.items is None else len(question.items)
    shape = len(users), min(question.n, known)
    items = np.full(shape, -1, np.int64)
    numbers = [np.full(shape, np.nan) for _ in range(2 if question.level is None else 4)]
    if not known:
        return items, numbers
    with Pool(threads) as pool:
        ranker = Ranker(posterior, question, pool)
        for part in parts(len(users), TOGETHER):
            ranker.fill(users[part], part.start, items[part], [n[part] for n in numbers])
            if progress is not None:
                progress(part.stop - part.start)
    return items, numbers


class Users(NamedTuple):
    """A block of users: row numbers, rows, and random choices of "thompson"."""

    number: Index
    solved: Solved
    picks: list[Pick]


class Ranker:
    """Scores blocks of users by a policy, selects the best items, and predicts their ratings.

    The bias of a user is the same in all its scores and is omitted where only the order matters.
    """

    def __init__(self, posterior: Posterior, question: Question, pool: Pool) -> None:
        self.posterior, self.question, self.pool = posterior, question, pool
        # If users are kept, all policies except "mean" use draws of both sides.
        ranked = posterior if question.policy == "mean" else posterior.with_items
        if question.policy == "thompson-items":
            ranked = posterior.with_users  # expected rows given a draw, not stored draws
        self.from_ranked_rows = ranked is posterior and not posterior.users_kept
        self.catalogue = Catalogue.of(ranked, question.items)
        self.n_factors, self.n_draws = posterior.n_factors, len(posterior.draws)
        self.bonus = BONUS.get(question.policy, 0.0)
        self.weights = weights_of(posterior.draws, 1)
        self.sides, self.all_items = ranked.sides, np.arange(len(self.catalogue.items))
        scorer = UserScores(self.catalogue, question.policy, not question.exclude_seen, pool)
        # `alone` is used on threads of the pool, which must not wait for each other.
        self.spread, self.alone = scorer, replace(scorer, pool=Pool(1))

    def fill(self, users: Index, first: int, items: Index, numbers: list[Floats]) -> None:
        """Rank the items of users; `first` is the number of the first user in the query."""
        few, source = len(users) <= FEW, self.sides.source
        size = 1 if few else min(64, max(8, BLOCK // max(1, len(self.all_items))))
        bulk = source.prepare(len(users))
        wide = min((CANDIDATES if self.bonus else 1) * items.shape[1], len(self.all_items))
        if not few:
            _ = self.posterior.sides.everything, self.catalogue.stacked  # before there are threads

        def run(stretch: slice) -> None:
            # Unused pages are never allocated.
            scratch = np.empty((5, size, len(self.all_items)), np.float32)
            for part in parts(stretch.stop - stretch.start, size):
                at = slice(stretch.start + part.start, stretch.start + part.stop)
                block = self._users(users[at], first + at.start, bulk)
                if few:
                    found = self._top_of_one(self.spread, block, 0, wide)[None]
                else:
                    found = self._best(
                        self._scores(block, scratch[:, : len(block.number)]), block, wide
                    )
                chosen = np.where(found >= 0, self.catalogue.items[found], -1)
                self._answer(block, chosen, items[at], [number[at] for number in numbers])

        if few:
            for k in range(len(users)):
                run(slice(k, k + 1))
            return
        # Several parts for each thread, for cores of unequal speed; blocks are not split.
        blocks = -(-len(users) // size)
        share = max(1, -(-blocks // (4 * self.pool.threads)))
        self.pool.each(run, parts(len(users), share * size))

    def _users(self, number: Index, first: int, bulk: bool) -> Users:
        picks = []
        if self.question.policy in DRAWN:
            width, person = self.catalogue.rows.shape[2], self.question.policy == "thompson"
            # Users without ratings are numbered by their position in the query.
            own = np.where(number >= 0, number, (1 << 40) + first + np.arange(len(number)))
            sizes, seed = (self.n_draws, width), self.question.seed
            picks = [thompson_pick(seed, int(user), *sizes, person) for user in own]
        return Users(number, self.catalogue.users(number, bulk), picks)

    def _answer(self, users: Users, chosen: Index, items: Index, numbers: list[Floats]) -> None:
        """The best of the chosen items: mean, standard deviation and interval of each."""
        filled = chosen >= 0
        found = self._components(users, filled, chosen[filled])
        variance = mixture_moments(found.mu, found.var)[1]
        at = np.full(chosen.shape, -1)
        at[filled] = np.arange(len(variance))
        if self.bonus:
            scores = np.full(chosen.shape, -np.inf)
            noise = users.solved.noise[np.nonzero(filled)[0]] / self.weights.of(chosen[filled])
            spread = np.sqrt(np.maximum(variance - noise.mean(1), 0.0))
            scores[filled] = found.expected + self.bonus * spread
            order = np.lexsort((chosen, -scores))[:, : items.shape[1]]
            chosen, at = (np.take_along_axis(part, order, 1) for part in (chosen, at))
        items[:] = chosen
        filled, at = at >= 0, at[at >= 0]
        center, scale = self.posterior.center, self.posterior.scale
        mean = self.posterior.clip(center + scale * found.expected[at])
        answers = [mean, scale * np.sqrt(variance[at])]
        if self.question.level is not None:
            tail = (1 - self.question.level) / 2
            found = Components(found.mu[:, at], found.var[:, at], found.expected[at])
            mu = found.moved()
            answers += [
                center + scale * mixture_quantile(p, mu, found.var) for p in (tail, 1 - tail)
            ]
        for number, values in zip(numbers, answers, strict=True):
            number[filled] = values

    def _components(self, users: Users, filled: NDArray[np.bool_], item: Index) -> Components:
        """Mixtures of users and the items of each, where `filled` is a row for a user."""
        posterior, user = self.posterior, np.repeat(users.number, filled.sum(1))
        if self.from_ranked_rows:
            starts = np.concatenate([[0], np.cumsum(filled.sum(1))])
            tables, at = posterior.sides.tables(item)
            block = PairBlock(users.number, starts, at, posterior.seen.rated(user, item))
            return posterior.sides.components(block, users.solved, tables)
        mu = np.empty((self.n_draws, len(user)), np.float32)
        var, expected = np.empty_like(mu), np.empty(len(user))

        def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
            mu[:, at], var[:, at], expected[at] = posterior.sides.components(block, solved, tables)

        posterior._each(user, item, work, 1)
        return Components(mu, var, expected)

    def _top_of_one(self, scores: UserScores, users: Users, k: int, n: int) -> Index:
        """The n best items of the k-th of some users, by position."""
        items, user = self.all_items, int(users.number[k])
        if self.question.exclude_seen:
            items = np.delete(items, self.catalogue.seen(user))
        found = self._scores_of_one(scores, users, k, items)
        best = in_order(found, items, n)
        out = np.full(n, -1, np.int64)
        out[: len(best)] = best
        return out

    def _scores_of_one(self, scores: UserScores, users: Users, k: int, items: Index) -> Floats:
        pick = users.picks[k] if users.picks else None
        return scores.for_user(int(users.number[k]), own_rows(users.solved, k), pick, items)

    def _best(self, scores: Scores, users: Users, n: int) -> Index:
        """The n best items of each of a block of users, by their scores in float32."""
        if self.question.exclude_seen:
            seen = self.posterior.seen
            rated = readonly(seen.starts), readonly(seen.items)
            forbid(scores, users.number, *rated, self.catalogue.where)
        best = np.empty((len(users.number), min(n + SPARE, scores.shape[1])), np.int64)
        select_top(scores, np.empty(best.shape[1], np.float32), best)
        found = np.take_along_axis(scores, np.maximum(best, 0), 1)
        close = near_ties(found, best >= 0, NEAR * self.n_draws**0.5)
        out = best[:, :n].copy()
        for k in np.flatnonzero(close[:, :n].any(1)).tolist():
            items = best[k][best[k] >= 0]
            if close[k, n - 1 :].all() and len(items) == best.shape[1] < scores.shape[1]:
                # There may be more ties than candidates.
                out[k] = self._top_of_one(self.alone, users, k, n)
            else:
                rows = in_order(self._scores_of_one(self.alone, users, k, items), items, n)
                out[k, : len(rows)] = rows
        return out

    def _scores(self, users: Users, scratch: Scores) -> Any:
        if self.question.policy in DRAWN:
            return self._picked(users, scratch)
        scores = self._expected(users, scratch)
        if self.question.policy != "mean":
            self._add_bonus(scores, users, scratch)
        return scores

    def _expected(self, users: Users, scratch: Scores) -> Any:
        """Mean over draws, from conditional means where valid."""
        scores, means, solved = scratch[SCORES], self.catalogue.means, users.solved
        some = parts(self.n_draws, STACK)
        for part, Y in zip(some, self.catalogue.stacked, strict=True):
            found = scores if part.start == 0 else scratch[FOUND]
            X = solved.locations[solved.place, part] / np.float32(self.n_draws)
            X[:, :, self.n_factors :] = 1.0 / self.n_draws  # for the items' biases
            product(X.reshape(len(X), -1), Y, found)
            if part.start:
                scores += found
        plain = means is self.catalogue.rows and solved.locations is solved.means
        if not plain:
            self._correct(scores, users)
        return scores

    def _correct(self, scores: Scores, users: Users) -> None:
        """Correct rated pairs, and users without ratings, as in `Sides.expected`."""
        solved, D = users.solved, self.n_factors
        bias = solved.locations[solved.place][:, :, D:].sum((1, 2), dtype=np.float64) / self.n_draws
        for k in np.flatnonzero(users.number < 0).tolist():
            own = own_rows(solved, k)
            scores[k] = self.alone.expected(-1, own, self.all_items) - bias[k]
        if self.question.exclude_seen:
            return
        rated = [self.catalogue.seen(int(user)) for user in users.number]
        if self.posterior.users_kept:
            for k in np.flatnonzero(users.number >= 0).tolist():
                found = self.alone.expected(int(users.number[k]), own_rows(solved, k), rated[k])
                scores[k, rated[k]] = found - bias[k]
            return
        starts = np.concatenate([[0], np.cumsum([len(one) for one in rated])])
        at, row = np.concatenate(rated), np.repeat(np.arange(len(rated)), np.diff(starts))
        block = PairBlock(
            users.number, starts, self.catalogue.items[at], np.ones(len(at), np.bool_)
        )
        found = self.sides.expected(block, solved, self.sides.everything)
        scores[row, at] = found - bias[row]

    def _unfolded(self, rows: Rows) -> Rows:
        """Rows of users, with a one for the item's bias in place of the user's."""
        rows[:, self.n_factors :] = 1.0
        return rows

    def _picked(self, users: Users, scratch: Scores) -> Any:
        """Scores of each user by a draw of its row and the items of the same draw."""
        scores = scratch[SCORES]
        for k, pick in enumerate(users.picks):
            row = thompson_row(own_rows(users.solved, k), pick)
            product(self._unfolded(row[None]), self.catalogue.rows[pick.draw], scores[k : k + 1])
        return scores

    def _add_bonus(self, scores: Scores, users: Users, scratch: Scores) -> None:
        """Add or take away the standard deviation of predictions."""
        solved, rows = users.solved, self.catalogue.rows
        first, total, squares = scratch[FIRST], scratch[TOTAL], scratch[SQUARES]
        total[:], squares[:] = 0.0, 0.0
        for t in range(self.n_draws):
            X = solved.means[solved.place, t]
            bias = X[:, self.n_factors :].sum(1)
            found = product(self._unfolded(X), rows[t], first if t == 0 else scratch[FOUND])
            if t == 0:
                first += bias[:, None]
            else:
                add_block(found, bias, first, total, squares)
        more = scratch[FOUND]
        for k in range(len(more)):
            more[k] = self.catalogue.own_variance(own_rows(solved, k), self.all_items)
        add_bonus(scores, total, squares, more, np.float32(self.bonus), self.n_draws)


def product(X: Rows, Y: Rows, out: Scores) -> Scores:
    """Compute out = X Y^T, in pieces that BLAS does not spread over threads."""
    (n, width), Y = X.shape, np.asarray(Y)
    size = max(1, SMALL // (n * width) // 8 * 8)
    whole = len(Y) // size * size
    if whole:
        pieces = Y[:whole].reshape(-1, size, width).transpose(0, 2, 1)
        np.matmul(X, pieces, out=out[:, :whole].reshape(n, -1, size).transpose(1, 0, 2))
    np.matmul(X, Y[whole:].T, out=out[:, whole:])
    return out


def in_order(scores: Floats, items: Index, n: int) -> Index:
    """The n items with the best scores, best first; ties by lower number."""
    if 0 < n < len(items):
        best = scores >= np.partition(scores, len(scores) - n)[len(scores) - n]
        scores, items = scores[best], items[best]
    return items[np.lexsort((items, -scores))][:n]


def near_ties(scores: Scores, filled: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Which scores, in descending order, differ from the next by no more than rounding errors."""
    scores = np.where(filled, scores, 0)
    near = share * np.maximum(np.abs(scores).max(1, keepdims=True), 1)
    with np.errstate(invalid="ignore"):  # a model that has diverged
        close = scores[:, :-1] - scores[:, 1:] <= near
    return np.asarray(close & filled[:, 1:])
