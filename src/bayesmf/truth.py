"""What was planted in synthetic ratings, and its file: arrays in an .npz, never pickle."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmf.errors import InputError
from bayesmf.replacing import replacing


class Truth(NamedTuple):
    """What was planted: rating = mean + a[user] + b[item] + U[user] . V[item] + noise.

    `noise_floor` is the error (RMSE) that no model can beat; None where ratings are stars,
    because rounding and clipping change it (`bayesmf.oracle` tells what it then is). The
    numbers after it are those the planted ones were drawn with: entries of U and V are normal
    with deviation `factor`, biases with `bias_user` and `bias_item`.
    """

    U: np.ndarray
    V: np.ndarray
    a: np.ndarray
    b: np.ndarray
    noise_floor: float | None
    mean: float
    noise: float
    factor: float
    bias_user: float
    bias_item: float
    stars: bool
    seed: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz file, which appears under its name only when it is complete."""
        path = Path(path)
        if path.suffix.lower() != ".npz":
            raise InputError(f"{path}: the planted truth is written to an .npz file.")
        told = {name: value for name, value in self._asdict().items() if name != "noise_floor"}
        with replacing(path) as file:
            np.savez(file, **told)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Truth:
        """Read what `save` wrote."""
        try:
            # Opened here, as NumPy leaves a file open that it cannot read.
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                found = {name: file[name] for name in cls._fields if name != "noise_floor"}
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
        except (KeyError, ValueError, EOFError, TypeError, zipfile.BadZipFile):
            raise InputError(f"{path} is not a file of planted truth.") from None
        arrays = {name: found.pop(name) for name in ("U", "V", "a", "b")}
        _check(path, arrays, found)
        scalars = {name: value.item() for name, value in found.items()}
        floor = None if scalars["stars"] else scalars["noise"]
        return cls(**arrays, noise_floor=floor, **scalars)


def _check(
    path: str | os.PathLike[str], arrays: dict[str, np.ndarray], scalars: dict[str, np.ndarray]
) -> None:
    U, V, a, b = arrays.values()
    numbers = all(x.dtype == np.float32 and np.isfinite(x).all() for x in arrays.values())
    fits = U.ndim == V.ndim == 2 and U.shape[1] == V.shape[1]
    fits = fits and a.shape == U.shape[:1] and b.shape == V.shape[:1]
    kinds = {"stars": "b", "seed": "iu"}
    fits = fits and all(
        x.ndim == 0 and x.dtype.kind in kinds.get(name, "iuf") for name, x in scalars.items()
    )
    if not (fits and numbers):
        raise InputError(f"{path} holds a planted truth that does not fit together.")
