"""What update rules share: the size of the data they adapt to, grid and mini-batches, checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.grid import Grid
from bayesmf.checks import positive, whole, yes_or_no
from bayesmf.errors import InputError
from bayesmf.samplers.schedules import FixedBurnIn, burn_in_rule

Array = NDArray[np.float64]

# Mini-batches in a block: few enough that noise costs little, many enough to make progress.
BATCHES = 8
LARGEST_BATCH = 1_000_000


class DataShape(NamedTuple):
    """What defaults depend on. `busy` is the number of ratings that nine rows in ten stay below."""

    n_ratings: int
    n_users: int
    n_items: int
    busy: int


@dataclass(frozen=True)
class BatchRule:
    """What mini-batch rules share: grid, mini-batches, rounds.

    Parameters
    ----------
    grid : (rows, cols) or "RxC"
        Blocks of the rating matrix. Orthogonal blocks are updated in parallel.
    epochs : float, optional
        Passes over the ratings.
    batch_size : int, optional
        Ratings in a mini-batch. The default is an eighth of a block, a quarter for rules with a
        clock for each row; with SGLD's `noise="paper"` the whole block.
    round_length : int, optional
        Mini-batch updates in a round. The default is one pass over the block.
    minibatch : {"shuffled", "replacement"}, optional
        Ratings dealt into mini-batches once, or drawn with replacement each time.
    visits : "equal", "size" or sequence of float
        How often each orthogonal group is visited. Weights are rounded to places in a cycle of
        about eight for each group; the estimator knows the rounded rates.
    shuffle_groups : bool
        Draw the order of groups anew for each cycle.
    """

    grid: Any = (1, 1)
    epochs: float | None = None
    batch_size: int | None = None
    round_length: int | None = None
    minibatch: str | None = None
    visits: str | Sequence[float] = "equal"
    shuffle_groups: bool = False

    def resolve(self, shape: DataShape) -> Self:
        """The same with every default filled in from the size of the data."""
        rule = check_settings(self)
        grid = Grid.of(rule.grid)
        if grid.rows > shape.n_users or grid.cols > shape.n_items:
            raise InputError(
                f"grid {grid} is larger than the matrix of {shape.n_users} users x "
                f"{shape.n_items} items: use at most {shape.n_users}x{shape.n_items}"
            )
        per_block = max(1, shape.n_ratings // len(grid))
        size = rule.batch_size or min(-(-per_block // rule.default_batches()), LARGEST_BATCH)
        rule = replace(rule, grid=grid, batch_size=min(size, per_block))
        rule = replace(rule, minibatch=rule.minibatch or rule.default_minibatch())
        rule = replace(rule, round_length=rule.round_length or rule.n_batches(shape))
        return replace(rule, epochs=rule.epochs or rule.default_epochs(shape))

    def default_batches(self) -> int:
        return BATCHES

    def default_minibatch(self) -> str:
        return "shuffled"

    def default_epochs(self, shape: DataShape) -> float:
        raise TypeError("an update rule has default epochs")

    def n_batches(self, shape: DataShape) -> int:
        """Mini-batches that each block is dealt into."""
        assert self.batch_size is not None
        return max(1, round(shape.n_ratings / len(self.grid) / self.batch_size))

    def n_groups(self) -> int:
        return int(max(self.grid.rows, self.grid.cols))

    def rounds_per_epoch(self, shape: DataShape) -> float:
        """Rounds in which as many ratings are read as there are."""
        assert self.round_length is not None
        return self.n_groups() * self.n_batches(shape) / self.round_length

    def rounds(self, shape: DataShape) -> int:
        """Rounds of a whole run."""
        assert self.epochs is not None
        return max(1, round(self.epochs * self.rounds_per_epoch(shape)))

    def inclusion(self, shape: DataShape) -> float:
        """Probability that a rating is in the mini-batch of an iteration."""
        return 1.0 / (self.n_groups() * self.n_batches(shape))

    def noise_variance(self, hbar: Array) -> Array:
        """Variance of the noise added on a visit, in units of the step, where all rows have one."""
        return np.zeros_like(hbar)


@dataclass(frozen=True)
class GradientRule(BatchRule):
    """A mini-batch rule with one step size for all rows.

    Parameters beyond those of `BatchRule`
    ----------
    step_size, kappa, decay : float, optional
        epsilon_t = step_size (1 + t/kappa)^-decay, t counting rounds. Without a step_size it is
        chosen from the numbers of ratings per row, follows tau as that is drawn, and is halved
        where a round diverges.
    pace : float
        Times the step that is chosen so.
    """

    step_size: float | None = None
    kappa: float | None = None
    decay: float = 0.51
    pace: float = 1.0

    def resolve(self, shape: DataShape) -> Self:
        """The same with every default filled in from the size of the data."""
        rule = super().resolve(shape)
        return replace(rule, kappa=self.kappa or rule.default_kappa(shape))

    def default_step(self, shape: DataShape, stiffest: float) -> float:
        """Default step times tau, where `stiffest` over-estimates any row's curvature over tau.

        The step may follow tau without harm: given tau each update leaves the same law in place.
        """
        raise TypeError("an update rule has a default step")

    def first_step(self, shape: DataShape, stiffest: float, tau: float, pull: float) -> float:
        """epsilon_0 given tau and the strongest pull of the prior on a visit, max lambda / hbar.

        A default step is stable against both: it is below 4 over either curvature.
        """
        if self.step_size is not None:
            return self.step_size
        return self.pace * min(self.default_step(shape, stiffest) / tau, 1.0 / pull)

    def default_kappa(self, shape: DataShape) -> float:
        return max(1.0, float(self.rounds(shape)))


Rule = TypeVar("Rule", bound=Any)

_CHOICES = {
    "minibatch": ("shuffled", "replacement"),
    "noise": ("matched", "paper"),
    "precisions_from": ("start", "burn-in"),
    "joint": (4, 1),
}
_WHOLE = ("batch_size", "round_length", "n_chains", "precision_every", "n_stripes")
_FLAGS = ("shuffle_groups",)
_COUNTS = ("exact_below",)
_POSITIVE = (
    "epochs", "step_size", "kappa", "thin", "initial_precision", "regularization",
    "delta_max", "rho", "friction", "gain", "pace",
)  # fmt: skip
_NEEDED = (
    "n_chains", "n_stripes", "initial_precision", "regularization", "decay", "noise", "pace",
    "delta_max", "rho", "friction", "gain",
)  # fmt: skip
# Beyond these a rule is not stable, whatever the data.
_AT_MOST = {"delta_max": 2.0, "rho": 1.0}


def check_settings(sampler: Rule) -> Rule:
    """The sampler with numbers of the right type; one sentence about what cannot be meant."""
    numbers: dict[str, Any] = {}
    for field in fields(sampler):
        name, value = field.name, getattr(sampler, field.name)
        if value is None and (field.default is None or name not in _NEEDED):
            continue
        if name in _CHOICES and value not in _CHOICES[name]:
            names = " or ".join(repr(c) for c in _CHOICES[name])
            names += ", or None for whole rows" if name == "joint" else ""
            raise InputError(f"{name} must be {names}; got {value!r}")
        if name in _FLAGS:
            numbers[name] = yes_or_no(name, value)
        elif name in _WHOLE:
            numbers[name] = whole(name, value)
        elif name in _COUNTS:
            numbers[name] = whole(name, value, 0)
        elif name in _POSITIVE:
            numbers[name] = positive(name, value)
            if numbers[name] > _AT_MOST.get(name, np.inf):
                raise InputError(f"{name} must be at most {_AT_MOST[name]:g}; got {value!r}")
        elif name == "overrelax":
            what = "a number from 0 to below 1"
            numbers[name] = 0.0 if value == 0 else positive(name, value, what)
            if numbers[name] >= 1:
                raise InputError(f"{name} must be {what}; got {value!r}")
        elif name == "decay" and value != 0 and positive(name, value) > 1:
            raise InputError(f"decay must lie between 0 and 1; got {value!r}")
    checked = replace(sampler, **numbers)
    if getattr(checked, "step_size", None) is not None and checked.pace != 1.0:
        raise InputError(
            "pace does nothing beside step_size, which is the step itself: leave one of them out"
        )
    burn_in, epochs = getattr(checked, "burn_in", None), getattr(checked, "epochs", None)
    rule = None if burn_in is None else burn_in_rule(burn_in)
    if isinstance(rule, FixedBurnIn) and epochs is not None and rule.epochs >= epochs:
        raise InputError(
            f"burn_in (--burn-in) of {rule.epochs:g} epochs leaves no draw out of {epochs:g}: "
            "raise epochs or lower it"
        )
    return checked
