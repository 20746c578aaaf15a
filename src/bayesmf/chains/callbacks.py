"""Events that a fit reports while it runs, their history, and callbacks."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import not_negative, whole
from bayesmf.errors import InputError
from bayesmf.process import Line, clock_text


@dataclass(frozen=True)
class Event:
    """State of a chain at the end of one of its epochs.

    Argument of callbacks; `history_` of a fitted model has all events, as dictionaries. RMSEs are
    in units of the ratings.

    Parameters
    ----------
    chain : int
        Number of the chain, from 0.
    epoch : int
        Epochs done by the chain.
    epochs : int
        Maximum number of epochs.
    stage : int
        Stage of a run whose length follows from convergence, from 1; the run may end after each. 0
        if the length is known.
    seconds : float
        Since the first round of the run, by the engine's clock.
    burning : bool
        Whether the chain is in burn-in: it keeps no draws yet.
    draws : int
        Draws kept so far.
    rmse : float or None
        RMSE on the validation set: of the average over the chain's draws, or of its current state
        before the first draw. Without a given burn-in, the average is over the last three quarters
        of the epochs so far. None without a validation set.
    rmse_all_chains : float or None
        RMSE of the average over the draws of all chains so far. It is the only field that depends
        on the speed of the other chains.
    train_rmse : float
        RMSE on the training ratings during the epoch. With noise of users and items, Gibbs weights
        each rating by its item's precision, relative to the mean precision.
    tau : float
        Precision of the noise.
    step_size : float or None
        Step size of the last round, if the sampler has one.
    ratings_per_second : float
        Ratings read by all chains, divided by `seconds`.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Event, Gibbs, Synthetic
    >>> def show(event: Event) -> None:
    ...     if event.chain == 0 and event.epoch in (1, 20):
    ...         print(event.epoch, event.epochs, event.burning, event.draws)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20, burn_in=5), callbacks=[show], random_state=0)
    >>> _ = model.fit(Synthetic(40, 30, 600).ratings())
    1 20 True 0
    20 20 False 15
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


class History:
    """A callback that collects all events; `BayesianMF` has one of its own, `history_`.

    Attributes
    ----------
    events : list of dict
        One for each epoch of each chain, with the fields of `Event`.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, History, Synthetic
    >>> history = History()
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=8), callbacks=[history], random_state=0)
    >>> _ = model.fit(Synthetic(40, 30, 600).ratings())
    >>> [event["epoch"] for event in history.events]
    [1, 2, 3, 4, 5, 6, 7, 8]
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        """Add an event.

        Parameters
        ----------
        event : Event
            The end of an epoch.
        """
        self.events.append(asdict(event))

    def state(self, chain: int) -> list[dict[str, Any]]:
        """Events of a chain, for a checkpoint."""
        return [event for event in self.events if event["chain"] == chain]

    def restore(self, chain: int, state: list[dict[str, Any]]) -> None:
        """Replace the events of a chain by those of a checkpoint, in the order of time."""
        others = [event for event in self.events if event["chain"] != chain]
        self.events[:] = sorted(others + state, key=lambda event: float(event["seconds"]))


HISTORY_COLUMNS = tuple(field.name for field in fields(Event))


def history_array(events: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Events as rows, their fields as columns; None is NaN.

    Float64 is exact for all fields: counts are far below 2^53.
    """
    rows = [[math.nan if e[name] is None else e[name] for name in HISTORY_COLUMNS] for e in events]
    return np.array(rows, np.float64).reshape(len(rows), len(HISTORY_COLUMNS))


