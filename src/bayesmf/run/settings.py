"""Settings of a run: checks, and defaults that depend on the data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.checks import finite, one_of, positive, whole
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Engine
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import InputError
from bayesmf.model.draws import SIDES
from bayesmf.model.noise import NOISE_BY
from bayesmf.model.priors import GammaPrior, Prior, WishartPrior
from bayesmf.process import memory_bytes
from bayesmf.run.stopping import target_named
from bayesmf.samplers.base import DataShape, Sampler
from bayesmf.samplers.gibbs import Auto
from bayesmf.samplers.registry import as_sampler

# Hyper-parameters of each kind of prior.
GAMMA, WISHART = ("alpha_0", "beta_0"), ("mu_0", "kappa_0", "nu_0", "W_0")
LARGEST_DRAW = 8 << 30  # bytes
DEFAULT_TARGET = "balanced"


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit as `BayesianMF` has them, not checked yet.

    `resolve` replaces `None` and "auto" by values that depend on the data.
    """

    n_factors: int | None = None
    sampler: str | Sampler | Auto = "auto"
    target: str = DEFAULT_TARGET
    max_seconds: float | None = None
    prior: str = "auto"
    tau: Literal["sample"] | float = "sample"
    noise_by: str | None = "auto"
    alpha_0: float = 1.0
    beta_0: float = 1.0
    mu_0: float = 0.0
    kappa_0: float = 2.0
    nu_0: float | None = None
    W_0: float = 1.0
    keep: str = "auto"
    max_draws: int | None = None
    random_state: int | None = None
    engine: str | Engine | Cluster = "threads"
    n_workers: int | None = None
    errors_every: float | None = None

    @classmethod
    def of(cls, model: Any) -> FitSettings:
        """The settings that a model has attributes for."""
        names = (field.name for field in fields(cls) if hasattr(model, field.name))
        return cls(**{name: getattr(model, name) for name in names})

    def resolve(self, data: TrainingData, scale: float = 1.0) -> RunSettings:
        """Check the settings and fill in defaults; `scale` is that of the ratings.

        Raises InputError for a setting that does not fit the others, or these data.
        """
        shape, tau, seed = data_shape(data), self.tau, self.random_state
        d = default_factors(shape) if self.n_factors is None else whole("n_factors", self.n_factors)
        if not (isinstance(tau, str) and tau == "sample"):
            tau = positive("tau", tau, "'sample' or a positive number")
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        target, limit = target_named(self.target), self.max_seconds
        sampler = as_sampler(self.sampler).choose(shape, d, target.n_chains).resolve(shape)
        prior = make_prior(self, d, sampler)
        check_target(self.target, sampler)
        per_draw = 4 * (d + prior.bias) * (shape.n_users + shape.n_items)
        check_memory(d, per_draw, isinstance(prior, WishartPrior))
        sizes = shape.n_users, shape.n_items
        keep = one_of("keep", self.keep, ("auto", *SIDES))
        if keep == "auto":
            keep = default_side(*sizes, d + prior.bias, sampler)
        noise_by, max_draws = resolve_noise(self.noise_by, tau, sampler), self.max_draws
        if max_draws is None:
            rows = sum(sizes) if keep == "both" else sizes[keep == "items"]
            noisy = sum(
                n for n, by in zip(sizes, NOISE_BY[:2], strict=True) if noise_by in (by, "both")
            )
            max_draws = default_draws(4 * (d + prior.bias) * rows, 4 * noisy, sampler)
        return RunSettings(
            sampler=sampler,
            prior=prior,
            n_factors=d,
            tau=None if isinstance(tau, str) else tau * scale**2,
            noise_by=noise_by,
            seed=whole("random_state", seed, 0),
            max_draws=whole("max_draws", max_draws),
            keep=keep,
            scale=scale,
            target=self.target,
            max_seconds=None if limit is None else positive("max_seconds", limit),
            errors_every=self.errors_every,
        )


