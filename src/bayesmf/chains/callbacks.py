"""What a fit tells while it runs, and who listens."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from bayesmf.checks import not_negative, whole
from bayesmf.errors import InputError
from bayesmf.system.progress import Line, clock_text


@dataclass(frozen=True)
class Event:
    """The end of an epoch of one chain.

    `rmse` is that of the chain's averaged predictions on the validation set once it keeps draws, of
    its current state before; None without a validation set. `rmse_all_chains` averages the
    draws that all chains have so far: it alone depends on how fast the others were. RMSEs are
    in the user's units.

    `epochs` are the most there can be. A run whose length follows from convergence has stages,
    counted from 1, and may end after each; `stage` is 0 where the length is known.
    """

    chain: int
    epoch: int
    epochs: int
    stage: int
    seconds: float
    burning: bool
    draws: int
    rmse: float | None
    rmse_all_chains: float | None
    train_rmse: float
    tau: float
    step_size: float | None
    ratings_per_second: float


class Plan(NamedTuple):
    """What is known of a run before it begins. `epochs` are the most that a chain may take."""

    n_chains: int
    epochs: int
    max_seconds: float | None
    validated: bool


class Callback(Protocol):
    """Called after every epoch of every chain; returning True ends that chain.

    One that raises is not called again: the run goes on, and `fit` ends with a warning. It may
    have a method `begin(plan)`, called once before the chains begin.

    One that remembers something may have two more methods, so that a run that goes on from a
    checkpoint finds it as it was: `state(chain)`, what it knows of a chain, in plain JSON; and
    `restore(chain, state)`, which puts that in the place of what it knows now.
    """

    def __call__(self, event: Event) -> bool | None: ...


class History:
    """Keeps every event, as dictionaries."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        self.events.append(asdict(event))

    def state(self, chain: int) -> list[dict[str, Any]]:
        """The events of a chain."""
        return [event for event in self.events if event["chain"] == chain]

    def restore(self, chain: int, state: list[dict[str, Any]]) -> None:
        """All events, in the order of time, those of a chain replaced."""
        others = [event for event in self.events if event["chain"] != chain]
        # Events of earlier versions have no stage.
        state = [{"stage": 0, **event} for event in state]
        self.events[:] = sorted(others + state, key=lambda event: float(event["seconds"]))


