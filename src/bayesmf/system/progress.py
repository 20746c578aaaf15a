"""One line that tells what is under way: at a terminal or in a notebook, and nowhere else.

Whoever works says what it does (`Line.say`) or how far it is (`Line.measure`); that costs nothing.
A thread of the line draws, ten times a second, so that time is seen to pass even where nothing is
said for long, and so that what goes wrong with drawing never reaches the work.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, Self

from bayesmf.wording import printable

# What is over sooner needs no line. Tests, which cannot wait, set the variable.
AFTER_SECONDS = 2.0
AFTER_VARIABLE = "BAYESMF_PROGRESS_AFTER"
# Compiling lasts, once it has begun.
COMPILING_AFTER = 0.3
LEAST_BAR = 4
# Between two looks: at a terminal, and where every look adds to a file.
_TICK, _TICK_IN_FILES = 0.1, 10.0

# Lines that are open, the innermost last: it alone is drawn.
_OPEN: list[Line] = []


class _Now(NamedTuple):
    """What is done now, and how far it is; a total of 0 where nobody knows."""

    what: str
    done: float
    total: float
    pieces: Sequence[str]


class Line:
    """What is under way, in one line that is gone when it is closed.

    Parameters
    ----------
    after : float, optional
        Seconds until it is shown (2); compiling is shown sooner.
    show : bool, optional
        False never shows it, True also where stderr is neither a terminal nor a notebook's.
    """

    hushed = False

    def __init__(self, after: float | None = None, show: bool | None = None) -> None:
        self._after = _default_after() if after is None else after
        self._notebook = show is not False and in_notebook()
        self._shows = sys.stderr is not None and (
            self._notebook or (is_terminal(sys.stderr) if show is None else show)
        )
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Any = None
        self._broken = False
        self._begin = self._since = time.monotonic()
        self._compiled = _compile_seconds()
        # Replaced as one, without the lock: whoever works never waits for a terminal.
        self._now = _Now("", 0.0, 0.0, ())
        self._open()

    def _open(self) -> None:
        if not self._shows:
            return
        _OPEN.append(self)
        clock = _compile_clock()
        if clock is not None:
            clock.observers.append(self._compiling)
        thread = threading.Thread(target=self._tick, name="bayesmf-line", daemon=True)
        with self._harmless():  # there may be no room for one more
            thread.start()
            self._thread = thread

    def say(self, what: str) -> None:
        """Say what is done now, where nobody knows how long it takes."""
        self._since = time.monotonic()
        self._now = _Now(what, 0.0, 0.0, ())
        if self._notebook:
            self.draw()

    def measure(self, what: str, done: float, total: float, pieces: Sequence[str] = ()) -> None:
        """Say how far it is: `done` of `total`, and what else fits, the first pieces first."""
        self._now = _Now(what, min(done, total), total, pieces)
        if self._notebook:
            self.draw()

    def close(self) -> None:
        """Take the line away."""
        if not self._shows or self._ended.is_set():
            return
        self._ended.set()
        clock = _compile_clock()
        if clock is not None and self._compiling in clock.observers:
            clock.observers.remove(self._compiling)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        with self._lock:
            self._take_down()  # first: a Ctrl-C between the two must not leave it on the screen
            _OPEN.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    # -- drawing ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        seen = self._notebook or is_terminal(sys.stderr)
        while not self._ended.wait(_TICK if seen else _TICK_IN_FILES) and not self._broken:
            self.draw()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """What goes wrong with drawing ends the line, not the work: a terminal may be gone."""
        try:
            yield
        except Exception:
            self._broken = True
            if self._bar is not None:
                self._bar.disable = True  # or it would try once more to take itself away
                self._bar = None

    def _compiling(self) -> None:
        """Compiling begins, on this thread: a notebook's bar must be made on the main one."""
        if self._notebook:
            self.draw()

    def draw(self) -> None:
        """Show the line as it is now, if it is time to."""
        with self._lock, self._harmless():
            if self._broken or Line.hushed:
                return
            if self._ended.is_set() or not _OPEN or _OPEN[-1] is not self:
                self._take_down()
                return
            if not self._due():
                return
            if self._bar is None:
                if self._notebook and threading.current_thread() is not threading.main_thread():
                    return
                self._bar = _make_bar(self._notebook)
            # Room for ^C, which a terminal shows behind it.
            width = None if self._notebook else screen_width(sys.stderr) - 2
            now = self._now
            self._bar.ncols = width
            self._bar.total = now.total or None
            self._bar.n = now.done
            self._bar.bar_format = self._format(now, width)
            # The line has a lock of its own, and tqdm would keep its if drawing failed.
            self._bar.refresh(nolock=True)

    def _due(self) -> bool:
        clock, now = _compile_clock(), time.monotonic()
        after = self._after
        if clock is not None and clock.busy:
            after = min(after, COMPILING_AFTER)
        return now - self._begin >= after

    def _format(self, now: _Now, width: int | None) -> str:
        clock = _compile_clock()
        if clock is not None and clock.busy:
            return f"compiling ... {clock.seconds() - self._compiled:.0f} s"
        if not now.total:
            return f"{escaped(printable(now.what))} ... {time.monotonic() - self._since:.0f} s"
        return bar_format(now.what, now.pieces, width)

    def _take_down(self) -> None:
        with self._harmless():
            if self._bar is not None:
                self._bar.close()
                self._bar = None


