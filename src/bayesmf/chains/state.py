"""The state of a chain, and what a round of an update rule is to the server.

`round` is a generator: it yields phases, lists of tasks that touch disjoint rows, and is sent
their results.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import Rows
from bayesmf.model.params import Params, Precisions
from bayesmf.worker.tasks import Held, Recipe, Result, Task


class Safe(NamedTuple):
    """A state whose errors were sound, to roll back to."""

    users: Rows
    items: Rows
    precisions: Precisions


class ColumnSquares(NamedTuple):
    """Data-weighted mean squares of the columns of users and items.

    They hold while the chain's precisions have the `version` they had then.
    """

    users: NDArray[np.float64]
    items: NDArray[np.float64]
    version: int


class Weighed(NamedTuple):
    """How many ratings the rows of users and items have, where these differ in precision.

    A rating counts by its precision over tau. `most` is the most that a visit stands for. They
    hold while the chain's precisions have the `version` they had then.
    """

    users: NDArray[np.float64]
    items: NDArray[np.float64]
    most: float
    version: int


@dataclass
class ChainState:
    """The state of a chain. `sse` and `count` are the squared errors that its last round met.

    `pace` is halved whenever a round diverges and is run again, `repairs` counts how often. Rules
    with a clock for each row also carry momenta, (users, items), and the mean squares of both
    sides' columns. `errors_by_row` are the weighted squared errors of users and of items.
    """

    chain: int
    key: NDArray[np.uint32]
    params: Params
    precisions: Precisions
    sse: float = 0.0
    count: int = 0
    told: NDArray[np.float64] | None = None  # sums of each item's ratings, as its draw left them
    visits: dict[int, int] = field(default_factory=dict)
    pace: float = 1.0
    repairs: int = 0
    safe: Safe | None = None
    momenta: tuple[Rows, Rows] | None = None
    moments: ColumnSquares | None = None
    weighed: Weighed | None = None  # where rows have noise of their own
    errors_by_row: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    means: Params | None = None  # conditional means of the rows, where the rule has them


Phases = Generator[list[Task], Sequence[Result], None]


class Rounds(Protocol):
    """One update rule on one data set."""

    @property
    def held(self) -> Sequence[Held]:
        """The partitions of the ratings, which workers hold."""

    @property
    def recipes(self) -> Sequence[Recipe | None]:
        """How workers can get the partitions by themselves, where they can."""

    @property
    def together(self) -> Sequence[Sequence[int]]:
        """Lists of partitions whose tasks come at the same time."""

    def round(self, state: ChainState, t: int) -> Phases:
        """Do round t of a chain."""

    def exact_errors(self, state: ChainState) -> Phases:
        """Make `state.sse` the squared errors of all ratings at the state as it is."""

    def draw_noise(self, state: ChainState, t: int) -> None:
        """Draw precisions of single rows that the round has not drawn yet."""

    def step(self, state: ChainState, t: int) -> float | None:
        """The step size of round t, if the rule has one."""