def history_events(columns: Sequence[str], array: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Events from an array. A folder of another version may have other columns."""
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise InputError("the history does not fit its columns: fit again")
    readers = [_READERS.get(_TYPES.get(name, ""), _number) for name in columns]
    try:
        return [
            {name: read(value) for name, read, value in zip(columns, readers, row, strict=True)}
            for row in array.tolist()
        ]
    except (ValueError, OverflowError):  # no whole number
        raise InputError(
            "the history holds a count that is not a whole number: fit again"
        ) from None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


_TYPES = {field.name: str(field.type) for field in fields(Event)}
_READERS: dict[str, Callable[[float], Any]] = {"int": int, "bool": bool, "float": float}


class RunPlan(NamedTuple):
    """Size of a run, for callbacks; `epochs` is the most that a chain may take."""

    n_chains: int
    epochs: int
    max_seconds: float | None


class Callback(Protocol):
    """Called after every epoch of every chain; returning True ends that chain.

    A callback that raises is not called again; the run continues, and `fit` ends with a warning.
    An optional method `begin(plan)` is called once before the chains begin.

    For resumed runs, two more optional methods: `state(chain)` returns the callback's state for a
    chain as JSON, and `restore(chain, state)` sets it.
    """

    def __call__(self, event: Event) -> bool | None: ...


class Progress:
    """Callback that shows a progress line in a terminal or a notebook.

    The line has the stage, passes done of the maximum, RMSE, speed, and the time left if known.
    `BayesianMF` has one by default (`progress=False` for none).

    Parameters
    ----------
    after_seconds : float, optional
        Seconds until the line is shown; 2 by default.
    show : bool, optional
        False never shows it, True on any stderr. By default it is shown in terminals and notebooks.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Progress, Synthetic
    >>> model = BayesianMF(callbacks=[Progress(after_seconds=10)], random_state=0)
    >>> _ = model.fit(Synthetic(40, 30, 600).ratings())
    """

    def __init__(self, after_seconds: float | None = None, show: bool | None = None) -> None:
        self._after, self._show = after_seconds, show
        self._line: Line | None = None
        self._plan: RunPlan | None = None
        self._restart()

    def _restart(self) -> None:
        self._epochs: dict[int, int] = {}
        self._first: tuple[float, float] | None = None

    def stage(self, what: str) -> None:
        """Show a stage of unknown length, such as reading or compiling.

        Parameters
        ----------
        what : str
            A word or two.

        Examples
        --------
        >>> from bayesmf import Progress
        >>> progress = Progress(show=False)
        >>> progress.stage("reading ratings.csv")
        >>> progress.close()
        """
        if self._line is None:
            self._line = Line(self._after, self._show)
        self._line.say(what)

    def begin(self, plan: RunPlan) -> None:
        """Start again: the chains are about to begin."""
        self._restart()
        self._plan = plan
        self.stage("starting")

    def __call__(self, event: Event) -> None:
        """Show where the chains are.

        Parameters
        ----------
        event : Event
            The end of an epoch.
        """
        if event.epoch <= self._epochs.get(event.chain, 0):  # another fit
            self._restart()
        self._epochs[event.chain] = event.epoch
        if self._line is None:
            self._line = Line(self._after, self._show)
        done = sum(self._epochs.values()) / len(self._epochs)
        self._line.measure(_stage(event), done, event.epochs, self._pieces(event, done))

    def _pieces(self, event: Event, done: float) -> list[str]:
        """Texts after the bar, the most important first."""
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
        """Seconds left by the wall clock; None if unknown."""
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
        """Remove the line.

        Examples
        --------
        >>> from bayesmf import Progress
        >>> Progress(show=False).close()
        """
        if self._line is not None:
            self._line.close()
            self._line = None


def _stage(event: Event) -> str:
    if event.burning:
        return "burn-in"
    return f"stage {event.stage}" if event.stage else "sampling" if event.draws else "learning"


class EarlyStop:
    """Callback that ends a chain when its validation RMSE stops improving.

    Useful for SGD, which may overfit. For samplers, only epochs after burn-in count.

    Parameters
    ----------
    patience : int
        Epochs without improvement after which a chain ends.
    least : float
        Smallest decrease of the RMSE that counts as an improvement.

    Raises
    ------
    InputError
        For numbers below 0; from `fit`, where it has no validation set.

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
        """Look at an event.

        Parameters
        ----------
        event : Event
            The end of an epoch.

        Returns
        -------
        bool
            Whether the chain is to end.
        """
        if event.rmse is None or event.burning:
            return False
        best, since = self._best.get(event.chain, (math.inf, 0))
        if event.epoch <= since or event.rmse < best - self.least:  # another fit, or better
            self._best[event.chain] = (event.rmse, event.epoch)
            return False
        return event.epoch - since >= self.patience

    def state(self, chain: int) -> tuple[float, int] | None:
        """The lowest RMSE of a chain and its epoch, for a checkpoint."""
        return self._best.get(chain)

    def restore(self, chain: int, state: tuple[float, int] | None) -> None:
        """Restore the lowest RMSE and its epoch from a checkpoint."""
        self._best.pop(chain, None)
        if state is not None:
            self._best[chain] = (state[0], state[1])


def checked_callbacks(callbacks: Any, validated: bool) -> tuple[Callback, ...]:
    """Check that callbacks can be called and have what they need; returns them as a tuple."""
    if callbacks is None:
        return ()
    if callable(callbacks) or not isinstance(callbacks, Sequence):
        name = getattr(callbacks, "__name__", type(callbacks).__name__)
        raise InputError(
            f"callbacks must be a list of callables: write callbacks=[...] around {name}"
        )
    for callback in callbacks:
        if inspect.isclass(callback):
            name = callback.__name__
            raise InputError(f"callbacks holds the class {name}: pass an instance, {name}()")
        if not callable(callback):
            raise InputError(f"callbacks holds {callback!r}, which cannot be called")
        if getattr(callback, "needs_validation", False) and not validated:
            raise InputError(
                f"{type(callback).__name__} needs a validation set: pass validation= to fit"
            )
    return tuple(callbacks)
