"""Pictures of the service's page.

Fits the invented films of `bayesmf demo --serve`, serves them on a free port of this machine, and
has a Chromium look at them. Needs playwright and a Chromium (BAYESMF_CHROMIUM, or on the PATH).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf.demo import DemoSizes
from bayesmf.errors import InputError
from bayesmf.plots.style import make_folder
from bayesmf.storage.atomic import replacing
from benchmarks.options import BenchParser, command

NAMES = ("chromium", "chromium-browser", "google-chrome")
# It sends no requests of its own.
ARGUMENTS = (
    "--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
STARTS_WITHIN = 60.0  # seconds


def chromium() -> str | None:
    """Path of a Chromium, from BAYESMF_CHROMIUM or where commands are; None where there is none."""
    named = os.environ.get("BAYESMF_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, until the block ends."""
    from playwright.sync_api import sync_playwright

    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as player:
        opened = player.chromium.launch(
            executable_path=chromium(), args=[*ARGUMENTS, *as_root], chromium_sandbox=not as_root
        )
        yield opened
        opened.close()


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """Address of an application that is served from a thread, on a free port of this machine."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + STARTS_WITHIN
    while not server.started:
        if not thread.is_alive() or time.monotonic() > end:
            raise RuntimeError("the service did not start")
        time.sleep(0.01)
    (socket,) = server.servers[0].sockets
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}
# The same "random" ratings in each run: a linear congruential generator.
SAME_RATINGS = """
    let state = 20;
    Math.random = () => {
      state = (1103515245 * state + 12345) % 2147483648;
      return state / 2147483648;
    };
"""


def take(address: str, out: Path) -> list[Path]:
    """Take all pictures of a service; their paths."""
    taken = []
    with browser() as opened:
        for name, look, options in (
            ("page-try", _try, {"viewport": _high(1330)}),
            ("page-try-dark", _try, {"viewport": _high(1330), "color_scheme": "dark"}),
            ("page-item", _item, {"viewport": _high(1180)}),
            ("page-model", _model, {"viewport": _high(1400)}),
            ("page-phone", _phone, PHONE),
        ):
            context = opened.new_context(reduced_motion="reduce", **options)
            context.add_init_script(SAME_RATINGS)
            page = context.new_page()
            look(page, address)
            page.wait_for_timeout(300)
            path = out / f"{name}.png"
            with replacing(path) as file:
                file.write(page.screenshot())
            taken.append(path)
            context.close()
    return taken


def _high(height: int) -> dict[str, int]:
    return {"width": 1440, "height": height}


def _rated(page: Any, address: str) -> None:
    """The first view, with ratings of an invented person."""
    page.goto(f"{address}/#/try")
    page.locator(".rows li").first.wait_for()
    page.get_by_role("button", name="Rate some for me").click()
    page.locator(".sure circle").nth(5).wait_for()
    page.locator("[aria-busy=true]").first.wait_for(state="detached")


def _try(page: Any, address: str) -> None:
    _rated(page, address)
    page.get_by_role("button", name="Why?").nth(1).click()
    page.locator("table.sum").wait_for()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")


def _phone(page: Any, address: str) -> None:
    _rated(page, address)
    page.get_by_role("button", name="Why?").first.click()
    page.locator("table.sum").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.locator(".list").evaluate("list => list.scrollIntoView()")


def _item(page: Any, address: str) -> None:
    page.goto(f"{address}/#/item/film%2050")
    page.locator(".near li").first.wait_for()


def _model(page: Any, address: str) -> None:
    page.goto(f"{address}/#/model")
    page.get_by_role("heading", name="Nominal and observed").wait_for(timeout=60_000)


@command
def main(arguments: list[str] | None = None, sizes: DemoSizes | None = None) -> None:
    """Make the model, serve it and look at it."""
    parser = BenchParser("screenshots", __doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the pictures")
    args = parser.parse_args(arguments)
    if chromium() is None:
        raise InputError("there is no Chromium on the PATH: install one, or set BAYESMF_CHROMIUM")
    from bayesmf.demo import write_demo
    from bayesmf.web import create_app

    make_folder(args.out)
    with tempfile.TemporaryDirectory() as folder:
        made = write_demo(Path(folder), 0, sizes)
        app = create_app(made.model, item_info=made.films, test=made.test)
        with served(app) as address:
            for path in take(address, args.out):
                print(f"{path}  {path.stat().st_size / 1000:.0f} kB")
