"""Packed ratings: a file of ratings listed by user and by item, mapped by `fit`."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import MOST_LEVELS, Origin, RowLists
from bayesmf.storage.artefact import PACKED, open_file, peek
from bayesmf.storage.contents import (
    ASCENDING,
    FINITE,
    NUMBER,
    WHOLE,
    Expected,
    below,
    check_plain,
    ids_expected,
    once_in_rows,
    starts_misfit,
)
from bayesmf.storage.paths import as_path
from bayesmf.wording import count

SIDES = ("user", "item")
LISTS = ("starts", "other", "value")

_META = {
    "n_ratings": WHOLE, "n_users": WHOLE, "n_items": WHOLE, "low": NUMBER, "high": NUMBER,
    "mean": NUMBER, "squared_deviations": NUMBER, "levels": (None, [NUMBER]),
}  # fmt: skip


class PackedRatings:
    """Ratings in a file written by :func:`bayesmf.pack`; opened by `PackedRatings.open`.

    Arrays are memory maps, so ratings may be larger than memory. Writing to them changes memory
    alone, never the file.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    user_ids, item_ids : IdMap
        The external ids of the row numbers.
    by_user, by_item : RowLists
        The same ratings, user by user and item by item.
    levels : numpy.ndarray or None
        The distinct ratings (``float32``), ascending, where the lists hold their positions
        among them (``uint8``); None where the lists hold the ratings (``float32``).
    n_users, n_items : int
        Numbers of users and items; each has at least one rating.
    low, high : float
        The lowest and the highest rating.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bayesmf import PackedRatings, Synthetic, pack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder)
    ...     Synthetic(60, 40, 900, stars=True).write(path / "a.csv")
    ...     _ = pack(path / "a.csv", path / "packed")
    ...     ratings = PackedRatings.open(path / "packed")
    >>> len(ratings), ratings.n_users, ratings.levels.tolist()
    (900, 60, [1.0, 2.0, 3.0, 4.0, 5.0])
    """

    path: Path
    user_ids: IdMap
    item_ids: IdMap
    by_user: RowLists
    by_item: RowLists
    levels: NDArray[np.float32] | None
    n_users: int
    n_items: int
    low: float
    high: float
    _digest: str
    _verified: bool
    _stamp: tuple[int, int, int]

    def __init__(self) -> None:
        raise InputError("Packed ratings are opened, not made: use PackedRatings.open(path)")

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool = False) -> PackedRatings:
        """Open packed ratings.

        All numbers are checked to be in range, which takes some tenths of a second per gigabyte.
        `fit` also compares checksums, if that was not done here.

        Parameters
        ----------
        path : str or path-like
            The file.
        verify : bool
            Whether to compare the checksums now.

        Returns
        -------
        PackedRatings
            The ratings, mapped from the file.

        Raises
        ------
        InputError
            If the file is damaged, or something else.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import PackedRatings, Synthetic, pack
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder)
        ...     Synthetic(60, 40, 900, stars=True).write(path / "a.csv")
        ...     _ = pack(path / "a.csv", path / "packed")
        ...     print(len(PackedRatings.open(path / "packed", verify=True)))
        900
        """
        self = cls.__new__(cls)
        self.path, self._verified = as_path(path), verify
        self._stamp = _stamp(self.path)
        found = open_file(self.path, PACKED, _expected, "c", digests=verify)
        found.verification.begin()
        found.verification.wait()
        self._digest = found.digest
        self._load(found.arrays, found.meta)
        return self

    def verified(self) -> PackedRatings:
        """Return the ratings once their checksums were compared, now if they were not before.

        Returns
        -------
        PackedRatings
            Itself.

        Raises
        ------
        InputError
            If the file is damaged, or was replaced by other ratings.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import PackedRatings, Synthetic, pack
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder)
        ...     Synthetic(60, 40, 900, stars=True).write(path / "a.csv")
        ...     _ = pack(path / "a.csv", path / "packed")
        ...     ratings = PackedRatings.open(path / "packed")
        ...     ratings.verified() is ratings
        True
        """
        if not self._verified or self._stamp != _stamp(self.path):
            again = PackedRatings.open(self.path, verify=True)
            if again._digest != self._digest:
                raise InputError(f"{self.path} holds other ratings than before: open it again")
            vars(self).update(vars(again))  # the verified arrays replace those opened before
        return self

    @property
    def origin(self) -> Origin:
        """The file, for processes that open it again."""
        path = os.path.realpath(self.path)
        return Origin(path, self._digest, this_copy(path))

    @staticmethod
    def is_packed(path: str | os.PathLike[str]) -> bool:
        """Whether there are packed ratings at a path.

        Parameters
        ----------
        path : str or path-like
            A file, or anything else.

        Returns
        -------
        bool
            Whether it is a file of packed ratings, judged by its first bytes.

        Examples
        --------
        >>> from bayesmf import PackedRatings
        >>> PackedRatings.is_packed("no-such-file")
        False
        """
        return peek(path, PACKED) is not None

    def __len__(self) -> int:
        return len(self.by_user)

    def __repr__(self) -> str:
        items, users = count(self.n_items, "item"), count(self.n_users, "user")
        size = f"{count(len(self), 'rating')} of {items} by {users}"
        return f"PackedRatings({size}, {self.low:g} to {self.high:g}, mean {self.mean():.3f})"

    def mean(self) -> float:
        """Return the mean of the ratings.

        Returns
        -------
        float
            Their mean.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import PackedRatings, Synthetic, pack
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder)
        ...     Synthetic(60, 40, 900, stars=True).write(path / "a.csv")
        ...     _ = pack(path / "a.csv", path / "packed")
        ...     ratings = PackedRatings.open(path / "packed")
        >>> 3 < ratings.mean() < 4
        True
        """
        return self._mean

    def std(self) -> float:
        """Return the standard deviation of the ratings.

        Returns
        -------
        float
            Their standard deviation.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import PackedRatings, Synthetic, pack
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder)
        ...     Synthetic(60, 40, 900, stars=True).write(path / "a.csv")
        ...     _ = pack(path / "a.csv", path / "packed")
        ...     ratings = PackedRatings.open(path / "packed")
        >>> 0.5 < ratings.std() < 1.5
        True
        """
        return math.sqrt(self._squares / len(self))

    def _load(self, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.n_users, self.n_items = meta["n_users"], meta["n_items"]
        self.low, self.high = float(meta["low"]), float(meta["high"])
        self._mean, self._squares = float(meta["mean"]), float(meta["squared_deviations"])
        levels = meta["levels"]
        self.levels = None if levels is None else np.array(levels, dtype=np.float32)
        plain = {name: array.view(np.ndarray) for name, array in arrays.items()}
        self.user_ids, self.item_ids = (IdMap.from_arrays(plain, f"{side}_id_") for side in SIDES)
        self.by_user, self.by_item = (
            RowLists(*(plain[f"by_{side}_{part}"] for part in LISTS)) for side in SIDES
        )


def _stamp(path: Path) -> tuple[int, int, int]:
    """Time of the last change, size and number of a file; zeros if it is gone."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def this_copy(path: str) -> str:
    """Name this copy of a file: one on another machine, or in another container, may be damaged."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            machine = file.read().strip()
    except (OSError, ValueError):
        machine = platform.node()
    try:
        found = os.stat(path)
    except OSError:
        return machine
    return f"{machine} {found.st_dev} {found.st_ino}"


def _expected(arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]) -> Mapping[str, Expected]:
    """Dtype, shape and rule of each array; ValueError if they do not fit together."""
    _check_meta(meta)
    n, levels = meta["n_ratings"], meta["levels"]
    expected: dict[str, Expected] = {}
    sizes = meta["n_users"], meta["n_items"]
    values = (
        Expected("f4", (n,), FINITE) if levels is None else Expected("u1", (n,), below(len(levels)))
    )
    for side, n_rows, n_others in zip(SIDES, sizes, sizes[::-1], strict=True):
        (ids, n_ids), starts = ids_expected(arrays, side), arrays[f"by_{side}_starts"]
        if n_ids != n_rows or starts_misfit(starts, n):
            raise ValueError(f"by_{side}_starts does not fit the ratings and their {side}s")
        expected |= ids
        expected[f"by_{side}_starts"] = Expected("i8", (n_rows + 1,), ASCENDING)
        expected[f"by_{side}_other"] = Expected("i4", (n,), once_in_rows(n_others, starts))
        expected[f"by_{side}_value"] = values
    return expected


def _check_meta(meta: dict[str, Any]) -> None:
    check_plain(meta, _META, "meta")
    levels = meta["levels"]
    if min(meta["n_ratings"], meta["n_users"], meta["n_items"]) < 1:
        raise ValueError("meta.n_ratings, n_users or n_items is 0")
    if meta["low"] > meta["high"] or meta["squared_deviations"] < 0:
        raise ValueError("meta.low, meta.high and the moments are not those of ratings")
    if levels is not None and not (0 < len(levels) <= MOST_LEVELS and levels == sorted(levels)):
        raise ValueError("meta.levels are not those of ratings")
