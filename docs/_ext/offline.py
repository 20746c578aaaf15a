"""Look whether built pages fetch anything from elsewhere: `python docs/_ext/offline.py FOLDER`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# What a browser fetches by itself; links that somebody may follow are no fetching.
FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?"
    r"\b(?:src|href)=[\"']?((?:https?:)?//[^\"'> ]+)"
    r"|url\([\"']?((?:https?:)?//[^\"')]+)|@import [\"']((?:https?:)?//[^\"']+)"
)


def fetched(text: str) -> list[str]:
    """Addresses elsewhere that a page or a style sheet fetches."""
    return ["".join(found) for found in FETCHED.findall(text)]


def main(folder: str) -> int:
    """Print what is fetched from elsewhere, with its page; 1 if there is anything."""
    pages = [path for path in Path(folder).rglob("*") if path.suffix in (".html", ".css")]
    found = [(path, one) for path in pages for one in fetched(path.read_text("utf-8"))]
    for path, one in found:
        print(f"{path}: fetches {one}")
    if not pages:
        print(f"{folder}: there are no pages")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
