"""How long things may take, from how long they took undisturbed on this machine at this load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

CUT = 10.0  # seconds that a link is down


@dataclass(frozen=True)
class Limits:
    """Seconds of the slowest of some undisturbed runs, and limits that are multiples of them.

    Every limit has a floor, for the load may rise after the measurement. A limit that is too long
    costs time only where something has really gone wrong.
    """

    start: float = 10.0  # from the beginning of a run to its first epoch
    whole: float = 20.0  # to its end
    gap: float = 0.4  # the longest without an epoch

    @classmethod
    def measured(cls, runs: Sequence[tuple[float, list[float]]]) -> Limits:
        """From undisturbed runs: seconds of each, and moments of its epochs."""
        found = cls(0.0, 0.0, 0.0)
        for seconds, epochs in runs:
            found = found.after(seconds, epochs)
        return found

    def after(self, seconds: float, epochs: Sequence[float]) -> Limits:
        """With one more undisturbed run."""
        gaps = [b - a for a, b in pairwise(epochs)]
        return Limits(
            max(self.start, epochs[0] if epochs else seconds),
            max(self.whole, seconds),
            max([self.gap, *gaps]),
        )

    def started(self, first: float) -> Limits:
        """With the start of one more run, whatever became of it later."""
        return replace(self, start=max(self.start, first))

    @property
    def start_timeout(self) -> float:
        """For a worker to come, where it should."""
        return max(90.0, 10 * self.start)

    @property
    def short_start(self) -> float:
        """For a worker to come, where there is no room for some of them: waited out."""
        return max(4.0, 1.2 * self.start)

    @property
    def task_timeout(self) -> float:
        """For a task, where a worker hangs: waited out."""
        return max(4.0, 10 * self.gap)

    @property
    def deadline(self) -> float:
        """After which a run counts as hung."""
        return max(240.0, 12 * self.whole) + 2 * CUT

    def pause(self, epochs: int) -> float:
        """After each epoch, in a run that is to go on for as long as a worker may need to come."""
        return max(0.1, 4 * self.start / max(1, epochs))
