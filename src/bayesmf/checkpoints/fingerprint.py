"""The fingerprint of a run: all that its bits depend on, so that no other resumes from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import __version__
from bayesmf.chains.pairs import Validation
from bayesmf.chains.state import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.samplers.registry import settings_dict

CHUNK = 1 << 24  # elements hashed at a time
NO_MATTER = ("n_stripes",)  # settings that no bit depends on


def identity(
    data: TrainingData, settings: RunSettings, validation: Validation | None
) -> dict[str, Any]:
    """The fingerprint of a run, in plain JSON. Engine, threads and the time allowed are no part.
    Nor are stripes, which follow from the number of workers: no bit of a draw depends on them.

    Causes come before what follows from them: the first difference is the one that is told.
    """
    lists = data.by_user
    ratings = {
        "number": len(data),
        "users": data.n_users,
        "items": data.n_items,
        "digest": _digest(lists.starts, lists.other, lists.value, data.levels),
    }
    known = None
    if validation is not None:
        pairs, bounds = validation.pairs, np.array([validation.low, validation.high])
        known = {
            "number": len(validation.value),
            "digest": _digest(pairs.user, pairs.item, validation.value, bounds),
        }
    sampler = {k: x for k, x in settings_dict(settings.sampler).items() if k not in NO_MATTER}
    prior = {"name": type(settings.prior).__name__, **vars(settings.prior)}
    found = {
        "version": __version__,
        "ratings": ratings,
        "validation": known,
        "seed": settings.seed,
        "n_factors": settings.n_factors,
        "target": settings.target,
        "sampler": sampler,
        "prior": prior,
        "tau": settings.tau,
        "noise_by": settings.noise_by,
        "keep": settings.keep,
        "max_draws": settings.max_draws,
        "scale": settings.scale,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first thing in which two runs differ, with both values; None if nothing does."""
    # Runs of earlier versions kept both sides, and had one number for the noise.
    one, other = _flat({"keep": "both", "noise_by": None, **there}), _flat(here)
    for name in NO_MATTER:  # earlier versions noted them
        one.pop(f"sampler {name}", None)
    for name in dict.fromkeys((*other, *one)):
        a, b = one.get(name), other.get(name)
        if a != b:
            return f"{name} {_told(a)} there, {_told(b)} here"
    return None


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{before}{name} ")
        else:
            out[before + name] = value
    return out


def _told(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:  # a digest
        return value[:12]
    return "none" if value is None else str(value)


def _digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of types, shapes and bytes; arrays on disk need not fit in memory."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        for lo in range(0, len(array), CHUNK):
            found.update(np.ascontiguousarray(array[lo : lo + CHUNK]).data)
    return found.hexdigest()
