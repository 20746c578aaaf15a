"""Code of a page of the documentation, run as somebody who reads it would.

Fenced blocks of Python run in order, in one namespace; lines that begin with `bayesmf`, fenced as
`sh` or indented, run as commands between them. Code of other libraries that is only shown is fenced
as `py`.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
import warnings
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any, NamedTuple

from bayesmf.errors import ConvergenceWarning, DataWarning

# `print(...)  # -> text`: exactly that is printed. After `# text ...` it begins so.
SAID = re.compile(r"^print\(.*\)\s+# -> (.*)$", re.M)
BEGINS = re.compile(r"^print\(.*\)\s+# (?!-> )(.*) \.\.\.$", re.M)
PIECE = re.compile(r"^```(\S*)\n(.*?)^```$|^    (bayesmf [^\n]*(?:(?<=\\)\n[^\n]*)*)$", re.M | re.S)
# One waits for requests until it is stopped, the other takes minutes; their own tests start them.
NOT_RUN = ("serve", "bench")
# What these warn of is between them and their own parts; ArviZ does so once a day.
OTHERS = r"(arviz|mlflow|opentelemetry|lenskit|cornac|optuna)(\.|$)"


class Piece(NamedTuple):
    """Something that runs: a block of Python, or a command without `bayesmf`."""

    kind: str
    text: str


def blocks(text: str) -> list[str]:
    """Blocks of Python of a page."""
    return [piece.text for piece in pieces(text) if piece.kind == "python"]


def pieces(text: str) -> list[Piece]:
    """All that runs, in order."""
    found = []
    for fence, inside, indented in PIECE.findall(text):
        if fence == "python":
            found.append(Piece("python", inside))
        elif fence == "sh" or indented:
            lines = (inside or indented).replace("\\\n", " ").splitlines()
            found += [Piece("command", line[8:]) for line in lines if line.startswith("bayesmf ")]
    return found


def run(block: str, name: str, space: dict[str, Any] | None = None) -> list[str]:
    """Lines that a block prints; whoever tries it sees no warning of ours."""
    space = {} if space is None else space
    space.setdefault("__name__", "__main__")
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as printed:
        warnings.simplefilter("error", ConvergenceWarning)
        warnings.simplefilter("error", DataWarning)
        warnings.filterwarnings("ignore", module=OTHERS)
        exec(compile(block, name, "exec"), space)
    return printed.getvalue().splitlines()


def unkept(block: str, printed: list[str]) -> list[str]:
    """What a block says that it prints, and did not."""
    wrong = [said for said in SAID.findall(block) if said not in printed]
    begun = [b for b in BEGINS.findall(block) if not any(line.startswith(b) for line in printed)]
    return wrong + begun


def run_command(line: str) -> str:
    """Run a command; return what is wrong with how it ended, nothing where all is well."""
    from cli_tools import run as run_cli

    args = shlex.split(line, comments=True)
    if args[0] in NOT_RUN:
        return ""
    if {"|", ">", "<", "&", ";", "&&"} & set(args):
        return f"bayesmf {line}: more than a command"
    ran = run_cli(*args)
    return f"bayesmf {line}: {ran.err}" if ran.status else ""


def run_page(text: str, name: str) -> list[str]:
    """Run a page in the current folder; return what did not come out as it says."""
    space: dict[str, Any] = {}
    wrong = []
    for number, piece in enumerate(pieces(text)):
        if piece.kind == "python":
            printed = run(piece.text, f"{name}, piece {number}", space)
            wrong += [f"piece {number}: {said}" for said in unkept(piece.text, printed)]
        else:
            wrong += [said for said in [run_command(piece.text)] if said]
    return wrong


def missing_packages(text: str) -> list[str]:
    """Packages that a page imports and that are not installed."""
    found = set()
    for node in (node for block in blocks(text) for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    others = found - set(sys.stdlib_module_names)
    return sorted(name for name in others if find_spec(name) is None)
