"""`make bench`, on a few ratings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.speed import timers as bench
from benchmarks.speed.bench import main
from cli_tools import command, contents

TINY = ("--shape", "ml-100k", "--scale", "0.01", "--factors", "3", "--repeats", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MOST", 2)
    monkeypatch.setattr(bench.answer_timers, "__defaults__", (1000,))
    monkeypatch.setattr(bench.answer_rows, "__defaults__", (1000,))


def test_bench_tells_programs(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    told = command(main, *TINY, "--json", "--out", out).json
    assert told == json.loads(out.read_text())
    assert [row["rule"] for row in told["rules"]] == list(bench.RULES)
    assert [row["rule"] for row in told["rules"] if row["default"]] == ["gibbs"]
    for row in told["rules"]:
        rate = row["ratings_per_second"] * row["seconds_per_epoch"]
        assert rate == pytest.approx(told["ratings"]) and row["factors"] == 3
    assert len(told["threads"]) == 4 and all(row["speed_up"] > 0 for row in told["threads"])
    assert [row["answer"] for row in told["answers"]] == ["predict", "top-10"] * 2
    assert told["machine"]["cores"] >= 1 and (told["shape"], told["repeats"]) == ("ml-100k", 1)


def test_bench_tells_people_what_was_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "bench.md"
    ran = command(main, *TINY, "--only", "sgd", "gibbs", "threads", "--out", out)
    assert (ran.status, ran.err) == (0, "")
    assert "Gibbs, whole rows (default)" in ran.out and "SGLD, one chain, 2x2 grid" in ran.out
    assert "| SGHMC |" not in ran.out and "Answers" not in ran.out
    written = out.read_text()
    assert "| rule | D | ms per epoch | M ratings/s |\n|---|--:|--:|--:|\n| SGD | 3 |" in written
    assert contents(tmp_path) == {"bench.md"}


def test_one_thread_is_compared_with_nothing() -> None:
    told = command(main, *TINY, "--only", "threads", "answers", "--threads", "1", "--json").json
    assert told["threads"] == told["rules"] == [] and len(told["answers"]) == 2


@pytest.mark.parametrize(("args", "says"), [
    (("--shape", "netflix"), "netflix"),
    (("--only", "nuts"), "nuts"),
    (("--factors", "0"), "--factors"),
    (("--scale", "0"), "--scale"),
    (("--out", "bench.txt"), "bench.txt must end in .md or .json"),
    (("--out", "none/bench.md"), "there is no folder"),
])  # fmt: skip
def test_bench_says_no_in_a_sentence(args: tuple[str, ...], says: str) -> None:
    ran = command(main, *args)
    assert ran.status == 2 and says in ran.err and ran.err.count("\n") == 1
