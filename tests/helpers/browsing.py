"""The page in a browser: what it does that it must not do, and how to use it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks.serving.screenshots import browser, chromium, served  # noqa: E402  (found by the line above)

__all__ = ["Watched", "axe_source", "browser", "chromium", "numbers", "served"]

MINUS, DASH = "\u2212", "\u2013"
HOSTILE = '<img src=x onerror="alert(1)"> & <b>bold</b>'
LONG = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichenverordnung " * 2
NOT_LOOKED_AT = "not looked at"  # begins the reason of a skipped test that should be seen


def axe_source():
    """The text of axe-core, from BAYESMF_AXE or node_modules, or None."""
    named = os.environ.get("BAYESMF_AXE")
    places = [Path(named)] if named else [ROOT / "node_modules" / "axe-core"]
    for place in places:
        file = place / "axe.min.js" if place.is_dir() else place
        if file.is_file():
            return file.read_text("utf-8")
    return None


class Watched:
    """A page, and all that it does which it must not do."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.address = address
        self.faults = []
        self.allowed = []  # parts of console errors that a test is about
        self.requests = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.page.on("request", self._request)
        self.page.on("dialog", lambda dialog: self._dialog(dialog))

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text} ({message.location['url']})")

    def _request(self, request):
        self.requests.append(request)
        host = urlsplit(self.address).netloc
        if urlsplit(request.url).netloc != host:
            self.faults.append(f"a request to another host: {request.url}")

    def _dialog(self, dialog):
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, route=""):
        """Go to a view and wait until nothing is under way."""
        self.page.goto(f"{self.address}/{route}")
        self.settle()
        return self.page

    def settle(self):
        """Wait until the view is there and no answer is awaited."""
        self.page.locator("main h1").first.wait_for()
        self.page.locator("[aria-busy=true]").first.wait_for(state="detached")

    def check(self):
        """Fail if the page did anything that it must not do."""
        left = [x for x in self.faults if not any(part in x for part in self.allowed)]
        assert not left, left

    @property
    def scrolls_sideways(self):
        """Whether the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )

    def rate(self, text, stars):
        """Find an item by a part of its title, and rate it."""
        page = self.page
        page.get_by_role("combobox").fill(text)
        page.get_by_role("option").filter(has_text=text).first.click()
        row = page.locator(".mine li").first
        with page.expect_response("**/v1/recommend"):
            row.get_by_role("radio", name=re.compile(f"^{stars} star")).check()
        self.settle()

    def items(self):
        """Ids of the items that are recommended, as text."""
        return self.page.locator(".rows li").evaluate_all("all => all.map(li => li.dataset.item)")


def numbers(texts):
    """Numbers as the page writes them."""
    return [float(text.replace(MINUS, "-").replace("+", "")) for text in texts]
