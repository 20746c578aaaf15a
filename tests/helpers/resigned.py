"""Folders changed by somebody who knows the format: every digest fits, the numbers do not."""

import hashlib
import json

import numpy as np


def resign(folder, change=None):
    """Make digests anew, after a change to the manifest."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, entry in manifest["arrays"].items():
        raw = (folder / f"{name}.npy").read_bytes()
        entry |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    if change is not None:
        change(manifest)
    raw = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(raw)
    (folder / "manifest.sha256").write_text(hashlib.sha256(raw).hexdigest() + "\n")


def put(folder, name, array):
    """Another array in the place of one, signed."""
    np.save(folder / f"{name}.npy", array)

    def change(manifest):
        told = {"dtype": array.dtype.str, "shape": list(array.shape)}
        manifest["arrays"][name] |= told

    resign(folder, change)


def drop(folder, name):
    """Take an array out of a folder, and sign."""
    (folder / f"{name}.npy").unlink()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["arrays"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    resign(folder)


def edit(folder, name, change):
    """Change an array in place, and sign."""
    array = np.load(folder / f"{name}.npy")
    changed = change(array)
    put(folder, name, array if changed is None else changed)


def set_at(index, value):
    """A change of one number or of some."""

    def change(array):
        array[index] = value

    return change
