"""Levels, range and moments of ratings that are met part by part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import MOST_LEVELS


def about_values(value: NDArray[Any], levels: NDArray[np.float32] | None) -> dict[str, Any]:
    """Tell levels, range and moments of ratings or of their codes."""
    if levels is None:
        ratings, weight = value.astype(np.float64), np.ones(1)
    else:
        ratings = levels.astype(np.float64)
        weight = np.bincount(value, minlength=len(levels)).astype(np.float64)
    mean = float(np.sum(ratings * weight)) / len(value)
    return {
        "levels": None if levels is None else levels.tolist(),
        "low": float(ratings.min()),
        "high": float(ratings.max()),
        "mean": mean,
        "squared_deviations": float(np.sum((ratings - mean) ** 2 * weight)),
    }


def joint_moments(notes: list[dict[str, Any]]) -> dict[str, float]:
    """Mean and squared deviations of all parts: about the mean, which may be far above them."""
    n = sum(note["ratings"] for note in notes)
    mean = math.fsum(note["ratings"] * note["mean"] for note in notes) / n
    squares = (
        note["squared_deviations"] + note["ratings"] * (note["mean"] - mean) ** 2 for note in notes
    )
    return {"mean": mean, "squared_deviations": math.fsum(squares)}


def all_levels(parts: list[list[float] | None]) -> list[float] | None:
    """Give the levels of all parts together, None where they are too many."""
    found: set[float] = set()
    for part in parts:
        if part is None:
            return None
        found.update(part)
    return sorted(found) if len(found) <= MOST_LEVELS else None
