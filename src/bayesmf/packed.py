"""Ratings on disk in the order in which they are learnt from, read where they lie."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids import IdMap
from bayesmf.places import as_input_error, sync_folder
from bayesmf.row_lists import MOST_LEVELS, Origin, RowLists
from bayesmf.storage import DIGEST, MANIFEST, digest_line, write_chunks

FORMAT_NAME = "bayesmf-ratings"
FORMAT_VERSION = 1

_NUMBERS = ("n_ratings", "n_users", "n_items", "low", "high", "sum", "sum_of_squares")
_LISTS = ("starts", "other", "value")


class PackedRatings:
    """Ratings in a folder that :func:`bayesmf.pack` made; made by :meth:`open`.

    Arrays are memory maps: what is read comes from the disk when it is used, so ratings may be
    larger than memory.  They may be written to, which changes memory alone, never the files.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    user_ids, item_ids : IdMap
        The external ids of the row numbers.
    by_user, by_item : RowLists
        The same ratings, user by user and item by item.
    levels : numpy.ndarray or None
        The distinct ratings (``float32``), ascending, where the lists hold their positions
        among them (``uint8``); None where the lists hold the ratings (``float32``).
    n_users, n_items : int
        Numbers of users and items; each has a rating.
    low, high : float
        The lowest and the highest rating.
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

    def __init__(self) -> None:
        raise InputError("Packed ratings are opened, not made: use PackedRatings.open(folder).")

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool = False) -> PackedRatings:
        """Open a folder of packed ratings.

        Parameters
        ----------
        path
            The folder.
        verify
            Whether to read every byte and compare checksums; else sizes are compared.
        """
        folder = Path(path)
        self = cls.__new__(cls)
        self.path = folder
        with as_input_error(path, "read"):
            manifest = _read_manifest(folder)
            _check_files(folder, manifest["arrays"], verify)
            self._load(folder, manifest)
        return self

    @property
    def origin(self) -> Origin:
        """Where they are, and which they are: for processes that open them again."""
        return Origin(os.path.realpath(self.path), (self.path / DIGEST).read_text().strip())

    @staticmethod
    def is_packed(path: str | os.PathLike[str]) -> bool:
        """Tell whether there are packed ratings at a path."""
        try:
            found = json.loads((Path(path) / MANIFEST).read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("format") == FORMAT_NAME

    def __len__(self) -> int:
        return len(self.by_user)

    def __repr__(self) -> str:
        size = f"{len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users"
        return f"PackedRatings({size}, {self.low:g} to {self.high:g}, mean {self.mean():.3f})"

    def mean(self) -> float:
        """Give the mean of the ratings."""
        return self._sum / len(self)

    def std(self) -> float:
        """Give the standard deviation of the ratings."""
        return math.sqrt(max(self._squares / len(self) - self.mean() ** 2, 0.0))

    def _load(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.n_users, self.n_items = manifest["n_users"], manifest["n_items"]
        self.low, self.high = float(manifest["low"]), float(manifest["high"])
        self._sum, self._squares = float(manifest["sum"]), float(manifest["sum_of_squares"])
        levels = manifest["levels"]
        self.levels = None if levels is None else np.array(levels, dtype=np.float32)
        names = manifest["arrays"]
        self.user_ids, self.item_ids = (_ids(folder, side, names) for side in ("user", "item"))
        value = np.uint8 if levels is not None else np.float32
        shapes = (self.n_users, self.n_items)
        self.by_user, self.by_item = (
            _lists(folder, side, n_rows, manifest["n_ratings"], value)
            for side, n_rows in zip(("user", "item"), shapes, strict=True)
        )
        if (len(self.user_ids), len(self.item_ids)) != shapes:
            raise _damaged(folder, "the ids are not as many as the users and items")


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Write the manifest of packed ratings, and its digest; the folder is complete with it.

    Parameters
    ----------
    folder
        Holds the arrays.
    about
        The numbers of the ratings, ``levels``, and what is to say of the ``arrays``.
    """
    found = {"format": FORMAT_NAME, "format_version": FORMAT_VERSION, **about}
    raw = (json.dumps(found, indent=1, allow_nan=False) + "\n").encode()
    for name, text in ((MANIFEST, raw), (DIGEST, digest_line(raw))):
        (folder / name).unlink(missing_ok=True)
        write_chunks(folder / name, iter([text]))
    sync_folder(folder)


def work_folder(path: Path) -> Path:
    """Give the hidden folder in which ratings for a folder are packed."""
    return path.parent / f".{path.name}.packing"


def _damaged(folder: Path, what: str) -> InputError:
    return InputError(
        f"The packed ratings in {folder} are damaged: {what}; restore them or pack again."
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir() or not (folder / MANIFEST).exists():
        raise _not_packed(folder)
    raw = (folder / MANIFEST).read_bytes()
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError):
        raise _damaged(folder, f"{MANIFEST} is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT_NAME:
        raise InputError(f"{folder} does not hold packed ratings: {MANIFEST} is of another kind.")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"The packed ratings in {folder} have format version"
            f" {manifest.get('format_version')!r}, this bayesmf reads {FORMAT_VERSION}: pack the"
            " ratings again."
        )
    if not (folder / DIGEST).exists():
        raise _damaged(folder, f"{DIGEST} is missing")
    if (folder / DIGEST).read_bytes() != digest_line(raw):
        raise _damaged(folder, f"{MANIFEST} does not have the digest noted in {DIGEST}")
    if not _is_complete(manifest):
        raise _damaged(folder, f"{MANIFEST} does not describe the ratings")
    return manifest


def _not_packed(folder: Path) -> InputError:
    if work_folder(folder).exists() or folder.name.endswith(".packing"):
        return InputError(
            f"The packing of ratings to {folder} is not finished: run it again, it will go on"
            " where it was."
        )
    if not folder.exists():
        return InputError(f"There are no packed ratings at {folder}: check the path.")
    return InputError(f"{folder} does not hold packed ratings: make them with bayesmf pack.")


def _is_complete(manifest: dict[str, Any]) -> bool:
    levels, arrays = manifest.get("levels", 0), manifest.get("arrays")
    if not isinstance(arrays, dict) or not isinstance(levels, list | None):
        return False
    lists = {f"by_{side}_{part}" for side in ("user", "item") for part in _LISTS}
    return (
        all(type(manifest.get(name)) in (int, float) for name in _NUMBERS)
        and (levels is None or 0 < len(levels) <= MOST_LEVELS)
        and lists <= set(arrays)
        and all({"bytes", "sha256"} <= set(entry) for entry in arrays.values())
    )


def _check_files(folder: Path, arrays: dict[str, dict[str, Any]], verify: bool) -> None:
    for name, entry in arrays.items():
        file = folder / f"{name}.npy"
        if not file.exists():
            raise _damaged(folder, f"{file.name} is missing")
        size = file.stat().st_size
        if size != entry["bytes"]:
            raise _damaged(folder, f"{file.name} has {size} bytes instead of {entry['bytes']}")
        if verify and file_digest(file) != entry["sha256"]:
            raise _damaged(folder, f"{file.name} does not have the digest noted in {MANIFEST}")


def file_digest(file: Path) -> str:
    """Give the SHA-256 digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _array(folder: Path, name: str, dtype: Any, length: int) -> NDArray[Any]:
    try:
        # Copy on write: kernels are compiled for arrays that can be written to.
        array = np.lib.format.open_memmap(folder / f"{name}.npy", mode="c")
    except ValueError:
        raise _damaged(folder, f"{name}.npy is not an array file") from None
    if array.dtype != dtype or array.shape != (length,):
        raise _damaged(folder, f"{name}.npy has another type or length than it should")
    return array.view(np.ndarray)


def _lists(folder: Path, side: str, n_rows: int, count: int, value: type[Any]) -> RowLists:
    starts = _array(folder, f"by_{side}_starts", np.int64, n_rows + 1)
    if starts[0] != 0 or starts[-1] != count:
        raise _damaged(folder, f"by_{side}_starts.npy does not fit the ratings")
    other = _array(folder, f"by_{side}_other", np.int32, count)
    return RowLists(starts, other, _array(folder, f"by_{side}_value", value, count))


def _ids(folder: Path, side: str, names: dict[str, Any]) -> IdMap:
    prefix = f"{side}_id_"
    found = {
        name.removeprefix(prefix): np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in names
        if name.startswith(prefix)
    }
    return IdMap.from_arrays(found)
