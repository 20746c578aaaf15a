"""The harness of `benchmarks faults`; tests/engines/test_ray.py injects most of its faults."""

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.faults import faults
from benchmarks.faults.faults import busy, good, read_lines, summary, table
from benchmarks.faults.kinds import TrialLimits
from benchmarks.faults.nodes import alive, descendants

NO_RAY = importlib.util.find_spec("ray") is None
pytestmark = pytest.mark.skipif(NO_RAY, reason="the extra 'ray' is not installed")
CASES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(("options", "said"), [
    (["--kinds", "flood"], "'flood' is none of worker, node"),
    (["--n", "-1"], "0 or more"),
    (["--out", "."], "is not a file"),
])  # fmt: skip
def test_bad_options_are_one_sentence(options, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        faults.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("faults: ") and said in line


def test_without_ray_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr(faults.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        faults.main([])
    assert "pip install ray" in capsys.readouterr().err


def test_kinds_and_cases_are_spread_evenly_by_the_seed():
    kinds = list(faults.KINDS)
    planned = faults.plan(kinds, 70, 5, CASES)
    assert planned == faults.plan(kinds, 70, 5, CASES) != faults.plan(kinds, 70, 6, CASES)
    assert set(Counter(one.kind for one in planned).values()) == {10}
    assert {17, 18} >= set(Counter(one.case for one in planned).values())
    assert min(Counter((one.kind, one.case) for one in planned).values()) >= 2


def test_limits_are_multiples_of_what_was_measured():
    quick = TrialLimits.measured([(4.0, [2.0, 2.1, 2.3]), (3.0, [1.0, 1.1])])
    assert (quick.start, quick.whole, round(quick.gap, 3)) == (2.0, 4.0, 0.2)
    slow = TrialLimits.measured([(60.0, [30.0, 35.0])])
    assert slow.start_timeout >= 10 * 30 and slow.deadline >= 12 * 60
    assert slow.task_timeout >= 10 * 5 and slow.short_start > 30
    assert quick.start_timeout >= 60 and quick.deadline >= 180  # the load may rise
    assert quick.started(50.0).start_timeout == 500


def lines_of(planned, status="same"):
    return [
        {
            **one._asdict(),
            "seed": 0,
            "status": status,
            "injected": True,
            "seconds": 2.0,
            "log": [],
        }
        for one in planned
    ]


def test_finished_runs_are_kept_and_others_refused(tmp_path):
    planned, path = faults.plan(["worker", "hang"], 4, 0, CASES), tmp_path / "out.jsonl"
    lines = lines_of(planned[:2])
    quiet = {**lines[0], "kind": "none", "number": -1}
    path.write_text("".join(json.dumps(line) + "\n" for line in (quiet, *lines)))
    assert read_lines(path, planned, 0) == lines
    with pytest.raises(ValueError, match="line 2, has a fault that is not planned"):
        read_lines(path, planned, 1)
    path.write_text("something else\n")
    with pytest.raises(ValueError, match="line 1, is not a run"):
        read_lines(path, planned, 0)


def test_anything_lost_hung_or_left_is_no_success():
    planned = faults.plan(["worker", "hang"], 4, 0, CASES)
    fine = summary(lines_of(planned), planned, [])
    assert good(fine) and fine["kinds"]["hang"]["injected"] == 2
    for status in ("lost", "hung", "different", "missed"):
        found = summary(lines_of(planned[:3]) + lines_of(planned[3:], status), planned, [])
        assert not good(found) and found[status] == 1
    assert not good(summary(lines_of(planned), planned, ["7 raylet"]))
    told = table({**fine, "busy": 0, "cores": 2, "seconds": 9.0}).splitlines()
    assert told[-2].split() == ["all", "4", "4", "0", "0", "0", "0"]


def test_busy_processes_are_ended():
    with busy(2) as pids:
        begun = [one for one in descendants(os.getpid()) if one[0] in pids]
        assert len(begun) == 2 and all(map(alive, begun))
    assert not any(map(alive, begun))