def resolve_noise(noise_by: object, tau: str | float, sampler: Sampler) -> str | None:
    """Sides with separate noise precisions; with "auto" both, if the sampler draws tau."""
    drawn = isinstance(tau, str)
    if noise_by is None:
        return None
    found = one_of("noise_by", noise_by, ("auto", *NOISE_BY), ", None")
    if found == "auto":
        return "both" if drawn and sampler.row_noise else None
    if not drawn:
        raise InputError(
            f"noise_by={found!r} draws the precisions of ratings, which tau fixes: leave one out"
        )
    if not sampler.row_noise:
        printed = ' with noise="paper"' if getattr(sampler, "noise", "") == "paper" else ""
        raise InputError(
            f"noise_by={found!r} needs a sampler that draws precisions of ratings, which "
            f"{type(sampler).__name__}{printed} does not: use another, or noise_by=None"
        )
    return found


def check_target(target: str, sampler: Sampler) -> None:
    """Raise InputError for a target that a run of known length would ignore."""
    if target != DEFAULT_TARGET and not sampler.adaptive:
        raise InputError(
            f"target={target!r} does nothing here: epochs set the length of "
            f"{type(sampler).__name__}; leave target out, or use sampler='auto' without epochs"
        )


def check_memory(n_factors: int, per_draw: int, full: bool) -> None:
    """Raise InputError for more factors than fit in memory.

    A chain needs its rows about four times (state, means, tasks, results), and with a full
    covariance some six matrices of factors x factors in double precision.
    """
    need = 4 * per_draw + (6 * 8 * n_factors**2 if full else 0)
    have = memory_bytes()
    if per_draw > LARGEST_DRAW or (have is not None and need > have):
        machine = "" if have is None else f", of which this machine has {have / 2**30:.3g}"
        raise InputError(
            f"n_factors (--factors) of {n_factors} needs about {need / 2**30:,.0f} GB of memory"
            f"{machine}: use fewer"
        )


def make_prior(wanted: FitSettings, n_factors: int, sampler: Sampler) -> Prior:
    """The prior. "auto" is the full covariance where it costs nothing: with Gibbs."""
    given = {
        name: (finite if name == "mu_0" else positive)(name, getattr(wanted, name))
        for name in GAMMA + WISHART
        if name != "nu_0" or wanted.nu_0 is not None
    }
    kind = one_of("prior", wanted.prior, ("auto", "gamma", "wishart", "wishart-bias"))
    kind = sampler.default_prior if kind == "auto" else kind
    own, others, use = (WISHART, GAMMA, "gamma") if kind != "gamma" else (GAMMA, WISHART, "wishart")
    for name in others:
        if given.get(name) != getattr(FitSettings, name):
            raise InputError(
                f'{name} does nothing with prior="{kind}": add prior="{use}" '
                f"(--prior {use}), or leave it out"
            )
    chosen = {name: given[name] for name in own if name in given}
    if kind == "gamma":
        return GammaPrior(**chosen)
    least = n_factors - (kind == "wishart")
    if given.get("nu_0", np.inf) <= least:
        raise InputError(
            f"nu_0 (--nu0) must be above {least}, the number of columns less one, not {wanted.nu_0}"
        )
    return WishartPrior(bias=kind == "wishart-bias", **chosen)


# Draws kept by default: as many as take DRAW_BYTES, between FEWEST_DRAWS and MAX_DRAWS.
MAX_DRAWS, DRAW_BYTES = 400, 450 << 20
FEWEST_DRAWS = 8
# Items are kept where users are more, or where there is room for ENOUGH_DRAWS draws of items: then
# new users need only their ratings.
ENOUGH_DRAWS = 100


def default_factors(shape: DataShape) -> int:
    """A third of the mean number of ratings per row, between 8 and 32."""
    return int(np.clip(round(shape.n_ratings / (shape.n_users + shape.n_items) / 3), 8, 32))


def default_draws(rows: int, noise: int, sampler: Sampler) -> int:
    """Draws kept by default, given the bytes of rows and of noise in each."""
    per_draw = rows * (2 if sampler.stores_means else 1) + noise
    return int(np.clip(DRAW_BYTES // per_draw, FEWEST_DRAWS, MAX_DRAWS))


def default_side(n_users: int, n_items: int, width: int, sampler: Sampler) -> str:
    """The side whose draws are kept: items, unless users are far fewer; both for a point."""
    if not sampler.keeps_draws:
        return "both"
    per_draw = 4 * width * n_items * (2 if sampler.stores_means else 1)
    return "items" if n_items <= n_users or ENOUGH_DRAWS * per_draw <= DRAW_BYTES else "users"
