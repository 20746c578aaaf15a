"""A model or checkpoint on disk: .npy arrays, a JSON manifest and its digest, never pickle.

The manifest holds the SHA-256 digest of every array file, and `manifest.sha256` that of the
manifest, so that any change to any file is noticed before a number of it is used. A digest is no
signature: whoever can write a file can write its digest. So numbers are looked at too (rules.py)
before anything is computed with them.

A folder is written beside its path and exchanged with what is there (exchange.py), so that a
reader sees the old model or the new one.
"""

import contextlib
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError
from bayesmf.storage.exchange import FILES, give_name, new_folder, old_one, one_writer
from bayesmf.storage.folders import Folder, foreign_name
from bayesmf.storage.manifest import DIGEST as DIGEST
from bayesmf.storage.manifest import FORMAT_VERSION as FORMAT_VERSION
from bayesmf.storage.manifest import MANIFEST as MANIFEST
from bayesmf.storage.manifest import (
    MODEL,
    MOST_MANIFEST,
    NAME,
    check_names,
    checked_entries,
    damaged,
    read_manifest,
)
from bayesmf.storage.manifest import Kind as Kind
from bayesmf.storage.manifest import digest_line as digest_line
from bayesmf.storage.npy import Header, NoArray, map_array, measured_header, read_array
from bayesmf.storage.paths import (
    PathLike,
    as_folder,
    as_input_error,
    check_output,
    check_room,
    made_parents,
    real_path,
    sync_folder,
    temporary_name,
)
from bayesmf.storage.rules import Expected, misfit
from bayesmf.storage.verify import Claim, check, check_all

_CHUNK_BYTES = 1 << 22
# How often a folder that is replaced while it is read is begun anew.
_TRIES = 100

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
# Of all arrays and of the meta data: what each array must be.
Expects = Callable[[Arrays, dict[str, Any]], Mapping[str, Expected]]


def write_folder(
    path: PathLike, arrays: Mapping[str, Array], meta: Mapping[str, Any], kind: Kind = MODEL
) -> str:
    """Write a model folder in one step; after an InputError the path is as it was before.

    Parameters
    ----------
    path : path-like
        The folder to write; missing parents are made.  A model folder that is already there is
        replaced, anything else there is refused and left untouched.
    arrays : mapping of str to ndarray
        Arrays of plain dtypes by name (lower-case letters, digits, underscores).  They are written
        piece by piece, so memory maps larger than memory will do.
    meta : mapping
        Plain JSON without NaN, returned by `read_folder` as JSON keeps it (tuples as lists).
    kind : Kind
        What it is, if it is no model.

    Returns
    -------
    digest : str
        Of the manifest, and so of all there is.
    """
    _check_arrays(arrays)
    plain_meta = _plain_json(meta, kind)
    target = real_path(path)
    refuse_foreign(path, target, kind)
    with (
        as_input_error(path),
        made_parents(target.parent, keep=True),
        new_folder(target) as temporary,
    ):
        digest = _fill(temporary, arrays, plain_meta, kind)
        give_name(temporary, target, lambda: _refuse_foreign(path, target, kind))
    return digest


def check_writable(path: PathLike, room: int = 0) -> None:
    """Refuse now what `write_folder` would refuse after a long fit; leave nothing behind.

    Parameters
    ----------
    path : path-like
        The folder that is to be written later.
    room : int
        Bytes that it will take, about.
    """
    target = real_path(path)
    refuse_foreign(path, target, MODEL)
    with as_input_error(path), made_parents(target.parent, keep=False):
        with one_writer(target.parent):
            probe = temporary_name(target)
            os.mkdir(probe)
            os.rmdir(probe)
        check_room(target.parent, room, path)


def _check_arrays(arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(
                f"The array name {name!r} cannot be stored: "
                "use lower-case letters, digits and underscores only"
            )
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name!r} cannot be stored: give a numpy array")
        if array.dtype.kind not in "biuf" or not 1 <= array.dtype.itemsize <= 8:
            raise InputError(
                f"The array {name!r} of dtype {array.dtype} cannot be stored: "
                "convert it to a plain numeric dtype"
            )


