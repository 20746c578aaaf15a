"""`bayesmf fit --checkpoint`: signals, SIGKILL, and the command line that goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bayesmf import Ratings
from cli_tools import Data, contents, run
from forged import file_contents

FIT = (
    "--sampler", "gibbs", "--epochs", "60", "--chains", "2", "--factors", "3", "--max-draws", "20",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("signals_reach_us")


@pytest.fixture(scope="module")
def expected(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run that was never stopped saves."""
    out = tmp_path_factory.mktemp("expected") / "whole"
    assert run("fit", data.train, "--out", out, *FIT).status == 0
    return _draws(out)


def _draws(model: Path) -> dict[str, bytes]:
    arrays, _ = file_contents(model)
    return {name: np.array(a).tobytes() for name, a in arrays.items() if name != "history"}


def _start(*args: object) -> subprocess.Popen[str]:
    """A process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "bayesmf", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _newest(folder: Path) -> int:
    """Rounds that the chain furthest behind has on the disk."""
    found = [
        max((int(p.name[6:]) for p in (folder / f"chain-{c}").glob("round-*")), default=0)
        for c in range(2)
    ]
    return min(found)


def _wait(process: subprocess.Popen[str], folder: Path, rounds: int) -> None:
    until = time.monotonic() + 60
    while _newest(folder) < rounds and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.01)  # looking is work too, and the other process needs the core


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_and_the_command_that_goes_on(
    signum: signal.Signals, data: Data, expected: dict[str, bytes], tmp_path: Path
) -> None:
    folder, out = tmp_path / "check points", tmp_path / "m"
    args = ("fit", data.train, "--out", out, *FIT, "--checkpoint", folder, "--checkpoint-every", 0)
    process = _start(*args)
    _wait(process, folder, 5)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + signum, "")
    epoch = _newest(folder)
    assert 5 <= epoch < 60
    said, _, command = stderr.rstrip("\n").partition("; resume with: ")
    assert said == f"bayesmf: stopped by {signum.name} after epoch {epoch} of 60"
    assert shlex.split(command) == ["bayesmf", *map(str, args), "--resume"]
    assert not out.exists()
    assert run(*shlex.split(command)[1:]).status == 0
    assert _draws(out) == expected


def test_killed_three_times(data: Data, expected: dict[str, bytes], tmp_path: Path) -> None:
    folder, out = tmp_path / "c", tmp_path / "m"
    args = ("fit", data.train, "--out", out, *FIT, "--checkpoint", folder, "--checkpoint-every", 0)
    rng = np.random.default_rng()  # at other moments each time
    for rounds in (3, 13, 30):
        process = _start(*args, "--resume", "--engine", ("serial", "threads")[rounds % 2])
        _wait(process, folder, rounds)
        time.sleep(float(rng.uniform(0, 0.03)))
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    ran = run(*args, "--resume", "--json")
    assert ran.json["epochs"] == 60
    assert _draws(out) == expected


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_before_the_run_begins_a_signal_says_the_same(
    signum: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ratings, "read", lambda *args, **more: os.kill(os.getpid(), signum))
    args = ("fit", "r.csv", "--checkpoint", tmp_path / "c", "--out", tmp_path / "m")
    before = signal.getsignal(signum)
    ran = run(*args)
    assert (ran.status, ran.out) == (128 + signum, "")
    again = shlex.join(["bayesmf", *map(str, args), "--resume"])
    assert ran.err == f"bayesmf: stopped by {signum.name}; resume with: {again}\n"
    assert signal.getsignal(signum) is before
    assert run(*args, "--resume").err.endswith(f"; resume with: {again}\n")  # added once
    dashed = ("fit", "--checkpoint", tmp_path / "c", "--out", tmp_path / "m", "--", "r.csv")
    assert run(*dashed).err.endswith(" --resume -- r.csv\n")
    assert contents(tmp_path) == set()


def test_resume_says_that_there_is_nothing(data: Data, tmp_path: Path) -> None:
    quick = ("--sampler", "sgd", "--epochs", "3", "--factors", "2")
    args = ("fit", data.train, "--out", tmp_path / "m", "--checkpoint", tmp_path / "c", *quick)
    ran = run(*args, "--resume")
    assert ran.status == 0
    assert (
        ran.err == f"bayesmf: {tmp_path / 'c'} holds no checkpoint: starting from the beginning\n"
    )
    assert f"checkpoint   {tmp_path / 'c'}\n" in ran.out
    assert f"{tmp_path / 'c'}, resumed from it" in " ".join(run(*args, "--resume").out.split())
    again = run(*args, "--resume", "--json")
    assert (again.err, json.loads(again.out)["epochs"]) == ("", 3)
    assert "add" not in run(*args).sentence
    assert "--resume" in run(*args).sentence
    assert "seed 0 there, 1 here" in run(*args, "--resume", "--seed", 1).sentence
    assert "n_factors 2 there, 3 here" in run(*args, "--resume", "--factors", 3).sentence


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--resume"], "--resume needs --checkpoint DIR"),
        (["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoint DIR"),
        (["--checkpoint", "c", "--checkpoint-every", "-1"], "a number of seconds, 0 or more"),
        (["--checkpoint", "c", "--checkpoint-every", "nan"], "a number of seconds, 0 or more"),
        (["--checkpoint", "{train}"], "is a file and not a folder"),
        (["--checkpoint", "m"], "the file of the model, or in it"),
        (["--checkpoint", "m/c"], "the file of the model, or in it"),
    ],
)
def test_what_is_refused(
    options: list[str], says: str, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [option.format(train=data.train, folder=data.train.parent) for option in options]
    ran = run("fit", data.train, "--out", "m", *given)
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()
