"""Options that commands share, and the types of their values."""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bayesmf.checks import did_you_mean
from bayesmf.cli.output import continued, during
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings

DEBUG = "--debug"


class Formatter(argparse.HelpFormatter):
    """Formats help to the width of the terminal; indented lines (commands, examples) stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(" "):
                lines += _entry(line, width)
            else:
                lines += textwrap.wrap(line, width) or [""]
        return "\n".join(lines)


def _entry(line: str, width: int) -> list[str]:
    """Wrap an example as a shell takes it, and an entry of a list with an indent."""
    if line.lstrip().startswith("bayesmf "):
        return continued(line, width)
    return textwrap.wrap(line, width, subsequent_indent=" " * 13)


def _in_usage(action: argparse.Action) -> str:
    """Usage of an option with its value, or of a positional argument."""
    name = str(action.metavar)
    if action.option_strings:
        return f"{action.option_strings[-1]} {name}"
    nargs = getattr(action, "save_nargs", action.nargs)  # put aside while arguments are parsed
    forms = {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}
    return forms.get(str(nargs), name)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: what is wrong, and where to read more."""

    def __init__(self, prog: str, description: str, epilog: str, usage: str | None = None) -> None:
        # An abbreviation that works today may be two options tomorrow.
        how: dict[str, Any] = {"formatter_class": Formatter, "allow_abbrev": False}
        super().__init__(prog, usage, description, epilog, **how)

    def format_help(self) -> str:
        """Help with a usage of the required arguments; the options are listed below it."""
        needed = [_in_usage(a) for a in self._actions if a.required or not a.option_strings]
        if needed:
            self.usage = " ".join(["%(prog)s", *needed, "[options]"])
        return super().format_help()

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version; argparse itself hides errors of writing."""
        print(message, end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        near = ""
        if found := re.match(r"unrecognized arguments: .*?(--[^\s=]+)", message):
            known = [name for name in self._option_string_actions if name.startswith("--")]
            near = did_you_mean(found[1], known)
        elif found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            near = did_you_mean(found[1], re.findall(r"[\w-]+", found[2]))
        raise InputError(f"{message.removeprefix('argument ')}{near} (see {self.prog} -h)")


def command(name: str, description: str, *examples: str) -> Parser:
    """Parser of a command, whose help ends with examples."""
    shown = "\n".join(f"  bayesmf {name} {example}" for example in examples)
    text = " ".join(description.split())
    parser = Parser(f"bayesmf {name}", text, f"example:\n{shown}", "%(prog)s [options]")
    parser.add_argument(DEBUG, action="store_true", help="show where an error comes from")
    return parser


def add_model(parser: argparse._ActionsContainer) -> None:
    """The model that a command asks."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="file of a fitted model")


def add_seed(parser: argparse._ActionsContainer, what: str) -> None:
    """Seed of `what`, 0 by default."""
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help=f"seed of {what} (0)")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Whether to print JSON."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")


def add_file_options(parser: argparse._ActionsContainer, *, formats: bool = True) -> None:
    """How rating files are read."""
    add = parser.add_argument
    if formats:
        add("--format", default="auto", metavar="NAME",
            help="auto (default), csv, parquet, arrow, movielens, netflix or yahoo-r2")  # fmt: skip
    add("--columns", type=columns, metavar="ROLE=NAME,...",
        help="columns by name or by position from 0: user=..,item=..,rating=..,timestamp=.. "
        "('timestamp=' leaves timestamps out)")  # fmt: skip


def read_ratings(path: str, args: argparse.Namespace) -> Ratings:
    """Read ratings by the options of `add_file_options` and, if there, of `add_duplicates`."""
    from bayesmf.data.ratings import Ratings

    duplicates, kind = getattr(args, "duplicates", "last"), getattr(args, "format", "auto")
    with during(f"reading {path}"):
        return Ratings.read(path, format=kind, columns=args.columns, duplicates=duplicates)


def add_sent(parser: argparse._ActionsContainer) -> None:
    """Ratings in addition to the training data."""
    parser.add_argument(
        "--ratings", metavar="FILE", type=Path,
        help="file of user, item, rating: more ratings of new or known users, used without a refit",
    )  # fmt: skip


