"""`bayesmf demo`: a demonstration on synthetic ratings."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesmf.cli import options
from bayesmf.cli.output import print_text
from bayesmf.cli.serve import HOST, PORT, add_serving, listening, needs_web, serve
from bayesmf.errors import InputError


def parser() -> options.Parser:
    """Options of `demo`."""
    out = options.command(
        "demo",
        "Make ratings with a planted truth, fit them in several ways, and compare. With --serve, "
        "fit stars of invented films and show them on a page in the browser instead.",
        "--out bayesmf-demo",
        "--serve",
    )
    folder = Path("bayesmf-demo")
    out.add_argument(
        "--out", type=Path, default=folder, metavar="DIR", help=f"folder for the figure ({folder})"
    )
    options.add_seed(out, "the ratings and the chains")
    options.add_json(out)
    out.add_argument(
        "--serve", action="store_true", help="serve invented films with a page, as bayesmf serve"
    )
    add_serving(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Run the demonstration."""
    if args.serve:
        _serve(args)
        return
    if args.host != HOST or args.port != PORT:
        raise InputError("--host and --port go with --serve: add it, or leave them out")
    from bayesmf import demo

    demo.run(args.out, args.seed, args.json)


def _serve(args: argparse.Namespace) -> None:
    """Fit invented films, and serve them until Ctrl-C."""
    if args.json:
        raise InputError("--json has nothing to print with --serve: leave one of them out")
    from bayesmf.web.run import one_blas_thread, open_browser

    one_blas_thread()
    needs_web()
    from bayesmf.demo import write_demo

    where = listening(args.host, args.port)
    print_text("Fitting stars of invented films; the first run compiles for half a minute.")
    found = write_demo(args.out, args.seed)
    print_text(f"The model, its films and held-out ratings are in {args.out}")
    serve(
        found.model, where, item_info=found.films, test=found.test, limits={}, at_start=open_browser
    )
