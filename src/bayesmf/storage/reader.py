"""A folder of arrays, opened: its manifest, and what of its files must still be verified.

A digest is no signature: whoever can write a file can write its digest. So numbers are looked at
too (contents.py) before anything is computed with them.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError
from bayesmf.storage.contents import Expected, misfit
from bayesmf.storage.exchange import old_one
from bayesmf.storage.folders import Folder
from bayesmf.storage.manifest import (
    MANIFEST,
    MODEL,
    Kind,
    check_names,
    checked_entries,
    damaged,
    read_manifest,
)
from bayesmf.storage.npy import Header, NoArray, map_array, measured_header, read_array
from bayesmf.storage.paths import PathLike, as_folder, as_input_error
from bayesmf.storage.verify import Claim, verify_all, verify_one

# How often a folder that is replaced while it is read is begun anew.
_TRIES = 100

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Expects = Callable[[Arrays, dict[str, Any]], Mapping[str, Expected]]
"""Tells what each array must be, from all arrays and the meta data."""


class Opened(NamedTuple):
    """A folder whose files are open, of the sizes, types and shapes that its manifest tells.

    `claims` are to be checked before a number of their arrays is used, and closed.
    """

    arrays: dict[str, Array]
    meta: dict[str, Any]
    claims: dict[str, Claim]
    digest: str


def read_folder(
    path: PathLike, kind: Kind = MODEL, expects: Expects | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a model folder after checking every byte of it; an InputError names a changed file.

    Parameters
    ----------
    path : path-like
        A folder written by `bayesmf.storage.writer.write_folder`.
    kind : Kind
        What it is, if it is no model.
    expects : callable, optional
        Tells what each array must be.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only memory maps.
    meta : dict
        As given to `bayesmf.storage.writer.write_folder`.
    """
    found = open_folder(path, kind, expects)
    verify_all(found.claims.values())
    return found.arrays, found.meta


def open_folder(
    path: PathLike, kind: Kind = MODEL, expects: Expects | None = None, mode: str | None = "r"
) -> Opened:
    """Open a model folder, leaving its bytes and numbers to be checked by the caller.

    Parameters
    ----------
    path, kind, expects
        As for `read_folder`.
    mode : {"r", "c", None}
        How arrays are mapped: read-only, or such that writing changes memory alone. None reads them
        into memory.

    Returns
    -------
    Opened
        Arrays, meta data and what has to be checked.
    """
    folder_path = as_folder(path)
    for left in reversed(range(_TRIES)):
        if not os.path.lexists(folder_path):
            old = old_one(folder_path)
            if old is None:
                if left and os.path.lexists(folder_path):
                    continue  # it has got its name back just now
                raise InputError(f"There is no {kind.noun} folder {folder_path}: check the path")
            if left == 0:
                raise InputError(
                    f"There is no {kind.noun} folder {folder_path}: a process was killed while it "
                    f"replaced it, and the one before is {old}: rename that to {folder_path.name}"
                )
            time.sleep(0.01)  # where names cannot be exchanged, there is a moment without
            continue
        if not folder_path.is_dir():
            raise InputError(
                f"{folder_path} is not a folder: give the folder the {kind.noun} was saved to"
            )
        with as_input_error(path, "read"), Folder(folder_path) as folder:
            try:
                return _opened(folder, kind, expects, mode)
            except (InputError, OSError):
                # Replaced by a newer one meanwhile, this one is being removed.
                if not left or folder.is_current():
                    raise
    raise AssertionError("unreachable")


def _opened(folder: Folder, kind: Kind, expects: Expects | None, mode: str | None) -> Opened:
    manifest, digest = read_manifest(folder, kind)
    entries = checked_entries(folder.path, manifest, kind)
    check_names(folder, entries, kind)
    meta: dict[str, Any] = manifest["meta"]
    with contextlib.ExitStack() as opened:
        claims = {}
        for name, entry in entries.items():
            stream = opened.enter_context(folder.open(f"{name}.npy"))
            claims[name] = _claim(folder.path, name, stream, entry, kind)
        arrays: dict[str, Array] = {
            name: read_array(claim.stream) if mode is None else map_array(claim.stream, mode)
            for name, claim in claims.items()
        }
        if expects is not None:
            rules = _expected(folder.path, expects, arrays, meta, claims, kind)
            claims = {name: c._replace(rule=rules[name].rule) for name, c in claims.items()}
        opened.pop_all()  # they stay open
    return Opened(arrays, meta, claims, digest)


def _claim(folder: Path, name: str, stream: FileIO, entry: dict[str, Any], kind: Kind) -> Claim:
    """What a manifest says of an array file; InputError if that can be seen to be wrong already."""

    def refuse(what: str) -> InputError:
        return damaged(folder, what, kind)

    size = os.fstat(stream.fileno()).st_size
    if size != entry["bytes"]:
        raise refuse(f"{name}.npy has {size} bytes instead of {entry['bytes']}")
    claim = Claim(folder, name, stream, Header(np.dtype(np.uint8), (), 0), refuse, entry["sha256"])
    try:
        header = measured_header(stream)
    except NoArray as error:
        verify_one(claim)  # where bytes were changed, that is what to say
        raise refuse(f"{name}.npy is not an array file, {error}") from None
    if header.dtype.str != entry["dtype"] or list(header.shape) != entry["shape"]:
        verify_one(claim)
        raise refuse(f"{name}.npy has not the dtype and shape noted in {MANIFEST}")
    return claim._replace(header=header)


def _expected(
    folder: Path,
    expects: Expects,
    arrays: Arrays,
    meta: dict[str, Any],
    claims: dict[str, Claim],
    kind: Kind,
) -> Mapping[str, Expected]:
    """What arrays must be, once they are known to have the types and shapes of that."""
    try:
        expected = expects(arrays, meta)
        wrong = misfit(arrays, expected)
    except KeyError as error:
        expected, wrong = {}, f"{error.args[0]}.npy is missing"
    except ValueError as error:
        expected, wrong = {}, str(error)
    if wrong:
        for claim in claims.values():
            verify_one(claim)
        raise damaged(folder, wrong, kind)
    return expected