def add_duplicates(parser: argparse._ActionsContainer) -> None:
    """Which of several ratings of one pair is kept."""
    parser.add_argument(
        "--duplicates", choices=("last", "mean", "error"), default="last",
        help="what to do where a user rated an item more than once (last)",
    )  # fmt: skip


def add_level(parser: argparse._ActionsContainer) -> None:
    """Probability of intervals."""
    parser.add_argument(
        "--level", type=level, default=0.9, metavar="P",
        help="probability that a new rating falls in the interval (0.9)",
    )  # fmt: skip


# -- types: each returns the value, or raises with a sentence on what it should have been ---------


def _typed(text: str, convert: Callable[[str], Any], good: Callable[[Any], bool], what: str) -> Any:
    try:
        value = convert(text)
    except ValueError:
        value = None
    if value is None or not good(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def whole(least: int) -> Callable[[str], int]:
    """Whole numbers of at least `least`."""

    def convert(text: str) -> int:
        value = _typed(text, int, lambda value: value >= least, f"a whole number >= {least}")
        if value >= 2**63:
            raise argparse.ArgumentTypeError(f"{text} is too large")
        return int(value)

    return convert


def port(text: str) -> int:
    """A port, 0 for any that is free."""
    return int(_typed(text, int, lambda value: 0 <= value < 2**16, "a port from 0 to 65535"))


def positive(text: str) -> float:
    """A finite number above 0; an int where it is whole."""
    return number(text, lambda value: value > 0, "a positive number")


def any_number(text: str) -> float:
    """A finite number of any sign."""
    return number(text, lambda value: True, "a number")


def seconds(text: str) -> float:
    """A number of seconds, 0 included."""
    return number(text, lambda value: value >= 0, "a number of seconds, 0 or more")


def unit(text: str) -> float:
    """A number from 0 to 1."""
    return number(text, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def share(text: str) -> float:
    """A part of a whole, neither none nor all of it."""
    return number(text, lambda value: 0 < value < 1, "a share between 0 and 1, such as 0.1")


def level(text: str) -> float:
    """A probability, neither 0 nor 1."""
    return number(text, lambda value: 0 < value < 1, "a number between 0 and 1, such as 0.9")


def number(text: str, good: Callable[[float], bool], what: str) -> float:
    """A finite number that is good; an int where it is whole, so that 60 is not shown as 60.0."""
    value = float(_typed(text, float, lambda value: math.isfinite(value) and good(value), what))
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def tau(text: str) -> str | float:
    """`sample`, or a positive number."""
    what = "'sample' or a positive number"
    return text if text == "sample" else number(text, lambda value: value > 0, what)


def burn_in(text: str) -> str | float:
    """A number of epochs, `rmse:X`, `mean-rmse:X` or `stationary`."""
    from bayesmf.samplers.schedules import burn_in_rule

    what = "a number of epochs, 'rmse:0.85', 'mean-rmse:0.85' or 'stationary'"
    rule = str(_typed(text, burn_in_rule, lambda found: True, what))
    return rule if rule[-1].isalpha() or ":" in rule else number(rule, lambda value: True, what)


def grid(text: str) -> str:
    """`RxC`, both at least 1."""
    from bayesmf.blocks.grid import Grid

    try:
        return str(Grid.parse(text))
    except InputError:
        what = "of the form ROWSxCOLS, such as 2x2 or 4x1"
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None


def visits(text: str) -> str | list[float]:
    """`equal`, `size`, or weights with commas between them."""
    if text in ("equal", "size"):
        return text
    what = "'equal', 'size' or positive weights such as 1,2,1"
    weights: list[float] = _typed(
        text,
        lambda text: [float(part) for part in text.split(",")],
        lambda values: all(math.isfinite(value) and value > 0 for value in values),
        what,
    )
    return weights


def columns(text: str) -> dict[str, str | None]:
    """`user=customer,item=sku`: role to column, None for an empty one."""
    from bayesmf.reading.memory import ROLES

    found: dict[str, str | None] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or role not in ROLES or role in found or (not name and role != "timestamp"):
            raise argparse.ArgumentTypeError(
                f"{part!r} is not ROLE=COLUMN with a role of user, item, rating or timestamp, "
                "each named once"
            )
        found[role] = name or None
    return found
