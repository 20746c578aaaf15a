"""Parameters planted in synthetic ratings, and their file."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from bayesmf.storage.artefact import Kind, read_file, write_file
from bayesmf.storage.contents import FINITE, FLAG, NUMBER, WHOLE, Expected, check_plain

KIND = Kind("bayesmf-truth", "planted truth", "make it again")
_ARRAYS = ("U", "V", "a", "b")
_NUMBERS = {
    "mean": NUMBER, "noise": NUMBER, "factor": NUMBER, "bias_user": NUMBER, "bias_item": NUMBER,
    "stars": FLAG, "seed": WHOLE,
}  # fmt: skip


class Truth(NamedTuple):
    """Planted parameters: rating = mean + a[user] + b[item] + U[user] @ V[item] + noise.

    Attributes
    ----------
    U, V : numpy.ndarray
        Factors of users and items, a row each.
    a, b : numpy.ndarray
        Biases of users and items.
    noise_floor : float or None
        The error (RMSE) that no model can beat; None if ratings are stars, because rounding and
        clipping change it.
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
        """Write a file in the layout of safetensors, as models are.

        Parameters
        ----------
        path : str or path-like
            The file.

        Raises
        ------
        InputError
            If it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Synthetic, Truth
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "truth.safetensors"
        ...     Synthetic(60, 40, 900).truth().save(path)
        ...     Truth.load(path).U.shape
        (60, 8)
        """
        arrays = {name.lower(): getattr(self, name) for name in _ARRAYS}
        write_file(path, KIND, arrays, {name: getattr(self, name) for name in _NUMBERS})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Truth:
        """Read a file written by `save`.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Truth
            The planted parameters.

        Raises
        ------
        InputError
            If it is not such a file, or is damaged.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Synthetic, Truth
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "truth.safetensors"
        ...     Synthetic(60, 40, 900).truth().save(path)
        ...     Truth.load(path).V.shape
        (40, 8)
        """
        found, meta = read_file(path, KIND, _expected, mode=None)
        known: dict[str, Any] = {name: found[name.lower()] for name in _ARRAYS} | meta
        return cls(**known, noise_floor=None if meta["stars"] else meta["noise"])


def _expected(arrays: Any, meta: dict[str, Any]) -> dict[str, Expected]:
    """Rules for the arrays; ValueError where the numbers are not those of a truth."""
    check_plain(meta, _NUMBERS, "meta")
    if set(meta) != set(_NUMBERS) or min(meta[name] for name in _NUMBERS if name != "mean") < 0:
        raise ValueError("meta is not that of a planted truth")
    n_users, n_items, width = arrays["a"].size, arrays["b"].size, arrays["u"].shape[-1:]
    shapes = {"u": (n_users, *width), "v": (n_items, *width), "a": (n_users,), "b": (n_items,)}
    return {name: Expected("f4", shape, FINITE) for name, shape in shapes.items()}
