"""Retention: which states of a chain are kept as draws.

With a given burn-in, the last state of every `thin` epochs after it is kept; if these are more than
`max_draws`, draws are spread evenly. Without one, burn-in grows with the run: it is the first
quarter whenever the run ends. A policy is called before and after every round and returns a
`Decision`, which the chain executes; it sees no parameters. At any time, `kept` are the rounds
whose states would be the draws if the run ended now, `first_after_burn_in` is the position of the
first of some rounds that would not be burn-in, and `finish` are the positions of the draws that
stay, None for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.monitor import BURN_SHARE, RunClock
from bayesmf.chains.state import RunSettings
from bayesmf.samplers.base import DataShape, Sampler
from bayesmf.samplers.schedules import BurnIn, Thinning, Trace, UntilRMSE, parts_before

# Share of `max_seconds` after which burn-in ends, to leave most of the time for draws. A burn-in by
# RMSE never ends by time.
LONGEST_BURN_IN = 0.4


@dataclass(frozen=True)
class RunLength:
    """Rounds of each chain of a run."""

    n_rounds: int  # at most
    per_epoch: float
    per_draw: float  # between draws, if there is room for all
    per_check: float | None = None  # between errors measured in burn-in; by default an epoch

    def ends_check(self, t: int) -> bool:
        """Whether the error of the state after round t is measured, if it is burn-in."""
        return _ends(t, self.per_check or self.per_epoch)

    def ends_epoch(self, t: int) -> bool:
        """Whether round t ends an epoch."""
        return _ends(t, self.per_epoch)

    @property
    def epochs(self) -> float:
        """Epochs of the whole run."""
        return self.n_rounds / self.per_epoch


class Decision(NamedTuple):
    """Actions after a round, in the order of the fields; by default none."""

    reserve: int | None = None  # number of draws to make room for
    select: Sequence[int] | None = None  # forget all draws kept so far but these
    keep: bool = False  # the state as a draw
    average: bool = False  # add its predictions to the average that is followed


def make_retention(
    settings: RunSettings, shape: DataShape, length: RunLength, room: int, clock: RunClock
) -> Fixed | Growing:
    """The policy of a run with room for `room` draws of a chain."""
    sampler = settings.sampler
    if sampler.growing:
        # The maximum length of the run determines the distance of draws.
        late = (1.0 - BURN_SHARE) * length.n_rounds / length.per_draw
        every = 1 if sampler.adaptive else max(1, math.ceil(late / room - 1e-9))
        return Growing(length, room, first_kept(sampler, length) * length.per_epoch, every)
    limit = settings.max_seconds if sampler.keeps_draws else None
    return Fixed(sampler.burn_in_rule(shape), length, room, limit, clock)


def first_kept(sampler: Sampler, length: RunLength) -> float:
    """Passes of a growing run before its first draw: they will be burn-in when it ends."""
    return min(sampler.not_kept, BURN_SHARE * length.epochs)


class Fixed:
    """Draws after the sampler's burn-in, at equal distances, of a run of known length.

    `cut` is the number of epochs after which the time limit ended burn-in, None if it did not.
    """

    def __init__(
        self,
        rule: BurnIn,
        length: RunLength,
        room: int,
        max_seconds: float | None,
        clock: RunClock,
    ) -> None:
        self.burning = True
        self.cut: float | None = None
        self._rule, self._length, self._room = rule, length, room
        self._limit = None if isinstance(rule, UntilRMSE) else max_seconds
        self._clock = clock
        self._begin(0)

    def _begin(self, t: int) -> None:
        """Set the first round after burn-in; then the number of draws is known."""
        left, per_draw = max(1, self._length.n_rounds - t), self._length.per_draw
        self._first, self._thinning = t, Thinning.spread(left, per_draw, self._room)

    def before(self, t: int, trace: Trace) -> None:
        """End burn-in if its rule says so, or if its share of the time limit is used up."""
        if not self.burning:
            return
        epoch, limit = t / self._length.per_epoch, self._limit
        over = self._rule.over(epoch, self._length.epochs, trace)
        if over or (limit is not None and self._clock.seconds() > LONGEST_BURN_IN * limit):
            self.burning, self.cut = False, None if over else epoch
            self._begin(t)

    def after(self, t: int) -> Decision:
        k, thinning = t - self._first, self._thinning
        if self.burning or not thinning.keeps(k):
            return Decision()
        room = None if thinning.draws(k) else thinning.draws(thinning.n_rounds)
        return Decision(room, keep=True, average=True)

    def first_after_burn_in(self, rounds: Sequence[int]) -> int:
        return len(rounds) if self.burning else int(np.searchsorted(rounds, self._first))

    def kept(self, rounds: Sequence[int]) -> Sequence[int]:
        late = rounds[self.first_after_burn_in(rounds) :]
        return [t for t in late if self._thinning.keeps(t - self._first)]

    def finish(self) -> None:
        return None

    def export(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return {}, {"burning": self.burning, "first": self._first, "cut": self.cut}

    def restore(self, arrays: Mapping[str, NDArray[Any]], plain: Mapping[str, Any]) -> None:
        self.burning, self.cut = plain["burning"], plain["cut"]
        self._begin(plain["first"])


class Growing:
    """Draws of a run of unknown length; its first quarter is dropped at the end.

    When the room is full, draws that are already burn-in are dropped; if there are none, every
    other draw is, and from then on half as many are kept. The running average includes all of them.
    """

    cut: float | None = None

    def __init__(self, length: RunLength, room: int, first_kept: float, every: int = 1) -> None:
        self.burning = True
        self._length, self._room, self._first_kept = length, room, first_kept
        self._every = every
        self._at: list[int] = []  # rounds of the draws that are kept
        self._reserved = False

    def before(self, t: int, trace: Trace) -> None:
        self.burning = t + 1e-9 < self._first_kept

    def after(self, t: int) -> Decision:
        if self.burning or not _ends(t, self._length.per_draw):
            return Decision()
        kept: Sequence[int] = range(len(self._at))
        while len(kept) >= self._room and self._due(t):
            late = [k for k in kept if self._at[k] >= BURN_SHARE * (t + 1)]
            if len(late) == len(kept):
                self._every *= 2
                late = [k for k in kept if self._due(self._at[k])]
            kept = late
        select = None if len(kept) == len(self._at) else kept
        self._at = [self._at[k] for k in kept]
        keep, first = self._due(t), not self._reserved
        if keep:
            self._at.append(t)
            self._reserved = True
        return Decision(self._room if keep and first else None, select, keep, average=True)

    def _due(self, t: int) -> bool:
        """Whether a draw is kept after round t, at the current rate."""
        return _ends(t, self._length.per_draw * self._every)

    def first_after_burn_in(self, rounds: Sequence[int]) -> int:
        return int(np.searchsorted(rounds, BURN_SHARE * (rounds[-1] + 1))) if rounds else 0

    def kept(self, rounds: Sequence[int]) -> Sequence[int]:
        return self._at[self.first_after_burn_in(self._at) :]

    def finish(self) -> Sequence[int]:
        return range(self.first_after_burn_in(self._at), len(self._at))

    def export(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        plain = {"burning": self.burning, "every": self._every}
        return {"at": np.array(self._at, np.int64)}, plain

    def restore(self, arrays: Mapping[str, NDArray[Any]], plain: Mapping[str, Any]) -> None:
        self.burning, self._every = plain["burning"], plain["every"]
        self._at = arrays["at"].tolist()
        self._reserved = bool(self._at)


def _ends(t: int, rounds: float) -> bool:
    """Whether round t ends a stretch of `rounds` rounds."""
    return parts_before(t + 1, rounds) > parts_before(t, rounds)
