"""Samplers by name; a new sampler is one line of this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.checks import one_of
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Auto, Gibbs
from bayesmf.samplers.momentum import SGHMC, SGNHT
from bayesmf.samplers.schedules import BurnIn
from bayesmf.samplers.sgld import SGD, SGLD

# Everything else follows from the class: its settings are options of `bayesmf fit`, its
# `kind_of_rounds` selects the rounds, model files and checkpoints refer to it by class name.
REGISTRY: dict[str, type[Sampler] | type[Auto]] = {
    "auto": Auto,
    "gibbs": Gibbs,
    "sghmc": SGHMC,
    "sgnht": SGNHT,
    "sgld": SGLD,
    "sgd": SGD,
}


def as_sampler(sampler: Any) -> Sampler | Auto:
    """A sampler by its name, with its defaults, or as it is; InputError for anything else."""
    if isinstance(sampler, Sampler | Auto):
        return sampler
    also = " or a sampler object, such as SGLD()"
    return REGISTRY[one_of("sampler", sampler, REGISTRY, also)]()


def settings_dict(sampler: Sampler) -> dict[str, Any]:
    """Settings as plain JSON, with the rule's name; `sampler_from` reads them."""
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


def sampler_from(settings: Mapping[str, Any]) -> Any:
    """The sampler of settings from `settings_dict`."""
    rules = {rule.__name__: rule for rule in REGISTRY.values()}
    given = {name: value for name, value in settings.items() if name != "rule"}
    return rules[settings["rule"]](**given)
