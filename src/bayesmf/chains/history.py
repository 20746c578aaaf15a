"""The history of a fit: what is known of a chain after each epoch, and all of it as one array."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError


@dataclass(frozen=True)
class Event:
    """What is known of a chain at the end of one of its epochs.

    Callbacks are called with one; `history_` of a fitted model has them all, as dictionaries.
    RMSEs are in units of the ratings.

    Parameters
    ----------
    chain : int
        Number of the chain, from 0.
    epoch : int
        Epochs that the chain has done.
    epochs : int
        Epochs that it will do, at the most.
    stage : int
        A run whose length follows from convergence has stages, counted from 1, and may end after
        each. 0 where the length is known.
    seconds : float
        Since the first round of the run, by the engine's clock.
    burning : bool
        Whether the chain is in burn-in: it keeps no draws yet.
    draws : int
        Draws that it keeps so far.
    rmse : float or None
        RMSE on the validation set: of the average over the chain's draws once it keeps any, of its
        current state before. Where no burn-in was given, the average is over the last three
        quarters of the epochs so far. None without a validation set.
    rmse_all_chains : float or None
        RMSE of the average over the draws that all chains have so far. It alone depends on how
        fast the other chains were.
    train_rmse : float
        RMSE on the ratings to learn from, as the epoch met them. Where items have noise beside
        that of users, Gibbs counts each rating by its item's precision, over the mean of these.
    tau : float
        Precision of the noise.
    step_size : float or None
        Step of the last round; None for rules that have none.
    ratings_per_second : float
        Ratings that all chains have read, over `seconds`.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Event, Gibbs, Synthetic
    >>> def tell(event: Event) -> None:
    ...     if event.chain == 0 and event.epoch in (1, 20):
    ...         print(event.epoch, event.epochs, event.burning, event.draws)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20, burn_in=5), callbacks=[tell], random_state=0)
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
    """A callback that collects all events. `BayesianMF` has one by itself: `history_`.

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
        """Events of a chain, for a checkpoint.

        Parameters
        ----------
        chain : int
            Number of the chain.

        Returns
        -------
        list of dict
            Those of `events` that are the chain's.
        """
        return [event for event in self.events if event["chain"] == chain]

    def restore(self, chain: int, state: list[dict[str, Any]]) -> None:
        """Replace the events of a chain by those of a checkpoint, in the order of time.

        Parameters
        ----------
        chain : int
            Number of the chain.
        state : list of dict
            What `state` gave.
        """
        others = [event for event in self.events if event["chain"] != chain]
        # Events of earlier versions have no stage.
        state = [{"stage": 0, **event} for event in state]
        self.events[:] = sorted(others + state, key=lambda event: float(event["seconds"]))


HISTORY_COLUMNS = tuple(field.name for field in fields(Event))


def history_array(events: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Events as rows, their fields as columns; None is NaN.

    Doubles keep every field as it is: counts stay far below 2^53.
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
        raise InputError("the history holds a count that is none: fit again") from None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


_TYPES = {field.name: str(field.type) for field in fields(Event)}
_READERS: dict[str, Callable[[float], Any]] = {"int": int, "bool": bool, "float": float}
