"""New ratings for existing draws: chains continue from their newest draws.

The side that is not kept needs no update: its rows follow from their ratings. For the kept side,
chains continue for a number of sweeps that depends on the share of new ratings. Under kept draws,
rows with many new ratings are carried over from new draws (carried_rows.py), or, with few ratings,
drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe, make_stripes, some_stripes
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.rounds.gibbs import SETTLE, draw_exactly, draw_row_noise
from bayesmf.chains.state import ChainState, RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS, SSE, HalfSweep, regressors
from bayesmf.kernels.keys import (
    STREAM_NOISE,
    STREAM_UPDATE,
    StreamCounter,
    make_key,
    stream_word,
)
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import ROW_NOISE, ROWS, Draws
from bayesmf.model.mapped import allocate
from bayesmf.model.noise import Noise
from bayesmf.model.priors import Params, Precisions
from bayesmf.model.refs import StripeLayout
from bayesmf.process import Pool, parts
from bayesmf.run.carried_rows import (
    MOST_MISSED,
    DrawSide,
    Source,
    UpdatePlan,
    carry_over,
    find_carried,
    make_plan,
    row_posteriors,
)
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.worker.row_tasks import draw_rows

Index = NDArray[np.int64]
# The side of the arrays of rows.
SIDES = ("users", "items")
SIDE = dict(zip(ROWS, SIDES + SIDES, strict=True))
# Sweeps before states are draws, if new rows have more than this share of all ratings: these
# count for the other side's rows from the second sweep on.
NEW_ROWS_SETTLE, NEW_ROWS_SHARE = 1, 0.01
# Maximum cost of redrawing rows of few ratings under all kept draws: half-sweeps, or ratings worth
# some .05 seconds, whichever is more; and the number of repetitions.
LOCAL_COST, LEAST_LOCAL, LOCAL_STEPS = 1.0, 1_000_000, 3
# Maximum number of new draws from which rows are carried over: each needs a matrix for a row.
SOURCES = 8


@dataclass(frozen=True)
class Addition:
    """Ratings that were added.

    `data` are all ratings; `moved` are the new row numbers of the old users and items, `new` the
    numbers of new ratings of each user and item.
    """

    data: TrainingData
    moved: tuple[Index, Index]
    new: tuple[Index, Index]

    def __len__(self) -> int:
        return int(self.new[0].sum())


def update_draws(
    draws: Draws,
    added: Addition,
    settings: RunSettings,
    number: int,
    threads: int | None,
    done: Callable[[int], Any] = lambda n: None,
) -> Draws:
    """Draws given all ratings, from draws given the old ratings, which are not changed.

    `settings` are those of the sweeps: the sampler is Gibbs, whatever made the draws. `number`
    counts updates, this one included, and keys the random numbers; `done` is called with the number
    of further draws that are done. The result does not depend on `threads`.
    """
    plan = make_plan(draws.chain, draws.missed, len(added), len(added.data))
    update = _Update(draws, added, settings, number, plan)
    with Pool(threads) as pool:
        for chain in plan.start:
            update.continue_chain(chain, pool, done)
        update.refresh(pool, done)
    return update.draws


class Local(NamedTuple):
    """Rows redrawn under each kept draw, the rows they depend on, and the repetitions."""

    own: Stripe
    met: Stripe
    steps: int


class _Update:
    """New arrays of draws, filled step by step."""

    def __init__(
        self, draws: Draws, added: Addition, settings: RunSettings, number: int, plan: UpdatePlan
    ) -> None:
        self.added, self.settings, self.plan = added, settings, plan
        self.D = settings.n_factors
        self.keys = {int(c): make_key(settings.seed, int(c), number) for c in set(plan.chain)}
        self.before = draws
        sizes = {"users": added.data.n_users, "items": added.data.n_items}
        self.arrays: dict[str, NDArray[Any]] = {}
        for name, old in draws.arrays().items():
            if name in ROWS:
                out = allocate(len(plan.source), (sizes[SIDE[name]], old.shape[2]))
                self.arrays[name] = np.asarray(out)  # slices of a memory map cost more
            elif name in ROW_NOISE:
                size = sizes[SIDES[ROW_NOISE.index(name)]]
                self.arrays[name] = np.asarray(allocate(len(plan.source), (size,)))
            else:
                self.arrays[name] = np.array(old[np.maximum(plan.source, 0)])
        self.arrays |= {"missed": plan.missed, "chain": plan.chain}
        self.users_kept = draws.items is None
        self.kept = 0 if self.users_kept else 1
        counts = counts_of(added.data, self.kept)
        self.carried = find_carried(counts, added.new[self.kept], draws.kept.shape[2])
        self.sources: dict[int, list[Source]] = {}
        self.both = draws.users is not None and draws.items is not None
        self.changed = [
            new > MOST_MISSED * counts_of(added.data, side) for side, new in enumerate(added.new)
        ]

    @property
    def draws(self) -> Draws:
        """All draws done so far."""
        return Draws.from_arrays(self.arrays)

    def refresh(self, pool: Pool, done: Callable[[int], Any]) -> None:
        """Update kept draws: rows with mostly new ratings."""
        data, new, draws = self.added.data, self.added.new, self.draws
        k, carried = self.kept, self.carried
        grown = some_stripes(data.by_user, data.levels, new[0] > 0, 1) if self.both else []
        local = None if carried is None else self._find_local(carried.rows, k)

        def run(part: slice) -> None:
            t = int(stays[part.start])
            for name in ROWS:
                if name in self.arrays:
                    old = getattr(self.before, name)[self.plan.source[t]]
                    self._scatter_rows(self.arrays[name][t], old, SIDE[name])
            self._scatter_noise(t)
            if carried is not None:
                chain = int(draws.chain[t])
                known = self.sources.get(chain) or everything
                source = known[t % len(known)]
                carry_over(carried, source, self._side(t), t, self.keys[chain])
                if source.tau is not None:
                    self.arrays[ROW_NOISE[k]][t][carried.rows] = source.tau
            if local is not None:
                self._draw_locally(local, k, t, draws)
            for stripe in grown:
                self._draw_users(stripe, t, draws)
            done(1)

        stays = np.flatnonzero(self.plan.source >= 0)
        everything = [source for some in self.sources.values() for source in some]
        pool.each(run, parts(len(stays), 1))

    def _scatter_rows(self, out: Rows, rows: Rows, side: str) -> None:
        """Copy old rows to their new positions; other rows are zero until drawn."""
        moved, rows = self.added.moved[0 if side == "users" else 1], np.asarray(rows)
        # In runs without new rows in between: these are few, and copied at once.
        cuts = np.flatnonzero(np.diff(moved) > 1) + 1
        end = 0
        for first, last in pairwise((0, *cuts.tolist(), len(moved))):
            at = int(moved[first])
            out[end:at], end = 0.0, at + last - first
            out[at:end] = rows[first:last]
        out[end:] = 0.0

    def _scatter_noise(self, t: int) -> None:
        """Precisions of rows under a kept draw, NaN if drawn on demand."""
        for side, name in enumerate(ROW_NOISE):
            if name in self.arrays:
                out = self.arrays[name][t]
                self._scatter_rows(
                    out, getattr(self.before, name)[self.plan.source[t]], SIDES[side]
                )
                if side != self.kept:
                    out[self.changed[side]] = np.nan

    def _side(self, t: int) -> DrawSide:
        """The kept side under draw t."""
        rows, means = self._of(ROWS[self.kept])
        mu = self.arrays["user_mu" if self.users_kept else "item_mu"]
        return DrawSide(rows[t], None if means is None else means[t], mu[t])

    def _make_source(self, slot: int, state: ChainState, pool: Pool) -> Source:
        """Posteriors of the rows to carry over, under the new draw in a slot."""
        assert self.carried is not None
        data, now = self.added.data, state.precisions
        lists = (data.by_user, data.by_item)[self.kept]
        other, prior = np.asarray(state.side(1 - self.kept)), (now.users, now.items)[self.kept]
        ratings = lists.starts, lists.other, lists.value, data.levels
        k, rows = self.kept, self.carried.rows
        tau, own = now.of_rows(k, len(lists.starts) - 1), now.weights(k)
        weights = now.weights(1 - k)
        found = row_posteriors(rows, ratings, other, prior, tau, weights, self.D, pool)
        return Source(self._side(slot), *found, None if own is None else own[rows])

    def _of(self, side: str) -> tuple[Rows, Rows | None]:
        return self.arrays[side], self.arrays.get(f"{side[:-1]}_means")

    def _find_local(self, carried: Index, kept: int) -> Local | None:
        """Rows of few ratings among those carried over, and the rows that they depend on.

        A row of few ratings varies most between draws, and a few new draws do not show how much;
        but drawing it under each draw costs only the ratings of the users who rated it.
        """
        data = self.added.data
        lists = (data.by_user, data.by_item)[kept], (data.by_item, data.by_user)[kept]
        chosen, met = (np.zeros(len(one.starts) - 1, np.bool_) for one in lists)
        stays = int((self.plan.source >= 0).sum())
        counts, room = lists[1].counts(), max(LOCAL_COST * len(data), LEAST_LOCAL) / max(1, stays)
        starts, used = lists[0].starts, 0
        for row in carried[np.argsort(lists[0].counts()[carried], kind="stable")].tolist():
            them = lists[0].other[starts[row] : starts[row + 1]]
            more = int(counts[them[~met[them]]].sum())
            if used + more > room:
                break
            chosen[row], met[them], used = True, True, used + more
        if not chosen.any():
            return None
        (own,), (others,) = (
            some_stripes(one, data.levels, some, 1)
            for one, some in zip(lists, (chosen, met), strict=True)
        )
        # Rows are renumbered among the rows they depend on.
        own = replace(own, other=np.searchsorted(others.rows, own.other).astype(np.int32))
        return Local(own, others, min(LOCAL_STEPS, int(room / used)))

    def _draw_locally(self, local: Local, kept: int, t: int, draws: Draws) -> None:
        """Redraw rows under one draw: first the rows they depend on, then the rows."""
        rows, means = self._of(ROWS[kept])
        own = self.arrays.get(ROW_NOISE[kept])
        for step in range(local.steps):
            stream, weights = 2 + 2 * step, None if own is None else own[t]
            met = self._drawn(local.met, rows[t], weights, 1 - kept, t, stream, draws)
            found, expected, tau = self._drawn(
                local.own, met[0], met[2], kept, t, stream + 1, draws
            )
            rows[t][local.own.rows] = found
            if own is not None:
                own[t][local.own.rows] = tau
        if means is not None:
            means[t][local.own.rows] = expected

    def _draw_users(self, stripe: Stripe, t: int, draws: Draws) -> None:
        """Rows of users with new ratings, where users are kept beside items."""
        rows, means = self._of("users")
        items, weights = self.arrays["items"][t], self.arrays.get(ROW_NOISE[1])
        weights = None if weights is None else weights[t]
        found, expected, tau = self._drawn(stripe, items, weights, 0, t, 1, draws)
        rows[t][stripe.rows] = found
        if tau is not None:
            self.arrays[ROW_NOISE[0]][t][stripe.rows] = tau
        if means is not None:
            means[t][stripe.rows] = expected

    def _drawn(
        self, stripe: Stripe, other: Rows, weights: Rows | None, side: int, t: int, stream: int,
        draws: Draws,
    ) -> tuple[Rows, Rows, Rows | None]:  # fmt: skip
        """Rows of a side given those of the other under draw t, and their conditional means.

        Also their noise precisions, given the new rows, where they have their own.
        """
        word, key = stream_word(STREAM_UPDATE, stream << 8), self.keys[int(draws.chain[t])]
        counter, own = StreamCounter(t, word, key), draws.row_noise(t, side)
        tau = np.full(len(stripe.rows), 1.0 if draws.noise_by else float(draws.tau[t]))
        if own is not None:
            known = own.value[stripe.rows].astype(np.float64)
            tau = np.where(known > 0, known, own.shape / own.rate)
        sweep = HalfSweep(self.D, tau, 0.0, counter)
        found = np.zeros((len(stripe.rows), other.shape[1]), np.float32)
        expected = np.zeros_like(found)
        given = regressors(other, self.D, weights)
        row_stats = draw_rows(found, expected, stripe, given, draws.priors(t)[side], sweep, None)
        if own is None:
            return found, expected, None
        counter = StreamCounter(t, stream_word(STREAM_NOISE, stream << 8), key)
        drawn = own.draw_values(stripe.counts, row_stats[:, SSE], stripe.rows, counter)
        return found, expected, drawn

    def continue_chain(self, chain: int, pool: Pool, done: Callable[[int], Any]) -> None:
        """Sweeps of a chain from its newest draw; states become draws after settling."""
        data, rule, draws = self.added.data, self.settings.sampler, self.draws
        assert isinstance(rule, Gibbs) and rule.n_stripes is not None
        before, start = self.before, self.plan.start[chain]
        width = draws.kept.shape[2]
        sizes = data.n_users, data.n_items
        users, items = (np.zeros((n, width), np.float32) for n in sizes)
        params = Params(users, items, self.D)
        order = (1, 0) if self.users_kept else (0, 1)  # the side that is not kept first
        kept, name = (users, "users") if self.users_kept else (items, "items")
        self._scatter_rows(kept, before.kept[start], name)
        noise = self._noise(before, start)
        now = Precisions(*before.priors(start), float(before.tau[start]), noise=noise)
        state = ChainState(chain, self.keys[chain], params, now)
        stripes = [
            make_stripes(lists, data.levels, rule.n_stripes)
            for lists in (data.by_user, data.by_item)
        ]
        layouts = [layout_of(own, n) for own, n in zip(stripes, sizes, strict=True)]
        slots = self.plan.fresh(chain)
        telling = set() if self.carried is None else set(self._carry_sources(slots).tolist())
        self.sources[chain] = []
        unknown = self._unknown(order[1])
        unheard = int(counts_of(data, order[1])[unknown].sum())
        many = unheard > NEW_ROWS_SHARE * len(data)
        settling = self.plan.settling + (NEW_ROWS_SETTLE if many else 0)
        for k in range(settling + len(slots)):
            state.cut(layouts)
            for n, side in enumerate(order):
                first = k == 0 and n == 0
                held = without(stripes[side], unknown) if first else stripes[side]
                # New rows must be drawn whole.
                joint = None if first else rule.joint
                relax = rule.overrelax if k >= SETTLE else 0.0
                half_sweep(state, k, side, held, relax, joint, pool)
                if n == 0:
                    half_noise(state, k, side, held, pool)
            if k >= settling:
                slot = int(slots[k - settling])
                self._store(slot, state)
                if slot in telling:
                    self.sources[chain].append(self._make_source(slot, state, pool))
                done(1)
            if k + 1 < settling + len(slots):
                half_noise(state, k, side, stripes[side], pool)
                state.row_sums = state.row_sums if side == 1 else None
                draw_precisions(state, self.settings, k, burning=False)

    def _noise(self, before: Draws, start: int) -> Noise | None:
        """Precisions of all rows under an old draw; those of new rows are the prior's mean."""
        sides = []
        for side, moved in enumerate(self.added.moved):
            own = before.row_noise(start, side)
            if own is not None:
                value = np.full(len(self.changed[side]), own.shape / own.rate, np.float32)
                value[moved] = np.where(own.value > 0, own.value, own.shape / own.rate)
                own = replace(own, value=value)
            sides.append(own)
        return None if before.noise_by is None else Noise(*sides)

    def _carry_sources(self, slots: Index) -> Index:
        """New draws of a chain from which rows are carried over, if any draw is kept."""
        if (self.plan.source < 0).all():
            return slots[:0]
        n = min(len(slots), max(1, SOURCES // len(self.plan.start)))
        return slots[np.arange(1, n + 1) * len(slots) // n - 1]

    def _unknown(self, side: int) -> NDArray[np.bool_]:
        """Mask of new rows of a side."""
        sizes = self.added.data.n_users, self.added.data.n_items
        out = np.ones(sizes[side], np.bool_)
        out[self.added.moved[side]] = False
        return out

    def _store(self, slot: int, state: ChainState) -> None:
        assert state.means is not None
        for name in ROWS:
            if name in self.arrays:
                source = state.means if name.endswith("_means") else state.params
                self.arrays[name][slot] = np.asarray(getattr(source, SIDE[name]))
        now, arrays = state.precisions, self.arrays
        arrays["user_mu"][slot], arrays["user_lambda"][slot] = now.users.mu, now.users.Lambda
        arrays["item_mu"][slot], arrays["item_lambda"][slot] = now.items.mu, now.items.Lambda
        arrays["tau"][slot] = now.tau
        for side, name in enumerate(ROW_NOISE):
            own = None if now.noise is None else now.noise.side(side)
            if own is not None:
                arrays[name][slot] = np.asarray(own.value)
                arrays[f"{name}_prior"][slot] = own.shape, own.rate


def counts_of(data: TrainingData, side: int) -> Index:
    """Ratings of each row of users (side 0) or items (1)."""
    return (data.user_counts, data.item_counts)[side]()


def without(stripes: Sequence[Stripe], unknown: NDArray[np.bool_]) -> Sequence[Stripe]:
    """Stripes without the ratings of new rows of the other side."""
    if not unknown.any():
        return stripes
    out = []
    for stripe in stripes:
        left = ~unknown[stripe.other]
        sums = np.append(0, np.cumsum(left))
        starts, other, value = sums[stripe.starts], stripe.other[left], stripe.value[left]
        out.append(replace(stripe, starts=starts, other=other, value=value))
    return out


def layout_of(stripes: Sequence[Stripe], n_rows: int) -> StripeLayout:
    """How stripes of consecutive rows cut a side."""
    return StripeLayout([stripe.span for stripe in stripes], n_rows)


def half_sweep(
    state: ChainState,
    t: int,
    side: int,
    stripes: Sequence[Stripe],
    relax: float,
    joint: int | None,
    pool: Pool,
) -> None:
    """All rows of users (side 0) or items (1), with their conditional means and squared errors."""
    n_sums = N_SUMS if side == 1 else 1
    numbers = range(len(stripes))
    on_threads(draw_exactly(state, t, side, numbers, relax, joint, n_sums), stripes, pool)
    assert state.all_sums is not None
    state.sse = float(state.all_sums[SSE])


def half_noise(state: ChainState, t: int, side: int, stripes: Sequence[Stripe], pool: Pool) -> None:
    """Draw noise precisions of the rows drawn by `half_sweep`, if they have any."""
    assert state.row_sums is not None
    row_stats, layout = [(part,) for part in state.row_sums.parts], state.side(side).layout
    on_threads(
        draw_row_noise(state, t, side, range(len(stripes)), row_stats, layout), stripes, pool
    )


def on_threads(phases: Generator[list[Any], Any, Any], held: Sequence[Stripe], pool: Pool) -> None:
    """Execute phases of tasks, one phase after the other."""
    results: Any = None
    while True:
        try:
            tasks = phases.send(results)
        except StopIteration:
            return
        results = [None] * len(tasks)

        def run(part: slice, tasks: Any = tasks, results: Any = results) -> None:
            task = tasks[part.start]
            results[part.start] = task.execute(held[task.partition])

        pool.each(run, parts(len(tasks), 1))
