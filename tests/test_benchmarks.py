"""The race of benchmarks/time_to_rmse.py, with our own samplers on a few planted ratings."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def race(*options):
    command = [sys.executable, "-m", "benchmarks.time_to_rmse", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_race_writes_checkpoints_table_and_figure(tmp_path):
    done = race(
        "--synthetic", 0.001, "--systems", "gibbs,sgld,myfm", "--quick", "--repeats", 1,
        "--factors", 4, "--target", 1.2, 1.0, "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "time_to_rmse.csv").open() as file:
        rows = list(csv.DictReader(file))
    for system in ("gibbs", "sgld"):
        lines = [row for row in rows if row["system"] == system]
        seconds = [float(row["seconds"]) for row in lines]
        assert len(lines) == 8
        assert seconds == sorted(seconds)
        assert 0.8 < min(float(row["rmse"]) for row in lines) < 1.3
    table = (tmp_path / "time_to_rmse.md").read_text()
    assert "| bayesmf Gibbs |" in table and "s to 1.0000" in table
    # No environment of the peers was named: said so, and the rest ran.
    assert "| myFM |" in table and "missing: no environment" in table
    assert (tmp_path / "time_to_rmse.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "name some data"),
        (["--synthetic", "2"], "--synthetic"),
        (["--synthetic", "0.001", "--systems", "nobody"], "nobody"),
        (["--ml-1m", "no-such-folder"], "no-such-folder"),
    ],
)
def test_bad_input_is_one_sentence(options, said, capsys, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.time_to_rmse import main

    assert main(options) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1
