"""Files of arrays and settings: models, packed ratings, checkpoints.

The layout is that of safetensors, whose package opens these files:

    8 bytes    length of the header, little-endian
    header     JSON, padded with spaces: dtype, shape and data_offsets of each array; __metadata__
               holds the format, its version, the digest of the header, those of the arrays, and
               the settings, as texts
    arrays     little-endian, in C order, each at a multiple of 64 bytes; arrays of zeros with the
               names "~0", "~1", ... fill the gaps

A file is written under a temporary name and renamed when it is on the disk. Readers map it; they
keep the file that they opened when a newer one takes its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import did_you_mean
from bayesmf.errors import InputError
from bayesmf.storage.atomic import check_replaceable, replacing
from bayesmf.storage.contents import Expected, misfit
from bayesmf.storage.paths import PathLike, as_input_error, as_path, open_handle
from bayesmf.storage.verification import Claim, Verification, read_into

Array = NDArray[Any]
Expects = Callable[[Mapping[str, Array], dict[str, Any]], Mapping[str, Expected]]
"""Returns the dtype, shape and rule of each array, from all arrays and the settings."""

_ALIGN = 64
_MOST_HEADER = 1 << 24  # bytes: reports and lists of levels take some thousands
_MOST_AXES = 8
_CHUNK = 1 << 22
_DTYPES = {
    np.dtype(code).str: name
    for code, name in {
        "?": "BOOL", "u1": "U8", "i1": "I8", "<u2": "U16", "<i2": "I16", "<f2": "F16", "<u4": "U32",
        "<i4": "I32", "<f4": "F32", "<u8": "U64", "<i8": "I64", "<f8": "F64",
    }.items()
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9_]+")
_PADDING = re.compile(r"~\d{1,6}")
_NO_DIGEST = "0" * 64
# The beginning of every file: its kind and digest can be read without its header.
_MOST_START = 160
_START = re.compile(
    rb'.{8}\{"__metadata__":\{"format":"(bayesmf-[a-z]{1,20})","format_version":"([0-9]{1,6})",'
    rb'"sha256":"([0-9a-f]{64})"',
    re.DOTALL,
)


class Kind(NamedTuple):
    """A format: its name, a noun for its files, what to do if one is damaged, its version."""

    format: str
    noun: str
    cure: str
    version: int = 1


MODEL = Kind("bayesmf-model", "model", "restore it or fit again")
PACKED = Kind("bayesmf-ratings", "packed ratings", "restore it or pack the ratings again")


class Streamed(NamedTuple):
    """An array to be written from pieces: their bytes together must be those of the shape."""

    dtype: Any
    shape: tuple[int, ...]
    pieces: Iterable[Array]


class Opened(NamedTuple):
    """A file: its arrays, which must not be used before `verification`, and its settings."""

    arrays: dict[str, Array]
    meta: dict[str, Any]
    verification: Verification
    digest: str


class _Entry(NamedTuple):
    """An array in the file; offsets are counted from the end of the header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


# -- writing --------------------------------------------------------------------------------------


