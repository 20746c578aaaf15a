"""The algorithms of the paper, with its settings or with the library's.

| | |
|---|---|
| `paper` | Section 4.2 and Appendix A, mini-batches in proportion to the data |
| `default` | what the library does where only the split and the number of chains are set |

The algorithm `bayesmf` is the library with nothing set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from bayesmf.errors import InputError
from bayesmf.samplers.base import DataShape
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.registry import settings_dict
from bayesmf.samplers.sgld import SGD, SGLD

ALGORITHMS = ("SGD", "DSGD", "SGLD", "DSGLD-S", "DSGLD-C", "Gibbs", "bayesmf")
SINGLE = "DSGLD-1"  # the grid of DSGLD-S, where each block is a group and each worker has a chain
OPTIMISERS = ("SGD", "DSGD")
MCMC = ("SGLD", "DSGLD-S", "DSGLD-C")
GIBBS_CORES = 12  # of the one machine that Gibbs had
# Of each chain at most: as printed all algorithms have the same time, which ends them.
EPOCHS = {"paper": 10_000.0, "default": 40.0}
# Times as much time for more factors (Figure 6): 100,000 to 300,000 s.
TIMES = {"yahoo": {60: 2.0, 100: 3.0}}

# Appendix A: (epsilon_0, kappa) with 30 factors.
STEPS: dict[str, dict[str, tuple[float, float]]] = {
    "netflix": {
        "SGD": (9e-6, 50), "DSGD": (1e-6, 10), "SGLD": (9e-6, 1000),
        "DSGLD-C": (9e-6, 1000), "DSGLD-S": (3e-6, 500),
    },
    "yahoo": {
        "SGD": (1.5e-6, 500), "DSGD": (3e-7, 100), "SGLD": (1.5e-6, 1000),
        "DSGLD-C": (9e-7, 1000), "DSGLD-S": (1.5e-6, 500),
    },
}  # fmt: skip
BATCH = {"netflix": 50_000, "yahoo": 100_000}
BURN_IN = {"netflix": 0.85, "yahoo": 1.08}  # the RMSE that ends it, on the paper's own data
ROUND, THIN_ROUNDS, PRECISION_ROUNDS = 50, 10, 50
SGD_EPOCHS = 5  # of Gibbs, to be near a MAP state
# Share of DSGD's fall, from the error of the mean rating to its lowest, at which burn-in ends on
# other data. On Netflix 0.85 is at 98%. With few ratings chains do not get there, as precisions are
# 2 until then: on 1% of Netflix's shape the lowest of a chain with 100 factors is at 81%.
FALL = 0.8
TAU, BETA_0_SGLD, INITIAL_PRECISION, DECAY = 2.0, 300.0, 2.0, 0.51


@dataclass(frozen=True)
class TrialPlan:
    """Settings of one run as plain values; its result depends on nothing else."""

    algorithm: str
    workers: int
    n_factors: int
    sampler: dict[str, Any] | None  # None is `auto`
    prior: str
    tau: float | None  # None where it is drawn
    beta_0: float
    standardize: bool
    shared_memory: bool  # cores of one machine, or machines with links between them


def grid_and_chains(algorithm: str, workers: int) -> tuple[tuple[int, int], int]:
    """Section 4.1: how S workers share the rating matrix, and how many chains they run."""
    if algorithm == "DSGD":
        return (workers, workers), 1
    if algorithm == "DSGLD-C":
        return (workers, 1), workers
    if algorithm in ("DSGLD-S", SINGLE):
        root = isqrt(workers)
        if root**2 != workers:
            raise InputError(
                f"DSGLD-S splits into squares: {workers} workers are not a square number, such as "
                "4, 9 or 16"
            )
        return (root, root), workers if algorithm == SINGLE else root
    return (1, 1), 1


def make_plan(
    algorithm: str,
    workers: int,
    n_factors: int,
    *,
    model: str,
    shape: DataShape,
    share: float,
    beta_0: float = BETA_0_SGLD,
    settings: str = "paper",
    epochs: float = EPOCHS["paper"],
    burn_in: float | str | None = None,
) -> TrialPlan:
    """The plan of an algorithm with the settings of a name.

    `shape` are the ratings that the run is trained on, `share` their part of the paper's data;
    `beta_0` is that of SGLD and DSGLD as printed.
    """
    if algorithm == "bayesmf":
        return TrialPlan(algorithm, GIBBS_CORES, n_factors, None, "auto", None, 1.0, True, True)
    alone = algorithm in ("SGD", "SGLD") or workers == 1
    base = TrialPlan(
        algorithm, 1 if alone else workers, n_factors, {}, "gamma", TAU, 1.0, False, alone
    )
    if algorithm == "Gibbs":
        # Every sweep after SGD counts, as fresh draws of both sides.
        gibbs = Gibbs(epochs=epochs, burn_in=0, overrelax=0.0, n_stripes=48, sgd_epochs=SGD_EPOCHS)
        return replace(
            base, workers=GIBBS_CORES, prior="wishart", shared_memory=True,
            sampler=settings_dict(gibbs),
        )  # fmt: skip
    if settings == "default":
        own_rule = _default(algorithm, workers, epochs)
        return replace(base, tau=None, standardize=True, sampler=settings_dict(own_rule))
    rule = _printed(algorithm, workers, model, share, shape, epochs, burn_in)
    own = 1.0 if isinstance(rule, SGD) else beta_0
    return replace(base, beta_0=own, sampler=settings_dict(rule))


def _default(algorithm: str, workers: int, epochs: float) -> SGD | SGLD:
    grid, chains = grid_and_chains(algorithm, workers)
    if algorithm in OPTIMISERS:
        return SGD(grid=grid, epochs=epochs)
    rule = SGLD(grid=grid, n_chains=chains, epochs=epochs)
    return replace(rule, group_size=1) if algorithm == SINGLE else rule


def _printed(
    algorithm: str,
    workers: int,
    model: str,
    share: float,
    shape: DataShape,
    epochs: float,
    burn_in: float | str | None,
) -> SGD | SGLD:
    """Appendix A. Mini-batches are the same share of the ratings, so that h is what it was.

    The printed v sums to one over all blocks, which multiplies the drift by the blocks that are
    updated together: here the step is multiplied (docs/deviations.md).
    """
    grid, chains = grid_and_chains(algorithm, workers)
    alone = algorithm in ("DSGLD-C", SINGLE)  # each block is a group
    step, kappa = STEPS[model]["DSGLD-C" if alone else algorithm]
    common: dict[str, Any] = {
        "grid": grid, "epochs": epochs,
        "batch_size": max(1, round(BATCH[model] * share)), "round_length": ROUND,
        "step_size": step * (1 if alone else min(grid)), "kappa": kappa, "decay": DECAY,
        "minibatch": "replacement",
    }  # fmt: skip
    if algorithm in OPTIMISERS:
        return SGD(**common, regularization=INITIAL_PRECISION)
    common |= {"group_size": 1} if algorithm == SINGLE else {}
    rule = SGLD(
        **common,
        n_chains=chains,
        noise="paper",
        burn_in=epochs / 5 if burn_in is None else burn_in,
        precision_every=PRECISION_ROUNDS,
        precisions_from="burn-in",
        initial_precision=INITIAL_PRECISION,
    )
    return replace(rule, thin=THIN_ROUNDS / rule.resolve(shape).rounds_per_epoch(shape))
