"""What a folder's manifest says, read and checked: digest, version, names and sizes of files."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.errors import InputError
from bayesmf.storage.folders import Folder

FORMAT_VERSION = 1

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
# Bytes that these can have: reports and lists of levels are some thousands.
MOST_MANIFEST = 1 << 24
MOST_DIGEST = 100
NAME = re.compile(r"[a-z0-9_]+")
_HEX = re.compile(r"[0-9a-f]{64}")


class Kind(NamedTuple):
    """What folders hold: the name of their format, what it is called, and what to do if damaged."""

    format: str
    noun: str
    cure: str
    version: int = FORMAT_VERSION


MODEL = Kind("bayesmf-model", "model", "restore it or fit again")
PACKED = Kind("bayesmf-ratings", "packed ratings", "restore it or pack the ratings again", 2)


def digest_line(raw: bytes) -> bytes:
    """Give what the file of a manifest's digest holds."""
    return (hashlib.sha256(raw).hexdigest() + "\n").encode()


def damaged(folder: Path, what: str, kind: Kind) -> InputError:
    """Say that a folder is not what was written."""
    return InputError(f"The {kind.noun} folder {folder} is damaged: {what}; {kind.cure}")


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a folder's manifest says, unverified; nothing where there is none that can be read."""
    try:
        with Folder(path) as folder:
            found = json.loads(folder.read(MANIFEST, MOST_MANIFEST))
    except (OSError, InputError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_manifest(folder: Folder, kind: Kind) -> tuple[dict[str, Any], str]:
    """Return the manifest, once its digest and format version are found good, and the digest."""
    path, present = folder.path, set(folder.names())
    if not {MANIFEST, DIGEST} & present:
        raise InputError(
            f"{path} is not a bayesmf {kind.noun} folder, it holds no {MANIFEST}: "
            f"give the folder the {kind.noun} was saved to"
        )
    for name in (MANIFEST, DIGEST):
        if name not in present:
            raise damaged(path, f"{name} is missing", kind)
    raw = folder.read(MANIFEST, MOST_MANIFEST)
    line = folder.read(DIGEST, MOST_DIGEST)
    if line != digest_line(raw):
        if not re.fullmatch(rb"[0-9a-f]{64}\n", line):
            raise damaged(path, f"{DIGEST} is not a digest", kind)
        raise damaged(path, f"{MANIFEST} does not have the digest noted in {DIGEST}", kind)
    try:
        manifest = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise InputError(
            f"{path} is not a bayesmf {kind.noun} folder: {MANIFEST} is of another kind"
        )
    _check_version(path, manifest.get("format_version"), kind)
    return manifest, line.decode().strip()


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _check_version(folder: Path, version: object, kind: Kind) -> None:
    if type(version) is not int or version < 1:
        raise damaged(folder, f"{MANIFEST} states no valid format version", kind)
    if version > kind.version:
        raise InputError(
            f"The {kind.noun} in {folder} was written by a newer format version {version}, "
            f"this bayesmf reads up to {kind.version}: upgrade bayesmf"
        )
    if version < kind.version:
        raise InputError(
            f"{folder} is a {kind.noun} folder of the old format version {version}, this bayesmf "
            f"reads {kind.version}: {kind.cure.rpartition(' or ')[2]} (pack --overwrite)"
        )


def checked_entries(
    folder: Path, manifest: dict[str, Any], kind: Kind
) -> dict[str, dict[str, Any]]:
    """Return what the manifest says of each array."""
    entries = manifest.get("arrays")
    if not (
        isinstance(manifest.get("meta"), dict)
        and isinstance(entries, dict)
        and all(_is_entry(name, entry) for name, entry in entries.items())
    ):
        raise damaged(folder, f"{MANIFEST} does not describe the arrays", kind)
    return entries


def _is_entry(name: str, entry: object) -> bool:
    return (
        NAME.fullmatch(name) is not None
        and isinstance(entry, dict)
        and isinstance(entry.get("dtype"), str)
        and isinstance(entry.get("shape"), list)
        and all(type(n) is int for n in entry["shape"])
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
        and _HEX.fullmatch(entry["sha256"]) is not None
    )


def check_names(folder: Folder, entries: dict[str, dict[str, Any]], kind: Kind) -> None:
    """Check that exactly the expected files are there."""
    present = set(folder.names()) - {MANIFEST, DIGEST}
    expected = {f"{name}.npy" for name in entries}
    if missing := sorted(expected - present):
        raise damaged(folder.path, f"{missing[0]} is missing", kind)
    if extra := sorted(present - expected):
        raise InputError(
            f"The {kind.noun} folder {folder.path} holds {extra[0]!r}, which is not part "
            f"of the {kind.noun}: move that away"
        )
