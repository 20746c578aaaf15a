"""The update rules, as small frozen dataclasses: what a user sets, and defaults from the data.

A field that is None is filled in by `resolve` from the size of the data. An algorithm of the
paper is one of these with a grid and a number of chains; see docs/design.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.checks import one_of
from bayesmf.samplers.base import BATCHES, Array, DataShape, GradientRule, check_settings
from bayesmf.samplers.clocks import SGHMC, SGNHT, RowClock
from bayesmf.samplers.schedules import BurnIn, FixedBurnIn, burn_in_rule

# How far mini-batches may heat a busy row, as a share of its variance. Busier rows get more, but
# their variance is small; were they exact, rare rows would take thousands of epochs to forget
# where they began.
HEAT = 0.5
# Sweeps after which a run ends that did not converge.
LONGEST_RUN = 500


@dataclass(frozen=True)
class SGD(GradientRule):
    """Stochastic gradient ascent to the posterior's mode; `DSGD` on a grid.

    It is SGLD without noise and with precisions held fixed; the last state is the only draw.

    Parameters beyond those of `GradientRule`
    ----------
    regularization : float
        The precisions of all columns, in units of rating variances.
    """

    regularization: float = 8.0

    n_chains = 1
    thin = None
    precision_every = None
    keeps_draws = False
    adaptive = False
    passes_for_a_sweep = 1
    rescales = False

    @property
    def initial_precision(self) -> float:
        return self.regularization

    def default_epochs(self, shape: DataShape) -> float:
        return float(np.clip(3e7 / shape.n_ratings, 60, 300))

    def default_step(self, shape: DataShape, stiffest: float) -> float:
        return 0.7 / stiffest  # stable below 4

    def noise_variance(self, hbar: Array) -> Array:
        return np.zeros_like(hbar)

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        """All is on the way; a chain that has kept nothing keeps its last state."""
        return FixedBurnIn(np.inf)

    def precisions_drawn(self, burning: bool) -> bool:
        return False


@dataclass(frozen=True)
class SGLD(GradientRule):
    """Stochastic gradient Langevin dynamics (Section 3.2); `DSGLD` on a grid.

    Parameters beyond those of `GradientRule`
    ----------
    n_chains : int
        Independent chains.
    burn_in : float or str, optional
        Epochs dropped, or "rmse:0.85" (until the validation RMSE falls to that), or "stationary".
    thin : float, optional
        Epochs between kept draws; more where the cap on draws asks for it.
    noise : {"matched", "paper"}
        Variance of the noise on a visit: epsilon / hbar, which gives every row temperature 1; or
        epsilon as the paper prints it, which leaves row i at temperature hbar_i.
    precision_every : int, optional
        Rounds between draws of the precisions. The default is once an epoch.
    precisions_from : {"start", "burn-in"}
        Draw the precisions from the start or, as the paper does, after burn-in.
    initial_precision : float
        The precisions before the first draw.
    """

    n_chains: int = 1
    burn_in: float | str | BurnIn | None = None
    thin: float | None = None
    noise: str = "matched"
    precision_every: int | None = None
    precisions_from: str = "start"
    initial_precision: float = 2.0

    keeps_draws = True
    adaptive = False
    passes_for_a_sweep = 1
    rescales = False  # as the paper has it

    def resolve(self, shape: DataShape) -> Self:
        rule = super().resolve(shape)
        assert rule.epochs is not None
        rule = replace(
            rule,
            burn_in=rule.epochs / 3 if self.burn_in is None else self.burn_in,
            thin=rule.thin or 1.0,
            precision_every=rule.precision_every or max(1, round(rule.rounds_per_epoch(shape))),
        )
        return check_settings(rule)

    def default_minibatch(self) -> str:
        # The printed h is the probability of a visit when ratings are drawn with replacement.
        return "replacement" if self.noise == "paper" else "shuffled"

    def default_batches(self) -> int:
        # As printed, a row's temperature is its h: mini-batches of a block's size keep it near 1.
        return 1 if self.noise == "paper" else BATCHES

    def default_epochs(self, shape: DataShape) -> float:
        # Chains from different starts average out what one of them takes long to cross.
        return float(np.clip(1e9 / shape.n_ratings, 60, 3000) / np.sqrt(self.n_chains))

    def default_step(self, shape: DataShape, stiffest: float) -> float:
        # The noise of the mini-batch's gradient is eps tau n / (4 q) of the injected noise.
        return min(4 * HEAT * self.inclusion(shape) / shape.busy, 2.0 / stiffest)

    def noise_variance(self, hbar: Array) -> Array:
        return np.ones_like(hbar) if self.noise == "paper" else 1.0 / hbar

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        assert self.burn_in is not None
        return burn_in_rule(self.burn_in)

    def precisions_drawn(self, burning: bool) -> bool:
        return self.precisions_from == "start" or not burning


DSGD = SGD
DSGLD = SGLD


@dataclass(frozen=True)
class Gibbs:
    """Exact conditional draws of all rows, in parallel over rows (Algorithm 1).

    Parameters
    ----------
    n_chains : int
        Independent chains.
    epochs : float, optional
        Sweeps. By default as many as it takes to reach the estimator's `target`.
    burn_in : float or str, optional
        Sweeps dropped, or "rmse:0.85" or "stationary". By default a quarter of the run.
    thin : float, optional
        Sweeps between kept draws.
    overrelax : float
        From 0, plain draws, to below 1: how far beyond its conditional mean a row lands, as a share
        of how far it was on the other side. It leaves the same law in place, and turns the
        slow random walk of plain sweeps into steady motion.
    joint : {None, 4, 1}
        Columns of a row that are drawn together, given the others: all, O(N D^2) a sweep; four or
        one (coordinate Gibbs), O(N D).
    n_stripes : int
        Parts that each side is cut into, the tasks of a half-sweep.
    initial_precision : float
        The precisions before the first draw.
    """

    n_chains: int = 1
    epochs: float | None = None
    burn_in: float | str | BurnIn | None = None
    thin: float | None = None
    overrelax: float = 0.9
    joint: int | None = None
    n_stripes: int = 8
    initial_precision: float = 2.0

    precision_every = 1
    keeps_draws = True
    rescales = True
    passes_for_a_sweep = 1

    @property
    def adaptive(self) -> bool:
        """Whether the length of the run follows from convergence."""
        return self.epochs is None

    def resolve(self, shape: DataShape) -> Gibbs:
        """The same with every default filled in from the size of the data."""
        rule = replace(check_settings(self), thin=self.thin or 1.0)
        if rule.burn_in is None and rule.epochs is not None:
            rule = replace(rule, burn_in=rule.epochs / 4)
        elif rule.burn_in is not None and rule.epochs is None:
            rule = replace(rule, epochs=float(LONGEST_RUN))
        return check_settings(rule)

    def rounds_per_epoch(self, shape: DataShape) -> float:
        """A round is a sweep."""
        return 1.0

    def rounds(self, shape: DataShape) -> int:
        return max(1, round(LONGEST_RUN if self.epochs is None else self.epochs))

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)

    def precisions_drawn(self, burning: bool) -> bool:
        return True


# Nanoseconds of a sweep, measured (docs/performance.md). Of whole rows: for each rating and column,
# for each rating and pair of columns, for each row and triple of columns. By columns: for each
# rating, and for each rating and column. Constants, because a choice that was timed anew each time
# would not repeat itself.
WHOLE_ROWS = (2.2, 0.045, 0.08)
BY_COLUMNS = (8.0, 1.1)
# Sweeps by columns that bring what a sweep of whole rows brings.
SWEEPS_BY_COLUMNS = 2.0


@dataclass(frozen=True)
class Auto:
    """Gibbs: whole rows while there are few factors, four columns at a time beyond.

    A sweep of whole rows costs N D^2 + rows D^3, one by columns N D: but it takes up to twice as
    many of these, so whole rows are drawn up to a D of about 16.

    Parameters
    ----------
    n_chains : int, optional
        Independent chains. By default 1, 2 or 4 for the targets "fast", "balanced", "accurate".
    epochs, burn_in, thin, overrelax
        As in `Gibbs`.
    """

    n_chains: int | None = None
    epochs: float | None = None
    burn_in: float | str | BurnIn | None = None
    thin: float | None = None
    overrelax: float = 0.9

    def choose(self, shape: DataShape, n_factors: int, n_chains: int) -> Gibbs:
        """The rule for data of this size, with as many chains unless it was said."""
        check_settings(self)
        w, n, rows = n_factors + 1, shape.n_ratings, shape.n_users + shape.n_items
        one, two, three = WHOLE_ROWS
        whole = n * (one * w + two * w**2) + rows * three * w**3
        by_columns = n * (BY_COLUMNS[0] + BY_COLUMNS[1] * w)
        joint = 4 if whole > SWEEPS_BY_COLUMNS * by_columns else None
        return Gibbs(**{**vars(self), "n_chains": self.n_chains or n_chains, "joint": joint})


Sampler = SGD | SGLD | RowClock | SGHMC | SGNHT | Gibbs


# By the names that users write.
SAMPLERS: dict[str, Any] = {
    "auto": Auto, "gibbs": Gibbs, "rowclock": RowClock, "sghmc": SGHMC, "sgnht": SGNHT,
    "sgld": SGLD, "sgd": SGD,
}  # fmt: skip


def named_sampler(name: str) -> Sampler | Auto:
    """A sampler by its name, with its defaults."""
    rule: Sampler | Auto = SAMPLERS[
        one_of("sampler", name, SAMPLERS, " or a sampler object, such as SGLD()")
    ]()
    return rule


def settings_dict(sampler: Sampler) -> dict[str, Any]:
    """Plain values for a manifest, with the rule's name; `sampler_from` reads them."""
    out: dict[str, Any] = {"rule": type(sampler).__name__}
    for name, value in vars(sampler).items():
        if isinstance(value, Grid | BurnIn):
            value = str(value)
        elif isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
            value = [float(v) for v in value]
        out[name] = value
    return out


def sampler_from(settings: Mapping[str, Any]) -> Sampler:
    """The sampler of a manifest."""
    rules = {rule.__name__: rule for rule in SAMPLERS.values()}
    given = {name: value for name, value in settings.items() if name != "rule"}
    rule: Sampler = rules[settings["rule"]](**given)
    return rule
