"""The line that tells what is under way: what it says, where it is drawn, and when it is gone."""

from __future__ import annotations

import errno
import io
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from bayesmf import BayesianMF, Gibbs, Progress, Synthetic
from bayesmf.system import progress
from bayesmf.system.progress import (
    LEAST_BAR,
    Counter,
    Line,
    bar_format,
    clock_text,
    in_notebook,
    screen_width,
    set_aside,
    short_count,
)
from waiting import until


@pytest.fixture(scope="module")
def ratings():
    return Synthetic(40, 30, 600).ratings()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def make_terminal(monkeypatch):
    """To be called in the test itself: pytest puts its own stderr in place before it."""

    def make():
        monkeypatch.setattr("sys.stderr", found := _Terminal())
        monkeypatch.setenv("COLUMNS", "70")
        return found

    return make


PIECES = ("pass 37 of at most 120", "RMSE 0.8342", "14.1M ratings/s")


def test_what_does_not_fit_is_left_out_and_never_cut():
    for width in range(20, 120):
        text = bar_format("stage 4", PIECES, width).replace("{bar}", "#" * LEAST_BAR)
        kept = [piece for piece in PIECES if piece in text]
        assert kept == list(PIECES[: len(kept)])
        assert text == f"stage 4 |####| {', '.join(kept)}".rstrip()
        assert len(text) <= width or not kept
        if len(kept) < len(PIECES):  # the next one would not have fitted
            assert len(text) + len(PIECES[len(kept)]) + (2 if kept else 1) > width


def test_braces_are_text():
    assert bar_format("{x}", ["{y}"], 60).format(bar="##") == "{x} |##| {y}"


def test_numbers_in_few_characters():
    assert [short_count(n) for n in (0, 950, 9_999, 12_500, 3.1e6, 2e9)] == [
        "0", "950", "9999", "12.5k", "3.1M", "2.0G",
    ]  # fmt: skip
    assert [clock_text(s) for s in (0, 65.4, 3600)] == ["00:00", "01:05", "1:00:00"]


def test_nothing_is_drawn_and_no_thread_started_in_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    threads = threading.active_count()
    with Line(after=0) as line:
        line.measure("x", 1, 2)
        assert threading.active_count() == threads
    assert stream.getvalue() == ""


def test_a_line_is_drawn_and_taken_away(make_terminal):
    terminal = make_terminal()
    with Line(after=0) as line:
        line.say("reading")
        until(lambda: "reading ... " in terminal.getvalue())
        line.measure("stage 1", 3, 12, ["pass 3 of 12"])
        until(lambda: "| pass 3 of 12" in terminal.getvalue())
    shown = terminal.getvalue()
    assert "| pass 3 of 12" in shown
    assert max(map(len, shown.replace("\n", "\r").split("\r"))) <= 68
    assert shown.split("\r")[-2].strip() == "" and shown.endswith("\r")
    assert not progress._OPEN


def test_it_waits(make_terminal):
    terminal = make_terminal()
    with Line(after=60) as line:
        line.say("reading")
        line.draw()
    assert terminal.getvalue() == ""


def test_the_innermost_line_alone_is_drawn(make_terminal):
    terminal = make_terminal()
    with Line(after=0) as outer:
        outer.say("outer")
        with Line(after=0) as inner:
            inner.say("inner")
            until(lambda: "inner" in terminal.getvalue())
            outer.draw()
            start = len(terminal.getvalue())
            outer.draw()
            assert "outer" not in terminal.getvalue()[start:]
        until(lambda: "outer" in terminal.getvalue()[start:])


def test_a_sentence_has_the_line_out_of_its_way(make_terminal):
    terminal = make_terminal()
    with Line(after=0) as line:
        line.say("working")
        until(lambda: "working" in terminal.getvalue())
        with set_aside():
            print("a sentence", file=sys.stderr)
            assert terminal.getvalue().split("\r")[-1] == "a sentence\n"
        until(lambda: "working" in terminal.getvalue().split("a sentence")[1])


class _Gone(_Terminal):
    """A terminal that is hung up once something was drawn on it."""

    def write(self, text: str) -> int:
        if self.getvalue():
            raise BrokenPipeError(errno.EPIPE, "gone")
        return super().write(text)


def test_a_terminal_that_goes_away_does_not_matter(monkeypatch, ratings):
    """Not while a fit runs, and not when its line is taken away: draws are worth more."""
    monkeypatch.setattr("sys.stderr", terminal := _Gone())
    monkeypatch.setenv("BAYESMF_PROGRESS_AFTER", "0")
    looked = [Progress(after_seconds=0), lambda event: until(terminal.getvalue)]
    model = BayesianMF(2, sampler=Gibbs(epochs=6), callbacks=looked, random_state=0)
    model.fit(ratings)
    assert len(model.history_) == 6
    terminal.truncate(0)
    assert model.evaluate(ratings).n == len(ratings)
    assert not progress._OPEN


