"""Files as nobody would write them: a sentence each, and neither a traceback nor a wait."""

import contextlib
import gzip
import io
import os
import random
import socket
import subprocess
import sys
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest

from bayesmf import InputError, Ratings, Synthetic
from bayesmf.errors import DataWarning, warn
from bayesmf.packed.pack import pack
from bayesmf.reading.chunks import RemoteFile, rating_files, read_chunks
from bayesmf.reading.files import Unreadable, open_regular, reading
from bayesmf.reading.memory import pairs_of
from cli_tools import run

ROWS = [(f"u{k % 17}", f"i{k % 13}", k % 5 + 1) for k in range(200)]
LINES = "".join(f"{user},{item},{rating}\n" for user, item, rating in ROWS)
FRAME = pl.DataFrame(ROWS, schema=["user", "item", "rating"], orient="row")
NAME = b"a\xff".decode(errors="surrogateescape")  # a name that is not UTF-8


def stream(path):
    files = rating_files(path, "auto", None)
    return sum(len(table.user) for table, *_ in read_chunks(files, 50))


def test_a_line_as_csv_does_not_like_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('user,item,rating\n"a\rb",2,3\n' + LINES, newline="")
    assert "a\rb" in Ratings.from_data(path).user_ids
    long = "x" * 140_000
    path.write_text(f'user,item,rating\n"{long}",2,3\n{LINES}')
    assert long in Ratings.from_data(path).user_ids


@pytest.mark.parametrize("line", ['1,2,"{}"', "1,2,{}", '1,2,3,"{}'])
def test_sentences_are_short(tmp_path, line):
    path = tmp_path / "a.csv"
    path.write_text(f"user,item,rating\n{LINES}{line.format('x' * 70_000)}\n", newline="")
    for read in (Ratings.from_data, stream):
        with pytest.raises(InputError) as told:
            read(path)
        assert len(str(told.value)) < 500 + len(str(tmp_path))
    path.write_text(f"user,item,{'z' * 70_000}\n{LINES}")
    with pytest.raises(InputError) as told:
        Ratings.from_data(path)
    assert len(str(told.value)) < 2100


def test_no_sentence_is_longer_than_a_page():
    assert len(str(InputError("x" * 10**6))) < 2100
    with pytest.warns(DataWarning) as told:
        warn("x" * 10**6, DataWarning)
    assert len(str(told[0].message)) < 2100


def test_a_panic_is_a_sentence_and_an_interrupt_passes(tmp_path):
    with pytest.raises(Unreadable, match="a cannot be read as Parquet data: it is damaged"), \
         reading("a", "Parquet data"):  # fmt: skip
        raise pl.exceptions.PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt), reading("a"):
        raise KeyboardInterrupt


def _typed(suffix):
    file = io.BytesIO()
    if suffix == "parquet":
        FRAME.write_parquet(file, row_group_size=64)
    elif suffix == "arrow":
        FRAME.write_ipc(file, compression="zstd")
    else:  # string views, as Arrow of today writes them
        table = FRAME.to_arrow(compat_level=pl.CompatLevel.newest())
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_damaged_files_of_types(tmp_path, suffix):
    """Seeds of which some made polars panic."""
    whole, rng = _typed(suffix), random.Random(7)
    path, told = tmp_path / f"a.{suffix}", 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 2, 8))):
            at = max(0, len(data) - 1 - rng.randrange(min(len(data), 900)))
            data[at : at + rng.choice((0, 1, 4))] = bytes(rng.randrange(256) for _ in range(4))
        path.write_bytes(data)
        for read in (Ratings.from_data, pairs_of, stream):
            try:
                read(path)
            except InputError:
                told += 1
    assert told > 50


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_names_that_are_not_utf8(tmp_path, suffix):
    path = tmp_path / f"{NAME}.{suffix}"
    with path.open("wb") as file:
        getattr(FRAME, {"arrow": "write_ipc"}.get(suffix, f"write_{suffix}"))(file)
    assert len(Ratings.from_data(path)) == 200
    assert len(pairs_of(path)[0]) == 200
    assert len(pack(path, tmp_path / "packed")) == 200
    path.write_bytes(b"user,item,rating\n1,2,x\n")
    ran = run("pack", path, "--out", tmp_path / "p")
    assert ran.status == 2
    assert r"a\udcff" in ran.sentence


