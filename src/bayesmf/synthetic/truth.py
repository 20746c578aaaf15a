"""What was planted in synthetic ratings, and its file: arrays in an .npz, never pickle."""

from __future__ import annotations

import math
import os
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bayesmf.errors import InputError
from bayesmf.reading.files import open_regular, reading
from bayesmf.storage.atomic import replacing
from bayesmf.storage.npy import NoArray, read_header

ARRAYS = ("U", "V", "a", "b")


class Truth(NamedTuple):
    """What was planted: rating = mean + a[user] + b[item] + U[user] @ V[item] + noise.

    Attributes
    ----------
    U, V : numpy.ndarray
        Factors of users and items, a row each.
    a, b : numpy.ndarray
        Biases of users and items.
    noise_floor : float or None
        The error (RMSE) that no model can beat; None where ratings are stars, because rounding and
        clipping change it (`experiments.oracle` tells what it then is).
    mean : float
        Centre of the ratings.
    noise : float
        Standard deviation of the noise.
    factor : float
        Standard deviation with which entries of U and V were drawn.
    bias_user, bias_item : float
        Standard deviations with which the biases were drawn.
    stars : bool
        Whether ratings were rounded to whole stars and clipped to 1..5.
    seed : int
        The `random_state` of the plan.

    Examples
    --------
    >>> from bayesmf import Synthetic
    >>> truth = Synthetic(60, 40, 900).truth()
    >>> user, item = 0, 7
    >>> expected = truth.mean + truth.a[user] + truth.b[item] + truth.U[user] @ truth.V[item]
    >>> bool(0 < expected < 7)
    True
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
        """Write an .npz file, which appears under its name only when it is complete.

        Parameters
        ----------
        path : str or path-like
            The file; its name ends in ``.npz``.

        Raises
        ------
        InputError
            If it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "truth.npz"
        ...     Synthetic(60, 40, 900).truth().save(path)
        ...     path.exists()
        True
        """
        path = Path(path)
        if path.suffix.lower() != ".npz":
            raise InputError(f"{path}: the planted truth is written to an .npz file")
        told: dict[str, Any] = {
            name: np.asarray(getattr(self, name), order="C") for name in _kept()
        }
        if any(value.dtype.hasobject for value in told.values()):
            raise InputError(f"{path}: a truth is made of numbers, of at most 64 bits each")
        with replacing(path) as file:
            np.savez(file, **told)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Truth:
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Truth
            What was planted.

        Raises
        ------
        InputError
            If it is not such a file.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Synthetic, Truth
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "truth.npz"
        ...     Synthetic(60, 40, 900).truth().save(path)
        ...     Truth.load(path).U.shape
        (60, 8)
        """
        try:
            with reading(path, "planted truth"), open_regular(path) as file:
                found = _read(file)
        except InputError:
            raise
        except _NOT_OURS:
            raise InputError(f"{path} is not a file of planted truth") from None
        if not _fits(found):
            raise InputError(f"{path} holds a planted truth that does not fit together")
        known: dict[str, Any] = {
            name: value if name in ARRAYS else value.item() for name, value in found.items()
        }
        return cls(**known, noise_floor=None if known["stars"] else known["noise"])


# What a file that is something else, or was made to look like one of these, leads to.
_NOT_OURS = (
    KeyError, NoArray, NotImplementedError, RuntimeError, ValueError, struct.error,
    zipfile.BadZipFile, zipfile.LargeZipFile,
)  # fmt: skip


def _kept() -> list[str]:
    return [name for name in Truth._fields if name != "noise_floor"]


def _read(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of a file, none of which is larger than the file."""
    with zipfile.ZipFile(file) as packed:
        entries = {entry.filename: entry for entry in packed.infolist()}
        wanted = {name: f"{name}.npy" for name in _kept()}
        if sorted(entries) != sorted(wanted.values()) or len(packed.infolist()) != len(wanted):
            raise KeyError
        return {name: _read_array(packed, entries[entry]) for name, entry in wanted.items()}


def _read_array(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    # As it was written: what is packed may unpack to more than there is memory.
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise NoArray("it is packed")
    with packed.open(entry) as stream:
        header = read_header(stream)
        if header.size != entry.file_size:
            raise NoArray("it is not as long as it says")
        # To the end, where zipfile compares its sum.
        return np.frombuffer(stream.read(), header.dtype).reshape(header.shape).copy()


def _fits(found: dict[str, np.ndarray]) -> bool:
    """Whether shapes, types and values are those of a truth that can be."""
    U, V, a, b = (found[name] for name in ARRAYS)
    if not all(x.dtype == np.float32 and np.isfinite(x).all() for x in (U, V, a, b)):
        return False
    shapes = U.ndim == V.ndim == 2 and U.shape[1] == V.shape[1]
    shapes = shapes and a.shape == U.shape[:1] and b.shape == V.shape[:1]
    return shapes and all(
        value.shape == () and _may_be(name, value)
        for name, value in found.items()
        if name not in ARRAYS
    )


def _may_be(name: str, value: np.ndarray) -> bool:
    if name == "stars":
        return value.dtype == np.bool_
    if value.dtype.kind not in ("iu" if name == "seed" else "iuf"):
        return False
    number: Any = value.item()
    return math.isfinite(number) and (name == "mean" or number >= 0)
