"""How tests of the command line run it: in this process for speed, or in one of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bayesmf import Synthetic
from bayesmf.cli import main

QUICK = ("--sampler", "gibbs", "--epochs", "12", "--burn-in", "4", "--factors", "3")
SGLD = ("--sampler", "sgld", "--epochs", "6", "--burn-in", "2", "--factors", "3")
SGD = ("--sampler", "sgd", "--epochs", "6", "--factors", "3")


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; null is the only way to say that a number is missing."""
        assert self.status == 0, self.err
        assert self.out.count("\n") == 1
        found = json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        assert isinstance(found, dict)
        return found

    @property
    def sentence(self) -> str:
        """What was wrong, having checked that it is told as it should be."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("bayesmf: error: ")
        return lines[0].removeprefix("bayesmf: error: ")


def run(*args: object, encoding: str = "utf-8") -> Ran:
    """Run a command line in this process, on a stdout of the given encoding."""
    out = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n", write_through=True)
    err = io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(arg) for arg in args])
        except SystemExit as ended:  # -h and --version
            status = int(ended.code or 0)
    return Ran(status, out.buffer.getvalue().decode(), err.getvalue())


def command(main: Callable[[list[str]], int], *args: object) -> Ran:
    """Run the `main` of an experiment or a benchmark."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(arg) for arg in args])
        except SystemExit as ended:
            status = int(ended.code or 0)
    return Ran(status, out.buffer.getvalue().decode(), err.getvalue())


def process(*args: object) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own."""
    command = [sys.executable, "-m", "bayesmf", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Data(NamedTuple):
    """Files of ratings, and a model of the first."""

    train: Path
    test: Path
    model: Path


def make_data(folder: Path) -> Data:
    """Write 720 ratings, 180 more, and a model with two chains."""
    found = Data(folder / "train.csv", folder / "test.csv", folder / "model")
    train, test = Synthetic(60, 40, 900, random_state=1).ratings().split(0.2)
    train.write(found.train)
    test.write(found.test)
    fit = ("--sampler", "gibbs", "--epochs", "60", "--chains", "2", "--factors", "3")
    assert run("fit", found.train, "--out", found.model, *fit).status == 0
    return found


def contents(folder: Path) -> set[str]:
    """Names of what is in a folder."""
    return set(os.listdir(folder))
