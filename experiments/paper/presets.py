"""The algorithms of the paper, and their settings: as printed, or found on a validation split.

| | |
|---|---|
| `paper` | Section 4.2 and Appendix A, mini-batches in proportion to the ratings |
| `tuned` | ratings of variance one, tau drawn, matched noise; steps found by `search` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from bayesmf.errors import InputError
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.registry import settings_dict
from bayesmf.samplers.sgld import SGD, SGLD

ALGORITHMS = (
    "SGD", "DSGD", "SGLD", "DSGLD-S", "DSGLD-C", "Gibbs", "coordinate Gibbs", "bayesmf",
)  # fmt: skip
MCMC = ("SGLD", "DSGLD-S", "DSGLD-C")
GIBBS_CORES = 12  # of the one machine that Gibbs had
EPOCHS = 120.0

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
TAU, BETA_0_SGLD, INITIAL_PRECISION, DECAY = 2.0, 300.0, 2.0, 0.51


# By algorithm and number of factors.
Tuned = Mapping[str, Mapping[str, Mapping[str, float]]]


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
    if algorithm == "DSGLD-S":
        root = isqrt(workers)
        if root**2 != workers:
            raise InputError(
                f"DSGLD-S splits into squares: {workers} is not a square such as 4, 9 or 16"
            )
        return (root, root), root
    return (1, 1), 1


def make_plan(
    algorithm: str,
    workers: int,
    n_factors: int,
    settings: str,
    *,
    model: str,
    n_ratings: int,
    share: float,
    epochs: float = EPOCHS,
    burn_in: float | str | None = None,
    tuned: Tuned | None = None,
) -> TrialPlan:
    """The plan of an algorithm under the settings of a name."""
    if algorithm == "bayesmf":
        return TrialPlan(algorithm, GIBBS_CORES, n_factors, None, "auto", None, 1.0, True, True)
    as_printed = settings == "paper"
    base = TrialPlan(
        algorithm, workers, n_factors, {}, "gamma", TAU if as_printed else None, 1.0,
        not as_printed, False,
    )  # fmt: skip
    if algorithm in ("Gibbs", "coordinate Gibbs"):
        joint = 1 if algorithm == "coordinate Gibbs" else None
        rule: Any = Gibbs(epochs=epochs, overrelax=0.0, n_stripes=48, joint=joint)
        return replace(
            base, workers=GIBBS_CORES, prior="gamma" if joint else "wishart", shared_memory=True,
            sampler=settings_dict(rule),
        )  # fmt: skip
    grid, chains = grid_and_chains(algorithm, workers)
    if algorithm in ("SGD", "SGLD"):
        base = replace(base, workers=1, shared_memory=True)
    if as_printed:
        rule = _printed(algorithm, grid, chains, model, share, n_ratings, epochs, burn_in)
        beta_0 = 1.0 if isinstance(rule, SGD) else BETA_0_SGLD
        return replace(base, beta_0=beta_0, sampler=settings_dict(rule))
    found: dict[str, Any] = dict(_for_dimension((tuned or {}).get(algorithm, {}), n_factors))
    if parts := found.pop("mini_batches", None):
        found["batch_size"] = max(1, round(n_ratings / parts))
    if algorithm in ("SGD", "DSGD"):
        rule = SGD(grid=grid, **{"epochs": epochs, **found})
    else:
        rule = SGLD(grid=grid, n_chains=chains, **{"epochs": epochs, **found})
    return replace(base, sampler=settings_dict(rule))


def _for_dimension(found: Mapping[str, Mapping[str, float]], n_factors: int) -> Mapping[str, float]:
    """The settings found for this number of factors, or for the fewest."""
    return found.get(str(n_factors)) or next(iter(found.values()), {})


def _printed(
    algorithm: str,
    grid: tuple[int, int],
    chains: int,
    model: str,
    share: float,
    n_ratings: int,
    epochs: float,
    burn_in: float | str | None,
) -> SGD | SGLD:
    """Appendix A. Mini-batches are the same share of the ratings, so that h is what it was."""
    step, kappa = STEPS[model][algorithm]
    batch = max(1, round(BATCH[model] * share))
    common: dict[str, Any] = {
        "grid": grid, "epochs": epochs, "batch_size": batch, "round_length": ROUND,
        "step_size": step, "kappa": kappa, "decay": DECAY, "minibatch": "replacement",
    }  # fmt: skip
    if algorithm in ("SGD", "DSGD"):
        return SGD(**common, regularization=INITIAL_PRECISION)
    blocks = grid[0] * grid[1]
    # Ratings that a chain reads in a round, over all there are.
    per_round = min(grid) * ROUND * min(batch, n_ratings / blocks) / n_ratings
    return SGLD(
        **common,
        n_chains=chains,
        noise="paper",
        burn_in=epochs / 5 if burn_in is None else burn_in,
        thin=THIN_ROUNDS * per_round,
        precision_every=PRECISION_ROUNDS,
        precisions_from="burn-in",
        initial_precision=INITIAL_PRECISION,
    )
