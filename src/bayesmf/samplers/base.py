"""Base classes of update rules: their interface to the server, mini-batches, step sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.grid import Grid
from bayesmf.errors import InputError
from bayesmf.samplers import schedules
from bayesmf.samplers.schedules import BurnIn, FixedBurnIn, burn_in_rule
from bayesmf.samplers.settings import (
    EPOCHS,
    Flag,
    OneOf,
    Positive,
    Setting,
    Unit,
    Whole,
    check_types,
    setting,
)

Array = NDArray[np.float64]

# Mini-batches of a pass: more of them mix faster for each pass, but each costs a visit to its rows.
# A block has at least FEWEST, and more only of at least SMALLEST_BATCH.
BATCHES, FEWEST = 256, 8
SMALLEST_BATCH, LARGEST_BATCH = 256, 1_000_000  # ratings

DECAY = Unit(
    "How fast the step falls after that, from 0 to 1.",
    help="how fast it falls, from 0 to 1",
    metavar="y",
)
SHUFFLE_GROUPS = Flag(
    "Draw a new order of groups for each cycle.", help="draw a new order of groups each cycle"
)


class DataShape(NamedTuple):
    """Sizes that defaults depend on; nine rows in ten have fewer ratings than `busy`."""

    n_ratings: int
    n_users: int
    n_items: int
    busy: float


@dataclass(frozen=True)
class Sampler(ABC):
    """An update rule: its settings, and its interface to the server.

    Samplers are frozen dataclasses. `resolve` replaces None by values that depend on the data. The
    paper's algorithms are samplers with a grid and a number of chains; see docs/design.md.
    """

    kind_of_rounds: ClassVar[str]  # a key of run/driver.py's ROUNDS
    keeps_draws: ClassVar[bool] = True  # False: the last state is the only draw
    starts_apart: ClassVar[bool] = False  # whether chains start with different precisions
    stores_means: ClassVar[bool] = False  # conditional means beside the draws
    default_prior: ClassVar[str] = "gamma"  # what prior="auto" is
    passes_for_a_sweep: ClassVar[int] = 1  # epochs that run/stopping.py counts as a sweep
    not_kept: ClassVar[int] = 0  # epochs that are always burn-in, if that grows with the run

    # Settings, or constants of the class.
    @property
    @abstractmethod
    def n_chains(self) -> int:
        """Independent chains."""

    @property
    @abstractmethod
    def thin(self) -> float | None:
        """Epochs between kept draws."""

    @property
    @abstractmethod
    def precision_every(self) -> int | None:
        """Rounds between draws of the precisions; None where they are never drawn."""

    @property
    @abstractmethod
    def initial_precision(self) -> float:
        """Precisions of all columns at the start."""

    @property
    def adaptive(self) -> bool:
        """Whether the length of the run follows from convergence."""
        return False

    @property
    def row_noise(self) -> bool:
        """Whether it can draw noise precisions of users and items."""
        return False

    @property
    def rescales(self) -> bool:
        """Whether draws of precisions include the scale move."""
        return False

    @property
    def growing(self) -> bool:
        """Whether burn-in is the first quarter of the run, whenever that ends."""
        return self.keeps_draws and getattr(self, "burn_in", None) is None

    def choose(self, shape: DataShape, n_factors: int, n_chains: int) -> Sampler:
        """The rule for data of this size; `n_chains` where it is not set."""
        return self

    @abstractmethod
    def resolve(self, shape: DataShape) -> Self:
        """A copy with every default filled in from the size of the data."""

    @abstractmethod
    def rounds_per_epoch(self, shape: DataShape) -> float:
        """Rounds that read as many ratings as there are in all."""

    @abstractmethod
    def rounds(self, shape: DataShape) -> int:
        """Rounds of a whole run."""

    @abstractmethod
    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        """When burn-in is over."""

    def precisions_drawn(self, burning: bool) -> bool:
        """Whether precisions of the rows are drawn, during burn-in or after it."""
        return True

    def noise_share(self, epoch: float) -> float:
        """Factor of the noise's variance in an epoch: less than 1 at the start of a chain.

        At 0, precisions of the rows are not drawn.
        """
        return 1.0

    def row_noise_from(self) -> float:
        """First epoch with separate noise precisions of rows; before, they are equal."""
        return 0.0

    def for_compiling(self, n_ratings: int) -> Self:
        """A copy that executes all its code within one epoch, on few ratings."""
        short: dict[str, Any] = {"epochs": 1} | ({"burn_in": 0} if self.keeps_draws else {})
        return replace(self, **short)


@dataclass(frozen=True)
class BatchRule(Sampler):
    """Base of mini-batch rules: grid, mini-batches, rounds."""

    grid: Any = setting(
        (1, 1),
        Setting(
            "Blocks of the rating matrix, rows x columns. Orthogonal blocks are updated in "
            "parallel.",
            help="blocks of the rating matrix",
            metavar="RxC",
            type_name='(int, int) or str such as "2x3"',
            reads="grid",
        ),
    )
    epochs: float | None = setting(None, EPOCHS)
    batch_size: int | None = setting(
        None,
        Whole(
            "Ratings in a mini-batch. By default a pass has 256 mini-batches, fewer "
            "if they would be small; a block has up to 4 for rules with momentum, 1 with "
            '`noise="paper"`.',
            help="ratings in a mini-batch",
            metavar="m",
        ),
    )
    round_length: int | None = setting(
        None,
        Whole(
            "Mini-batch updates in a round. The default is one pass over the block.",
            help="mini-batch updates in a round",
            metavar="g",
        ),
    )
    minibatch: str | None = setting(
        None,
        OneOf(
            "Ratings dealt into mini-batches once, or drawn with replacement each time.",
            help="how mini-batches are made",
            choices=("shuffled", "replacement"),
        ),
    )
    visits: str | Sequence[float] = setting(
        "equal",
        Setting(
            "How often each orthogonal group is visited. Weights are rounded to turns in a cycle "
            "of about eight for each group; gradients are scaled by the rounded rates.",
            help="how often each orthogonal group is visited",
            metavar="equal|size|w1,w2,..",
            type_name='{"equal", "size"} or sequence of float',
            reads="visits",
        ),
    )
    group_size: int | None = setting(
        None,
        Whole(
            "Largest number of blocks in an orthogonal group, whose blocks a chain updates in "
            "parallel. The default is a whole diagonal of the grid, min(rows, columns) blocks; "
            "smaller groups leave blocks to other chains.",
            help="largest number of blocks that a chain updates in parallel",
            metavar="B",
        ),
    )
    shuffle_groups: bool = setting(False, SHUFFLE_GROUPS)

    def resolve(self, shape: DataShape) -> Self:
        rule = check_settings(self)
        grid = Grid.parse(rule.grid)
        if grid.rows > shape.n_users or grid.cols > shape.n_items:
            raise InputError(
                f"grid {grid} is larger than the matrix of {shape.n_users} users x "
                f"{shape.n_items} items: use at most {shape.n_users}x{shape.n_items}"
            )
        per_block = max(1, shape.n_ratings // len(grid))
        rule = replace(rule, grid=grid, group_size=rule.group_size or min(grid.rows, grid.cols))
        size = rule.batch_size or min(
            -(-per_block // rule.default_batches(per_block)), LARGEST_BATCH
        )
        rule = replace(rule, batch_size=min(size, per_block))
        rule = replace(rule, minibatch=rule.minibatch or rule.default_minibatch())
        rule = replace(rule, round_length=rule.round_length or rule.n_batches(shape))
        return replace(rule, epochs=rule.epochs or rule.default_epochs(shape))

    @property
    def row_noise(self) -> bool:
        # Rules that keep only the last state draw no precisions.
        return self.keeps_draws

    def default_batches(self, per_block: int) -> int:
        """Mini-batches that a block of `per_block` ratings is dealt into by default."""
        most = max(FEWEST, BATCHES // self.n_groups())
        return int(np.clip(per_block // SMALLEST_BATCH, FEWEST, most))

    def default_minibatch(self) -> str:
        """How mini-batches are made by default."""
        return "shuffled"

    @abstractmethod
    def default_epochs(self, shape: DataShape) -> float:
        """Passes over the ratings by default."""

    def n_batches(self, shape: DataShape) -> int:
        """Mini-batches that each block is dealt into."""
        assert self.batch_size is not None
        return max(1, round(shape.n_ratings / len(self.grid) / self.batch_size))

    def n_groups(self) -> int:
        """Orthogonal groups of the grid."""
        return int(self.grid.n_groups(self.group_size))

    def rounds_per_epoch(self, shape: DataShape) -> float:
        assert self.round_length is not None
        return self.n_groups() * self.n_batches(shape) / self.round_length

    def rounds(self, shape: DataShape) -> int:
        epochs = self.default_epochs(shape) if self.epochs is None else self.epochs
        return max(1, round(epochs * self.rounds_per_epoch(shape)))

    def inclusion(self, shape: DataShape) -> float:
        """Probability that a rating is in the mini-batch of an iteration."""
        return 1.0 / (self.n_groups() * self.n_batches(shape))

    def for_compiling(self, n_ratings: int) -> Self:
        # With several blocks, rows of a block are copies, which are read by different code.
        grid = Grid.parse(self.grid)
        return replace(
            super().for_compiling(n_ratings),
            grid=(min(grid.rows, 2), min(grid.cols, 2)),
            group_size=None,
            batch_size=n_ratings,
            round_length=1,
            visits="equal",
        )


@dataclass(frozen=True)
class GradientRule(BatchRule):
    """A mini-batch rule with one step size for all rows.

    A row in a mini-batch becomes row + step / 2 * gradient + sqrt(step) * noise, where the gradient
    is an unbiased estimate of that of the log posterior, and the noise is normal with variance
    `noise_variance`.
    """

    step_size: float | None = setting(
        None,
        Positive(
            "The first step: that of round t is step_size (1 + t / kappa)^-decay. Without it the "
            "step is chosen from the numbers of ratings per row, follows tau as that is drawn, and "
            "is halved where a round diverges.",
            help="e (1 + t/k)^-y is the step of round t",
            metavar="e",
        ),
    )
    kappa: float | None = setting(
        None,
        Positive(
            "Rounds before the step begins to fall. The default is all of them, for SGD those of "
            "ten epochs.",
            help="rounds before the step begins to fall (all)",
            metavar="k",
        ),
    )
    decay: float = setting(0.51, DECAY)
    pace: float = setting(
        1.0,
        Positive(
            "Factor of the default step, without a step_size.",
            help="times the step chosen without --step-size",
            metavar="p",
        ),
    )

    kind_of_rounds = "gradient"

    def resolve(self, shape: DataShape) -> Self:
        rule = super().resolve(shape)
        return replace(rule, kappa=self.kappa or rule.default_kappa(shape))

    @abstractmethod
    def default_step(self, shape: DataShape, stiffest: float) -> float:
        """Default step times tau; `stiffest` is an upper bound of any row's curvature over tau.

        The largest stable step is 4 / stiffest, because a row moves by half of the step times its
        gradient. The step may depend on tau: given tau each update leaves the posterior invariant.
        """

    def first_step(self, shape: DataShape, stiffest: float, tau: float, pull: float) -> float:
        """epsilon_0 given tau and the strongest pull of the prior on a visit, max lambda / hbar.

        A default step is stable against both: below 4 / stiffest, and a quarter of 4 / pull.
        """
        if self.step_size is not None:
            return self.step_size
        return self.pace * min(self.default_step(shape, stiffest) / tau, 1.0 / pull)

    def start_factor(self, epoch: float) -> float:
        """Factor of a step chosen without a `step_size` in an epoch.

        With less injected noise, mini-batches may contribute more.
        """
        if self.step_size is not None:
            return 1.0
        return schedules.FACTOR - (schedules.FACTOR - 1.0) * self.noise_share(epoch)

    def default_kappa(self, shape: DataShape) -> float:
        """Rounds before the step begins to fall by default."""
        return max(1.0, float(self.rounds(shape)))

    def for_compiling(self, n_ratings: int) -> Self:
        return replace(super().for_compiling(n_ratings), step_size=1e-6, pace=1.0)

    @abstractmethod
    def noise_variance(self, hbar: Array) -> Array:
        """Variance of the noise on a visit, in units of the step, given rows' visit rates."""


Rule = TypeVar("Rule", bound=Any)


def check_settings(sampler: Rule) -> Rule:
    """The sampler with values of the right type; InputError for invalid settings."""
    checked = check_types(sampler)
    paced = getattr(checked, "pace", 1.0) != 1.0
    if paced and getattr(checked, "step_size", None) is not None:
        raise InputError(
            "pace does nothing beside step_size, which is the step itself: leave one of them out"
        )
    if isinstance(checked, BatchRule):
        Grid.parse(checked.grid).n_groups(checked.group_size)
    burn_in, epochs = getattr(checked, "burn_in", None), getattr(checked, "epochs", None)
    rule = None if burn_in is None else burn_in_rule(burn_in)
    if isinstance(rule, FixedBurnIn) and epochs is not None and rule.epochs >= epochs:
        raise InputError(
            f"burn_in (--burn-in) of {rule.epochs:g} epochs leaves no draw out of {epochs:g}: "
            "raise epochs or lower it"
        )
    return checked
