"""`bayesmf serve`: answer questions about a model over HTTP, and show a page."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesmf.cli import options
from bayesmf.cli.output import note, print_text
from bayesmf.errors import InputError

if TYPE_CHECKING:
    import socket

    from bayesmf.web.run import Address

TOKEN = "BAYESMF_TOKEN"
HOST, PORT = "127.0.0.1", 8000
# Processes for each core; more than one only take memory.
MAX_WORKERS = 4


class Listening(NamedTuple):
    """An open socket, its address, and the token that requests must send."""

    sock: socket.socket
    at: Address
    token: str | None


def parser() -> options.Parser:
    """Options of `serve`."""
    out = options.command(
        "serve",
        "Answer questions about a model over HTTP: recommend, predict, explain, similar items, "
        "search. / is a page that shows what intervals mean, /openapi.json describes the rest. "
        "Save a new model to the same path, and the service switches to it without dropping a "
        f"request. With a token in the environment variable {TOKEN}, requests must send it.",
        "films.bayesmf",
        "films.bayesmf --item-info movies.csv --test held-out.csv",
        "films.bayesmf --host 0.0.0.0 --port 80 --workers 4",
    )
    options.add_model(out)
    add_serving(out)
    out.add_argument(
        "--item-info",
        type=Path,
        metavar="FILE",
        help="table of items with a column of ids, a title, and others, such as movies.csv",
    )
    out.add_argument(
        "--test", type=Path, metavar="FILE", help="held-out ratings: the page shows calibration"
    )
    options.add_file_options(out, formats=False)  # of --test
    out.add_argument(
        "--workers", type=options.whole(1), default=1, metavar="N", help="processes (1)"
    )
    out.add_argument(
        "--mmap",
        action="store_true",
        help="map the model, so that processes share its memory; then only replace the file, as "
        "save and fit do, and never write into it",
    )
    out.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name of the service; repeat it for several. Without any, a service "
        "of this machine alone answers to localhost, others to any name",
    )
    out.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may send requests, such as https://shop.example",
    )
    out.add_argument(
        "--max-body", type=options.whole(1), metavar="BYTES", help="largest request (1000000)"
    )
    out.add_argument(
        "--timeout", type=options.positive, metavar="S", help="longest answer, in seconds (10)"
    )
    out.add_argument(
        "--access-log",
        action="store_true",
        help="a line on stderr for each request: method, route, status and time",
    )
    return out


def add_serving(out: options.Parser) -> None:
    """Add the options of the address."""
    out.add_argument(
        "--host", default=HOST, metavar="H", help=f"address ({HOST}: this machine alone)"
    )
    out.add_argument(
        "--port",
        type=options.port,
        default=PORT,
        metavar="P",
        help=f"port, 0 for any free ({PORT})",
    )


def run(args: argparse.Namespace) -> None:
    """Check the options, then serve."""
    from bayesmf.process import cores
    from bayesmf.web.run import one_blas_thread

    one_blas_thread()
    needs_web()
    limits: dict[str, Any] = {}
    if args.max_body is not None:
        limits["body"] = args.max_body
    if args.timeout is not None:
        limits["seconds"] = float(args.timeout)
    if args.workers > (most := MAX_WORKERS * cores()):
        raise InputError(
            f"--workers {args.workers} is too many for {cores()} cores: give at most {most}; more "
            "than one per core answer no more requests"
        )
    for name in args.allow_host:
        if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", name):
            raise InputError(
                f"--allow-host {name} is not a host name such as shop.example, without a port"
            )
    for origin in args.cors_origin:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise InputError(
                f"--cors-origin {origin} is not an origin such as https://shop.example"
            )
    if args.columns is not None and args.test is None:
        raise InputError("--columns names the columns of --test: give --test, or leave it out")
    serve(
        args.model,
        listening(args.host, args.port),
        workers=args.workers,
        access_log=args.access_log,
        hosts=args.allow_host,
        item_info=args.item_info,
        test=args.test,
        columns=args.columns,
        mmap=args.mmap,
        origins=args.cors_origin,
        limits=limits,
    )


def needs_web() -> None:
    """Raise InputError where a package of the extra `web` is missing."""
    from bayesmf import web

    _ = web.create_app


def listening(host: str, port: int) -> Listening:
    """Open the socket and read the token, before anything that takes long."""
    from bayesmf.web.guard import check_token
    from bayesmf.web.run import Address, listen

    token = os.environ.get(TOKEN)
    if token is not None:
        try:
            check_token(token)
        except InputError as error:
            raise InputError(f"{TOKEN} cannot be used: {error}; unset it for no token") from None
    sock = listen(host, port)
    return Listening(sock, Address(host, sock.getsockname()[1]), token)


def serve(
    model: Path,
    where: Listening,
    *,
    workers: int = 1,
    access_log: bool = False,
    hosts: Sequence[str] = (),
    at_start: Callable[[str], object] = lambda url: None,
    **options: Any,
) -> None:
    """Serve a saved model until a signal ends it.

    `at_start` is called with the URL; `options` are arguments of `web.run.make_app`.
    """
    from bayesmf.web.run import serve as run_service

    sock, at, token = where
    if not at.is_loopback and token is None:
        note(
            f"warning: anyone who can reach {at.host} can use this service; set {TOKEN} to require "
            "a token"
        )
    for name in ("item_info", "test"):
        if (path := options.get(name)) is not None:
            options[name] = os.path.abspath(path)
    options["model"], options["token"] = os.path.abspath(model), token
    # No name at all means any.
    options["hosts"] = [*at.names(), *hosts] if at.is_loopback or hosts else []

    def ready(warnings: list[str]) -> None:
        for sentence in warnings:
            note(f"warning: {sentence}")
        print_text(f"{model} is served at {at.url} (Ctrl-C ends it)")
        at_start(at.url)

    run_service(options, sock, workers, access_log, ready)
    note("the service has ended")
