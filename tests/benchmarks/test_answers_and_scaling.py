"""The benchmarks of answers and of scaling, on a few ratings."""

import csv
import json
import sys

import pytest


def test_answers_say_that_their_peer_is_missing(monkeypatch, capsys):
    from benchmarks.speed import answers

    monkeypatch.setattr(answers, "SHAPES", {"ml-1m": (60, 40, 300)})
    options = ["--pairs", "1000", "--draws", "3", "--factors", "4", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["answers", *options, "--shapes", "ml-1m"])
    answers.main()
    told = capsys.readouterr().out
    assert "mean and std of 1,000 pairs" in told and "one draw, all items, 2 threads" in told
    assert "implicit is left out: no environment was named" in told
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--json", "--peers", "no-such-python"])
    answers.main()
    found = json.loads(capsys.readouterr().out)
    assert "no-such-python" in found["missing"]
    assert found["runs"] and all(run["seconds"] > 0 for run in found["runs"].values())


def test_one_answer_is_timed(monkeypatch, capsys):
    from benchmarks.speed import answers

    monkeypatch.setattr(answers, "SHAPES", {"ml-1m": (60, 40, 300)})
    monkeypatch.setattr(answers, "TIMES", 2)
    monkeypatch.setattr(sys, "argv", ["answers", "--latency", "--draws", "3", "--factors", "4"])
    answers.main()
    told = capsys.readouterr().out
    for words in (
        "D = 4, 3 draws",
        "load ",
        "a user, mean",
        "a user, ucb",
        "unseen user, thompson",
    ):
        assert words in told
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--json"])
    answers.main()
    found = json.loads(capsys.readouterr().out)["milliseconds"]
    assert found and all(ms > 0 for ms in found.values())


def test_scaling_draws_its_curves(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from benchmarks.cluster.scaling import main

    small = ["--shapes", "netflix", "--factors", "4", "--rate", "1e7"]
    assert main([*small, "--most", "4", "--out", str(tmp_path)]) == 0
    assert "| netflix | dsgld-c 4x1 | 4 | 4 |" in capsys.readouterr().out
    with (tmp_path / "scaling.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2
    used = {(row["split"], row["workers"]): float(row["efficiency"]) for row in rows}
    assert all(0.5 < share < 1.1 for share in used.values())
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert main([*small, "--most", "0"]) == 2
    assert "--most" in capsys.readouterr().err
