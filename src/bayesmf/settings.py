"""From what a user wrote to what a run needs: checks, and defaults that follow the data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.batches import TrainingData
from bayesmf.chain import Settings
from bayesmf.checks import positive, whole
from bayesmf.clocks import SGHMC, SGNHT, ClockRule, RowClock
from bayesmf.engines.local import Rehearsal
from bayesmf.errors import InputError
from bayesmf.monitor import Pairs, Validation
from bayesmf.priors import GammaPrior, Prior, WishartPrior
from bayesmf.rounds import data_shape
from bayesmf.row_lists import MOST_LEVELS
from bayesmf.rules import BatchRule, DataShape
from bayesmf.samplers import SGD, SGLD, Auto, Gibbs, Sampler
from bayesmf.server import run
from bayesmf.tuning import target_named

MAX_DRAWS, DRAW_BYTES = 400, 1 << 30
LARGEST_DRAW = 8 << 30


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
    per_draw = 4 * (d + prior.bias) * (shape.n_users + shape.n_items)
    if per_draw > LARGEST_DRAW:
        raise InputError(
            f"n_factors of {d} makes one draw {per_draw / 2**30:,.0f} GB for {shape.n_users} users "
            f"and {shape.n_items} items: use fewer"
        )
    if max_draws is None:
        if isinstance(sampler, Gibbs):  # which keeps conditional means as well
            per_draw *= 2
        max_draws = int(np.clip(DRAW_BYTES // per_draw, 8, MAX_DRAWS))
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


def default_factors(shape: DataShape) -> int:
    """A third of the mean number of ratings per row, between 4 and 32."""
    return int(np.clip(round(shape.n_ratings / (shape.n_users + shape.n_items) / 3), 4, 32))


def make_sampler(
    sampler: str | Sampler | Auto, shape: DataShape, d: int, n_chains: int = 1
) -> Sampler:
    """A sampler by its name, or as it is; `n_chains` where "auto" may choose."""
    named: dict[str, Sampler | Auto] = {
        "auto": Auto(), "sgd": SGD(), "sgld": SGLD(), "rowclock": RowClock(), "sghmc": SGHMC(),
        "sgnht": SGNHT(), "gibbs": Gibbs(),
    }  # fmt: skip
    rule = named.get(sampler) if isinstance(sampler, str) else sampler
    if isinstance(rule, Auto):
        rule = rule.choose(shape, d, n_chains)
    if isinstance(rule, ClockRule):
        return rule.of_width(d)
    if not isinstance(rule, SGD | SGLD | Gibbs):
        names = ", ".join(repr(name) for name in named)
        raise InputError(f"sampler {sampler!r} is none of {names} or a sampler object")
    return rule


def make_prior(name: str, alpha_0: float, beta_0: float, sampler: Sampler | None = None) -> Prior:
    """A prior by its name. "auto" is the full covariance where it costs nothing: with Gibbs."""
    gamma = GammaPrior(positive("alpha_0", alpha_0), positive("beta_0", beta_0))
    if name == "auto":
        name = "wishart-bias" if isinstance(sampler, Gibbs) else "gamma"
    if name == "gamma":
        return gamma
    if name in ("wishart", "wishart-bias"):
        return WishartPrior(bias=name == "wishart-bias")
    raise InputError(f"prior {name!r} is none of 'auto', 'gamma', 'wishart', 'wishart-bias'")


def compile_kernels(settings: Settings, data: TrainingData) -> tuple[float, Rehearsal]:
    """Compile (or load from numba's cache) what a fit will need.

    Returns the seconds it took, and the tasks that workers elsewhere can do for the same end.
    """
    begin = time.monotonic()
    pair = np.array([0, 1], np.int32)
    value = np.array([-1.0, 1.0], np.float32)
    if data.by_user.value.dtype != np.uint8:  # ratings that are no codes are read by other code
        value = np.linspace(-1.0, 1.0, 2 * MOST_LEVELS).astype(np.float32)
        pair = np.arange(2 * MOST_LEVELS, dtype=np.int32)
    data = TrainingData.of(pair, pair, value, len(pair), len(pair))
    sampler = replace(settings.sampler, epochs=1)
    if isinstance(sampler, BatchRule):
        sampler = replace(
            sampler, grid=(1, 1), batch_size=len(pair), round_length=1, visits="equal"
        )
    if isinstance(sampler, SGD | SGLD):
        sampler = replace(sampler, step_size=1e-6)
    if not isinstance(sampler, SGD):
        sampler = replace(sampler, burn_in=0)
    tiny = replace(
        settings, sampler=sampler.resolve(data_shape(data)), max_draws=1, max_seconds=None
    )
    pairs = Pairs(pair, pair, np.arange(len(pair)) % 2 == 0)
    rehearsal = Rehearsal()
    run(data, tiny, rehearsal, Validation(pairs, value))
    return time.monotonic() - begin, rehearsal
