"""A model or checkpoint on disk: .npy arrays, a JSON manifest and its digest, never pickle.

The manifest holds the SHA-256 digest of every array file, and `manifest.sha256` that of the
manifest, so that any change to any file is noticed before a number of it is used.  A folder is
written beside its place and renamed into it, so that a reader sees the old model or the new one.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError
from bayesmf.manifests import DIGEST as DIGEST
from bayesmf.manifests import FORMAT_VERSION as FORMAT_VERSION
from bayesmf.manifests import MANIFEST as MANIFEST
from bayesmf.manifests import MODEL, NAME, check_files, checked_entries, damaged, read_manifest
from bayesmf.manifests import Kind as Kind
from bayesmf.manifests import digest_line as digest_line
from bayesmf.places import (
    PathLike,
    as_folder,
    as_input_error,
    check_output,
    made_parents,
    real_place,
    sync_folder,
    temporary_name,
)
from bayesmf.verifying import Claim, check

_PLAIN_KINDS = "biufcSUmM"
_CHUNK_BYTES = 1 << 22

Array = npt.NDArray[Any]


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
        if not isinstance(name, str) or not NAME.fullmatch(name):
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
    check_output(target.parent)
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
    arrays, meta, _ = open_folder(path, kind)
    return arrays, meta


def open_folder(
    path: PathLike, kind: Kind = MODEL, later: Collection[str] | None = ()
) -> tuple[dict[str, Array], dict[str, Any], list[Claim]]:
    """Read a model folder, leaving the digests of some arrays to be compared later.

    Parameters
    ----------
    path, kind
        As for `read_folder`.
    later : collection of str, or None
        Names of arrays whose bytes are not checked here, only their names, sizes, types and shapes.
        None stands for all.

    Returns
    -------
    arrays, meta
        As from `read_folder`.
    claims : list of Claim
        What has to be checked before a number of the `later` arrays is used; none for None.
    """
    folder = as_folder(path)
    with as_input_error(path, "read"):
        manifest = read_manifest(folder, kind)
        entries = checked_entries(folder, manifest, kind)
        check_files(folder, entries, kind)
        arrays, claims = {}, []
        for name, entry in entries.items():
            claim = None if later is None else _claim(folder, name, entry, kind)
            if claim is not None and name not in (later or ()):
                check(claim)
            elif claim is not None:
                claims.append(claim)
            arrays[name] = _read_array(folder, name, entry, kind, claim)
    meta: dict[str, Any] = manifest["meta"]
    return arrays, meta, claims


def _claim(folder: Path, name: str, entry: dict[str, Any], kind: Kind) -> Claim:
    what = f"{name}.npy does not have the digest noted in {MANIFEST}"
    refusal = str(damaged(folder, what, kind))
    return Claim(folder, folder / f"{name}.npy", entry["sha256"], refusal)


def _read_array(
    folder: Path, name: str, entry: dict[str, Any], kind: Kind, claim: Claim | None
) -> Array:
    """Map an array; where its head is wrong, a claim that its bytes do not meet is named first."""
    file = folder / f"{name}.npy"
    try:
        # What np.load calls for mmap_mode="r", without its detours to zip and pickle files.
        array = np.lib.format.open_memmap(file, mode="r")
        wrong = ""
        if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
            wrong = f"{file.name} has not the dtype and shape noted in {MANIFEST}"
    except Exception:
        # With good digests only a forged file gets here, and numpy's header parser raises freely.
        wrong = f"{file.name} is not an array file"
    if wrong:
        if claim is not None:
            check(claim)
        raise damaged(folder, wrong, kind)
    return array
