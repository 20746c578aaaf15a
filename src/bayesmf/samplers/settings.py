"""Settings of samplers: validation, documentation and command-line options.

A sampler is a frozen dataclass whose fields are made by `setting`:

    friction: float = setting(0.5, Positive("Loss of momentum on a visit.", metavar="F"))

`check_settings` validates the values, `documented` adds them to the docstring, and
cli/fit_options.py adds an option --friction.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from bayesmf.checks import positive, whole, yes_or_no
from bayesmf.errors import InputError

S = TypeVar("S", bound=Any)
C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Setting:
    """A setting without validation: it is checked where it is used.

    `doc` is the text of the docstring. Settings with `help` are options of the command line, named
    `option` (by default as the setting) and parsed by the function `reads` of cli/options.py.
    """

    doc: str
    help: str = ""
    metavar: str | None = None
    option: str | None = None
    type_name: str = "object"  # as docstrings have it
    reads: str = ""

    def check(self, name: str, value: Any) -> Any:
        """The value converted to its type; InputError if invalid."""
        return value

    def flag(self, name: str) -> str:
        """The option's name on the command line."""
        return self.option or "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Positive(Setting):
    """A finite number above 0."""

    type_name: str = "float"
    reads: str = "positive"
    most: float = float("inf")

    def check(self, name: str, value: Any) -> float:
        number = positive(name, value)
        if number > self.most:
            raise InputError(f"{name} must be at most {self.most:g}, not {value!r}")
        return number


@dataclass(frozen=True)
class Whole(Setting):
    """A whole number of at least `least`."""

    type_name: str = "int"
    least: int = 1

    def check(self, name: str, value: Any) -> int:
        return whole(name, value, self.least)


@dataclass(frozen=True)
class Unit(Setting):
    """A number from 0 to 1, or to below 1."""

    type_name: str = "float"
    reads: str = "unit"
    below: bool = False

    def check(self, name: str, value: Any) -> float:
        what = "a number from 0 to below 1" if self.below else "a number from 0 to 1"
        zero = not isinstance(value, str | bool) and value == 0
        number = 0.0 if zero else positive(name, value, what)
        if number > 1 or (self.below and number == 1):
            raise InputError(f"{name} must be {what}, not {value!r}")
        return number


@dataclass(frozen=True)
class OneOf(Setting):
    """One of a few values."""

    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        shown = (f'"{one}"' if isinstance(one, str) else str(one) for one in self.choices)
        object.__setattr__(self, "type_name", "{" + ", ".join(shown) + "}")

    def check(self, name: str, value: Any) -> Any:
        if value not in self.choices:
            what = " or ".join(map(repr, self.choices))
            raise InputError(f"{name} must be {what}, not {value!r}")
        return value


@dataclass(frozen=True)
class Flag(Setting):
    """True or False."""

    type_name: str = "bool"

    def check(self, name: str, value: Any) -> bool:
        return yes_or_no(name, value)


def setting(default: Any, how: Setting) -> Any:
    """A field of a sampler: its default (None if it depends on the data) and its `Setting`."""
    return field(default=default, metadata={"setting": how})


def settings_of(sampler: Any) -> Mapping[str, Setting]:
    """The settings of a sampler, or of its class, by name."""
    return {f.name: f.metadata["setting"] for f in fields(sampler) if "setting" in f.metadata}


def check_types(sampler: S) -> S:
    """The sampler with values of the right type; InputError for an invalid one."""
    known, values = settings_of(sampler), {}
    for own in fields(sampler):
        value = getattr(sampler, own.name)
        if own.name in known and not (value is None and own.default is None):
            values[own.name] = known[own.name].check(own.name, value)
    checked: S = replace(sampler, **values)
    return checked


def documented(rule: C) -> C:
    """Write all settings, inherited ones too, as Parameters into the docstring of a sampler."""
    lines = ["Parameters", "----------"]
    for own in fields(rule):
        how = own.metadata.get("setting")
        if how is None:
            continue
        default = "optional" if own.default is None else f"default {own.default!r}"
        lines.append(f"{own.name} : {how.type_name}, {default}")
        lines += textwrap.wrap(how.doc, 88, initial_indent="    ", subsequent_indent="    ")
    text = inspect.cleandoc(rule.__doc__ or "")
    head, underline, rest = text.partition("\n--------\n")  # of Examples or See Also
    above, _, title = head.rpartition("\n") if underline else (text, "", "")
    parts = [above.rstrip(), "\n".join(lines)]
    if underline:
        parts.append(f"{title}{underline}{rest}")
    rule.__doc__ = "\n\n".join(parts) + "\n"
    return rule


# -- settings that samplers of several kinds have ----------------------------------------------

EPOCHS = Positive(
    "Passes over the ratings; a sweep of Gibbs is one. The default follows the number of ratings; "
    "samplers that stop at convergence run until the estimator's `target` is "
    "reached.",
    help="passes over the ratings",
    metavar="E",
)
N_CHAINS = Whole("Independent chains.", help="independent chains", metavar="C", option="--chains")
BURN_IN = Setting(
    'Epochs dropped, or "rmse:0.85" (until a chain\'s validation RMSE falls to that), '
    '"mean-rmse:0.85" (until its mean over chains does, as in the paper) or "stationary" (until '
    "the training RMSE has no trend left). By default it grows with the run: whenever that ends, "
    "the first quarter of its epochs is dropped.",
    help="epochs dropped, or rmse:0.85 or mean-rmse:0.85 (by --validation), or stationary",
    metavar="B",
    type_name="float or str",
    reads="burn_in",
)
THIN = Positive(
    "Epochs between kept draws; more if the number of draws is limited. The default is 1.",
    help="epochs between kept draws",
    metavar="K",
)
INITIAL_PRECISION = Positive(
    "Initial precisions of all columns, for ratings of variance one.",
    help="precisions before the first draw of them",
    metavar="P",
)
PRECISION_EVERY = Whole(
    "Rounds between draws of the precisions. The default is once an epoch.",
    help="rounds between draws of the precisions",
    metavar="K",
)
OVERRELAX = Unit(
    "Over-relaxation, from 0 (plain draws) to below 1: a draw reflects the row at its conditional "
    "mean by this share. It leaves the posterior invariant and reduces the random walk of plain "
    "sweeps.",
    help="from 0, plain draws, to below 1",
    metavar="A",
    below=True,
)
