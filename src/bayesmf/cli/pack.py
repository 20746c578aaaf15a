"""`bayesmf pack`: ratings, perhaps more than fit in memory, into a folder that is read in place."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import peak_rss_mb, print_json, print_text
from bayesmf.process import counting
from bayesmf.wording import count

if TYPE_CHECKING:
    from bayesmf.packed.ratings import PackedRatings


def parser() -> options.Parser:
    """The options of `pack`."""
    out = options.command(
        "pack",
        "Pack ratings, perhaps more than fit in memory, into a folder that fit reads in place.",
        "ratings.parquet --out packed",
        "2023.csv 2024.csv --out packed --columns user=customer,item=sku,rating=stars",
        "s3://bucket/ratings/ --out packed",
    )
    out.add_argument(
        "ratings", nargs="+", metavar="RATINGS", help="files or folders of ratings, or URIs"
    )
    out.add_argument("--out", required=True, metavar="FOLDER", help="folder to make")
    out.add_argument("--overwrite", action="store_true", help="replace packed ratings in FOLDER")
    options.add_file_options(out)
    options.add_duplicates(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Pack, and print the size and the speed."""
    from bayesmf.packed.pack import pack

    begin = time.monotonic()
    bars = _Stages()
    try:
        packed = pack(
            args.ratings,
            args.out,
            columns=args.columns,
            format=args.format,
            duplicates=args.duplicates,
            overwrite=args.overwrite,
            progress=bars,
        )
    finally:
        bars.close()
    about = _about(packed, time.monotonic() - begin)
    if args.json:
        print_json({**about, "out": args.out})
    else:
        print_text(_line(about))


class _Stages:
    """A progress line for each stage."""

    def __init__(self) -> None:
        self._stage, self._done = "", 0
        self._open = ExitStack()
        self._update: Callable[[int], Any] | None = None

    def __call__(self, done: int, total: int, stage: str) -> None:
        if stage != self._stage or self._update is None:
            self.close()
            unit = "bytes" if stage == "reading" else "ratings"
            self._update = self._open.enter_context(counting(stage, total, unit))
            self._stage, self._done = stage, 0
        self._update(done - self._done)
        self._done = done

    def close(self) -> None:
        self._open.close()


def _about(packed: PackedRatings, seconds: float) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in packed.path.iterdir())
    return {
        "ratings": len(packed),
        "users": packed.n_users,
        "items": packed.n_items,
        "levels": None if packed.levels is None else len(packed.levels),
        "low": packed.low,
        "high": packed.high,
        "mean": packed.mean(),
        "bytes": size,
        "bytes_per_rating": size / len(packed),
        "seconds": seconds,
        "ratings_per_second": len(packed) / seconds,
        "peak_rss_mb": peak_rss_mb(),
    }


def _line(about: dict[str, Any]) -> str:
    return (
        f"{count(about['ratings'], 'rating')} by {count(about['users'], 'user')} of "
        f"{count(about['items'], 'item')}, {about['bytes_per_rating']:.1f} bytes a rating; "
        f"{about['seconds']:.1f} s, {about['ratings_per_second'] / 1e6:.2f}M ratings/s, "
        f"{about['peak_rss_mb'] or 0:.0f} MB at the most"
    )
