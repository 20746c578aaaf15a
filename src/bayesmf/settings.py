"""From what a user wrote to what a run needs: checks, and defaults that follow the data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.batches import TrainingData
from bayesmf.chain import Settings, Validation
from bayesmf.checks import positive, whole
from bayesmf.engines.local import Serial
from bayesmf.errors import InputError
from bayesmf.priors import GammaPrior, Prior, WishartPrior
from bayesmf.rounds import data_shape
from bayesmf.rules import DataShape
from bayesmf.samplers import SGD, SGLD, Auto, Gibbs, Sampler
from bayesmf.server import run

MAX_DRAWS, DRAW_BYTES = 200, 1 << 30
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
    prior = make_prior(params["prior"], params["alpha_0"], params["beta_0"])
    per_draw = 4 * (d + prior.bias) * (shape.n_users + shape.n_items)
    if per_draw > LARGEST_DRAW:
        raise InputError(
            f"n_factors of {d} makes one draw {per_draw / 2**30:,.0f} GB for {shape.n_users} users "
            f"and {shape.n_items} items: use fewer"
        )
    if max_draws is None:
        max_draws = int(np.clip(DRAW_BYTES // per_draw, 8, MAX_DRAWS))
    return Settings(
        sampler=make_sampler(params["sampler"], shape, d).resolve(shape),
        prior=prior,
        n_factors=d,
        tau=None if tau == "sample" else tau * scale**2,
        seed=whole("random_state", seed, 0),
        max_draws=whole("max_draws", max_draws),
        scale=scale,
    )


def default_factors(shape: DataShape) -> int:
    """A third of the mean number of ratings per row, between 4 and 32."""
    return int(np.clip(round(shape.n_ratings / (shape.n_users + shape.n_items) / 3), 4, 32))


def make_sampler(sampler: str | Sampler | Auto, shape: DataShape, d: int) -> Sampler:
    """A sampler by its name, or as it is."""
    named = {"auto": Auto(), "sgd": SGD(), "sgld": SGLD(), "gibbs": Gibbs()}
    rule = named.get(sampler) if isinstance(sampler, str) else sampler
    if isinstance(rule, Auto):
        return rule.choose(shape, d)
    if not isinstance(rule, SGD | SGLD | Gibbs):
        raise InputError(
            f"sampler {sampler!r} is none of 'auto', 'sgd', 'sgld', 'gibbs' or a sampler object"
        )
    return rule


def make_prior(name: str, alpha_0: float, beta_0: float) -> Prior:
    """A prior by its name."""
    if name == "gamma":
        return GammaPrior(positive("alpha_0", alpha_0), positive("beta_0", beta_0))
    if name == "wishart":
        return WishartPrior()
    raise InputError(f"prior {name!r} is none of 'gamma', 'wishart'")


def compile_kernels(settings: Settings) -> float:
    """Compile (or load from numba's cache) what a fit will need; returns the seconds it took."""
    begin = time.monotonic()
    pair = np.array([0, 1], np.int32)
    data = TrainingData(pair, pair, np.array([-1.0, 1.0], np.float32), 2, 2)
    sampler = replace(settings.sampler, epochs=1)
    if not isinstance(sampler, Gibbs):
        sampler = replace(
            sampler, grid=(1, 1), batch_size=1, round_length=1, step_size=1e-6, visits="equal"
        )
    if not isinstance(sampler, SGD):
        sampler = replace(sampler, burn_in=0)
    tiny = replace(settings, sampler=sampler.resolve(data_shape(data)), max_draws=1)
    run(data, tiny, Serial(), Validation(pair, pair, data.value))
    return time.monotonic() - begin