def _plain_json(meta: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    try:
        plain = json.loads(json.dumps(dict(meta), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"The {kind.noun}'s meta data are not plain JSON ({reason}): "
            "give finite numbers, strings, booleans, None, lists and dicts only"
        ) from None
    assert isinstance(plain, dict)
    return plain


def refuse_foreign(path: PathLike, target: Path, kind: Kind) -> None:
    """Refuse a path that may not be written to; asked before the work begins."""
    check_output(target.parent)
    with as_input_error(path):
        try:
            os.lstat(target)  # a name that cannot be one is told here
        except FileNotFoundError:
            return
        with one_writer(target.parent):  # nobody replaces it while we look
            _refuse_foreign(path, target, kind)


def _refuse_foreign(path: PathLike, target: Path, kind: Kind) -> None:
    """Refuse a target that exists and is not a folder of ours with nothing else in it."""
    with as_input_error(path):
        try:
            os.lstat(target)
        except FileNotFoundError:
            return
        if not target.is_dir():
            raise InputError(f"{path} is a file: choose another path for the {kind.noun} folder")
        present = set(os.listdir(target))
        if not present and not target.is_symlink():
            return  # an empty folder, which a rename replaces
        known, ours = _own_names(target, kind)
    if not ours:
        raise InputError(
            f"{path} exists and is not a bayesmf {kind.noun} folder: "
            "choose another path or remove it"
        )
    if (odd := foreign_name(target, FILES)) is not None:
        known.discard(odd.removesuffix("/"))
    if extra := sorted(present - known):
        # Replacing the folder would delete what somebody put there.
        raise InputError(
            f"The {kind.noun} folder {path} also holds {extra[0]!r}, which is not part of the "
            f"{kind.noun}: move that away or choose another path"
        )


def _own_names(target: Path, kind: Kind) -> tuple[set[str], bool]:
    """The names of files that a folder of ours has, and whether it is one at all."""
    try:
        with Folder(target) as folder:
            manifest = json.loads(folder.read(MANIFEST, MOST_MANIFEST))
        names = {f"{name}.npy" for name in manifest["arrays"]} | {MANIFEST, DIGEST}
        return names, manifest["format"] == kind.format
    except (FileNotFoundError, InputError, ValueError, KeyError, TypeError, RecursionError):
        return set(), False


def _fill(folder: Path, arrays: Mapping[str, Array], meta: dict[str, Any], kind: Kind) -> str:
    entries = {name: write_array(folder, name, arrays[name]) for name in sorted(arrays)}
    return write_manifest(folder, entries, meta, kind)


def write_manifest(
    folder: Path, entries: Mapping[str, Any], meta: Mapping[str, Any], kind: Kind
) -> str:
    """Write the manifest of a folder and its digest, which is returned: with it all is complete.

    Parameters
    ----------
    folder : pathlib.Path
        Holds the arrays.
    entries : mapping
        What `write_array` gave of each of them.
    meta, kind
        As for `write_folder`.
    """
    about = {"format": kind.format, "format_version": kind.version, "meta": meta, "arrays": entries}
    raw = (json.dumps(about, indent=1, allow_nan=False) + "\n").encode()
    _, digest = write_chunks(folder / MANIFEST, iter([raw]))
    write_chunks(folder / DIGEST, iter([digest_line(raw)]))
    sync_folder(folder)
    return digest


def write_array(folder: Path, name: str, array: Array) -> dict[str, Any]:
    """Write ``name.npy`` piece by piece; return what a manifest says of it."""
    size, digest = write_chunks(folder / f"{name}.npy", _npy_chunks(array))
    shape = list(array.shape)
    dtype = array.dtype.newbyteorder("<").str
    return {"dtype": dtype, "shape": shape, "bytes": size, "sha256": digest}


def _npy_chunks(array: Array) -> Iterator[bytes]:
    """Yield the .npy file of an array, in C order, without holding it whole."""
    header = io.BytesIO()
    dtype = array.dtype.newbyteorder("<")
    about = {"descr": dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(header, about)
    yield header.getvalue()
    items = max(1, _CHUNK_BYTES // array.dtype.itemsize)
    flags = ("external_loop", "buffered", "zerosize_ok")
    for piece in np.nditer(array, flags=flags, buffersize=items, order="C"):  # type: ignore[call-overload]
        yield piece.astype(dtype, copy=False).tobytes()


def write_chunks(file: Path, chunks: Iterator[bytes]) -> tuple[int, str]:
    """Write and hash in one pass; return size and digest once the bytes are on the disk."""
    digest = hashlib.sha256()
    size = 0
    with open(file, "xb") as stream:
        for chunk in chunks:
            stream.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    return size, digest.hexdigest()


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
        A folder written by `write_folder`.
    kind : Kind
        What it is, if it is no model.
    expects : callable, optional
        Tells what each array must be.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only memory maps.
    meta : dict
        As given to `write_folder`.
    """
    found = open_folder(path, kind, expects)
    check_all(found.claims.values())
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
        check(claim)  # where bytes were changed, that is what to say
        raise refuse(f"{name}.npy is not an array file, {error}") from None
    if header.dtype.str != entry["dtype"] or list(header.shape) != entry["shape"]:
        check(claim)
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
            check(claim)
        raise damaged(folder, wrong, kind)
    return expected
