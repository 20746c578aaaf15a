"""What answers look like: predictions and recommendations as tables, numbers with four digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.tabular import Columns, Tabular
from bayesmf.wording import short

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Predictions(Tabular):
    """Predictions of pairs, with the spread and the interval of a new rating.

    Attributes
    ----------
    users, items : ndarray
        The ids that were asked for.
    mean, std : ndarray of float64
        Expected rating, and standard deviation of a new one, noise included.
    low, high : ndarray of float64
        Between these a new rating falls with probability `level`.
    known : ndarray of bool
        False where the user or the item was not learnt from: then the prior answers.
    level : float
        Of the interval.
    """

    users: NDArray[Any]
    items: NDArray[Any]
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    known: NDArray[np.bool_]
    level: float

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        unknown = int(len(self) - self.known.sum())
        told = f", {unknown:,} of them with an unknown id" if unknown else ""
        return f"Predictions({len(self):,} pairs, intervals of {self.level:.0%}{told})"

    def _columns(self) -> Columns:
        names = ("mean", "std", "low", "high", "known")
        ids = {"user": self.users, "item": self.items}
        return ids | {name: getattr(self, name) for name in names}

    def _title(self) -> str:
        return repr(self)


class Recommendation(NamedTuple):
    """An item for a user, with the expected rating and where a new rating would fall."""

    item: Any
    mean: float
    std: float
    low: float
    high: float

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={short(getattr(self, name))}" for name in self._fields[1:])
        return f"Recommendation(item={self.item!r}, {numbers})"


class RecommendationList(list[Recommendation], Tabular):
    """The best items of one user, best first: a list that also goes back into tables."""

    def __iter__(self) -> Any:
        return list.__iter__(self)

    def _columns(self) -> Columns:
        fields = Recommendation._fields
        return {name: [getattr(one, name) for one in self] for name in fields}
