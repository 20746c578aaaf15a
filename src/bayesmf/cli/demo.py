"""`bayesmf demo`: see it all work."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesmf.cli import options


def parser() -> options.Parser:
    """The options of `demo`."""
    out = options.command(
        "demo",
        "Make ratings with a planted truth, fit them in several ways, and compare.",
        "--out bayesmf-demo",
    )
    folder = Path("bayesmf-demo")
    out.add_argument(
        "--out", type=Path, default=folder, metavar="DIR", help=f"folder for the figure ({folder})"
    )
    options.add_seed(out, "the ratings and the chains")
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Run the demonstration."""
    from bayesmf import demo

    demo.run(args.out, args.seed, args.json)
