"""Files that are replaced: all of the new one or the old one, and nothing else touched."""

import os
import stat

import numpy as np
import polars as pl
import pytest

from bayesmf.cli.output import write_frame
from bayesmf.errors import InputError
from bayesmf.storage.atomic import check_replaceable, replacing


def write(path, data=b"new"):
    with replacing(path) as file:
        file.write(data)


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
        assert os.listdir(tmp_path) == [os.path.basename(file.name)]
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    raised = InputError if error is OSError else error
    with pytest.raises(raised), replacing(path) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_names_cannot_be_foreseen_and_links_are_not_followed(tmp_path, monkeypatch):
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "a") as file:
            names.add(file.name)
    assert len(names) == 3
    # Even if a name were foreseen, what lies there is neither written nor removed.
    secret, trap = tmp_path / "secret", tmp_path / "trap"
    secret.write_bytes(b"mine")
    trap.symlink_to(secret)
    monkeypatch.setattr("bayesmf.storage.atomic.temporary_name", lambda target: trap)
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "b")
    assert trap.is_symlink()
    assert secret.read_bytes() == b"mine"


def test_links_stay_links(tmp_path):
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "link", tmp_path / "folder" / "a"
    link.symlink_to(target)
    write(link)  # a link to nothing yet
    write(link, b"newer")
    assert link.is_symlink()
    assert target.read_bytes() == b"newer"
    assert os.listdir(target.parent) == ["a"]


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "loop", tmp_path / "a" / "b", "a\0b"):
        with pytest.raises(InputError):
            write(path)
        with pytest.raises(InputError):
            check_replaceable(path)
    assert sorted(os.listdir(tmp_path)) == ["loop", "pipe"]


def test_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "new")
        (tmp_path / "private").write_bytes(b"old")
        (tmp_path / "private").chmod(0o600)
        write(tmp_path / "private")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_that_cannot_grow(tmp_path, suffix):
    """As on a full disk: the system refuses what is written by compiled code."""
    frame = pl.DataFrame({"x": np.random.default_rng(1).random(100_000)})
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    try:
        with pytest.raises(InputError, match=f"a{suffix} cannot be written: the system says File"):
            write_frame(frame, tmp_path / f"a{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (pl.exceptions.ComputeError("No space left on device (os error 28)"), "disk is full"),
        (OSError("No space left on device (os error 28)"), "disk is full"),  # as polars raises it
        (OSError("something else"), "cannot be written: something else"),
        (pl.exceptions.PanicException("oh"), "cannot be written: oh$"),
        (pl.exceptions.ComputeError("x" * 70_000), r"xxx\.\.\.$"),
    ],
)
def test_errors_of_polars_are_told(tmp_path, error, said):
    with pytest.raises(InputError, match=said) as told, replacing(tmp_path / "a"):
        raise error
    assert len(str(told.value)) < 500 + len(str(tmp_path))
    assert os.listdir(tmp_path) == []
