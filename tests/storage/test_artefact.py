"""Files of arrays: what is written comes back, and nothing that was changed is read."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bayesmf.errors import InputError
from bayesmf.storage import artefact
from bayesmf.storage.artefact import (
    MODEL,
    PACKED,
    Streamed,
    check_writable,
    open_file,
    peek,
    read_file,
    write_file,
)
from bayesmf.storage.contents import Expected, below
from failing_calls import each_call

META = {"factors": 8, "range": [0.5, 5.0], "name": "Ä", "none": None}


def small_arrays():
    rng = np.random.default_rng(0)
    return {
        "factors": rng.normal(size=(3, 5, 2)).astype(np.float32),
        "ids": np.array([3, 5, 8]),
        "count": np.array(7),
        "none": np.zeros((0, 4)),
        "flags": np.array([True, False]),
    }


def small_file(path):
    write_file(path, MODEL, small_arrays(), META)
    return path


def refused(path, *words, kind=MODEL):
    for mode in ("r", None):
        with pytest.raises(InputError) as info:
            read_file(path, kind, mode=mode)
        message = str(info.value)
        assert "\n" not in message
        assert str(path) in message
        for word in words:
            assert word in message, message


def forge(path, change):
    """Change the header of a file, and sign it."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header["__metadata__"]["sha256"] = "0" * 64
    text = change(header)
    text = json.dumps(header, separators=(",", ":")).encode() if text is None else text
    text += b" " * (-(8 + len(text)) % 64)
    text = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(text).hexdigest().encode()
    path.write_bytes(text.replace(b"0" * 64, digest, 1) + raw[start:])


# Round trip


@pytest.mark.parametrize("mode", ["r", "c", None])
def test_round_trip(tmp_path, mode):
    path = small_file(tmp_path / "deep" / "er" / "a.bayesmf")
    arrays, meta = read_file(path, MODEL, mode=mode)
    assert meta == META
    assert list(arrays) == list(small_arrays())
    for name, array in small_arrays().items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)
    assert isinstance(arrays["factors"], np.memmap) == (mode is not None)
    assert arrays["factors"].flags.writeable == (mode != "r")
    if mode is not None:
        assert arrays["ids"].__array_interface__["data"][0] % 64 == 0
    assert os.listdir(path.parent) == ["a.bayesmf"]


def test_safetensors_opens_it(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    path = small_file(tmp_path / "a.bayesmf")
    with safetensors.safe_open(path, "np") as file:
        for name, array in small_arrays().items():
            np.testing.assert_array_equal(file.get_tensor(name), array)
        assert json.loads(file.metadata()["meta"]) == META
        assert file.metadata()["format"] == "bayesmf-model"


@pytest.mark.parametrize("chunk", [1, 1000, 1 << 22])
def test_every_memory_layout_is_written(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(artefact, "_CHUNK", chunk)
    base = np.arange(2 * 30 * 41, dtype=np.float32).reshape(30, 82)
    arrays = {
        "fortran": np.asfortranarray(base),
        "strided": base[::-2, 1::3],
        "big_endian": base.astype(">f4"),
        "broadcast": np.broadcast_to(np.float64(1.5), (7, 3)),
    }
    write_file(tmp_path / "a", MODEL, arrays, {})
    for name, array in read_file(tmp_path / "a", MODEL)[0].items():
        np.testing.assert_array_equal(array, arrays[name])


def test_arrays_are_written_from_pieces(tmp_path):
    whole = np.arange(1000)
    pieces = (whole[k : k + 7] for k in range(0, 1000, 7))
    write_file(tmp_path / "a", MODEL, {"x": Streamed(np.int64, (10, 100), pieces)}, {})
    write_file(tmp_path / "b", MODEL, {"x": whole.reshape(10, 100)}, {})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="another size"):
        write_file(tmp_path / "a", MODEL, {"x": Streamed(np.int64, (3,), [whole])}, {})
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_file_is_saved_over_the_one_it_was_read_from(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    before, _ = read_file(path, MODEL)
    arrays, meta = read_file(path, MODEL)
    arrays["factors"] = arrays["factors"] + 1
    write_file(path, MODEL, arrays, {**meta, "factors": 9})
    assert read_file(path, MODEL)[1]["factors"] == 9
    np.testing.assert_array_equal(before["factors"], small_arrays()["factors"])
    assert os.listdir(tmp_path) == ["a.bayesmf"]


def test_links(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    (tmp_path / "link").symlink_to(path)
    write_file(tmp_path / "link", MODEL, {"x": np.ones(2)}, {})
    assert (tmp_path / "link").is_symlink()
    assert set(read_file(tmp_path / "link", MODEL)[0]) == {"x"}


# What must not be written, and where


@pytest.mark.parametrize("meta", [{"x": np.nan}, {"x": {1, 2}}, {"x": np.float32(1)}])
def test_settings_that_are_not_json_are_refused(tmp_path, meta):
    with pytest.raises(InputError, match="JSON"):
        write_file(tmp_path / "a", MODEL, {}, meta)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array([1j])])
def test_arrays_that_are_not_numbers_are_refused(tmp_path, array):
    with pytest.raises(ValueError, match="cannot be stored"):
        write_file(tmp_path / "a", MODEL, {"x": array}, {})


def test_what_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "text").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"mine")
    write_file(tmp_path / "packed", PACKED, {}, {})
    packed = (tmp_path / "packed").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "folder" / "no" / "where")
    for name in ("text", "folder", "packed", "pipe", "text/below", "", "a\0b"):
        for call in (
            lambda path: write_file(path, MODEL, {}, {}),
            lambda path: check_writable(path, MODEL),
        ):
            with pytest.raises(InputError) as info:
                call(f"{tmp_path}/{name}" if name else name)
            assert "\n" not in str(info.value)
    assert (tmp_path / "text").read_bytes() == b"mine"
    assert (tmp_path / "packed").read_bytes() == packed
    assert os.listdir(tmp_path / "folder") == ["file"]
    check_writable(tmp_path / "new" / "a.bayesmf")
    assert len(os.listdir(tmp_path)) == 5


