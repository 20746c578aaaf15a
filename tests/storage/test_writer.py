"""Model folders: what is written comes back, and nothing that was changed is read."""

import errno
import hashlib
import json
import os

import numpy as np
import pytest

from bayesmf.errors import InputError
from bayesmf.storage import exchange, writer
from bayesmf.storage.manifest import FORMAT_VERSION
from bayesmf.storage.reader import read_folder
from bayesmf.storage.writer import check_writable, write_folder

META = {"library_version": "0.1.0", "rank": 8, "range": [0.5, 5.0], "name": "Ä", "none": None}


def small_arrays():
    rng = np.random.default_rng(0)
    return {
        "factors": rng.normal(size=(3, 5, 2)).astype(np.float32),
        "ids": np.array([3, 5, 8]),
        "count": np.array(7),
        "none": np.zeros((0, 4)),
        "flags": np.array([True, False]),
    }


def small_model(folder):
    write_folder(folder, small_arrays(), META)
    return folder


def sign_manifest(folder, change):
    """Change the manifest and write the digest that fits it."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    raw = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(raw)
    (folder / "manifest.sha256").write_text(hashlib.sha256(raw).hexdigest() + "\n")


def refused(folder, *words):
    with pytest.raises(InputError) as info:
        read_folder(folder)
    message = str(info.value)
    assert "\n" not in message
    assert str(folder) in message
    for word in words:
        assert word in message, message
    return message


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# Round trip


def test_round_trip(tmp_path):
    arrays = small_arrays()
    got, meta = read_folder(small_model(tmp_path / "deep" / "er" / "model"))
    assert meta == META
    assert set(got) == set(arrays)
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        np.testing.assert_array_equal(got[name], array)
        assert not got[name].flags.writeable
    assert isinstance(got["factors"], np.memmap)
    assert os.listdir(tmp_path / "deep" / "er") == ["model"]


def test_array_files_are_plain_npy(tmp_path):
    folder = small_model(tmp_path / "model")
    for name, array in small_arrays().items():
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy", allow_pickle=False), array)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["format"] == "bayesmf-model"
    assert manifest["format_version"] == FORMAT_VERSION
    assert manifest["arrays"]["factors"]["bytes"] == (folder / "factors.npy").stat().st_size


@pytest.mark.parametrize("chunk", [1, 1000, 1 << 22])
def test_every_memory_layout_is_written(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(writer, "_CHUNK_BYTES", chunk)
    base = np.arange(2 * 30 * 41, dtype=np.float32).reshape(30, 82)
    arrays = {
        "fortran": np.asfortranarray(base),
        "strided": base[::-2, 1::3],
        "big_endian": base.astype(">f4"),
        "broadcast": np.broadcast_to(np.float64(1.5), (7, 3)),
    }
    write_folder(tmp_path / "model", arrays, {})
    got, _ = read_folder(tmp_path / "model")
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)


def test_memory_maps_are_written_piece_by_piece(tmp_path, monkeypatch):
    source = np.memmap(tmp_path / "raw", dtype=np.float32, mode="w+", shape=(1000, 300))
    source[:] = np.random.default_rng(1).normal(size=source.shape)
    monkeypatch.setattr(writer, "_CHUNK_BYTES", 4096)
    pieces = [len(piece) for piece in writer._npy_chunks(source)]
    assert max(pieces) <= 4096
    write_folder(tmp_path / "model", {"big": source}, {})
    np.testing.assert_array_equal(read_folder(tmp_path / "model")[0]["big"], source)


def test_a_model_can_be_saved_over_the_one_it_was_read_from(tmp_path):
    folder = small_model(tmp_path / "model")
    arrays, meta = read_folder(folder)
    write_folder(folder, arrays, {**meta, "rank": 9})
    again, meta = read_folder(folder)
    assert meta["rank"] == 9
    np.testing.assert_array_equal(again["factors"], small_arrays()["factors"])
    assert os.listdir(tmp_path) == ["model"]


def test_a_symlink_stays_a_symlink(tmp_path):
    folder = small_model(tmp_path / "model")
    (tmp_path / "link").symlink_to(folder)
    write_folder(tmp_path / "link", {"x": np.ones(2)}, {})
    assert (tmp_path / "link").is_symlink()
    assert set(read_folder(folder)[0]) == {"x"}


# Damage


def flip(file, position, bit):
    raw = bytearray(file.read_bytes())
    raw[position] ^= 1 << bit
    file.write_bytes(raw)


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.sha256", "factors.npy", "ids.npy", "count.npy", "none.npy"]
)
def test_one_flipped_bit_in_any_byte_is_refused(tmp_path, name):
    folder = small_model(tmp_path / "model")
    file = folder / name
    rng = np.random.default_rng(len(name))
    for position in range(file.stat().st_size):
        bit = int(rng.integers(8))
        flip(file, position, bit)
        refused(folder, name)
        flip(file, position, bit)
    read_folder(folder)


def test_one_flipped_bit_in_a_large_array_is_refused(tmp_path):
    rng = np.random.default_rng(4)
    write_folder(tmp_path / "model", {"big": rng.normal(size=(200, 1000))}, {})
    file = tmp_path / "model" / "big.npy"
    size = file.stat().st_size
    for position in [0, 127, 128, size - 1, *rng.integers(size, size=60).tolist()]:
        flip(file, position, int(position) % 8)
        refused(tmp_path / "model", "big.npy")
        flip(file, position, int(position) % 8)
    read_folder(tmp_path / "model")


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", "factors.npy", "none.npy"])
def test_truncated_lengthened_and_missing_files_are_refused(tmp_path, name):
    folder = small_model(tmp_path / "model")
    raw = (folder / name).read_bytes()
    for other in (b"", raw[:1], raw[: len(raw) // 2], raw[:-1], raw + b"\n", b"\xff" * len(raw)):
        (folder / name).write_bytes(other)
        refused(folder, name)
    (folder / name).unlink()
    refused(folder, name, "missing")


def test_an_extra_file_is_refused(tmp_path):
    folder = small_model(tmp_path / "model")
    (folder / "other.npy").write_bytes(b"")
    refused(folder, "other.npy", "not part of the model")


def test_a_newer_version_with_a_valid_digest_is_refused(tmp_path):
    folder = small_model(tmp_path / "model")
    sign_manifest(folder, lambda manifest: manifest.update(format_version=FORMAT_VERSION + 6))
    refused(folder, f"newer format version {FORMAT_VERSION + 6}", "upgrade bayesmf")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(format="other"),
        lambda m: m.update(format_version="1"),
        lambda m: m.update(format_version=0),
        lambda m: m.update(arrays=[]),
        lambda m: m.pop("meta"),
        lambda m: m["arrays"].update({"../x": m["arrays"]["ids"]}),
        lambda m: m["arrays"]["ids"].update(sha256=3),
        lambda m: m["arrays"]["ids"].update(shape=[4]),
        lambda m: m["arrays"]["ids"].update(dtype="<f8"),
    ],
)
def test_a_wrong_manifest_with_a_valid_digest_is_refused(tmp_path, change):
    folder = small_model(tmp_path / "model")
    sign_manifest(folder, change)
    refused(folder)


@pytest.mark.parametrize("content", ["pickle", "zip", "noise"])
def test_no_pickle_is_read_even_with_valid_digests(tmp_path, content):
    folder = small_model(tmp_path / "model")
    file = folder / "ids.npy"
    if content == "pickle":
        with open(file, "wb") as stream:
            np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    elif content == "zip":
        with open(file, "wb") as stream:
            np.savez(stream, a=np.ones(1))
    else:
        file.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': [[[((((")
    raw = file.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    sign_manifest(folder, lambda m: m["arrays"]["ids"].update(bytes=len(raw), sha256=digest))
    refused(folder, "ids.npy")


def test_what_is_no_model_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "no model folder")
    refused(tmp_path, "not a bayesmf model folder")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "not a folder")
    refused(tmp_path / "file" / "sub")
    with pytest.raises(InputError, match="null"):
        read_folder("a\0b")
    raw = b"[" * 100000
    (tmp_path / "manifest.json").write_bytes(raw)
    (tmp_path / "manifest.sha256").write_text(hashlib.sha256(raw).hexdigest() + "\n")
    refused(tmp_path, "not a bayesmf model folder")


# Refusing to write


def test_foreign_places_are_refused_and_untouched(tmp_path):
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "manifest.json").write_text('{"format": "mine", "arrays": {}}')
    for act in (check_writable, lambda path: write_folder(path, small_arrays(), META)):
        for path in (file, full):
            with pytest.raises(InputError, match="choose another path"):
                act(path)
    assert file.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "full"]
    assert os.listdir(full) == ["manifest.json"]


def test_an_empty_folder_is_filled(tmp_path):
    small_model(tmp_path)
    read_folder(tmp_path)
    assert [p for p in os.listdir(tmp_path.parent) if p.startswith(".bayesmf")] == []


def test_a_model_folder_with_a_foreign_file_is_not_replaced(tmp_path):
    folder = small_model(tmp_path / "model")
    (folder / "notes.txt").write_text("mine")
    for act in (check_writable, lambda path: write_folder(path, {}, {})):
        with pytest.raises(InputError, match=r"notes\.txt"):
            act(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_damaged_model_can_be_replaced(tmp_path):
    folder = small_model(tmp_path / "model")
    flip(folder / "factors.npy", 150, 3)
    (folder / "ids.npy").unlink()
    check_writable(folder)
    read_folder(small_model(folder))


def test_places_that_cannot_be_made_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    places = [tmp_path / "file" / "model", tmp_path / "file" / "a" / "model"]
    places += [tmp_path / ("x" * 300), "a\0b"]
    if os.path.isdir("/proc/self"):
        places.append("/proc/bayesmf/model")
    for place in places:
        for act in (check_writable, lambda path: write_folder(path, small_arrays(), META)):
            with pytest.raises(InputError) as info:
                act(place)
            assert "\n" not in str(info.value)
            assert "\0" in str(place) or str(place) in str(info.value)
    assert os.listdir(tmp_path) == ["file"]


def test_check_writable_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a" / "b" / "model")
    assert os.listdir(tmp_path) == []
    folder = small_model(tmp_path / "model")
    before = contents(folder)
    check_writable(folder)
    assert contents(folder) == before
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "a.b", "a\n", "ä"])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="lower-case"):
        write_folder(tmp_path / "model", {name: np.ones(1)}, {})


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], dtype=object),
        np.zeros(2, dtype=[("a", "f8")]),
        np.zeros(2, dtype=[("a", object)]),
    ],
)
def test_other_dtypes_are_refused(tmp_path, array):
    with pytest.raises(InputError, match="dtype"):
        write_folder(tmp_path / "model", {"x": array}, {})
    with pytest.raises(InputError, match="numpy array"):
        write_folder(tmp_path / "model", {"x": [1, 2]}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, np.float32(1.0), b"x"])
def test_meta_that_is_no_json_is_refused(tmp_path, value):
    with pytest.raises(InputError, match="plain JSON"):
        write_folder(tmp_path / "model", {}, {"x": value})
    assert os.listdir(tmp_path) == []


# Crashes


def fail_at(monkeypatch, module, name, call, error):
    """Let the given call (counted from 1) of a function raise, and only that one."""
    real, calls = getattr(module, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, failing)


DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("exchange", 1),
        ("replace", 1),
        ("replace", 2),
        ("mkdir", 1),
        *(("fsync", call) for call in (1, 3, 6, 7)),
    ],
)
@pytest.mark.parametrize("error", [DISK_FULL, PermissionError(errno.EACCES, "no"), SystemExit()])
def test_a_crash_keeps_the_old_model(tmp_path, monkeypatch, function, call, error):
    folder = small_model(tmp_path / "model")
    before = contents(folder)
    if function == "replace":  # where names cannot be exchanged, the old one steps aside
        monkeypatch.setattr(exchange, "exchange", lambda one, other: False)
    fail_at(monkeypatch, exchange if function == "exchange" else os, function, call, error)
    with pytest.raises(BaseException) as info:
        write_folder(folder, small_arrays(), {"new": True})
    assert isinstance(info.value, (InputError, SystemExit))
    if error is DISK_FULL:
        assert "disk is full" in str(info.value)
        assert str(folder) in str(info.value)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model"]
    assert contents(folder) == before
    assert read_folder(folder)[1] == META


def test_a_crash_of_a_first_save_leaves_nothing(tmp_path, monkeypatch):
    fail_at(monkeypatch, os, "replace", 1, DISK_FULL)
    with pytest.raises(InputError, match="disk is full"):
        write_folder(tmp_path / "a" / "model", small_arrays(), {})
    assert os.listdir(tmp_path) == []


def test_an_old_model_that_cannot_be_put_back_is_named(tmp_path, monkeypatch):
    folder = small_model(tmp_path / "model")
    real, calls = os.replace, []

    def failing(source, target):
        calls.append(source)
        if len(calls) > 1:
            raise DISK_FULL
        real(source, target)

    monkeypatch.setattr(exchange, "exchange", lambda one, other: False)
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(InputError, match="by hand") as info:
        write_folder(folder, small_arrays(), {})
    (aside,) = tmp_path.iterdir()
    assert str(aside) in str(info.value)
    assert read_folder(aside)[1] == META