def write_file(
    path: PathLike, kind: Kind, arrays: Mapping[str, Array | Streamed], meta: Mapping[str, Any]
) -> str:
    """Write a file in one step; after an error the path is as it was before.

    Parameters
    ----------
    path : path-like
        The file; missing folders are made. A file of the same kind is replaced, anything else that
        is there is refused.
    kind : Kind
        The format.
    arrays : mapping
        Arrays of numbers by name (lower-case letters, digits, underscores), in the order in which
        they are written. Memory maps and `Streamed` need not fit into memory.
    meta : mapping
        Plain JSON without NaN, which `open_file` returns.

    Returns
    -------
    str
        The digest of the header, and so of all of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from bayesmf.storage.artefact import MODEL, read_file, write_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.bayesmf"
    ...     digest = write_file(path, MODEL, {"x": np.arange(3)}, {"seed": 7})
    ...     arrays, meta = read_file(path, MODEL)
    >>> arrays["x"].tolist(), meta
    ([0, 1, 2], {'seed': 7})
    """
    layout, text = _layout(arrays), _json_text(meta, kind)
    _refuse_foreign(path, kind)
    with as_input_error(path):
        as_path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    digests = dict.fromkeys(arrays, _NO_DIGEST)
    with replacing(path) as file:
        file.write(_header(kind, layout, digests, text))
        for name, entry in layout.items():
            if name not in arrays:  # padding
                file.write(bytes(entry.end - entry.begin))
                continue
            digest_of, size = hashlib.sha256(), 0
            for piece in _pieces(arrays[name], entry):
                file.write(piece)
                digest_of.update(piece)
                size += len(piece)
            if size != entry.end - entry.begin:
                raise ValueError(f"the pieces of {name} are of another size than its shape")
            digests[name] = digest_of.hexdigest()
        header = _header(kind, layout, digests, text)
        digest = hashlib.sha256(header).hexdigest()
        file.seek(0)
        file.write(header.replace(_NO_DIGEST.encode(), digest.encode(), 1))
    return digest


def check_writable(path: PathLike, kind: Kind = MODEL) -> None:
    """Refuse now what `write_file` would refuse later, after a long fit; nothing is left behind."""
    _refuse_foreign(path, kind)
    target = Path(os.path.realpath(path))
    while not os.path.lexists(target.parent):
        target = target.parent
    with as_input_error(path):
        check_replaceable(target)


def _refuse_foreign(path: PathLike, kind: Kind) -> None:
    """Refuse a path where there is something else than a file of this kind."""
    target = as_path(path)
    with as_input_error(path):
        folder, there = target.is_dir(), target.exists()
    if folder:
        raise InputError(f"{path} is a folder: give the name of a file for the {kind.noun}")
    if there and peek(path, kind) is None:
        raise InputError(
            f"{path} exists and is not a bayesmf {kind.noun} file: choose another name or remove it"
        )


def _layout(arrays: Mapping[str, Array | Streamed]) -> dict[str, _Entry]:
    """Where each array is in the file, and the zeros between them."""
    layout: dict[str, _Entry] = {}
    at = 0
    for name, array in arrays.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a stored array")
        dtype = np.dtype(array.dtype).newbyteorder("<")
        if dtype.str not in _DTYPES:
            raise ValueError(f"the array {name!r} of dtype {dtype} cannot be stored")
        if gap := -at % _ALIGN:
            layout[f"~{len(layout)}"] = _Entry(np.dtype("u1"), (gap,), at, at + gap)
            at += gap
        end = at + math.prod(array.shape) * dtype.itemsize
        layout[name] = _Entry(dtype, tuple(array.shape), at, end)
        at = end
    return layout


def _json_text(meta: Mapping[str, Any], kind: Kind) -> str:
    try:
        return json.dumps(dict(meta), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the settings of the {kind.noun} cannot be stored as JSON: {str(error).rstrip('.')}"
        ) from None


def _header(
    kind: Kind, layout: Mapping[str, _Entry], digests: Mapping[str, str], meta: str
) -> bytes:
    """The length and the header; their size does not depend on the digests."""
    about: dict[str, Any] = {
        "__metadata__": {
            "format": kind.format,
            "format_version": str(kind.version),
            "sha256": _NO_DIGEST,
            "digests": json.dumps(digests, separators=(",", ":")),
            "meta": meta,
        }
    }
    for name, (dtype, shape, begin, end) in layout.items():
        offsets = [begin, end]
        about[name] = {"dtype": _DTYPES[dtype.str], "shape": shape, "data_offsets": offsets}
    raw = json.dumps(about, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % _ALIGN)
    return len(raw).to_bytes(8, "little") + raw


