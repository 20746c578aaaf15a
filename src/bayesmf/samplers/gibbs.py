"""Gibbs sampling: exact conditional draws of all rows; and the default sampler `Auto`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from bayesmf.errors import InputError
from bayesmf.samplers.base import DataShape, Sampler, check_settings
from bayesmf.samplers.schedules import BurnIn, burn_in_rule
from bayesmf.samplers.settings import (
    BURN_IN,
    EPOCHS,
    INITIAL_PRECISION,
    N_CHAINS,
    OVERRELAX,
    THIN,
    OneOf,
    Positive,
    Whole,
    documented,
    setting,
)

LONGEST_RUN = 500  # sweeps, after which a run ends without convergence
# Ratings of a stripe, some tenth of a second of work: messages cost little in comparison, and there
# are stripes for many workers. Between FEWEST and MOST stripes on a side.
STRIPE, FEWEST_STRIPES, MOST_STRIPES = 1_500_000, 8, 256
# Nanoseconds of a sweep, measured (docs/performance.md). Of whole rows: for each rating and column,
# for each rating and pair of columns, for each row and triple of columns. By columns: for each
# rating, and for each rating and column. Constants, because timing would not repeat its choice.
WHOLE_ROWS = (2.2, 0.045, 0.08)
BY_COLUMNS = (8.0, 1.1)
# Sweeps by columns equivalent to one sweep of whole rows.
SWEEPS_BY_COLUMNS = 2.0


@documented
@dataclass(frozen=True)
class Gibbs(Sampler):
    """Exact conditional draws of all rows, in parallel over rows (Algorithm 1 of the paper).

    See Also
    --------
    Auto : Gibbs with `joint` and the number of chains chosen by the data.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = Gibbs(epochs=20, burn_in=5, n_chains=2)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    30
    """

    n_chains: int = setting(1, N_CHAINS)
    epochs: float | None = setting(None, EPOCHS)
    burn_in: float | str | BurnIn | None = setting(None, BURN_IN)
    thin: float | None = setting(None, THIN)
    overrelax: float = setting(0.9, OVERRELAX)
    joint: int | None = setting(
        None,
        OneOf(
            "Columns of a row that are drawn together, given the others: by default all, "
            "O(N D^2) a sweep; with four or one (coordinate Gibbs) O(N D).",
            help="columns drawn together (all of a row); 1 is coordinate Gibbs",
            choices=(4, 1),
        ),
    )
    n_stripes: int | None = setting(
        None,
        Whole(
            "Parts that each side is cut into, the tasks of a half-sweep. By default one for each "
            "1.5 million ratings, between 8 and 256, and equally many for each worker, at least "
            "two. Draws do not depend on it."
        ),
    )
    initial_precision: float = setting(2.0, INITIAL_PRECISION)
    sgd_epochs: float | None = setting(
        None,
        Positive(
            "Passes of `SGD` before the first sweep: chains then start near the posterior's mode, "
            "as in the paper, not at random. They count as seconds of the run, not as epochs.",
            help="passes of SGD before the first sweep (none: a random start)",
            metavar="E",
        ),
    )

    stores_means = True
    default_prior = "wishart-bias"
    kind_of_rounds = "gibbs"
    rescales = True
    row_noise = True
    starts_apart = True
    precision_every = 1
    not_kept = 3

    @property
    def adaptive(self) -> bool:
        return self.epochs is None

    def resolve(self, shape: DataShape) -> Self:
        rule = replace(check_settings(self), thin=self.thin or 1.0)
        if rule.sgd_epochs is not None and rule.initial_precision != Gibbs.initial_precision:
            raise InputError("initial_precision does nothing with sgd_epochs: leave one out")
        if rule.n_stripes is None:
            n = min(max(round(shape.n_ratings / STRIPE), FEWEST_STRIPES), MOST_STRIPES)
            rule = replace(rule, n_stripes=n)
        if rule.burn_in is not None and rule.epochs is None:
            rule = replace(rule, epochs=float(LONGEST_RUN))
        return check_settings(rule)

    def shared_out(self, n_workers: int) -> Self:
        """A copy with equally many stripes for each worker, at least two."""
        assert self.n_stripes is not None
        each = max(2, -(-self.n_stripes // n_workers))
        return replace(self, n_stripes=each * n_workers)

    def rounds_per_epoch(self, shape: DataShape) -> float:
        """A round is a sweep."""
        return 1.0

    def rounds(self, shape: DataShape) -> int:
        return max(1, round(LONGEST_RUN if self.epochs is None else self.epochs))

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)


@documented
@dataclass(frozen=True)
class Auto:
    """Gibbs: whole rows while there are few factors, four columns at a time beyond.

    A sweep of whole rows costs N D^2 + rows D^3, one by columns N D, but up to twice as many of the
    latter are needed, so whole rows are drawn up to a D of about 16.

    See Also
    --------
    Gibbs : The sampler it resolves to.

    Examples
    --------
    >>> from bayesmf import Auto, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> model = BayesianMF(2, sampler=Auto(epochs=20), random_state=0).fit(ratings)
    >>> model.report_["sampler"]["rule"]
    'Gibbs'
    """

    n_chains: int | None = setting(
        None,
        Whole(
            'Independent chains. By default 1, 2 or 4 for the targets "fast", "balanced", '
            '"accurate".',
            option="--chains",
        ),
    )
    epochs: float | None = setting(None, EPOCHS)
    burn_in: float | str | BurnIn | None = setting(None, BURN_IN)
    thin: float | None = setting(None, THIN)
    overrelax: float = setting(0.9, OVERRELAX)

    def choose(self, shape: DataShape, n_factors: int, n_chains: int) -> Gibbs:
        """The rule for data of this size; `n_chains` where it is not set."""
        check_settings(self)
        w, n, rows = n_factors + 1, shape.n_ratings, shape.n_users + shape.n_items
        one, two, three = WHOLE_ROWS
        whole = n * (one * w + two * w**2) + rows * three * w**3
        by_columns = n * (BY_COLUMNS[0] + BY_COLUMNS[1] * w)
        joint = 4 if whole > SWEEPS_BY_COLUMNS * by_columns else None
        return Gibbs(**{**vars(self), "n_chains": self.n_chains or n_chains, "joint": joint})
