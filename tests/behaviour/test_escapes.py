"""Ids, names and messages that would steer a terminal: shown as escapes, kept as data."""

import json

import polars as pl
import pytest

from bayesmf import Ratings
from bayesmf.cli.output import note, print_csv
from bayesmf.wording import printable
from cli_tools import QUICK, process, run
from terminal import forked

EVIL = "\x1b]0;pwn\x07\u202e\r\x9b2J"
SHOWN = printable(EVIL)
STEERS = ("\x1b]", "\x07", "\u202e", "\x9b")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("escapes")
    rows = [(f"{EVIL}{k % 17}", f"i{EVIL}{k % 13}", k % 5 + 1) for k in range(200)]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")
    frame.write_parquet(folder / f"{EVIL}.parquet")
    frame.head(3).write_parquet(folder / "few.parquet")
    assert run("fit", folder / f"{EVIL}.parquet", "--out", folder / "model", *QUICK).status == 0
    return folder


@pytest.mark.parametrize("args", [
    ("predict", "model", "few.parquet"),
    ("recommend", "model", f"{EVIL}3", f"{EVIL} who", "-n", "3"),
    ("predict", "model", "few.parquet", "--json"),
    ("pack", f"{EVIL}.parquet", "--out", f"{EVIL}.parquet/a"),
    ("fit", f"{EVIL}.parquet", f"--columns=user={EVIL}", "--out", "m"),
    ("fit", f"{EVIL}.csv", "--out", "m"),
    (EVIL,),
], ids=lambda args: args[0])  # fmt: skip
def test_nothing_steers_the_terminal(place, args):
    found = forked(*args, columns=800, cwd=place, env={"BAYESMF_PROGRESS_AFTER": "0"})
    assert not [mark for mark in STEERS if mark in found.raw]
    assert "pwn" in found.raw


def test_data_in_files_and_pipes_are_as_they_were(place):
    ids = Ratings.from_data(place / "few.parquet").users.tolist()
    ran = run("predict", place / "model", place / "few.parquet", "--out", place / "p.csv")
    assert ran.status == 0
    assert Ratings.from_data(place / "p.csv", columns={"rating": "mean"}).users.tolist() == ids
    ran = process("predict", place / "model", place / "few.parquet", "--json")
    assert [row["user"] for row in json.loads(ran.stdout)["predictions"]] == ids


def test_csv_to_a_pipe_and_to_a_terminal(capsysbinary, monkeypatch):
    frame = pl.DataFrame({"user": [EVIL, "a\nb"], "mean": [1.0, 2.0]})
    print_csv(frame)
    assert capsysbinary.readouterr().out == frame.write_csv().encode()
    monkeypatch.setattr("bayesmf.cli.output.is_terminal", lambda stream: True)
    print_csv(frame)
    assert capsysbinary.readouterr().out.decode() == f"user,mean\n{SHOWN},1.0\na\\nb,2.0\n"


def test_notes_lines_and_traces(capsys, monkeypatch, tmp_path):
    note("x" * 10**6)
    note(f"it is {EVIL}", command=f"bayesmf fit {EVIL}")
    monkeypatch.setattr("bayesmf.cli.output.is_terminal", lambda stream: True)
    note(f"it is {EVIL}", command=f"bayesmf fit {EVIL}")
    monkeypatch.undo()
    assert run("fit", tmp_path / EVIL, "--debug").err.count("Traceback") == 1
    said = capsys.readouterr().err + run("fit", tmp_path / EVIL, "--debug").err
    assert not [mark for mark in STEERS if mark in said]
    assert len(said) < 10_000
