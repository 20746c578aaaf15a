"""A model or checkpoint on disk: .npy arrays, a JSON manifest and its digest, never pickle.

The manifest holds the SHA-256 digest of every array file, and `manifest.sha256` that of the
manifest, so that any change to any file is noticed before a number of it is used.  A folder is
written beside its place and renamed into it, so that a reader sees the old model or the new one.
"""

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError
from bayesmf.places import (
    PathLike,
    as_folder,
    as_input_error,
    made_parents,
    real_place,
    sync_folder,
    temporary_name,
)

FORMAT_VERSION = 1

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
_NAME = re.compile(r"[a-z0-9_]+")
_HEX = re.compile(r"[0-9a-f]{64}")
_PLAIN_KINDS = "biufcSUmM"
_CHUNK_BYTES = 1 << 22

Array = npt.NDArray[Any]


class Kind(NamedTuple):
    """What folders hold: the name of their format, what it is called, and what to do if damaged."""

    format: str
    noun: str
    cure: str


MODEL = Kind("bayesmf-model", "model", "restore it or fit again")


def write_folder(
    path: PathLike, arrays: Mapping[str, Array], meta: Mapping[str, Any], kind: Kind = MODEL
) -> str:
    """Write a model folder in one step; after an InputError the place is as it was before.

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
    target = real_place(path)
    _refuse_foreign(path, target, kind)
    with as_input_error(path), made_parents(target.parent, keep=True):
        temporary = temporary_name(target)
        try:
            os.mkdir(temporary)
            digest = _fill(temporary, arrays, plain_meta, kind)
            _swap_in(temporary, target)
        finally:
            # After the swap the name is free and this does nothing.
            shutil.rmtree(temporary, ignore_errors=True)
    return digest


def check_writable(path: PathLike) -> None:
    """Refuse now what `write_folder` would refuse after a long fit; leave nothing behind.

    Parameters
    ----------
    path : path-like
        The folder that is to be written later.
    """
    target = real_place(path)
    _refuse_foreign(path, target, MODEL)
    with as_input_error(path), made_parents(target.parent, keep=False):
        probe = temporary_name(target)
        os.mkdir(probe)
        os.rmdir(probe)


def _check_arrays(arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(
                f"The array name {name!r} cannot be stored: "
                "use lower-case letters, digits and underscores only."
            )
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name!r} cannot be stored: give a numpy array.")
        if array.dtype.kind not in _PLAIN_KINDS:
            raise InputError(
                f"The array {name!r} of dtype {array.dtype} cannot be stored: "
                "convert it to a plain numeric or fixed-width string dtype."
            )


def _plain_json(meta: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    try:
        plain = json.loads(json.dumps(dict(meta), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"The {kind.noun}'s meta data are not plain JSON ({reason}): "
            "give finite numbers, strings, booleans, None, lists and dicts only."
        ) from None
    assert isinstance(plain, dict)
    return plain


def _refuse_foreign(path: PathLike, target: Path, kind: Kind) -> None:
    """Refuse a target that exists and is not a folder of ours with nothing else in it."""
    with as_input_error(path):
        try:
            os.lstat(target)
        except FileNotFoundError:
            return
        if not target.is_dir():
            raise InputError(f"{path} is a file: choose another place for the {kind.noun} folder.")
        present = set(os.listdir(target))
        if not present and not target.is_symlink():
            return  # an empty folder, which a rename replaces
        try:
            manifest = json.loads((target / MANIFEST).read_bytes())
            known = {f"{name}.npy" for name in manifest["arrays"]} | {MANIFEST, DIGEST}
            ours = manifest["format"] == kind.format
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            ours = False
    if not ours:
        raise InputError(
            f"{path} exists and is not a bayesmf {kind.noun} folder: "
            "choose another place or remove it."
        )
    if extra := sorted(present - known):
        # Replacing the folder would delete what somebody put there.
        raise InputError(
            f"The {kind.noun} folder {path} also holds {extra[0]!r}, which is not part of the "
            f"{kind.noun}: move that away or choose another place."
        )


def _fill(folder: Path, arrays: Mapping[str, Array], meta: dict[str, Any], kind: Kind) -> str:
    manifest = {
        "format": kind.format,
        "format_version": FORMAT_VERSION,
        "meta": meta,
        "arrays": {name: write_array(folder, name, arrays[name]) for name in sorted(arrays)},
    }
    raw = (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode()
    _, digest = write_chunks(folder / MANIFEST, iter([raw]))
    write_chunks(folder / DIGEST, iter([digest_line(raw)]))
    sync_folder(folder)
    return digest


def digest_line(raw: bytes) -> bytes:
    """Give what the file of a manifest's digest holds."""
    return (hashlib.sha256(raw).hexdigest() + "\n").encode()


def write_array(folder: Path, name: str, array: Array) -> dict[str, Any]:
    """Write ``name.npy`` piece by piece; return what a manifest says of it."""
    size, digest = write_chunks(folder / f"{name}.npy", _npy_chunks(array))
    shape = list(array.shape)
    return {"dtype": array.dtype.str, "shape": shape, "bytes": size, "sha256": digest}


