"""From what a user wrote to what a run needs: checks, and defaults that follow the data."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.chains.block_rounds import data_shape
from bayesmf.chains.chain import Settings
from bayesmf.chains.monitor import Pairs, Validation
from bayesmf.checks import one_of, positive, whole
from bayesmf.data.training import TrainingData
from bayesmf.engines.local import Rehearsal
from bayesmf.errors import InputError
from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.kernels.whole_rows import DUAL_SHARE
from bayesmf.model.priors import GammaPrior, Prior, WishartPrior
from bayesmf.samplers.auto import Auto
from bayesmf.samplers.base import BatchRule, DataShape, GradientRule, Sampler
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.registry import as_sampler
from bayesmf.server.run import run
from bayesmf.server.stopping import target_named

MAX_DRAWS, DRAW_BYTES = 400, 1 << 30
FEWEST_DRAWS = 8
LARGEST_DRAW = 8 << 30
DEFAULT_TARGET = "balanced"
# Ratings of the busiest user that kernels are compiled with.
MOST_IN_REHEARSAL = 200


def make_settings(params: Mapping[str, Any], data: TrainingData, scale: float) -> Settings:
    """Settings of a run from the estimator's parameters; one sentence for what cannot be meant."""
    shape = data_shape(data)
    d = params["n_factors"]
    d = default_factors(shape) if d is None else whole("n_factors", d)
    tau, seed, max_draws = params["tau"], params["random_state"], params["max_draws"]
    if not (isinstance(tau, str) and tau == "sample"):
        tau = positive("tau", tau, "'sample' or a positive number")
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    target = target_named(params["target"])
    limit = params["max_seconds"]
    if limit is not None:
        limit = positive("max_seconds", limit)
    sampler = make_sampler(params["sampler"], shape, d, target.n_chains).resolve(shape)
    prior = make_prior(params["prior"], params["alpha_0"], params["beta_0"], sampler)
    check_target(params["target"], sampler)
    per_draw = 4 * (d + prior.bias) * (shape.n_users + shape.n_items)
    check_memory(d, per_draw, isinstance(prior, WishartPrior))
    if max_draws is None:
        if isinstance(sampler, Gibbs):  # which keeps conditional means as well
            per_draw *= 2
        max_draws = int(np.clip(DRAW_BYTES // per_draw, FEWEST_DRAWS, MAX_DRAWS))
    return Settings(
        sampler=sampler,
        prior=prior,
        n_factors=d,
        tau=None if tau == "sample" else tau * scale**2,
        seed=whole("random_state", seed, 0),
        max_draws=whole("max_draws", max_draws),
        scale=scale,
        target=params["target"],
        max_seconds=limit,
    )


def check_target(target: str, sampler: Sampler) -> None:
    """Refuse a target that a run of known length would pass over."""
    if target != DEFAULT_TARGET and not sampler.adaptive:
        length = "epochs says" if isinstance(sampler, Gibbs) else "its settings say"
        raise InputError(
            f"target={target!r} does nothing here: how long {type(sampler).__name__} samples "
            f"{length}; leave target out, or use sampler='auto' without epochs"
        )


def check_memory(n_factors: int, per_draw: int, full: bool) -> None:
    """Refuse more factors than memory can hold.

    A chain has its rows about four times (state, means, what is sent, what comes back), and with a
    full covariance some six matrices of factors x factors in double precision.
    """
    need = 4 * per_draw + (6 * 8 * n_factors**2 if full else 0)
    have = memory_bytes()
    if per_draw > LARGEST_DRAW or (have is not None and need > have):
        machine = "" if have is None else f", of which this machine has {have / 2**30:.3g}"
        raise InputError(
            f"n_factors (--factors) of {n_factors} needs about {need / 2**30:,.0f} GB of memory"
            f"{machine}: use fewer"
        )


def least_bytes(n_factors: int | None, draws: int, n_users: int, n_items: int, n: int) -> int:
    """What a saved model takes on the disk at least: some draws, and which items were rated."""
    shape = DataShape(n, n_users, n_items, busy=0)
    width = default_factors(shape) if n_factors is None else n_factors
    return 4 * (n + draws * width * (n_users + n_items))


def memory_bytes() -> int | None:
    """Memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def default_factors(shape: DataShape) -> int:
    """A third of the mean number of ratings per row, between 4 and 32."""
    return int(np.clip(round(shape.n_ratings / (shape.n_users + shape.n_items) / 3), 4, 32))


def make_sampler(
    sampler: str | Sampler | Auto, shape: DataShape, d: int, n_chains: int = 1
) -> Sampler:
    """A sampler by its name, or as it is; `n_chains` where "auto" may choose."""
    return as_sampler(sampler).choose(shape, d, n_chains)


def make_prior(name: str, alpha_0: float, beta_0: float, sampler: Sampler | None = None) -> Prior:
    """A prior by its name. "auto" is the full covariance where it costs nothing: with Gibbs."""
    gamma = GammaPrior(positive("alpha_0", alpha_0), positive("beta_0", beta_0))
    one_of("prior", name, ("auto", "gamma", "wishart", "wishart-bias"))
    if name == "auto":
        name = "wishart-bias" if isinstance(sampler, Gibbs) else "gamma"
    return gamma if name == "gamma" else WishartPrior(bias=name == "wishart-bias")


def _few_ratings(settings: Settings, coded: bool) -> TrainingData:
    """A rating of each of a few users and items, and one user with many.

    Rows with few ratings and rows with many are drawn by different code, and so are ratings that
    are codes of few values and others.
    """
    n = 2 if coded else 2 * MOST_LEVELS
    few = int(DUAL_SHARE * (settings.n_factors + 1))
    if isinstance(settings.prior, GammaPrior) and few <= MOST_IN_REHEARSAL:
        n = max(n, few + 2)
    same, others = np.arange(n, dtype=np.int32), np.arange(1, n, dtype=np.int32)
    user, item = np.concatenate([same, 0 * others]), np.concatenate([same, others])
    value = np.linspace(-1.0, 1.0, len(user))
    value = np.sign(value + 1e-3) if coded else value
    return TrainingData.of(user, item, value.astype(np.float32), n, n)


def compile_kernels(settings: Settings, data: TrainingData) -> tuple[float, Rehearsal]:
    """Compile (or load from numba's cache) what a fit will need.

    Returns the seconds it took, and the tasks that workers elsewhere can do for the same end.
    """
    begin = time.monotonic()
    data = _few_ratings(settings, coded=data.by_user.value.dtype == np.uint8)
    pair, value = np.arange(2, dtype=np.int32), np.array([-1.0, 1.0], np.float32)
    sampler: Any = settings.sampler
    sampler = replace(sampler, epochs=1)
    if isinstance(sampler, BatchRule):
        # Rows of one block of several are copies, and read by other code than all of them.
        grid = Grid.of(sampler.grid)
        sampler = replace(
            sampler,
            grid=(min(grid.rows, 2), min(grid.cols, 2)),
            batch_size=len(data),
            round_length=1,
            visits="equal",
        )
    if isinstance(sampler, GradientRule):
        sampler = replace(sampler, step_size=1e-6, pace=1.0)
    if sampler.keeps_draws:
        sampler = replace(sampler, burn_in=0)
    tiny = replace(
        settings, sampler=sampler.resolve(data_shape(data)), max_draws=1, max_seconds=None
    )
    pairs = Pairs(pair, pair, np.arange(len(pair)) % 2 == 0)
    rehearsal = Rehearsal()
    run(data, tiny, rehearsal, Validation(pairs, value))
    return time.monotonic() - begin, rehearsal
