"""Command lines of the experiments: parsers, errors and exit status."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

from bayesmf.cli import options
from bayesmf.errors import BayesMFError, InputError


def command(name: str, description: str, *examples: str) -> options.Parser:
    """Parser of `python -m experiments.NAME`, whose help ends with examples."""
    prog = f"python -m experiments.{name}"
    shown = "\n".join(f"  {prog} {example}" for example in examples)
    text = " ".join(description.split())
    return options.Parser(prog, text, f"example:\n{shown}", "%(prog)s [options]")


def main(
    parser: Callable[[], options.Parser],
    run: Callable[[argparse.Namespace], None],
    argv: list[str] | None = None,
) -> int:
    """Run a command and return its exit status: 0, 1 (it failed), 2 (bad input) or 130 (Ctrl-C)."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends child processes too
    try:
        run(parser().parse_args(argv))
    except (BayesMFError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError | OSError) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0
