"""Settings of a run, the state of a chain, and what the server knows of the rounds of a rule.

`round` is a generator: it yields phases, lists of tasks that touch disjoint rows, and is sent
their results.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.model.noise import LawSlice
from bayesmf.model.priors import Moments, Params, Precisions, Prior
from bayesmf.model.refs import Pieces, Ref, StripeLayout, in_layout, leaves
from bayesmf.samplers.base import Sampler
from bayesmf.worker.tasks import Held, Recipe, Result, Task


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run: checked, with all defaults filled in (run/settings.py)."""

    sampler: Sampler
    prior: Prior
    n_factors: int
    tau: float | None  # None where the noise precision is drawn
    seed: int
    max_draws: int
    noise_by: str | None = None  # rows that have noise of their own: "user", "item" or "both"
    keep: str = "both"  # the side whose draws are kept: "items", "users" or "both"
    scale: float = 1.0  # user's units in one unit of the chain: for what is reported
    target: str = "balanced"
    max_seconds: float | None = None
    last_draw_only: bool = False  # for runs of which the errors alone are wanted


Floats = NDArray[np.float64]


class Safe(NamedTuple):
    """A state whose errors were sound, to roll back to."""

    users: Any
    items: Any
    precisions: Precisions


class ColumnSquares(NamedTuple):
    """Data-weighted mean squares of the columns of users and items.

    They hold while the chain's precisions have the `version` they had then.
    """

    users: Floats
    items: Floats
    version: int


class Weighed(NamedTuple):
    """How many ratings the rows of users and items have, where these differ in precision.

    A rating counts by its precision over tau; the numbers lie where the rows do. `most` is the
    most that a visit stands for, `busy` what nine rows in ten stay below, `total` their sum. They
    hold while the chain's precisions have the `version` they had then.
    """

    users: Pieces
    items: Pieces
    most: float
    busy: float
    total: float
    version: int


@dataclass
class ChainState:
    """The state of a chain: workers hold the rows and all numbers of rows, the rest is here.

    `sse` and `count` are the squared errors that its last round met. `step_factor` is halved
    whenever a round diverges and is run again, `repairs` counts how often. Rules with momenta also
    have these, (users, items), and the mean squares of both sides' columns.
    `errors_by_row` are parts of the weighted squared errors of users and of items, stripe by
    stripe. `row_sums` are sums over the ratings of each row of the side drawn last, `all_sums` over
    all; `row_moments` are those of the rows as they are, once known. `slices` are of laws
    of noise that are being drawn, `evidence` the likelihoods at their points.
    """

    chain: int
    key: NDArray[np.uint32]
    params: Params
    precisions: Precisions
    sse: float = 0.0
    count: int = 0
    row_sums: Pieces | None = None
    all_sums: Floats | None = None
    row_moments: tuple[Moments | None, Moments | None] | None = None
    slices: dict[int, LawSlice] = field(default_factory=dict)
    evidence: dict[int, Floats] = field(default_factory=dict)
    visits: dict[int, int] = field(default_factory=dict)
    step_factor: float = 1.0
    repairs: int = 0
    safe: Safe | None = None
    momenta: tuple[Any, Any] | None = None
    column_squares: ColumnSquares | None = None
    weighed: Weighed | None = None  # where rows have noise of their own
    errors_by_row: tuple[Any, Any] | None = None
    means: Params | None = None  # conditional means of the rows, where the rule has them

    def side(self, side: int) -> Any:
        """Rows of users (0) or items (1)."""
        return self.params.items if side else self.params.users

    def put(self, side: int, rows: Pieces) -> None:
        """New rows of users (0) or items (1)."""
        users, items = (self.params.users, rows) if side else (rows, self.params.items)
        self.params = Params(users, items, self.params.n_factors)

    def cut(self, layouts: Sequence[StripeLayout]) -> None:
        """Cut all rows, and numbers of rows, into the stripes of these layouts."""
        users, items = layouts
        for name in ("params", "means"):
            own: Params | None = getattr(self, name)
            if own is not None:
                rows = in_layout(own.users, users), in_layout(own.items, items)
                setattr(self, name, Params(*rows, own.n_factors))
        if self.momenta is not None:
            self.momenta = in_layout(self.momenta[0], users), in_layout(self.momenta[1], items)
        if self.safe is not None:
            sides = in_layout(self.safe.users, users), in_layout(self.safe.items, items)
            self.safe = Safe(*sides, _cut_noise(self.safe.precisions, layouts))
        self.precisions = _cut_noise(self.precisions, layouts)

    def whole(self) -> Params:
        """The rows as arrays, of a state that lies in this process."""
        users, items = np.asarray(self.params.users), np.asarray(self.params.items)
        return Params(users, items, self.params.n_factors)

    def references(self) -> list[Ref]:
        """Everything that workers hold and that the rest of the chain depends on."""
        found: dict[int, Ref] = {}
        for value in (
            self.params, self.momenta, self.safe, self.weighed, self.precisions, self.row_sums,
            self.means,
        ):  # fmt: skip
            found.update((id(ref), ref) for ref in leaves(value, Ref))
        return list(found.values())


def _cut_noise(precisions: Precisions, layouts: Sequence[StripeLayout]) -> Precisions:
    noise = precisions.noise
    if noise is None:
        return precisions
    for side, layout in enumerate(layouts):
        own = noise.side(side)
        if own is not None and not isinstance(own.value, float):
            noise = noise.with_side(side, replace(own, value=in_layout(own.value, layout)))
    return replace(precisions, noise=noise)


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

    @property
    def units(self) -> Sequence[int] | None:
        """For each partition the number of the stripe that stays with its worker; None where
        any partition may be anywhere."""

    @property
    def layouts(self) -> tuple[StripeLayout, StripeLayout]:
        """How the rows of users and of items are cut."""

    def at(self, side: int, stripe: int) -> int:
        """A partition whose worker has the rows of a stripe at hand."""

    def round(self, state: ChainState, t: int) -> Phases:
        """Do round t of a chain."""

    def exact_errors(self, state: ChainState, errors: bool = True) -> Phases:
        """Make `state.row_moments` those of the rows as they are; with `errors`, `state.sse` the
        squared errors of all ratings at this state."""

    def draw_noise(self, state: ChainState, t: int) -> Phases:
        """Draw precisions of single rows that the round has not drawn yet."""

    def step(self, state: ChainState, t: int) -> float | None:
        """The step size of round t, if the rule has one."""
