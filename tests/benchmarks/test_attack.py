"""A part of the attacks of benchmarks/attack, and whether their judge sees what it should."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
N = 200
KINDS = (
    "text", "binary", "artefacts", "forged", "threads", "arguments",
    "typed.columns", "typed.matrices", "typed.questions", "typed.things",
)  # fmt: skip
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and signals of POSIX")


@pytest.fixture
def case(tmp_path):
    from benchmarks.attack.case import Case

    streams = SimpleNamespace(read=lambda: ("", ""), reset=lambda: None)
    return Case("text.damaged:1", tmp_path / "box", SimpleNamespace(folder=tmp_path), streams)


def attack(*options, timeout=240):
    command = [sys.executable, "-m", "benchmarks", "attack", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def test_some_attacks_find_nothing(tmp_path):
    """Of kinds that need neither a process of their own nor other kernels than most tests do."""
    options = ("--n", N, "--seed", 4242, "--quick", "--jobs", 1, "--json")
    done = attack(*options, "--material", tmp_path / "material", "--kinds", *KINDS)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    counts = found["counts"]["all"]
    assert counts["attacks"] == N and counts["refused"] > 60 and counts["answered"] > 30
    assert not found["findings"]


def test_calls_that_fail_in_turn():
    done = attack("--failing", "--writers", "save", "--jobs", 1, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert rows and all(row["refused"] > 3 for row in rows)


def test_a_seed_is_an_attack(capsys):
    from benchmarks.attack.attack import main
    from benchmarks.attack.registry import chosen, known

    seeds = chosen(500, 3, None, quick=False)
    assert seeds == chosen(500, 3, None, quick=False) != chosen(500, 4, None, quick=False)
    assert all(map(known, seeds)) and len(set(seeds)) == 500
    assert {seed.split(".")[0] for seed in chosen(50, 3, ["text", "limits"], False)} <= {
        "text",
        "limits",
    }
    for options, said in (
        (["--kinds", "nothing"], "nothing"), (["--only", "text.damaged"], "text.damaged"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(options)
        assert ended.value.code == 2 and said in capsys.readouterr().err


def test_what_a_judge_sees_of_calls(case):
    from bayesmf.errors import InputError
    from benchmarks.attack.case import Refused

    def refuse(text):
        raise InputError(text)

    assert case.call(lambda: 3) == 3 and not case.findings
    for ask, of in (
        (lambda: refuse("a is b: give c."), None),
        (lambda: 1 // 0, "tracebacks"), (lambda: refuse(""), "messages"),
    ):  # fmt: skip
        case.findings.clear()
        with pytest.raises(Refused):
            case.call(ask)
        assert [found for found, _ in case.findings] == ([of] if of else [])
    case.findings.clear()
    case.call(lambda: np.float32(1) / np.float32(0))
    assert "raw RuntimeWarning" in case.findings[0][1]


@pytest.mark.parametrize(("status", "err", "found"), [
    (0, "", []),
    (2, "bayesmf: error: a is b.\n", []),
    (2, "bayesmf: warning: c.\nbayesmf: error: a is b.\n", []),
    (2, "Traceback (most recent call last):\n", ["tracebacks"]),
    (1, "bayesmf: error: something went wrong that should not have (E: e)\n", ["tracebacks"]),
    (0, "thread 'x' panicked at src/a.rs\n", ["tracebacks"]),
    (2, "bayesmf: error: \x1b[31mred.\n", ["messages"]),
    (2, "", ["messages"]),
    (3, "bayesmf: error: a.\n", ["messages"]),
    (-11, "", ["signals"]),
    (139, "", ["signals"]),
])  # fmt: skip
def test_what_a_judge_sees_of_commands(status, err, found, case):
    from benchmarks.attack.case import Ran

    case.judge(Ran(status, "", err))
    assert sorted({of for of, _ in case.findings}) == found


def test_what_is_touched_is_seen(case):
    (case.outside / "folder/a.csv").unlink()
    (case.outside / "new").touch()
    (case.work / ".bayesmf-1-2").mkdir()
    (case.tmp / "left").touch()
    case.finish()
    told = " ".join(text for _, text in case.findings)
    assert {of for of, _ in case.findings} == {"files touched"}
    for name in ("a.csv is gone", "new is new", ".bayesmf-1-2", "tmp/left"):
        assert name in told


def test_a_worker_that_dies_or_hangs_is_a_finding(tmp_path, monkeypatch):
    """And the attacks after it are run all the same."""
    from benchmarks.attack import pool, registry

    script = (
        "import json, os, sys, time\n"
        "out = os.fdopen(os.dup(1), 'w')\n"
        "print(json.dumps({'ready': True}), file=out, flush=True)\n"
        "for line in sys.stdin:\n"
        "    what = int(line.rpartition(':')[2])\n"
        "    what == 1 and os.abort()\n"
        "    what == 2 and time.sleep(60)\n"
        "    print(json.dumps({'seed': line.strip(), 'findings': []}), file=out, flush=True)\n"
    )
    made = pool.AttackWorker.__init__

    def fake(self, *args):
        monkeypatch.setattr(pool.sys, "executable", str(tmp_path / "python"))
        made(self, *args)

    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -c "$(cat {tmp_path}/s)"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "s").write_text(script)
    monkeypatch.setattr(pool.AttackWorker, "__init__", fake)
    registry.load_all()
    found = pool.AttackPool(tmp_path, tmp_path, 1, [], dict(os.environ), limit=0.5)
    ended = {
        one["seed"][-1]: one["findings"] for one in found.run([f"text.noise:{k}" for k in range(4)])
    }
    assert ended["0"] == ended["3"] == []
    assert ended["1"][0][0] == "signals" and "SIGABRT" in ended["1"][0][1]
    assert ended["2"][0][0] == "hangs"


ROWS = [f"{k % 7},{k},{k % 5 + 1}" for k in range(30)]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("1,2,4.5", "read"), ("1,2,4.5\r", "read"), ("1,2", "Wrong"), ("1,2,3,4", "Wrong"),
        ("1,2,x", "Wrong"),
        ("1,2,", "Wrong"), (",2,3", "Wrong"), ("1,2,1e39", "Wrong"), ('"1",2,3', "Unclear"),
        ("1,2,\x07", "Unclear"),
        ("1,2,4.", "Unclear"), ("\xe9,2,3", "Unclear"), ("1,\u2028,3", "Unclear"),
    ],
)  # fmt: skip
def test_the_strict_reader(line, verdict):
    from benchmarks.attack import strict

    raw = "\n".join([*ROWS, line]).replace("\r", "\r\n").encode()
    if verdict == "read":
        found = strict.table(raw, ",", None, 3)
        assert len(found) == 31 and found["1", "2"] == np.float32(4.5)
        return
    with pytest.raises(getattr(strict, verdict)):
        strict.table(raw, ",", None, 3)


PLAIN = """
import warnings; warnings.simplefilter("ignore")
import numpy as np
from benchmarks.attack import plain
plain.install()
from bayesmf import BayesianMF, Gibbs, SGLD
from bayesmf.kernels.csr import group_rows
row = np.arange(40) % 7
data = row, np.arange(40) % 6 + row % 3, np.arange(40) % 5 + 1.0
answers = []
for rule in (Gibbs(epochs=3, burn_in=1, n_chains=1), SGLD(epochs=2, burn_in=1, batch_size=8)):
    model = BayesianMF(3, sampler=rule, random_state=1, engine="serial").fit(data)
    answers.append(float(model.predict(1, 2)))
print(*answers)
for bad in (-1, 7):
    try:
        group_rows(np.array([0, bad]), np.array([0, 1]), np.array([1.0, 2.0]), 6)
    except plain.OutOfRange:
        print("out of range")
"""


def test_kernels_as_plain_python(tmp_path):
    """Their numbers are those of compiled ones, and an index out of range is an error."""
    from bayesmf import BayesianMF, Gibbs

    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    numbers, first, second = done.stdout.splitlines()
    assert first == second == "out of range"
    found = list(map(float, numbers.split()))
    row = np.arange(40) % 7
    data = row, np.arange(40) % 6 + row % 3, np.arange(40) % 5 + 1.0
    rule = Gibbs(epochs=3, burn_in=1, n_chains=1)
    model = BayesianMF(3, sampler=rule, random_state=1, engine="serial").fit(data)
    assert model.predict(1, 2) == pytest.approx(found[0], abs=1e-4)
    assert 1 <= found[1] <= 5
