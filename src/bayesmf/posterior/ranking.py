"""The best items of users: blocks of users against all items, by matrix products; few one by one.

A thread holds five arrays at most of one block's scores, for 64 users or BLOCK scores, whichever is
less, but never fewer than 8 users: megabytes, however many users and draws there are.

Products are cut so small that BLAS computes each on the calling thread. Larger ones would wake its
own threads, which spin while they wait for each other, for long where others use the cores too.

How a product is rounded depends on its size. Where that could change which items are best, or their
order, they are scored again by the kernels for one user: so no answer depends on other users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import one_of
from bayesmf.kernels.predict import add_block, add_bonus, correct_rated, forbid, select_top
from bayesmf.kernels.types import Rows, readonly
from bayesmf.posterior.one_user import UserScores
from bayesmf.posterior.posterior import POLICIES, Floats, Index, Posterior, check_level
from bayesmf.system.threads import Pool, parts

Scores = NDArray[np.float32]
Progress = Callable[[int], Any]

# Most scores of one block of users: 2 MB.
BLOCK = 500_000
# Most multiplications of a product that OpenBLAS keeps on the calling thread.
SMALL = 1 << 18
# Most users that are scored one by one.
FEW = 3
# Scores nearer to each other than this, times the largest of a row (or one) and the root of the
# number of draws, may be equal but for rounding: sums in float32 are off by a tenth of it.
NEAR = 1e-6
# Items beyond those asked for, to find ties with the last of these.
SPARE = 4
# Users between two calls of `progress`; what is said of their items is computed together.
TOGETHER = 4096


@dataclass(frozen=True)
class Question:
    """What is asked for each user: how many items, by which policy, whether rated ones too.

    `level` is the probability of intervals; None for no intervals.
    """

    n: int
    policy: str
    exclude_seen: bool
    level: float | None

    def check(self) -> None:
        """Refuse an unknown policy or level."""
        one_of("policy", self.policy, POLICIES)
        if self.level is not None:
            check_level(self.level)


def draw_picks(n_draws: int, n_users: int, users: Index, random_state: int | None) -> Index:
    """Pick a draw for each user, for "thompson", by the seed and the user alone.

    Unseen users (-1) have no draw of their own: theirs depend on their order.
    """
    rng = np.random.default_rng(random_state)
    own = rng.integers(n_draws, size=n_users)
    picks = np.where(users >= 0, own[users] if n_users else 0, 0)
    unseen = users < 0
    picks[unseen] = rng.integers(n_draws, size=int(unseen.sum()))
    return picks


def rank_users(
    posterior: Posterior,
    users: Index,
    question: Question,
    picks: Index,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Index, list[Floats]]:
    """Rank the items of users by row number.

    Returns row numbers of the best items, shape (len(users), n), -1 where none is left; and arrays
    of mean, standard deviation and, where there is a level, bounds of the interval.
    """
    question.check()
    shape = len(users), min(question.n, posterior.draws.items.shape[1])
    items = np.full(shape, -1, np.int64)
    numbers = [np.full(shape, np.nan) for _ in range(2 if question.level is None else 4)]
    with Pool(threads) as pool:
        ranker = Ranker(posterior, question, pool)
        for part in parts(len(users), TOGETHER):
            items[part] = ranker.top(users[part], picks[part], shape[1])
            filled = items[part] >= 0
            pairs = np.repeat(users[part], filled.sum(1)), items[part][filled]
            told = [*posterior.mean_std(*pairs, threads)]
            if question.level is not None:
                told += posterior.interval(*pairs, question.level, threads)
            for number, values in zip(numbers, told, strict=True):
                number[part][filled] = values
            if progress is not None:
                progress(part.stop - part.start)
    return items, numbers


class Ranker:
    """Scores blocks of users by a policy, and selects the best.

    The bias of a user lifts all its scores alike and is left out wherever only their order matters.
    """

    def __init__(self, posterior: Posterior, question: Question, pool: Pool) -> None:
        self.posterior, self.question, self.pool = posterior, question, pool
        self.draws, self.n_factors = posterior.draws, posterior.n_factors
        self.starts, self.seen = readonly(posterior.seen.starts), readonly(posterior.seen.items)
        asked = posterior, question.policy, not question.exclude_seen
        # `alone` is used on threads of the pool, which must not wait for each other.
        self.spread, self.alone = UserScores(*asked, pool), UserScores(*asked, Pool(1))
        self.all_items = np.arange(posterior.draws.items.shape[1])

    def top(self, users: Index, picks: Index, n: int) -> Index:
        """Row numbers of the n best items of users, best first, -1 where none is left."""
        out = np.full((len(users), n), -1, np.int64)
        known = np.flatnonzero(users >= 0)
        self._top_of_unseen(users, picks, out)
        if len(known) <= FEW:
            for k in known:
                out[k] = self._top_of_one(self.spread, int(users[k]), int(picks[k]), n)
        else:
            self._top_of_many(known, users, picks, out)
        return out

    def _top_of_many(self, known: Index, users: Index, picks: Index, out: Index) -> None:
        """Fill the rows of `known` users, in blocks."""
        if self.question.policy == "thompson":  # users of one draw together
            known = known[np.argsort(picks[known], kind="stable")]
        size = min(64, max(8, BLOCK // max(1, self.draws.items.shape[1])))

        def fill(stretch: slice) -> None:
            scratch = ScoreScratch(size, self.draws.items.shape[1])
            for part in parts(stretch.stop - stretch.start, size):
                some = known[stretch][part]
                scores = self._scores(users[some], picks[some], scratch)
                out[some] = self._best(scores, users[some], picks[some], out.shape[1])

        # Several stretches a thread, for cores that are not equally fast; blocks stay whole.
        blocks = -(-len(known) // size)
        share = max(1, -(-blocks // (4 * self.pool.threads)))
        self.pool.each(fill, parts(len(known), share * size))

    def _top_of_unseen(self, users: Index, picks: Index, out: Index) -> None:
        """Fill the rows of unseen users: those of one draw get the same items."""
        unseen = users < 0
        if self.question.policy != "thompson":
            picks = np.zeros_like(picks)
        for pick in np.unique(picks[unseen]):
            best = self._top_of_one(self.spread, -1, int(pick), out.shape[1])
            out[unseen & (picks == pick)] = best

    def _top_of_one(self, scores: UserScores, user: int, pick: int, n: int) -> Index:
        """The n best items of one user."""
        items = self.all_items
        if self.question.exclude_seen:
            items = np.delete(items, self.posterior.seen.for_user(user))
        best = in_order(scores.for_user(user, pick, items), items)[:n]
        out = np.full(n, -1, np.int64)
        out[: len(best)] = best
        return out

    def _best(self, scores: Scores, users: Index, picks: Index, n: int) -> Index:
        """The n best items of each of a block of users, by their scores in float32."""
        if self.question.exclude_seen:
            forbid(scores, users, self.starts, self.seen)
        best = np.empty((len(users), min(n + SPARE, scores.shape[1])), np.int64)
        select_top(scores, np.empty(best.shape[1], np.float32), best)
        found = np.take_along_axis(scores, np.maximum(best, 0), 1)
        close = near_ties(found, best >= 0, NEAR * len(self.draws) ** 0.5)
        out = best[:, :n].copy()
        for k in np.flatnonzero(close[:, :n].any(1)):
            user, pick, items = int(users[k]), int(picks[k]), best[k][best[k] >= 0]
            if close[k, n - 1 :].all() and len(items) == best.shape[1] < scores.shape[1]:
                # More may be as good than were found.
                out[k] = self._top_of_one(self.alone, user, pick, n)
            else:
                rows = in_order(self.alone.for_user(user, pick, items), items)[:n]
                out[k, : len(rows)] = rows
        return out

    def _scores(self, users: Index, picks: Index, scratch: ScoreScratch) -> Scores:
        if self.question.policy == "mean":
            return self._expected(users, scratch)
        if self.question.policy == "ucb":
            return self._with_bonus(users, scratch)
        if self.draws.user_means is None:
            return self._picked(users, picks, scratch)
        scores = self._expected(users, scratch)
        # The picked draw less the mean of all draws, plus the expectation: a weight for each.
        share = 1.0 / len(self.draws)
        for t in range(len(self.draws)):
            weights = np.where(picks == t, 1.0 - share, -share).astype(np.float32)
            scores += self._one_draw(t, users, scratch.found(users), weights)
        return scores

    def _expected(self, users: Index, scratch: ScoreScratch) -> Scores:
        """Mean over draws, from conditional means where there are any."""
        draws, scores = self.draws, scratch.scores(users)
        share = np.full(len(users), 1.0 / len(draws), np.float32)
        for t in range(len(draws)):
            found = scratch.found(users) if t else scores
            if draws.user_means is None or draws.item_means is None:
                self._one_draw(t, users, found, share)
            else:
                X = self._unfolded(draws.user_means[t][users], share)
                product(X, draws.item_means[t], found)
            if t:
                scores += found
        if draws.user_means is not None and not self.question.exclude_seen:
            self._correct(scores, users)
        return scores

    def _correct(self, scores: Scores, users: Index) -> None:
        """Put the user's own row into the expectation of rated pairs (docs/sampler.md)."""
        draws = self.draws
        assert draws.user_means is not None and draws.item_means is not None
        share, x = np.float32(1.0 / len(draws)), np.empty(self.n_factors, np.float32)
        for t in range(len(draws)):
            correct_rated(
                scores, users, self.starts, self.seen, readonly(draws.user_means[t]),
                readonly(draws.users[t]), readonly(draws.item_means[t]), x, share,
            )  # fmt: skip

    def _unfolded(self, rows: Rows, weights: Scores) -> Rows:
        """Rows of users times weights, with a one for the item's bias in place of the user's."""
        rows[:, self.n_factors :] = 1.0
        rows *= weights[:, None]
        return rows

    def _one_draw(self, t: int, users: Index, out: Scores, weights: Scores) -> Scores:
        X = self._unfolded(np.asarray(self.draws.users[t][users]), weights)
        return product(X, self.draws.items[t], out)

    def _picked(self, users: Index, picks: Index, scratch: ScoreScratch) -> Scores:
        """Scores of each user by its own draw; users of one draw are neighbours."""
        scores, ones = scratch.scores(users), np.ones(len(users), np.float32)
        for pick in np.unique(picks):
            alike = slice(*np.searchsorted(picks, [pick, pick + 1]))
            self._one_draw(int(pick), users[alike], scores[alike], ones[alike])
        return scores

    def _with_bonus(self, users: Index, scratch: ScoreScratch) -> Scores:
        """Mean plus standard deviation of predictions, the user's bias included, over draws."""
        draws, ones = self.draws, np.ones(len(users), np.float32)
        first, total, squares = scratch.moments(users)
        total[:], squares[:] = 0.0, 0.0
        for t in range(len(draws)):
            # The bias, or nothing: a row's columns beyond its factors.
            bias = draws.users[t][users, self.n_factors :].sum(1)
            found = self._one_draw(t, users, first if t == 0 else scratch.found(users), ones)
            if t == 0:
                first += bias[:, None]
            else:
                add_block(found, bias, first, total, squares)
        if draws.user_means is None:
            scores = first
            scores += total / np.float32(len(draws))
        else:
            scores = self._expected(users, scratch)
        add_bonus(scores, total, squares, len(draws))
        return scores


