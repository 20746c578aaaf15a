"""The command line `bayesmf`: dispatch to commands, errors and exit status."""

from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from bayesmf import __version__
from bayesmf.checks import did_you_mean
from bayesmf.cli.options import DEBUG, Parser
from bayesmf.cli.output import note, print_traceback, warnings_as_notes
from bayesmf.errors import BayesMFError, InputError, Interrupted, polars_errors
from bayesmf.process import signals_raised

COMMANDS = {
    "fit": "learn from a file of ratings and save the model",
    "update": "add ratings to a model, new users and items too",
    "predict": "predict ratings of pairs of user and item, with intervals",
    "evaluate": "score a model on ratings that were held out",
    "recommend": "recommend the best items to users",
    "serve": "serve a model over HTTP, with a web page",
    "diagnose": "check convergence and calibration of a model",
    "pack": "pack ratings, perhaps more than fit in memory, into one file",
    "synth": "write synthetic ratings of a known size and noise",
    "demo": "run a demonstration on synthetic ratings",
}
BROKEN_PIPE = 141  # what the shell reports of a program that ended by SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0 is success, 1 failure, 2 bad input, 128 + n an end by signal n.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An id that the terminal cannot show is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    args = sys.argv[1:] if argv is None else list(argv)
    debug = DEBUG in args[: args.index("--") if "--" in args else None]
    try:
        with warnings_as_notes(debug), signals_raised():
            _dispatch(args)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
    except polars_errors(Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, BrokenPipeError):
            print_traceback(error)
        return _ended_by(error, args)
    finally:
        _drop_unwritten(sys.stderr)
    return 0


def _ended_by(error: BaseException, args: list[str]) -> int:
    """Print in a sentence what went wrong; return the exit status."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__  # raised where C code, such as numba's, continued after it
    if isinstance(error, BayesMFError):
        return _fail(str(error), 2 if isinstance(error, InputError) else 1)
    if isinstance(error, BrokenPipeError):
        _drop_unwritten(sys.stdout)
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
        if isinstance(error, Interrupted) and any(a.startswith("--checkpoint") for a in args):
            note(f"{error.stopped}; resume with:", command=_again(args))
        elif signum == signal.SIGINT:
            note("interrupted")
        else:
            note(f"stopped by {signal.Signals(signum).name}")
        return 128 + signum
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return _fail("there is not enough memory: use fewer factors, draws or ratings", 1)
    if isinstance(error, OSError):
        _drop_unwritten(sys.stdout)
        about = f"{error.filename}: " if error.filename else ""
        return _fail(f"{about}{error.strerror or error}", 1)
    return _fail(
        f"unexpected {type(error).__name__}: {error}; please report it with what the same command "
        f"prints with {DEBUG}",
        1,
    )


def _again(args: list[str]) -> str:
    """Command line that resumes from the checkpoint."""
    if "--resume" not in args:
        end = args.index("--") if "--" in args else len(args)
        args = [*args[:end], "--resume", *args[end:]]
    return shlex.join(["bayesmf", *args])


def _fail(sentence: str, status: int) -> int:
    note(f"error: {sentence}")
    return status


def _drop_unwritten(stream: TextIO) -> None:
    """Discard what a stream did not take: the interpreter flushes again when it ends."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(args: list[str]) -> None:
    if args[:1] == [DEBUG]:  # before the command or behind it
        args = [*args[1:], DEBUG]
    if not args or args[0] not in COMMANDS:
        _about([arg for arg in args if arg != DEBUG])
        return
    # Only the command that was asked for is imported: a command line should answer at once.
    command = import_module(f"bayesmf.cli.{args[0]}")
    # Intermixed: users of `recommend` may stand before and behind its options.
    command.run(command.parser().parse_intermixed_args(args[1:]))


def _about(args: list[str]) -> None:
    lines = "\n".join(f"  {name:<11}{does}" for name, does in COMMANDS.items())
    parser = Parser(
        "bayesmf",
        "Bayesian matrix factorization: predicted ratings, with their uncertainty.",
        f"commands:\n{lines}\n\n`bayesmf COMMAND -h` shows the options of a command.",
        usage="bayesmf [-h] [--version] COMMAND ...",
    )
    parser.add_argument("--version", action="version", version=f"bayesmf {__version__}")
    if args and not args[0].startswith("-"):
        near = did_you_mean(args[0], COMMANDS)
        parser.error(f"unknown command {args[0]!r}: choose from {', '.join(COMMANDS)}{near}")
    parser.parse_args(args)
    parser.error("a command is needed")