def _pieces(array: Array | Streamed, entry: _Entry) -> Iterator[Any]:
    """The bytes of an array in C order, piece by piece."""
    if isinstance(array, Streamed):
        for part in array.pieces:
            yield np.ascontiguousarray(part, entry.dtype).reshape(-1).view(np.uint8).data
        return
    items = max(1, _CHUNK // entry.dtype.itemsize)
    flags = ("external_loop", "buffered", "zerosize_ok")
    for piece in np.nditer(array, flags=flags, buffersize=items, order="C"):  # type: ignore[call-overload]
        yield piece.astype(entry.dtype, copy=False).tobytes()


# -- reading --------------------------------------------------------------------------------------


def peek(path: PathLike, kind: Kind) -> str | None:
    """The digest of a file of this kind, not verified; None if there is no such file."""
    try:
        with FileIO(open_handle(path)) as stream:
            found = _START.match(stream.read(_MOST_START))
    except (OSError, ValueError):
        return None
    return found[3].decode() if found and found[1].decode() == kind.format else None


def read_file(
    path: PathLike, kind: Kind, expects: Expects | None = None, mode: str | None = "r"
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and settings of a file, all of it verified; parameters as for `open_file`."""
    found = open_file(path, kind, expects, mode)
    found.verification.begin()
    found.verification.wait()
    return found.arrays, found.meta


def open_file(
    path: PathLike,
    kind: Kind,
    expects: Expects | None = None,
    mode: str | None = "r",
    digests: bool = True,
) -> Opened:
    """Open a file, whose arrays the caller has to verify.

    Parameters
    ----------
    path : path-like
        A file that `write_file` wrote, or a link to one.
    kind : Kind
        The format that it must have.
    expects : callable, optional
        Returns the dtype, shape and rule of each array.
    mode : {"r", "c", None}
        How arrays are mapped: read-only, or such that writing changes memory alone. None reads them
        into memory.
    digests : bool
        Whether verification compares the digests of arrays; it always looks at their numbers.

    Returns
    -------
    Opened
        The file; its header has been verified.

    Raises
    ------
    InputError
        If it is not such a file, or is damaged.
    """

    def damaged(what: str) -> InputError:
        return InputError(f"The {kind.noun} file {path} is damaged: {what}; {kind.cure}")

    with contextlib.ExitStack() as opened:
        stream = opened.enter_context(_opened(path, kind))
        with as_input_error(path, "read"):
            start, layout, about = _read_header(stream, path, kind, damaged)
            arrays: dict[str, Array] = {}
            claims: dict[str, Claim] = {}
            for name, digest in about["digests"].items():
                begin, end = start + layout[name].begin, start + layout[name].end
                arrays[name] = array = _array(stream, layout[name], begin, mode)
                memory = None if isinstance(array, np.memmap) else array
                sha256 = digest if digests else None
                claims[name] = Claim(array.dtype, begin, end, sha256, memory)
        wrong = ""
        if expects is not None:
            try:
                expected = expects(arrays, about["meta"])
                wrong = misfit(arrays, expected)
                if not wrong:
                    claims = {n: c._replace(rule=expected[n].rule) for n, c in claims.items()}
            except KeyError as error:
                wrong = f"the array {error.args[0]} is missing"
            except ValueError as error:
                wrong = str(error)
        verification = Verification(path, stream, claims, damaged)
        if wrong:
            verification.wait()  # a wrong digest explains the error better
            raise damaged(wrong)
        opened.pop_all()  # verification reads it, and closes it
    return Opened(arrays, about["meta"], verification, about["sha256"])


def _opened(path: PathLike, kind: Kind) -> FileIO:
    target = as_path(path)
    with as_input_error(path, "read"):
        if target.is_dir():
            raise InputError(f"{path} is a folder: give the file that the {kind.noun} was saved to")
        try:
            return FileIO(open_handle(target))
        except FileNotFoundError:
            near = did_you_mean(target.name, (file.name for file in target.parent.glob("*")))
            message = f"There is no {kind.noun} file {path}{near or ': check the path'}"
            raise InputError(message) from None


def _read_header(
    stream: FileIO, path: PathLike, kind: Kind, damaged: Callable[[str], InputError]
) -> tuple[int, dict[str, _Entry], dict[str, Any]]:
    """Where the arrays begin, where each of them is, and the metadata; all of it checked."""
    found = _START.match(os.pread(stream.fileno(), _MOST_START, 0))
    if found is None or found[1].decode() != kind.format:
        raise InputError(
            f"{path} is not a bayesmf {kind.noun} file: give the file that the {kind.noun} was "
            "saved to"
        )
    version, size = int(found[2]), os.fstat(stream.fileno()).st_size
    if version != kind.version:
        raise InputError(
            f"{path} has version {version} of its format and this bayesmf reads {kind.version}: "
            "use the bayesmf that wrote it, or write it again"
        )
    length = int.from_bytes(found[0][:8], "little")
    start = 8 + length
    if length > _MOST_HEADER or start > size or start % _ALIGN:
        raise damaged("its header has an impossible length")
    raw = os.pread(stream.fileno(), start, 0)
    digest = found[3].decode()
    blank = raw[: found.start(3)] + _NO_DIGEST.encode() + raw[found.end(3) :]
    if hashlib.sha256(blank).hexdigest() != digest:
        raise damaged("its header does not have the digest noted in it")
    try:
        entries = json.loads(raw[8:], parse_constant=_refuse_constant)
        about = entries.pop("__metadata__")
        for name in ("digests", "meta"):
            about[name] = json.loads(about[name], parse_constant=_refuse_constant)
            if not isinstance(about[name], dict):
                raise ValueError(f"{name} is not a dictionary")
        layout = _checked_layout(entries, size - start)
        named = {name for name in layout if not name.startswith("~")}
        if set(about["digests"]) != named or not all(map(_is_digest, about["digests"].values())):
            raise ValueError("digests are not those of the arrays")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(f"its header does not describe it ({error})") from None
    for name, entry in layout.items():
        gap = entry.end - entry.begin
        if name not in named and os.pread(stream.fileno(), gap, start + entry.begin) != bytes(gap):
            raise damaged(f"the bytes {name} between its arrays are not zero")
    return start, layout, about


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def _checked_layout(entries: Mapping[str, Any], size: int) -> dict[str, _Entry]:
    """Where arrays are; ValueError unless they follow each other and fill the file."""
    dtypes = {name: np.dtype(code) for code, name in _DTYPES.items()}
    layout, at = {}, 0
    for name, entry in entries.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError("an entry is not one of an array")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not (isinstance(entry["dtype"], str) and entry["dtype"] in dtypes):
            raise ValueError("a dtype is unknown")
        if not (isinstance(shape, list) and len(shape) <= _MOST_AXES and all(map(_is_size, shape))):
            raise ValueError("a shape is not a list of sizes")
        # What NumPy multiplies must fit, also where a size is 0.
        if math.prod(n or 1 for n in shape) >= 1 << 60:
            raise ValueError("a shape is too large")
        dtype = dtypes[entry["dtype"]]
        end = at + math.prod(shape) * dtype.itemsize
        if offsets != [at, end] or not all(map(_is_size, offsets)):
            raise ValueError("arrays do not follow each other")
        if end > size:
            raise ValueError("the file is shorter than its arrays")
        if _PADDING.fullmatch(name):
            if dtype != np.uint8 or len(shape) != 1 or not 0 < end - at < _ALIGN:
                raise ValueError("padding is too long")
        elif not _NAME.fullmatch(name) or at % _ALIGN:
            raise ValueError("an array has an impossible name or place")
        layout[name] = _Entry(dtype, tuple(shape), at, end)
        at = end
    if at != size:
        raise ValueError("the file is longer than its arrays")
    return layout


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 60


def _array(stream: FileIO, entry: _Entry, at: int, mode: str | None) -> Array:
    dtype, shape, begin, end = entry
    if mode is not None and end > begin:
        return np.memmap(stream, dtype, mode, at, shape)  # type: ignore[call-overload, no-any-return]
    array = np.empty(shape, dtype)
    read_into(stream, array.reshape(-1).view(np.uint8), at)
    return array
