"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and shows a description as it was written."""

    def __init__(self, module: str, description: str | None) -> None:
        super().__init__(
            f"python -m benchmarks.{module}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._module = module

    def error(self, message: str) -> NoReturn:
        print(f"{self._module}: {message}", file=sys.stderr)
        raise SystemExit(2)
