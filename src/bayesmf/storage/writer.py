"""Arrays and meta data to a folder: .npy files, a JSON manifest and its digest, never pickle.

The manifest holds the SHA-256 digest of every array file, and `manifest.sha256` that of the
manifest, so that any change to any file is noticed before a number of it is used (reader.py).

A folder is written beside its path and exchanged with what is there (exchange.py), so that a
reader sees the old model or the new one.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError
from bayesmf.storage.exchange import FILES, give_name, new_folder
from bayesmf.storage.folders import Folder, foreign_name
from bayesmf.storage.lock import one_writer
from bayesmf.storage.manifest import (
    DIGEST,
    MANIFEST,
    MODEL,
    MOST_DIGEST,
    NAME,
    Kind,
    digest_line,
    peek,
)
from bayesmf.storage.npy import header_bytes
from bayesmf.storage.paths import (
    PathLike,
    as_input_error,
    check_output,
    check_room,
    made_parents,
    real_path,
    sync_folder,
    temporary_name,
)

_CHUNK_BYTES = 1 << 22

Array = npt.NDArray[Any]


class Overtaken(InputError):
    """A folder is not the one any more that it was to replace."""


class Standing(NamedTuple):
    """What stood at a path at some time: the digest of a folder there, None for nothing."""

    path: PathLike
    digest: bytes | None

    @classmethod
    def now(cls, path: PathLike) -> "Standing":
        """What stands there now."""
        try:
            with Folder(real_path(path)) as folder:
                return cls(path, folder.read(DIGEST, MOST_DIGEST))
        except (OSError, InputError):
            return cls(path, None)

    def check(self) -> None:
        """Refuse to go on if something else stands there now."""
        if Standing.now(self.path) != self:
            raise Overtaken(
                f"another process has written {self.path} meanwhile, and it is left as that made "
                "it: do the same again, from there"
            )


def write_folder(
    path: PathLike,
    arrays: Mapping[str, Array],
    meta: Mapping[str, Any],
    kind: Kind = MODEL,
    instead_of: Standing | None = None,
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
        Plain JSON without NaN, returned by `read_folder` as JSON has it (tuples as lists).
    kind : Kind
        What it is, if it is no model.
    instead_of : Standing, optional
        The only thing that may be replaced; Overtaken is raised where something else is there.

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
        entries = {name: write_array(temporary, name, arrays[name]) for name in sorted(arrays)}
        digest = write_manifest(temporary, entries, plain_meta, kind)

        def allowed() -> None:
            _refuse_foreign(path, target, kind)
            if instead_of is not None:
                instead_of.check()

        give_name(temporary, target, allowed)
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
    manifest = peek(target)
    if not isinstance(manifest.get("arrays"), dict):
        return set(), False
    names = {f"{name}.npy" for name in manifest["arrays"]} | {MANIFEST, DIGEST}
    return names, manifest.get("format") == kind.format


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


def write_joined(
    folder: Path, name: str, dtype: Any, length: int, parts: Iterable[Array]
) -> dict[str, Any]:
    """Write ``name.npy`` of arrays that follow each other; return what a manifest says of it."""
    dtype = np.dtype(dtype).newbyteorder("<")

    def chunks() -> Iterator[Any]:
        yield header_bytes(dtype, (length,))
        for part in parts:
            yield np.ascontiguousarray(part, dtype).view(np.uint8).data

    size, digest = write_chunks(folder / f"{name}.npy", chunks())
    return {"dtype": dtype.str, "shape": [length], "bytes": size, "sha256": digest}


def _npy_chunks(array: Array) -> Iterator[bytes]:
    """Yield the .npy file of an array, in C order, without holding it whole."""
    yield header_bytes(array.dtype, array.shape)
    dtype = array.dtype.newbyteorder("<")
    items = max(1, _CHUNK_BYTES // array.dtype.itemsize)
    flags = ("external_loop", "buffered", "zerosize_ok")
    for piece in np.nditer(array, flags=flags, buffersize=items, order="C"):  # type: ignore[call-overload]
        yield piece.astype(dtype, copy=False).tobytes()


def write_chunks(file: Path, chunks: Iterator[Any]) -> tuple[int, str]:
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
