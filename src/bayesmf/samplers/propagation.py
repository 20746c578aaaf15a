"""Posterior propagation: whole chains in single blocks, and what they leave handed on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from bayesmf.blocks.grid import Grid
from bayesmf.errors import InputError
from bayesmf.samplers.base import DataShape, Sampler, check_settings
from bayesmf.samplers.burn_in import BurnIn, FixedBurnIn
from bayesmf.samplers.settings import OVERRELAX, Setting, Unit, Whole, documented, setting

STAGES = 3
LEAST = 8  # ratings for each block, on average, where there are more than FEW
FEW = 64
# Times `warm_up` sweeps before rows of the first block are followed: it starts from nothing.
FIRST_WARM_UP = 5


@documented
@dataclass(frozen=True)
class Propagation(Sampler):
    """Posterior propagation (Qin et al. 2019): three stages, and nothing is sent within a stage.

    The first block of the grid is sampled alone. What it leaves of its rows, a Gaussian each, is
    their prior in the other blocks of its row and column, and what those leave is the prior in all
    the rest; then the Gaussians of a row are multiplied, and draws are made from the products. It
    is an approximation: docs/propagation.md says what it costs.

    See Also
    --------
    Gibbs : Draws from the posterior itself, with rows exchanged twice a sweep.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Propagation, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> model = BayesianMF(2, sampler=Propagation(grid=(2, 2)), random_state=0).fit(ratings)
    >>> model.report_["draws"], model.report_["convergence"]["state"]
    (64, 'approximate')
    """

    grid: Any = setting(
        (2, 2),
        Setting(
            "Blocks of the rating matrix, rows x columns: one, then rows + columns - 2, then all "
            "others are sampled at the same time.",
            help="blocks of the rating matrix",
            metavar="RxC",
            type_name='(int, int) or str such as "2x3"',
            reads="grid",
        ),
    )
    first: float = setting(
        0.7,
        Unit(
            "Share of the ratings that the first row and the first column of blocks have, those "
            "of the busiest users and the most popular items. The larger it is, the less is lost, "
            "and the longer the first block takes.",
            help="share of ratings in the first row and column of blocks",
            metavar="S",
            below=True,
        ),
    )
    sweeps: int = setting(
        16,
        Whole(
            "Sweeps of a block whose rows are followed.",
            help="sweeps of a block whose rows are followed",
            metavar="K",
            least=2,
        ),
    )
    warm_up: int = setting(
        8,
        Whole(
            "Sweeps of a block before that; the first block, which nothing is known of, takes "
            "five times as many.",
            help="sweeps of a block before that",
            metavar="W",
        ),
    )
    draws: int = setting(
        64,
        Whole(
            "Draws from the Gaussians in the end; `max_draws` may keep fewer.",
            help="draws from the Gaussians in the end",
            metavar="T",
        ),
    )
    overrelax: float = setting(0.9, OVERRELAX)

    kind_of_rounds = "propagation"
    default_prior = "wishart-bias"
    stores_means = True
    row_noise = True
    n_stages = STAGES
    growing = False
    n_chains = 1
    thin = 1.0
    precision_every = None  # the rounds draw priors and noise themselves
    initial_precision = 2.0

    def resolve(self, shape: DataShape) -> Self:
        rule = check_settings(self)
        grid = Grid.parse(rule.grid)
        if grid.rows > shape.n_users or grid.cols > shape.n_items:
            raise InputError(
                f"grid {grid} is larger than the matrix of {shape.n_users} users x "
                f"{shape.n_items} items: use at most {shape.n_users}x{shape.n_items}"
            )
        if len(grid) > FEW and shape.n_ratings < LEAST * len(grid):
            raise InputError(
                f"grid {grid} has {len(grid):,} blocks for {shape.n_ratings:,} ratings: use one "
                f"with {max(shape.n_ratings // LEAST, FEW):,} blocks at the most"
            )
        if not rule.first:
            raise InputError("first (--first) must be above 0: without ratings nothing is anchored")
        return replace(rule, grid=grid)

    def rounds_per_epoch(self, shape: DataShape) -> float:
        """A round is a stage, or a draw."""
        return 1.0

    def rounds(self, shape: DataShape) -> int:
        return STAGES + self.draws

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        """Stages are on the way."""
        return FixedBurnIn(STAGES)

    def for_compiling(self, n_ratings: int) -> Self:
        return replace(self, grid=(2, 2), sweeps=2, warm_up=1, draws=1)
