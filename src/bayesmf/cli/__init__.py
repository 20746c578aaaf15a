"""The command line `bayesmf`: which command is called, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from bayesmf import __version__
from bayesmf.checks import did_you_mean
from bayesmf.cli.limits import check_limits
from bayesmf.cli.options import DEBUG, Parser
from bayesmf.cli.output import note, print_traceback, told_as_notes
from bayesmf.errors import BayesMFError, InputError, Interrupted
from bayesmf.system.foreign import polars_errors, separate_stderr
from bayesmf.system.progress import hush
from bayesmf.system.signals import LAST, leaving, never_lost

COMMANDS = {
    "fit": "learn from a file of ratings and save the model",
    "update": "add ratings to a model, new users and items too",
    "predict": "predict ratings of pairs of user and item, with intervals",
    "evaluate": "score a model on ratings that were held out",
    "recommend": "recommend the best items to users",
    "serve": "answer over HTTP, with a page that shows how sure it is",
    "diagnose": "say whether chains have converged and intervals hold",
    "pack": "make a folder of ratings that need not fit in memory",
    "synth": "write synthetic ratings of a known size and noise",
    "demo": "see it all work on synthetic ratings",
}
# What the shell sees of a program that ended by SIGINT or SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0, 1 (it failed) or 2 (not as given)."""
    if sys.stdout is None:  # closed by the shell: >&-
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An id that the terminal cannot show is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    args = sys.argv[1:] if argv is None else list(argv)
    debug = DEBUG in args[: args.index("--") if "--" in args else None]
    if argv is None and not debug:
        separate_stderr()

    def leave(error: BaseException) -> NoReturn:
        status = INTERRUPTED
        hush()
        try:
            status = _ended_by(error, args)
        finally:
            _leave(status)

    try:
        with told_as_notes(debug), never_lost(debug), leaving(leave):
            _dispatch(args)
        # Here, where a closed pipe can still be met in silence.
        sys.stdout.flush()
        if argv is None:  # all is done: a Ctrl-C from now on would only make it look as if not
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except polars_errors(Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, BrokenPipeError):
            print_traceback(error)
        return _ended_by(error, args)
    return 0


def _leave(status: int) -> NoReturn:
    """Call exit functions and end the process at once, without tearing down the interpreter.

    A compiler that is half way through a function would crash in that.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _ended_by(error: BaseException, args: list[str]) -> int:
    """Print in a sentence what went wrong; return the exit status."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__  # raised where C code went on in spite of it
    if isinstance(error, BayesMFError):
        return _fail(str(error), 2 if isinstance(error, InputError) else 1)
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return BROKEN_PIPE
    if isinstance(error, Interrupted):
        note(f"{error.stopped}; go on with:", command=_again(args))
        return 128 + error.signum
    if isinstance(error, KeyboardInterrupt):
        last = LAST[0] if LAST else signal.SIGINT
        signum = signal.Signals(getattr(error, "signum", last))
        note("interrupted" if signum == signal.SIGINT else f"stopped by {signum.name}")
        return 128 + signum
    if _lacks_memory(error):
        return _fail("there is not enough memory: use fewer factors, draws or ratings", 1)
    if _lacks_threads(error):
        return _fail(
            "the system gives no more threads: raise the limit on processes (ulimit -u), or use "
            "fewer with --workers 1 and POLARS_MAX_THREADS=1",
            1,
        )
    if isinstance(error, OSError):
        _drop_output()
        about = f"{error.filename}: " if error.filename else ""
        return _fail(f"{about}{error.strerror or error}", 1)
    return _fail(
        f"something went wrong that should not have ({type(error).__name__}: {error}); please "
        f"report it with what the same command says with {DEBUG}",
        1,
    )


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, ImportError):  # a library that found no room
        return any(said in str(error) for said in ("map segment", "allocate memory"))
    no_room = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or no_room


def _lacks_threads(error: BaseException) -> bool:
    """Judge by the message: neither Python nor polars has a class for it."""
    if not isinstance(error, RuntimeError) and type(error).__name__ != "PanicException":
        return False
    said = ("start new thread", "spawn thread", "ThreadPoolBuildError", "temporarily unavailable")
    return any(text in str(error) for text in said)


def _again(args: list[str]) -> str:
    """Command line that resumes from the checkpoint."""
    if "--resume" not in args:
        end = args.index("--") if "--" in args else len(args)
        args = [*args[:end], "--resume", *args[end:]]
    return shlex.join(["bayesmf", *args])


def _fail(sentence: str, status: int) -> int:
    try:
        note(f"error: {sentence}")
    except MemoryError:  # not enough even for a note
        with contextlib.suppress(OSError):
            os.write(2, b"bayesmf: error: there is not enough memory\n")
    return status


def _drop_output() -> None:
    """Discard what stdout did not take: the interpreter flushes again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(args: list[str]) -> None:
    if args[:1] == [DEBUG]:  # before the command or behind it
        args = [*args[1:], DEBUG]
    if not args or args[0] not in COMMANDS:
        _about([arg for arg in args if arg != DEBUG])
        return
    check_limits()
    # Only the command that was asked for is imported: a command line should answer at once.
    command = import_module(f"bayesmf.cli.{args[0]}")
    # Intermixed: users of `recommend` may stand before and behind its options.
    command.run(command.parser().parse_intermixed_args(args[1:]))


def _about(args: list[str]) -> None:
    lines = "\n".join(f"  {name:<11}{does}" for name, does in COMMANDS.items())
    parser = Parser(
        "bayesmf",
        "Bayesian matrix factorization: ratings predicted, and how sure that is.",
        f"commands:\n{lines}\n\n`bayesmf COMMAND -h` tells more.",
        usage="bayesmf [-h] [--version] COMMAND ...",
    )
    parser.add_argument("--version", action="version", version=f"bayesmf {__version__}")
    if args and not args[0].startswith("-"):
        near = did_you_mean(args[0], COMMANDS)
        parser.error(f"{args[0]!r} is no command: choose from {', '.join(COMMANDS)}{near}")
    parser.parse_args(args)
    parser.error("a command is needed")
