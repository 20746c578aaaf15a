"""This process: its cores and memory, threads for one answer, signals, and the progress line."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, Self

from bayesmf.checks import whole
from bayesmf.errors import Interrupted
from bayesmf.wording import printable

# -- cores, memory, threads -----------------------------------------------------------------------


def cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Memory of this machine; None where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def parts(n: int, size: int) -> list[slice]:
    """`range(n)` in stretches of `size`, the last one shorter."""
    return [slice(lo, min(lo + size, n)) for lo in range(0, n, size)]


class Pool:
    """Threads for one answer, by default one for each core; kernels release the GIL.

    The calling thread is one of them. The others start with the first call that has more than one
    part, so that a question about one pair starts none. Functions that run here must not call
    BLAS, which has threads of its own, nor wait for a pool.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else whole("n_workers", threads)
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def each(self, function: Callable[[slice], Any], pieces: Iterable[slice]) -> None:
        """Call a function with every part; returns when all are done, raises what one raised."""
        todo = deque(pieces)

        def work() -> None:
            try:
                while todo:
                    try:
                        piece = todo.popleft()
                    except IndexError:  # another thread took the last one
                        return
                    function(piece)
            except BaseException:
                todo.clear()
                raise

        helpers = self._helpers(work, min(self.threads, len(todo)) - 1)
        try:
            work()
        finally:
            # A helper that has not begun by now is not needed.
            wait([helper for helper in helpers if not helper.cancel()])
        for helper in helpers:
            if not helper.cancelled():
                helper.result()

    def _helpers(self, work: Callable[[], None], n: int) -> list[Future[None]]:
        """Start helper threads; fewer if the system refuses more."""
        helpers: list[Future[None]] = []
        if n > 0 and self._executor is None:
            self._executor = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="bayesmf")
        with suppress(RuntimeError):  # no thread can be started, as when the interpreter exits
            for _ in range(n):
                assert self._executor is not None
                helpers.append(self._executor.submit(work))
        return helpers


# -- signals --------------------------------------------------------------------------------------


class StopRequest:
    """Signal that asked this process to stop; None as long as there was none."""

    signum: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note SIGINT or SIGTERM instead of ending at once; a second one raises Interrupted."""
    request = StopRequest()

    def note(signum: int, frame: FrameType | None) -> None:
        if request.signum is not None:
            raise Interrupted(signum, "for the second time")
        request.signum = signum

    with _handler(note):
        yield request


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raise Interrupted at SIGINT or SIGTERM."""

    def end(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signum)

    with _handler(end):
        yield


@contextmanager
def _handler(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM in the main thread, then restore the caller's handlers.

    Signals that are ignored (`nohup`), or handled outside of Python, stay so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                before[signum] = signal.signal(signum, handle)
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


# -- progress -------------------------------------------------------------------------------------

# Seconds until a line is shown. Tests, which cannot wait, set the variable.
AFTER_SECONDS = 2.0
AFTER_VARIABLE = "BAYESMF_PROGRESS_AFTER"
_REDRAWN_EVERY = 0.1


class Line:
    """A line on stderr that shows what is under way, and disappears when it is closed.

    It is drawn when `say` or `measure` is called, and once by a timer when it becomes due.

    Parameters
    ----------
    after : float, optional
        Seconds until it is shown (2).
    show : bool, optional
        False never shows it, True always does; by default it is shown at a terminal and in a
        notebook.
    """

    def __init__(self, after: float | None = None, show: bool | None = None) -> None:
        if after is None:
            after = float(os.environ.get(AFTER_VARIABLE, AFTER_SECONDS))
        if show is None:
            show = is_terminal(sys.stderr) or _in_notebook()
        self._due = time.monotonic() + after
        self._bar: Any = None
        self._closed = sys.stderr is None or not show
        self._state: tuple[str, float, float] = ("", 0.0, 0.0)
        self._lock = threading.Lock()
        self._timer = threading.Timer(after, self._draw)
        self._timer.daemon = True
        if not self._closed:
            self._timer.start()

    def say(self, what: str) -> None:
        """Show a text without a bar, for work of unknown length."""
        self._state = (_escaped(f"{what} ..."), 0.0, 0.0)
        self._draw()

    def measure(self, what: str, done: float, total: float, pieces: Sequence[str] = ()) -> None:
        """Show a bar for `done` of `total`, with texts behind it, the most important one first."""
        if not self._closed and time.monotonic() >= self._due:
            room = screen_width(sys.stderr) - len(what) - 10
            while pieces and len(", ".join(pieces)) > room:
                pieces = pieces[:-1]
            behind = _escaped(f"| {', '.join(pieces)}".rstrip())
            self._state = (_escaped(f"{what} |") + "{bar}" + behind, min(done, total), total)
            self._due = time.monotonic() + _REDRAWN_EVERY
            self._draw(due=True)

    def _draw(self, due: bool = False) -> None:
        with self._lock:
            text, done, total = self._state
            if self._closed or not text or not (due or time.monotonic() >= self._due):
                return
            if self._bar is None:
                from tqdm.auto import tqdm

                self._bar = tqdm(file=sys.stderr, leave=False, bar_format=text, delay=1e-9)
            # A terminal shows ^C behind the line, which is as long as all others.
            self._bar.ncols = screen_width(sys.stderr) - 2 if is_terminal(sys.stderr) else None
            if self._bar.ncols and "{bar}" not in text:
                text = text.ljust(self._bar.ncols)
            self._bar.bar_format, self._bar.n, self._bar.total = text, done, total or None
            self._bar.refresh()

    def close(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.close()
                self._bar = None
                if is_terminal(sys.stderr):
                    sys.stderr.write("\x1b[K")  # what the terminal showed behind it: ^C

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


@contextmanager
def counting(
    what: str, total: float, unit: str, show: bool | None = None
) -> Iterator[Callable[[float], Any]]:
    """Yield a function to call with the number of units just done; shows them in a `Line`."""
    begin, n = time.monotonic(), 0.0

    def update(more: float = 1) -> None:
        nonlocal n
        n += more
        pieces = [f"{short_count(n)} of {short_count(total)} {unit}"]
        if 0 < n < total:
            pieces.append(f"{clock_text((time.monotonic() - begin) * (total / n - 1))} left")
        line.measure(what, n, total, pieces)

    with Line(show=show) as line:
        line.say(what)
        yield update


def outside_of_lines() -> Any:
    """Context in which lines are removed from the screen, to print something else on stderr."""
    tqdm = sys.modules.get("tqdm")
    return nullcontext() if tqdm is None else tqdm.tqdm.external_write_mode(file=sys.stderr)


def _escaped(text: str) -> str:
    """A text for a format of tqdm, in which braces have a meaning."""
    return printable(text).replace("{", "{{").replace("}", "}}")


def clock_text(seconds: float) -> str:
    """Minutes and seconds, 01:05, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def short_count(n: float) -> str:
    """A number in few characters: 950, 12.5k, 3.1M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if n >= size:
            return f"{n / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{n:.0f}"


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return type(found).__name__ == "ZMQInteractiveShell"


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; not if it is closed or None."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def screen_width(stream: Any) -> int:
    """Columns of the terminal behind a stream; COLUMNS or 80 where it reports none."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    return columns or shutil.get_terminal_size().columns or 80
