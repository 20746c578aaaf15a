"""`python -m benchmarks NAME ...`: runs one benchmark; without a name, lists all of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

FOLDERS = ("accuracy", "speed", "ranking", "faults", "attack", "serving", "cluster")
HERE = Path(__file__).parent


def find() -> dict[str, tuple[str, str]]:
    """Folder and one-line help of every benchmark: each file whose `main` is a `@command`."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((HERE / folder).glob("*.py")):
            text = path.read_text("utf-8")
            if "\n@command\n" in text:
                found[path.stem] = folder, (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return found


def main(argv: Sequence[str]) -> int:
    """The benchmark's exit status; 2 for a name that is not there."""
    known = find()
    if argv and argv[0] in known:
        name, *rest = argv
        return int(import_module(f"benchmarks.{known[name][0]}.{name}").main(rest))
    lines = ["usage: python -m benchmarks NAME [options]; NAME -h shows its options"]
    for folder in FOLDERS:
        lines += [f"\n{folder}:"]
        lines += [f"  {name:<14} {text}" for name, (of, text) in known.items() if of == folder]
    wrong = bool(argv) and argv[0] not in ("-h", "--help")
    print("\n".join(lines), file=sys.stderr if wrong else sys.stdout)
    if wrong:
        print(f"\nunknown benchmark {argv[0]!r}", file=sys.stderr)
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
