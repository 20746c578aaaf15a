"""Datasets of Ray, known without importing it."""

from __future__ import annotations

import sys
from typing import Any


def is_dataset(data: Any) -> bool:
    """Whether it is a `ray.data.Dataset`: whoever has one has imported that."""
    ray_data = sys.modules.get("ray.data")
    return ray_data is not None and isinstance(data, ray_data.Dataset)