def test_names_that_are_not_utf8_are_written(tmp_path):
    folder = tmp_path / NAME
    folder.mkdir()
    for suffix in ("csv", "parquet"):
        Ratings.from_data(FRAME).write(folder / f"{NAME}.{suffix}")
        assert len(Ratings.from_data(folder / f"{NAME}.{suffix}")) == 200
        Synthetic(20, 10, 100).write(folder / f"s.{suffix}")
        assert len(Ratings.from_data(folder / f"s.{suffix}")) == 100


def _special(folder):
    os.mkfifo(folder / "pipe.csv")
    os.mkfifo(folder / "pipe.parquet")
    (folder / "zero.csv").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(folder)  # names of sockets are short
        try:
            made.bind("socket.csv")
        finally:
            os.chdir(here)
    (folder / "movielens").mkdir()
    os.mkfifo(folder / "movielens" / "u.data")
    (folder / "ours").mkdir()
    os.mkfifo(folder / "ours" / "manifest.json")
    return sorted(folder.iterdir())


def test_special_files_are_not_waited_for(tmp_path):
    for path in _special(tmp_path):
        for read in (Ratings.read, stream):
            with pytest.raises(InputError):
                read(path)
        if not path.is_dir():
            with pytest.raises((InputError, OSError)):
                open_regular(path)


def test_names_that_cannot_be(tmp_path):
    for name in ("x" * 5000, "a\0b", "a/" * 3000):
        for read in (Ratings.from_data, stream, pairs_of):
            with pytest.raises(InputError):
                read(tmp_path / name)
        with pytest.raises(InputError):
            Ratings.from_data(FRAME).write(str(tmp_path / name) + ".csv")
    ran = run("synth", "--shape", "ml-100k", "--out", tmp_path / ("x" * 5000 + ".csv"))
    assert ran.status == 2


def test_a_home_is_not_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder, lines in (("~", LINES), ("home", LINES[:60])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text(f"user,item,rating\n{lines}")
    assert len(Ratings.from_data("~/a.csv")) == 200


def test_little_of_a_bomb_is_unpacked(tmp_path):
    """Its head says that it is no table; all of it would not fit in the memory allowed here."""
    code = (
        "import sys, resource; import polars; from bayesmf import Ratings, InputError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "for path in sys.argv[1:]:\n"
        "    try: Ratings.from_data(path)\n"
        "    except InputError as error: print(error)\n"
    )
    paths = []
    for k, byte in enumerate((b"\n", b"a", b"\0")):
        paths.append(tmp_path / f"{k}.csv.gz")
        piece = gzip.compress(byte * (1 << 26))
        paths[-1].write_bytes(piece * 100)  # 6.4 GB
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.count("csv.gz") == 3, done.stderr


@pytest.mark.parametrize("counted", [-1, 10, 10**17])
def test_parquet_by_uri_that_counts_other_rows_than_it_has(tmp_path, monkeypatch, counted):
    """The footer is not believed: the rows read are counted."""
    pytest.importorskip("pyarrow")
    from bayesmf import pack

    path = tmp_path / "ratings.parquet"
    pl.DataFrame({"user": range(9), "item": range(9), "rating": [3.0] * 9}).write_parquet(path)
    opened = RemoteFile._open

    @contextlib.contextmanager
    def forged(self):
        with opened(self) as file:
            metadata = SimpleNamespace(num_rows=counted)
            yield SimpleNamespace(
                metadata=metadata, schema_arrow=file.schema_arrow, iter_batches=file.iter_batches
            )

    monkeypatch.setattr(RemoteFile, "_open", forged)
    with pytest.raises(InputError, match="other rows than it counts"):
        pack(path.as_uri(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