class ScoreScratch:
    """Buffers of a thread for the scores of a block of users, made when first asked for."""

    def __init__(self, n_users: int, n_items: int) -> None:
        self._shape = n_users, n_items
        self._made: dict[str, Scores] = {}

    def _array(self, name: str, users: Index) -> Scores:
        if name not in self._made:
            self._made[name] = np.empty(self._shape, np.float32)
        return self._made[name][: len(users)]

    def found(self, users: Index) -> Scores:
        """Buffer of one product."""
        return self._array("found", users)

    def scores(self, users: Index) -> Scores:
        """Buffer of the scores that items are ranked by."""
        return self._array("scores", users)

    def moments(self, users: Index) -> tuple[Scores, Scores, Scores]:
        """Buffers of the first draw, and of sums of differences from it and of their squares."""
        first, total, squares = (self._array(name, users) for name in ("first", "total", "squares"))
        return first, total, squares


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


def in_order(scores: Floats, items: Index) -> Index:
    """Items by their scores, best first; of equal ones the lower number first."""
    return items[np.lexsort((items, -scores))]


def near_ties(scores: Scores, filled: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Which scores, from best to worst, are so near to the next that rounding may decide."""
    scores = np.where(filled, scores, 0)
    near = share * np.maximum(np.abs(scores).max(1, keepdims=True), 1)
    with np.errstate(invalid="ignore"):  # a model that has diverged
        close = scores[:, :-1] - scores[:, 1:] <= near
    return np.asarray(close & filled[:, 1:])