def _npy_chunks(array: Array) -> Iterator[bytes]:
    """Yield the .npy file of an array, in C order, without holding it whole."""
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype)
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": array.shape}
    )
    yield header.getvalue()
    items = max(1, _CHUNK_BYTES // max(1, array.dtype.itemsize))
    flags = ("external_loop", "buffered", "zerosize_ok")
    for piece in np.nditer(array, flags=flags, buffersize=items, order="C"):  # type: ignore[call-overload]
        yield piece.tobytes()


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


def _swap_in(temporary: Path, target: Path) -> None:
    """Rename the new folder into place; put the old one back if that fails."""
    if not target.exists():
        os.replace(temporary, target)
    else:
        aside = temporary_name(target)
        try:
            os.replace(target, aside)
            os.replace(temporary, target)
        except BaseException:
            if aside.exists() and not target.exists():
                _put_back(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    sync_folder(target.parent)


def _put_back(aside: Path, target: Path) -> None:
    try:
        os.replace(aside, target)
    except OSError:
        raise InputError(
            f"The new folder could not be put at {target} and the old one not be put back: "
            f"rename {aside} to {target} by hand."
        ) from None


def read_folder(path: PathLike, kind: Kind = MODEL) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a model folder after checking every byte of it; an InputError names a changed file.

    Parameters
    ----------
    path : path-like
        A folder written by `write_folder`.
    kind : Kind
        What it is, if it is no model.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only memory maps.
    meta : dict
        As given to `write_folder`.
    """
    folder = as_folder(path)
    with as_input_error(path, "read"):
        manifest = _read_manifest(folder, kind)
        entries = _checked_entries(folder, manifest, kind)
        _check_files(folder, entries, kind)
        arrays = {name: _read_array(folder, name, entry, kind) for name, entry in entries.items()}
    meta: dict[str, Any] = manifest["meta"]
    return arrays, meta


def _damaged(folder: Path, what: str, kind: Kind) -> InputError:
    return InputError(f"The {kind.noun} folder {folder} is damaged: {what}; {kind.cure}.")


def _read_manifest(folder: Path, kind: Kind) -> dict[str, Any]:
    """Return the manifest once its digest and its format version are found good."""
    if not folder.exists():
        raise InputError(f"There is no {kind.noun} folder {folder}: check the path.")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder the {kind.noun} was saved to.")
    present = set(os.listdir(folder))
    if not {MANIFEST, DIGEST} & present:
        raise InputError(
            f"{folder} is not a bayesmf {kind.noun} folder, it holds no {MANIFEST}: "
            f"give the folder the {kind.noun} was saved to."
        )
    for name in (MANIFEST, DIGEST):
        if name not in present:
            raise _damaged(folder, f"{name} is missing", kind)
    raw = (folder / MANIFEST).read_bytes()
    line = (folder / DIGEST).read_bytes()
    if line != digest_line(raw):
        if not re.fullmatch(rb"[0-9a-f]{64}\n", line):
            raise _damaged(folder, f"{DIGEST} is not a digest", kind)
        raise _damaged(folder, f"{MANIFEST} does not have the digest noted in {DIGEST}", kind)
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise InputError(
            f"{folder} is not a bayesmf {kind.noun} folder: {MANIFEST} is of another kind."
        )
    _check_version(folder, manifest.get("format_version"), kind)
    return manifest


def _check_version(folder: Path, version: object, kind: Kind) -> None:
    if type(version) is not int or version < 1:
        raise _damaged(folder, f"{MANIFEST} states no valid format version", kind)
    if version > FORMAT_VERSION:
        raise InputError(
            f"The {kind.noun} in {folder} was written by a newer format version {version}, "
            f"this bayesmf reads up to {FORMAT_VERSION}: upgrade bayesmf."
        )


def _checked_entries(
    folder: Path, manifest: dict[str, Any], kind: Kind
) -> dict[str, dict[str, Any]]:
    entries = manifest.get("arrays")
    if not (
        isinstance(manifest.get("meta"), dict)
        and isinstance(entries, dict)
        and all(_is_entry(name, entry) for name, entry in entries.items())
    ):
        raise _damaged(folder, f"{MANIFEST} does not describe the arrays", kind)
    return entries


def _is_entry(name: str, entry: object) -> bool:
    return (
        _NAME.fullmatch(name) is not None
        and isinstance(entry, dict)
        and isinstance(entry.get("dtype"), str)
        and isinstance(entry.get("shape"), list)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
        and _HEX.fullmatch(entry["sha256"]) is not None
    )


def _check_files(folder: Path, entries: dict[str, dict[str, Any]], kind: Kind) -> None:
    """Check that exactly the expected files are there, with the sizes and digests noted."""
    present = set(os.listdir(folder)) - {MANIFEST, DIGEST}
    expected = {f"{name}.npy" for name in entries}
    if missing := sorted(expected - present):
        raise _damaged(folder, f"{missing[0]} is missing", kind)
    if extra := sorted(present - expected):
        raise InputError(
            f"The {kind.noun} folder {folder} holds {extra[0]!r}, which is not part of the "
            f"{kind.noun}: move that away."
        )
    for name, entry in entries.items():
        file = folder / f"{name}.npy"
        size = file.stat().st_size
        if size != entry["bytes"]:
            raise _damaged(
                folder, f"{file.name} has {size} bytes instead of {entry['bytes']}", kind
            )
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != entry["sha256"]:
            raise _damaged(
                folder, f"{file.name} does not have the digest noted in {MANIFEST}", kind
            )


def _read_array(folder: Path, name: str, entry: dict[str, Any], kind: Kind) -> Array:
    file = folder / f"{name}.npy"
    try:
        # What np.load calls for mmap_mode="r", without its detours to zip and pickle files.
        array = np.lib.format.open_memmap(file, mode="r")
    except Exception:
        # With good digests only a forged file gets here, and numpy's header parser raises freely.
        raise _damaged(folder, f"{file.name} is not an array file", kind) from None
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise _damaged(folder, f"{file.name} has not the dtype and shape noted in {MANIFEST}", kind)
    return array
