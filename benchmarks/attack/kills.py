"""Commands that are ended at any moment, and what they leave: the old, the new, or a way on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from benchmarks.attack.case import Case, Ran
from benchmarks.attack.material import draws_of
from benchmarks.attack.processes import QUICK, Kill, process
from benchmarks.attack.registry import attack


def signal_and_delay(case: Case) -> Kill:
    """Any moment of a short life, those in which it writes above all."""
    number = case.rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    writing = case.rng.random() < 0.7
    delay = case.rng.uniform(0.0, 0.15) if writing else case.rng.uniform(0.3, 2.6)
    case.say(f"{number.name} after {delay:.3f} s{' of writing' if writing else ''}")
    return Kill(number, delay, writing)


def judge_killed(case: Case, ran: Ran, sent: int) -> None:
    """Judge like any command, but a signal before `main` is called meets plain Python."""
    if sent == signal.SIGINT and "KeyboardInterrupt" in ran.err and "in main" not in ran.err:
        case.refused = True
        return
    case.judge(ran, sent)


def swept(case: Case) -> None:
    """Once the same was done again, nothing of what was killed is left."""
    left = [p.name for p in case.work.iterdir() if p.name.startswith(".")]
    if left:
        case.find("files touched", f"{left[0]} is still there after the command was run again")


@attack("kills", quick=False)
def fit(case: Case) -> None:
    """A fit with checkpoints goes on to the same bits."""
    from bayesmf import BayesianMF

    case.untidy = True
    source = case.copy("ratings.csv")
    line = ("fit", source, "--out", case.work / "model", *QUICK, "--epochs", "150")
    reference = ("fit", source, "--out", case.work / "reference", *QUICK, "--epochs", "150")
    kept = (*line, "--checkpoint", case.work / "kept", "--checkpoint-every", "0")
    kill = signal_and_delay(case)
    judge_killed(case, process(case, kept, kill=kill), kill[0])
    for again in (kept, (*kept, "--resume")):
        ran = case.cli(*again)
        if ran.status == 0:
            break
    else:
        return case.find("other answers", f"it cannot go on: {ran.err}")
    case.cli(*reference)
    one, other = (draws_of(BayesianMF.load(case.work / name)) for name in ("model", "reference"))
    if not np.array_equal(one, other):
        case.find("other answers", f"resumed to other bits: {'; '.join(case.said)}")
    swept(case)
    return None


@attack("kills", quick=False)
def save_over(case: Case) -> None:
    """A fit that saves over a model leaves the old one or the new one."""
    from bayesmf import BayesianMF

    case.untidy = True
    case.copy("model")
    source = case.copy("ratings.csv")
    kill = signal_and_delay(case)
    line = ("fit", source, "--out", case.work / "model", *QUICK, "--epochs", "9")
    judge_killed(case, process(case, line, kill=kill), kill[0])
    draws_of(case.call(lambda: BayesianMF.load(case.work / "model")))
    if case.cli(*line).status != 0:
        case.find("other answers", "the same fit fails after a kill")
    swept(case)


@attack("kills", quick=False)
def pack(case: Case) -> None:
    """A packing that was killed leaves no result, and can be run again."""
    case.untidy = True
    source = case.copy("ratings.csv")
    line = ("pack", source, "--out", case.work / "packed")
    kill = signal_and_delay(case)
    judge_killed(case, process(case, line, kill=kill), kill[0])
    again = case.cli(*line, *(("--overwrite",) if (case.work / "packed").exists() else ()))
    if again.status != 0:
        return case.find("other answers", f"it cannot start again: {again.err}")
    reference = case.work / "reference"
    case.cli("pack", source, "--out", reference)
    if (case.work / "packed").read_bytes() != reference.read_bytes():
        case.find("other answers", "packed to other bytes")
    return None


@attack("kills", quick=False)
def predict(case: Case) -> None:
    """A file of predictions is there whole, or the old one, or not at all."""
    case.untidy = True
    pairs, out = case.copy("pairs.csv"), case.work / f"out.{case.rng.choice(('csv', 'parquet'))}"
    line = ("predict", case.material.folder / "model", pairs, "--out", out)
    case.cli(*line)
    whole = out.read_bytes()
    out.write_bytes(b"old") if case.rng.random() < 0.5 else out.unlink()
    kill = signal_and_delay(case)
    judge_killed(case, process(case, line, kill=kill), kill[0])
    if out.exists() and out.read_bytes() not in (b"old", whole):
        case.find("other answers", f"half a file: {'; '.join(case.said)}")


@attack("kills", 0.5, quick=False)
def at_a_prompt(case: Case) -> None:
    """Ctrl-C in quick succession, as people press it."""
    case.untidy = True
    source = case.copy("ratings.csv")
    kept = ("--checkpoint", case.work / "kept") if case.rng.random() < 0.5 else ()
    line = ("fit", source, "--out", case.work / "model", *QUICK, "--epochs", "3000", *kept)
    started = time.monotonic()
    case.say("three times SIGINT")
    with (case.box / "err.txt").open("wb") as err:
        run = subprocess.Popen([sys.executable, "-m", "bayesmf", *map(str, line)],
            stdout=subprocess.DEVNULL,
                               stderr=err, start_new_session=True)  # fmt: skip
    time.sleep(case.rng.uniform(0.3, 2.0))
    for _ in range(3):
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
        time.sleep(case.rng.uniform(0.0, 0.1))
    try:
        status = run.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return case.find("hangs", f"no end {time.monotonic() - started:.0f} s after Ctrl-C")
    told = (case.box / "err.txt").read_text(errors="replace")
    judge_killed(case, Ran(status, "", told), signal.SIGINT)
    return None