def _fresh_locks() -> None:
    """In the child of a fork: who may have held a lock is not there to give it back."""
    for line in _OPEN:
        line._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_locks)


def hush() -> None:
    """Draw no line any more: the program is about to end, and has said its last word."""
    Line.hushed = True  # no lock, no event: a signal may come while this thread has either


@contextmanager
def set_aside() -> Iterator[None]:
    """Print something else on stderr meanwhile: no line is in the way, or drawn across it."""
    line = _OPEN[-1] if _OPEN else None
    if line is None:
        yield
        return
    with line._lock:
        line._take_down()
        yield


def bar_format(what: str, pieces: Sequence[str], width: int | None) -> str:
    """For tqdm: a name, a bar of at least LEAST_BAR characters, and the pieces that fit.

    Parameters
    ----------
    what : str
        Stands before the bar.
    pieces : sequence of str
        What to tell behind it, what matters most first. One that does not fit is left out.
    width : int, optional
        Characters there are; None for as many as it takes.
    """
    what = printable(what)
    room = 10**6 if width is None else width - len(what) - len(" || ") - LEAST_BAR
    fitting: list[str] = []
    for piece in pieces:
        room -= len(piece) + (2 if fitting else 0)
        if room < 0:
            break
        fitting.append(piece)
    return escaped(f"{what} |") + "{bar}" + escaped(f"| {', '.join(fitting)}".rstrip())


def escaped(text: str) -> str:
    """For a format of tqdm's, in which braces mean something."""
    return text.replace("{", "{{").replace("}", "}}")


def clock_text(seconds: float) -> str:
    """Minutes and seconds: 01:05; hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class Counter:
    """How many of a known number are done: what `progress=` of many functions is given.

    Parameters
    ----------
    what : str
        What is done to them, such as "scoring".
    total : int
        How many there are.
    unit : str
        What they are called.
    show : bool, optional
        As of `Line`.
    """

    def __init__(self, what: str, total: float, unit: str, show: bool | None = None) -> None:
        self.line = Line(show=show)
        self.what, self.total, self.unit, self.n = what, total, unit, 0.0
        self._begin = time.monotonic() - _compile_seconds()
        self.line.say(what)

    def update(self, n: float = 1) -> None:
        """So many more are done."""
        self.n += n
        # Compiling happens once: what is left will not wait for it.
        spent = time.monotonic() - _compile_seconds() - self._begin
        pieces = [f"{short_count(self.n)} of {short_count(self.total)} {self.unit}"]
        if 0 < self.n < self.total:
            pieces.append(f"{clock_text(spent * (self.total / self.n - 1))} left")
        self.line.measure(self.what, self.n, self.total, pieces)

    def close(self) -> None:
        """Take it away."""
        self.line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


@contextmanager
def counting(
    what: str, total: int, unit: str, show: bool | None = None
) -> Iterator[Callable[[int], Any]]:
    """A function that is told how many more are done, and shows it where it takes long."""
    with Counter(what, total, unit, show) as counter:
        yield counter.update


def short_count(n: float) -> str:
    """A number in few characters: 950, 12.5k, 3.1M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if n >= size:
            return f"{n / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{n:.0f}"


# -- where we are ---------------------------------------------------------------------------------


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return type(found).__name__ == "ZMQInteractiveShell"


def is_terminal(stream: Any) -> bool:
    """Whether someone looks at a stream; not at one that is closed, or none at all."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def screen_width(stream: Any) -> int:
    """Columns of the terminal behind a stream; 80 where that is not told."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    # Some terminals tell nothing, that is 0; COLUMNS is asked then.
    return columns or shutil.get_terminal_size().columns or 80


def _default_after() -> float:
    try:
        return float(os.environ.get(AFTER_VARIABLE, ""))
    except ValueError:
        return AFTER_SECONDS


def _compile_clock() -> Any:
    """That of kernels, if any have been imported: this module must not wait for numba."""
    module = sys.modules.get("bayesmf.kernels.jit")
    return getattr(module, "CLOCK", None)


def _compile_seconds() -> float:
    clock = _compile_clock()
    return 0.0 if clock is None else float(clock.seconds())


def _make_bar(notebook: bool) -> Any:
    """An empty bar: a notebook's own, or characters on stderr."""
    # Without ipywidgets tqdm says so, and uses characters. The filter is for that alone and stays:
    # to set filters back would, in this thread, lose warnings of others.
    warnings.filterwarnings("ignore", "IProgress not found")
    kind = import_module("tqdm.auto" if notebook else "tqdm").tqdm
    return kind(
        total=None, file=sys.stderr, leave=False, mininterval=0, miniters=0, delay=1e-9,
        bar_format=" ",
    )  # fmt: skip