@pytest.mark.parametrize("fails", ["refresh", "close", "made"])
def test_a_notebook_whose_bar_fails_does_not_matter(monkeypatch, ratings, fails):
    def fail(**options):
        raise RuntimeError("no widget")

    bar = SimpleNamespace(refresh=lambda nolock: None, close=lambda: None)
    if fails != "made":
        setattr(bar, fails, fail)
    make = fail if fails == "made" else lambda **options: bar
    monkeypatch.setitem(sys.modules, "tqdm.auto", SimpleNamespace(tqdm=make))
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setenv("BAYESMF_PROGRESS_AFTER", "0")
    model = BayesianMF(2, sampler=Gibbs(epochs=6), random_state=0).fit(ratings)
    assert len(model.history_) == 6


def test_a_terminal_that_was_stopped_does_not_stop_the_work(monkeypatch):
    """Ctrl-S: a write waits for Ctrl-Q."""
    writes, goes_on = threading.Event(), threading.Event()

    class Stopped(_Terminal):
        def write(self, text: str) -> int:
            writes.set()
            goes_on.wait(30)
            return super().write(text)

    monkeypatch.setattr("sys.stderr", Stopped())
    with Line(after=0) as line:
        line.say("working")
        assert writes.wait(30)
        worker = threading.Thread(target=line.measure, args=("stage 1", 1, 2), daemon=True)
        worker.start()
        worker.join(10)
        waited = worker.is_alive()
        goes_on.set()
    assert not waited


def test_a_counter_tells_how_many_and_how_long(make_terminal, monkeypatch):
    terminal = make_terminal()
    monkeypatch.setenv("BAYESMF_PROGRESS_AFTER", "0")
    with Counter("scoring", 40_000, "ratings") as counter:
        counter.update(10_000)
        until(lambda: "| 10.0k of 40.0k ratings, 0" in terminal.getvalue())


def test_compiling_is_told(make_terminal, monkeypatch):
    terminal = make_terminal()
    clock = SimpleNamespace(busy=True, seconds=lambda: 12.0, observers=[])
    monkeypatch.setattr(progress, "_compile_clock", lambda: clock)
    monkeypatch.setattr(progress, "COMPILING_AFTER", 0.0)
    with Line(after=60) as line:  # shown long before anything else would be
        line._compiled = 2.0
        line.say("reading")
        until(lambda: "compiling ... 10 s" in terminal.getvalue())


def test_the_clock_counts_compiling_alone():
    import numpy as np

    from bayesmf.kernels.jit import CLOCK, njit

    before = CLOCK.seconds()

    @njit()
    def twice(x):
        return 2 * x

    assert twice(np.float64(2.0)) == 4.0
    after = CLOCK.seconds()
    assert after > before and not CLOCK.busy
    twice(np.float64(3.0))
    assert CLOCK.seconds() == after


def test_a_width_is_always_found(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert screen_width(io.StringIO()) > 0
    monkeypatch.setenv("COLUMNS", "123")
    assert screen_width(io.StringIO()) == 123


def test_a_notebook_has_a_bar_of_its_own(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    fake = ModuleType("IPython")
    fake.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert in_notebook()
    made = []
    bar = SimpleNamespace(refresh=lambda nolock: None, close=lambda: None)
    auto = SimpleNamespace(tqdm=lambda **options: made.append(options) or bar)
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    monkeypatch.setattr("sys.stderr", io.StringIO())  # no terminal
    with Line(after=0) as line:
        line.measure("stage 2", 5, 20, ["pass 5 of at most 20"])
        assert made and bar.total == 20 and bar.n == 5
        assert bar.bar_format == "stage 2 |{bar}| pass 5 of at most 20"
    with Line(after=0, show=False) as line:
        line.measure("stage 2", 5, 20)
    assert len(made) == 1


def test_without_a_stderr_there_is_no_line(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    before = threading.active_count()
    with Line(after=0) as line:
        line.say("reading")
        assert threading.active_count() == before  # nothing draws


def test_ctrl_c_while_a_line_is_taken_down_leaves_it_to_whoever_writes_next(monkeypatch):
    """What is told next sets open lines aside: one is forgotten once it is off the screen."""
    line = Line(after=0, show=True)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(line, "_take_down", interrupted)
    with pytest.raises(KeyboardInterrupt):
        line.close()
    assert line in progress._OPEN
    progress._OPEN.remove(line)