class Progress:
    """A line that tells how far a fit is; nothing where there is neither terminal nor notebook.

    It shows the stage, passes done and the most there can be, RMSE, speed, and the time left
    where that can be known. `BayesianMF` has one by default (`progress=False` for none).

    Parameters
    ----------
    after_seconds : float, optional
        Seconds until it is shown (2).
    show : bool, optional
        False never shows it, True everywhere.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Progress, Synthetic
    >>> model = BayesianMF(callbacks=[Progress(after_seconds=10)], random_state=0)
    >>> _ = model.fit(Synthetic(40, 30, 600).ratings())
    """

    def __init__(self, after_seconds: float | None = None, show: bool | None = None) -> None:
        self._after, self._show = after_seconds, show
        self._line: Line | None = None
        self._plan: Plan | None = None
        self._restart()

    def _restart(self) -> None:
        self._epochs: dict[int, int] = {}
        self._first: tuple[float, float] | None = None

    def stage(self, what: str) -> None:
        """Something without a known end is under way: reading, compiling."""
        if self._line is None:
            self._line = Line(self._after, self._show)
        self._line.say(what)

    def begin(self, plan: Plan) -> None:
        """The chains are about to begin."""
        self._restart()
        self._plan = plan
        self.stage("starting")

    def __call__(self, event: Event) -> None:
        """An epoch of a chain has ended."""
        if event.epoch <= self._epochs.get(event.chain, 0):  # another fit
            self._restart()
        self._epochs[event.chain] = event.epoch
        if self._line is None:
            self._line = Line(self._after, self._show)
        done = sum(self._epochs.values()) / len(self._epochs)
        self._line.measure(_stage(event), done, event.epochs, self._pieces(event, done))

    def _pieces(self, event: Event, done: float) -> list[str]:
        """What is told behind the bar, what matters most first."""
        most = "at most " if event.stage else ""
        pieces = [f"pass {done:.0f} of {most}{event.epochs}"]
        if event.rmse_all_chains is None:
            pieces.append(f"train RMSE {event.train_rmse:.4f}")
        else:
            pieces.append(f"RMSE {event.rmse_all_chains:.4f}")
        left = self._seconds_left(event, done)
        if left is not None:
            pieces.append(f"{clock_text(left)} left")
        return [*pieces, f"{event.ratings_per_second / 1e6:.1f}M ratings/s"]

    def _seconds_left(self, event: Event, done: float) -> float | None:
        """By the wall's clock; None where the end is not known, or the pace not yet."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        begun, first = self._first
        if event.stage or done - first < 2 or now - begun < 1.0:
            return None
        left = (event.epochs - done) * (now - begun) / (done - first)
        limit = None if self._plan is None else self._plan.max_seconds
        return left if limit is None else min(left, max(limit - event.seconds, 0.0))

    def close(self) -> None:
        """Take the line away."""
        if self._line is not None:
            self._line.close()
            self._line = None


def _stage(event: Event) -> str:
    if event.burning:
        return "burn-in"
    return f"stage {event.stage}" if event.stage else "sampling" if event.draws else "learning"


class EarlyStop:
    """Ends a chain whose validation RMSE has not improved by `least` for `patience` epochs.

    It is of use for SGD, which may overfit. A sampler's average is looked at after burn-in only.

    Parameters
    ----------
    patience : int
        Epochs without improvement after which a chain ends.
    least : float
        By how much the RMSE must fall to count as better.

    Raises
    ------
    InputError
        For numbers that mean nothing here; from `fit`, where it has no validation set.

    Examples
    --------
    >>> from bayesmf import SGD, BayesianMF, EarlyStop, Synthetic
    >>> train, test = Synthetic(40, 30, 600).ratings().split(0.2)
    >>> model = BayesianMF(4, sampler=SGD(epochs=90), callbacks=[EarlyStop(5)], random_state=0)
    >>> model.fit(train, validation=test).report_["epochs"] <= 90
    True
    """

    needs_validation = True

    def __init__(self, patience: int = 10, least: float = 1e-4) -> None:
        self.patience = whole("patience", patience, 0)
        self.least = not_negative("least", least)
        self._best: dict[int, tuple[float, int]] = {}

    def __call__(self, event: Event) -> bool:
        if event.rmse is None or event.burning:
            return False
        best, since = self._best.get(event.chain, (math.inf, 0))
        if event.epoch <= since or event.rmse < best - self.least:  # another fit, or better
            self._best[event.chain] = (event.rmse, event.epoch)
            return False
        return event.epoch - since >= self.patience

    def state(self, chain: int) -> tuple[float, int] | None:
        """The best of a chain, and when that was."""
        return self._best.get(chain)

    def restore(self, chain: int, state: tuple[float, int] | None) -> None:
        """Compare with an earlier best from now on."""
        self._best.pop(chain, None)
        if state is not None:
            self._best[chain] = (state[0], state[1])


def checked_callbacks(callbacks: Any, validated: bool) -> tuple[Callback, ...]:
    """Those that were given, once it is sure that each can be called and has what it needs."""
    if callbacks is None:
        return ()
    if callable(callbacks) or not isinstance(callbacks, Sequence):
        name = getattr(callbacks, "__name__", type(callbacks).__name__)
        raise InputError(f"callbacks is a list of callables: write callbacks=[...] around {name}")
    for callback in callbacks:
        if inspect.isclass(callback):
            name = callback.__name__
            raise InputError(f"callbacks holds the class {name}: make one of it, {name}()")
        if not callable(callback):
            raise InputError(f"callbacks holds {callback!r}, which cannot be called")
        if getattr(callback, "needs_validation", False) and not validated:
            raise InputError(
                f"{type(callback).__name__} looks at the validation RMSE, and there is no "
                "validation set: pass validation= to fit"
            )
    return tuple(callbacks)
