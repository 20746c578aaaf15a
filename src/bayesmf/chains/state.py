"""Settings of a run, state of a chain, and the interface of the rounds of a rule.

`round` is a generator: it yields phases, lists of tasks on disjoint rows, and is sent their
results.
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
    # For runs that need only errors: rounds between the errors measured in burn-in. Of the draws
    # only the last is stored.
    errors_every: float | None = None


Floats = NDArray[np.float64]


class Safe(NamedTuple):
    """A state with small errors, for rollback."""

    users: Any
    items: Any
    precisions: Precisions


class ColumnSquares(NamedTuple):
    """Data-weighted mean squares of the columns of users and items.

    Valid while the `version` of the chain's precisions is the same.
    """

    users: Floats
    items: Floats
    version: int


class Weighed(NamedTuple):
    """Weighted numbers of ratings of users and items, with noise by row.

    The weight of a rating is its precision over tau; the numbers are stored with the rows. `most`
    is the maximum for a visit, `busy` the 90% quantile over rows, `total` the sum. Valid while the
    `version` of the chain's precisions is the same.
    """

    users: Pieces
    items: Pieces
    most: float
    busy: float
    total: float
    version: int


@dataclass
class ChainState:
    """The state of a chain; rows and numbers by row are references to arrays on workers.

    `sse` and `count` are the squared errors of its last round. `step_factor` is halved
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
        """The rows as arrays, of a state in this process."""
        users, items = np.asarray(self.params.users), np.asarray(self.params.items)
        return Params(users, items, self.params.n_factors)

    def references(self) -> list[Ref]:
        """References to all arrays on workers that the rest of the chain depends on."""
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
        """The partitions of the ratings, stored on workers."""

    @property
    def recipes(self) -> Sequence[Recipe | None]:
        """How workers load the partitions from shared storage, if they can."""

    @property
    def together(self) -> Sequence[Sequence[int]]:
        """Lists of partitions whose tasks run at the same time."""

    @property
    def units(self) -> Sequence[int] | None:
        """For each partition the number of the stripe that stays with its worker; None where
        any partition may be anywhere."""

    @property
    def layouts(self) -> tuple[StripeLayout, StripeLayout]:
        """Partitions of the rows of users and of items into stripes."""

    def at(self, side: int, stripe: int) -> int:
        """A partition whose worker stores the rows of a stripe."""

    def round(self, state: ChainState, t: int) -> Phases:
        """Do round t of a chain."""

    def exact_errors(self, state: ChainState, errors: bool = True) -> Phases:
        """Make `state.row_moments` those of the rows as they are; with `errors`, `state.sse` the
        squared errors of all ratings at this state."""

    def draw_noise(self, state: ChainState, t: int) -> Phases:
        """Draw noise precisions of rows that the round has not drawn."""

    def step(self, state: ChainState, t: int) -> float | None:
        """The step size of round t, if the rule has one."""
