"""Command lines with options and values drawn from the parsers themselves."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from benchmarks.attack.case import Case
from benchmarks.attack.registry import attack

COMMANDS = (
    "fit", "fit", "predict", "evaluate", "recommend", "diagnose", "pack", "synth", "demo",
)  # fmt: skip
LONG = ("demo",)  # the parser alone is asked
VALUES = (
    "", " ", "0", "-1", "1", "2", "3", "0.5", "0.1", "1.0", "nan", "inf", "-inf", "1e309",
    "1e-320", "-0", "007", "9" * 30,
    str(2**63), str(2**63 - 1), "1,2", "1,2,3", "2x2", "0x1", "-1x3", "99999x99999", "x", "é",
    "\x1b[31m", "a b", "--", "-",
    "~", ".", "..", "/", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem",
    "nowhere/at/all", "a\nb", "%s", "{}", "$HOME",
    "user=0,item=1,rating=2", "user=a", "user=0", "rmse:0.9", "rmse:", "stationary", "equal",
    "size", "sample", "auto",
    "csv", "netflix", "gibbs", "sgld", "sgd", "mean", "a" * 5000, "\udce9", "http://localhost/",
    "*", "[a]",
)  # fmt: skip
FILES = ("ratings.csv", "names.csv", "pairs.csv", "model", "packed", "ratings.parquet", "new",
    "new.csv", "new.parquet",
         "new.jsonl", "truth.safetensors", "checkpoint",
         "new.npz", "new/deep", "folder")  # fmt: skip
INPUTS = ("ratings.csv", "names.csv", "ratings.parquet")
# Values that are valid and mean hours, or gigabytes: they are not drawn.
COSTLY = ("--epochs", "--chains", "--factors", "--ratings", "--users", "--items",
    "--round-length", "--thin", "--repeats",
          "--workers", "--batch-size", "--grid", "-n", "--scale", "--holdout", "--burn-in",
          "--max-draws", "--threads")  # fmt: skip
LARGE = (str(2**63 - 1), "99999x99999")
# --debug asks for tracebacks.
NEVER = ("--ray-address", "--shape", "-h", "--help", "--debug")


def value_for(case: Case, action: argparse.Action, name: str) -> str:
    """Often one that may be right, else anything."""
    if action.choices and case.rng.random() < 0.7:
        return str(case.rng.choice([c for c in action.choices if c != "ray"]))
    if case.rng.random() < 0.35:
        return case.rng.choice(FILES)
    return case.rng.choice([v for v in VALUES if name not in COSTLY or v not in LARGE])


def command_line(case: Case) -> list[str]:
    """A command with some of its options."""
    name = case.rng.choice(COMMANDS)
    actions = import_module(f"bayesmf.cli.{name}").parser()._actions
    line = [name]
    for action in actions:
        if not action.option_strings:
            count = {"*": case.rng.randrange(3), "+": case.rng.randrange(1, 3)}.get(
                str(action.nargs), 1
            )
            line += [_positional(case, name) for _ in range(count)]
        elif action.required and case.rng.random() < 0.95:
            line += [action.option_strings[-1], case.rng.choice(FILES[6:])]
    options = [
        a
        for a in actions
        if a.option_strings and a.option_strings[-1] not in NEVER and not a.required
    ]
    for action in case.rng.sample(options, min(len(options), case.rng.choice((0, 1, 1, 2, 3, 6)))):
        option = action.option_strings[-1]
        line.append(option)
        if action.nargs != 0:
            line.append(value_for(case, action, option))
    if name == "fit":
        line += ["--epochs", "2"] if "--epochs" not in line else []
        line += ["--max-seconds", "2"] if "--max-seconds" not in line else []
        line += ["--factors", "2"] if "--factors" not in line else []
    if name == "synth" and "--ratings" not in line:
        line += ["--users", "9", "--items", "8", "--ratings", "40"]
    if case.rng.random() < 0.05:
        line.insert(
            case.rng.randrange(len(line) + 1), case.rng.choice(("--", "-x", "--unknown=3", "\0"))
        )
    return line


def _positional(case: Case, command: str) -> str:
    likely = {"fit": ("ratings.csv", "packed", "names.csv"), "pack": ("ratings.csv",
        "ratings.parquet"),
              "predict": ("model", "pairs.csv"), "evaluate": ("model", "ratings.csv"),
              "recommend": ("model", "1", "u1x"), "diagnose": ("model",)}  # fmt: skip
    if case.rng.random() < 0.8 and command in likely:
        return case.rng.choice(likely[command])
    return case.rng.choice((*FILES, *VALUES))


@attack("arguments", 8)
def lines(case: Case) -> None:
    """A command line; work is done where it is short."""
    for name in (*INPUTS, "pairs.csv", "model", "packed", "truth.safetensors"):
        case.copy(name)
    (case.work / "folder").mkdir()
    line = command_line(case)
    before = {name: (case.work / name).read_bytes() for name in INPUTS}
    if line[0] in LONG:
        line = parse_only(line)
    case.cli(*line)
    for name, raw in before.items():
        file = case.work / name
        if not file.is_file() or file.read_bytes() != raw:
            case.find(
                "files touched",
                f"{name}, which is an input, was changed by {' '.join(line)[:200]!r}",
            )


def parse_only(line: list[str]) -> list[str]:
    """A long command that fails after its options were read, by a last one that does not exist."""
    return [*line, "--no-such-option-at-all"]


@attack("arguments")
def about(case: Case) -> None:
    """The command itself, without a command or with an odd one."""
    words: tuple[Any, ...] = (
        "-h", "--version", "--help", "fit", "-", "", "Fit", "fit ", "\x1b[2J", "--", "predict",
        *VALUES,
    )  # fmt: skip
    chosen = [case.rng.choice(words) for _ in range(case.rng.choice((0, 1, 1, 2)))]
    case.cli(*chosen)
