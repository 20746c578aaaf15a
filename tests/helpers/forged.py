"""Files changed by somebody who knows the format: every digest is right, the numbers are not."""

import json

import numpy as np
import pytest

from bayesmf import InputError
from bayesmf.storage.artefact import MODEL, read_file, write_file


def file_contents(path, kind=MODEL):
    """Arrays, which may be changed, and settings of a file."""
    arrays, meta = read_file(path, kind, mode=None)
    return arrays, meta


def forge(path, change, kind=MODEL):
    """Write a file again after a change to its arrays and settings."""
    arrays, meta = file_contents(path, kind)
    change(arrays, meta)
    write_file(path, kind, arrays, meta)


def edit(path, name, change, kind=MODEL):
    """Change an array, in place or for the one that is returned."""

    def changed(arrays, _):
        found = change(arrays[name])
        arrays[name] = arrays[name] if found is None else np.asarray(found)

    forge(path, changed, kind)


def edit_meta(path, change, kind=MODEL):
    """Change the settings."""
    forge(path, lambda _, meta: change(meta), kind)


def drop(path, name, kind=MODEL):
    """Take out an array."""
    forge(path, lambda arrays, _: arrays.pop(name), kind)


def put(path, name, array, kind=MODEL):
    """Put an array in the place of one, or beside the others."""
    forge(path, lambda arrays, _: arrays.update({name: array}), kind)


def set_at(index, value):
    """A change of one number or of some."""

    def change(array):
        array[index] = value

    return change


def place(path, name):
    """Where the bytes of an array are in a file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8:start])[name]["data_offsets"]
    return start + begin, start + end


def flip(path, name):
    """Change the last bit of an array: what no digest agrees with. The file is a new one."""
    raw = bytearray(path.read_bytes())
    raw[place(path, name)[1] - 1] ^= 1
    path.unlink()
    path.write_bytes(raw)


def refused(act, path, match=None):
    """Check that a call refuses a file with an error of one sentence."""
    with pytest.raises(InputError, match=match) as caught:
        act(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
