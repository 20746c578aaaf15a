"""The default sampler: Gibbs, in the way that suits the data."""

from __future__ import annotations

from dataclasses import dataclass

from bayesmf.samplers.base import DataShape, check_settings
from bayesmf.samplers.burn_in import BurnIn
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.settings import BURN_IN, EPOCHS, OVERRELAX, THIN, Whole, documented, setting

# Nanoseconds of a sweep, measured (docs/performance.md). Of whole rows: for each rating and column,
# for each rating and pair of columns, for each row and triple of columns. By columns: for each
# rating, and for each rating and column. Constants, because a choice that was timed anew each time
# would not repeat itself.
WHOLE_ROWS = (2.2, 0.045, 0.08)
BY_COLUMNS = (8.0, 1.1)
# Sweeps by columns that bring what a sweep of whole rows brings.
SWEEPS_BY_COLUMNS = 2.0


@documented
@dataclass(frozen=True)
class Auto:
    """Gibbs: whole rows while there are few factors, four columns at a time beyond.

    A sweep of whole rows costs N D^2 + rows D^3, one by columns N D: but it takes up to twice as
    many of these, so whole rows are drawn up to a D of about 16.

    See Also
    --------
    Gibbs : What it becomes.

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
        """The rule for data of this size; `n_chains` where it was not said."""
        check_settings(self)
        w, n, rows = n_factors + 1, shape.n_ratings, shape.n_users + shape.n_items
        one, two, three = WHOLE_ROWS
        whole = n * (one * w + two * w**2) + rows * three * w**3
        by_columns = n * (BY_COLUMNS[0] + BY_COLUMNS[1] * w)
        joint = 4 if whole > SWEEPS_BY_COLUMNS * by_columns else None
        return Gibbs(**{**vars(self), "n_chains": self.n_chains or n_chains, "joint": joint})
