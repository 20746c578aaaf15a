"""Datasets of Ray, known without importing it."""

from __future__ import annotations

import sys
from typing import Any

from bayesmf.errors import InputError


def is_dataset(data: Any) -> bool:
    """Whether it is a `ray.data.Dataset`: whoever has one has imported that."""
    ray_data = sys.modules.get("ray.data")
    return ray_data is not None and isinstance(data, ray_data.Dataset)


def refuse_dataset(data: Any) -> None:
    """Say what to do with a `ray.data.Dataset`, which may be larger than any memory."""
    if is_dataset(data):
        raise InputError(
            'a Ray Dataset is packed first: bayesmf.pack(dataset, folder, engine="ray"), with a '
            "folder on storage that all nodes see; then fit that folder"
        )