# Damage


def test_one_flipped_bit_in_any_byte_is_refused(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    raw = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        refused(path)


def test_a_file_that_was_cut_or_grew_is_refused(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    raw = path.read_bytes()
    for size in (0, 1, 8, 100, 200, 1000, len(raw) - 1):
        path.write_bytes(raw[:size])
        refused(path)
    path.write_bytes(raw + b"\0")
    refused(path, "longer than its arrays")


def test_what_is_not_a_file_of_this_kind_is_refused(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    refused(path, "not a bayesmf packed ratings file", kind=PACKED)
    refused(tmp_path, "is a folder")
    refused(tmp_path / "none", "There is no model file", "none: check the path")
    refused(tmp_path / "b.bayesmf", "did you mean 'a.bayesmf'")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"format_version":"1"', b'"format_version":"7"'))
    refused(path, "version 7")
    np.save(tmp_path / "b.npy", np.arange(9))
    refused(tmp_path / "b.npy", "not a bayesmf model file")


HOSTILE = {
    "not JSON": lambda h: b'{"__metadata__":{"format":"bayesmf-model","format_version":"1",'
    b'"sha256":"' + b"0" * 64 + b'"',
    "deep": lambda h: json.dumps(h, separators=(",", ":")).encode()[:-1]
    + b',"x":' + b"[" * 100_000 + b"}",
    "numbers of a million digits": lambda h: json.dumps(h, separators=(",", ":")).encode()[:-1]
    + b',"x":' + b"9" * 1_000_000 + b"}",
    "no digests": lambda h: h["__metadata__"].pop("digests"),
    "digest missing": lambda h: h["__metadata__"].update(digests="{}"),
    "digests of another type": lambda h: h["__metadata__"].update(digests="[1]"),
    "settings of another type": lambda h: h["__metadata__"].update(meta="3"),
    "settings not JSON": lambda h: h["__metadata__"].update(meta="{NaN"),
    "settings with NaN": lambda h: h["__metadata__"].update(meta='{"x":NaN}'),
    "unknown dtype": lambda h: h["ids"].update(dtype="V0"),
    "dtype of another type": lambda h: h["ids"].update(dtype=["I64"]),
    "negative shape": lambda h: h["ids"].update(shape=[-3]),
    "huge shape": lambda h: h["ids"].update(shape=[1 << 62]),
    "huge empty shape": lambda h: h["none"].update(shape=[0, 1 << 59, 1 << 59]),
    "many axes": lambda h: h["count"].update(shape=[1] * 40),
    "true for a size": lambda h: h["count"].update(shape=[True]),
    "offsets out of range": lambda h: h["flags"].update(data_offsets=[0, 1 << 40]),
    "offsets of floats": lambda h: h["factors"].update(data_offsets=[0.0, 120.0]),
    "overlapping": lambda h: h["ids"].update(data_offsets=h["factors"]["data_offsets"]),
    "entry too long": lambda h: h["ids"].update(more=1),
    "entry not a dictionary": lambda h: h.update(ids=3),
    "name with a slash": lambda h: h.update({"../ids": h.pop("flags")}),
    "padding as an array": lambda h: h.update({"~9": h.pop("flags")}),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_forged_headers_are_refused(tmp_path, what):
    path = small_file(tmp_path / "a.bayesmf")
    change = HOSTILE[what]
    forge(path, lambda h: found if isinstance(found := change(h), bytes) else None)
    refused(path, "damaged")


def test_headers_that_are_too_long_are_not_read(tmp_path):
    path = small_file(tmp_path / "a.bayesmf")
    raw = path.read_bytes()
    with open(path, "wb") as file:
        file.write((1 << 40).to_bytes(8, "little") + raw[8:])
        file.truncate(1 << 41)
    refused(path, "impossible length")


def test_numbers_are_looked_at_whatever_the_digests_say(tmp_path):
    path = tmp_path / "a"
    write_file(path, MODEL, {"x": np.arange(400_000)}, {})

    def rule(n, shape=(400_000,)):
        return lambda arrays, meta: {"x": Expected("i8", shape, below(n))}

    for mode in ("r", None):
        read_file(path, MODEL, rule(400_000), mode)
        for wrong in (rule(399_999), rule(1 << 40, (3,)), lambda a, m: a["y"]):
            with pytest.raises(InputError, match="damaged"):
                read_file(path, MODEL, wrong, mode)
        found = open_file(path, MODEL, rule(5), mode, digests=False)
        with pytest.raises(InputError, match="from 0 to 4"):
            found.verification.wait()


def test_peek(tmp_path):
    digest = write_file(tmp_path / "a", MODEL, small_arrays(), META)
    assert peek(tmp_path / "a", MODEL) == digest
    assert open_file(tmp_path / "a", MODEL, mode=None).digest == digest
    assert peek(tmp_path / "a", PACKED) is None
    assert peek(tmp_path / "b", MODEL) is peek(tmp_path, MODEL) is peek("a\0", MODEL) is None


# Failures and kills


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_every_call_fails_in_turn(tmp_path, monkeypatch, full, over):
    path = tmp_path / "box" / "a.bayesmf"
    calls = 0
    for shim in each_call(tmp_path / "box", full):
        if over:
            small_file(path)
        else:
            path.unlink(missing_ok=True)
        raised = False
        try:
            with shim:
                write_file(path, MODEL, {"x": np.arange(200_000)}, {})
        except InputError:
            raised = True
        calls = shim.calls
        left = sorted(os.listdir(path.parent)) if path.parent.exists() else []
        if shim.failed not in ("unlink",):
            assert left in ([], ["a.bayesmf"])
        if path.exists():
            arrays, _ = read_file(path, MODEL)
            assert set(arrays) in ({"x"}, set(small_arrays()))
            assert raised or set(arrays) == {"x"}
        else:
            assert raised
            assert not over
    assert calls > 5


KILLED = """
import os, random, signal, sys, time
import numpy as np
from bayesmf.storage.artefact import MODEL, read_file, write_file

path, seen = sys.argv[1], set()
for kill in range(100):
    child = os.fork()
    if child == 0:
        k = 1000 * kill
        while True:
            k += 1
            write_file(path, MODEL, {"x": np.full(100_000, k)}, {"k": k})
    time.sleep(random.uniform(0.002, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if os.path.exists(path):
        arrays, meta = read_file(path, MODEL)
        assert (arrays["x"] == meta["k"]).all(), meta
        seen.add(meta["k"])
print(len(seen))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path / "a.bayesmf"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 20
