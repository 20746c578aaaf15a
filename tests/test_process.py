"""Signals that end a run with a checkpoint; the progress line: what it shows, and where."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from types import ModuleType

import pytest

from bayesmf import Checkpoint, Gibbs, Interrupted, Ratings
from bayesmf.chains.callbacks import History
from bayesmf.engines.local import Serial
from bayesmf.process import Line, clock_text, counting, outside_of_lines, short_count
from bayesmf.run.driver import run
from checkpointed import DATA, SETTINGS, run_kept, settings_of
from cli_tools import run as command
from dying import facts
from waiting import until

signals = pytest.mark.usefixtures("signals_reach_us")


def sending(signum, epoch, chain=0):
    """A callback that sends a signal at the end of an epoch."""

    def send(event):
        if (event.chain, event.epoch) == (chain, epoch):
            os.kill(os.getpid(), signum)

    return send


@signals
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_checkpoint(signum, tmp_path, reference):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    checkpoint = Checkpoint(tmp_path / "c", every=1e9)
    callbacks = [History(), sending(signum, 4, chain=1)]
    with pytest.raises(Interrupted) as info:
        run(DATA, SETTINGS, Serial(), None, callbacks, checkpoint=checkpoint)
    assert info.value.signum == signum
    begin = f"stopped by {signum.name} after epoch 4 of 9; resume with fit(..., checkpoint="
    assert str(info.value).startswith(begin)
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert run_kept(tmp_path / "c", resume=True) == reference


@signals
def test_a_run_of_unknown_length_says_how_far_it_came(tmp_path):
    settings = settings_of(Gibbs(), target="fast")
    callbacks = [History(), sending(signal.SIGTERM, 14)]  # in the second stage
    with pytest.raises(Interrupted, match="after epoch 14; resume with"):
        run(DATA, settings, Serial(), None, callbacks, checkpoint=Checkpoint(tmp_path / "c"))
    assert run_kept(tmp_path / "c", settings, resume=True) == run_kept(None, settings)


@signals
def test_a_second_signal_ends_at_once(tmp_path, reference):
    tasks = []

    class Sending(Serial):
        def submit(self, task):
            tasks.append(task)
            if len(tasks) in (60, 61):
                os.kill(os.getpid(), signal.SIGINT)
            return super().submit(task)

    with pytest.raises(Interrupted, match="second time"):
        run_kept(tmp_path / "c", engine=Sending())
    assert len(tasks) <= 61
    assert run_kept(tmp_path / "c", resume=True) == reference


@signals
def test_signals_that_were_ignored_stay_so(tmp_path, reference):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        history = History()
        callbacks = [history, lambda event: os.kill(os.getpid(), signal.SIGINT)]
        checkpoint = Checkpoint(tmp_path / "c")
        report = run(DATA, SETTINGS, Serial(), None, callbacks, checkpoint=checkpoint)
        assert facts(report, history) == reference
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_installed(tmp_path, reference):
    found, before = [], signal.getsignal(signal.SIGTERM)

    def fit():
        look = lambda event: found.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
        checkpoint = Checkpoint(tmp_path / "c")
        run(DATA, SETTINGS, Serial(), None, [History(), look], checkpoint=checkpoint)

    thread = threading.Thread(target=fit)
    thread.start()
    thread.join()
    assert set(found) == {before}


@signals
@pytest.mark.parametrize(
    ("signum", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_command_without_a_checkpoint_ends_with_a_line(signum, said, monkeypatch):
    cleared = []

    def read(*args, **more):
        try:
            os.kill(os.getpid(), signum)
        finally:
            cleared.append(True)

    monkeypatch.setattr(Ratings, "read", read)
    before = signal.getsignal(signum)
    ran = command("fit", "r.csv", "--out", "m")
    assert (ran.status, ran.out, ran.err) == (128 + signum, "", f"bayesmf: {said}\n")
    assert cleared and signal.getsignal(signum) is before


# -- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def make_terminal(monkeypatch):
    """To be called in the test itself: pytest puts its own stderr in place before it."""

    def make():
        monkeypatch.setattr("sys.stderr", found := Terminal())
        monkeypatch.setenv("COLUMNS", "70")
        return found

    return make


def test_numbers_in_few_characters():
    assert [short_count(n) for n in (0, 950, 9_999, 12_500, 3.1e6, 2e9)] == [
        "0", "950", "9999", "12.5k", "3.1M", "2.0G",
    ]  # fmt: skip
    assert [clock_text(s) for s in (0, 65.4, 3600)] == ["00:00", "01:05", "1:00:00"]


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_drawn_and_no_thread_started_without_a_terminal(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    threads = threading.active_count()
    with Line(after=0) as line:
        line.measure("x", 1, 2)
        assert threading.active_count() == threads
    assert not stream or stream.getvalue() == ""


def test_a_line_is_drawn_and_removed(make_terminal):
    terminal = make_terminal()
    with Line(after=0) as line:
        line.say("reading {x}\x07")
        assert "reading {x}\\x07 ..." in terminal.getvalue()
        until(lambda: line.measure("stage 1", 3, 12, ["pass 3 of 12", "x" * 80])
              or "| pass 3 of 12" in terminal.getvalue())  # fmt: skip
        assert "xx" not in terminal.getvalue()  # no room for it
        with outside_of_lines():
            print("a sentence", file=sys.stderr)
            assert terminal.getvalue().split("\r")[-1] == "a sentence\n"
    lines = terminal.getvalue().replace("\n", "\r").split("\r")
    assert max(map(len, lines)) <= 68
    assert lines[-2].strip() == "" and lines[-1] == "\x1b[K"


def test_a_line_appears_when_it_is_due_though_nothing_calls_it(make_terminal):
    terminal = make_terminal()
    with Line(after=0.2) as line:
        line.say("compiling")
        assert terminal.getvalue() == ""
        until(lambda: "compiling ..." in terminal.getvalue())


def test_counting_shows_how_many_and_how_long(make_terminal, monkeypatch):
    terminal = make_terminal()
    monkeypatch.setenv("BAYESMF_PROGRESS_AFTER", "0")
    with counting("scoring", 40_000, "ratings") as done:
        time.sleep(0.15)
        done(10_000)
        assert "| 10.0k of 40.0k ratings, 00:0" in terminal.getvalue()


def test_a_notebook_has_a_line_too(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    fake = ModuleType("IPython")
    fake.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())  # no terminal
    with Line(after=0) as line:
        line.say("reading")
    assert "reading ..." in stream.getvalue()
