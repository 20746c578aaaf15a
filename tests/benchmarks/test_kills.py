"""`benchmarks kills` finds what it is there to find, in processes that take no time."""

import hashlib
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.faults import kills

GOOD = "open('part', 'w').write('whole'); time.sleep(0.1); os.replace('part', 'result')"
TWICE = "open('result', 'a').write('whole'); time.sleep(0.1)"  # where it is killed in between
LITTER = f"open(f'part-{{os.getpid()}}', 'w'); {GOOD}"


def job(program, **more):
    def command(folder):
        start = f"import os, time; os.chdir({str(folder)!r}); "
        return [sys.executable, "-S", "-c", start + program]

    def answer(folder):
        return hashlib.sha256((folder / "result").read_bytes()).hexdigest()

    made = kills.Victim("test", command, answer, ("result",), seconds=0.2, **more)
    made.right.add(hashlib.sha256(b"whole").hexdigest())
    return made


def found(tmp_path, made, runs=4):
    told = []
    for number in range(runs):
        folder = tmp_path / f"run-{number}"
        count, moments, wrong = kills.one_run(made, folder, random.Random(number))
        told.append((count, wrong))
        assert len(moments) <= kills.KILLS
    return sum(count for count, _ in told), {wrong for _, wrong in told if wrong}


def test_what_holds_is_no_finding(tmp_path):
    count, wrong = found(tmp_path, job(GOOD))
    assert count > 0 and wrong == set()


def test_other_bits_and_litter_are_findings(tmp_path):
    assert found(tmp_path, job(TWICE))[1] == {"the result has other bits"}
    again = tmp_path / "again"
    again.mkdir()
    _, litter = found(again, job(LITTER))
    assert litter and all(one.startswith("left behind: part-") for one in litter)


def test_an_end_that_is_none_is_a_finding(tmp_path):
    _, wrong = found(tmp_path, job("raise SystemExit('no more')"), runs=1)
    assert wrong == {"status 1: no more"}


@pytest.mark.parametrize(
    ("options", "said"), [(["--what", "cat"], "'cat' is none of fit"), (["--n", "0"], "1 or more")]
)
def test_bad_options_are_one_sentence(options, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        kills.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kills: ") and said in line
