"""`bayesmf pack`: ratings, perhaps more than fit in memory, into a file that fit maps."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import peak_rss_mb, print_json, print_text
from bayesmf.process import Line, short_count
from bayesmf.wording import count

if TYPE_CHECKING:
    from bayesmf.packed.ratings import PackedRatings


def parser() -> options.Parser:
    """Options of `pack`."""
    out = options.command(
        "pack",
        "Pack ratings, perhaps more than fit in memory, into a file that fit reads in place.",
        "ratings.parquet --out ratings.packed",
        "2023.csv 2024.csv --out ratings.packed --columns user=customer,item=sku,rating=stars",
        "s3://bucket/ratings/ --out ratings.packed",
    )
    out.add_argument(
        "ratings", nargs="+", metavar="RATINGS", help="files or folders of ratings, or URIs"
    )
    out.add_argument("--out", required=True, metavar="FILE", help="file to write")
    out.add_argument("--overwrite", action="store_true", help="replace packed ratings in FILE")
    options.add_file_options(out)
    options.add_duplicates(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Pack, and print the size and the speed."""
    from bayesmf.packed.pack import pack

    begin = time.monotonic()
    with Line() as line:

        def show(done: int, total: int, stage: str) -> None:
            unit = "bytes" if stage == "reading" else "ratings"
            done_of = f"{short_count(done)} of {short_count(total)} {unit}"
            line.measure(stage, done, total, [done_of])

        line.say("reading")
        packed = pack(
            args.ratings,
            args.out,
            columns=args.columns,
            format=args.format,
            duplicates=args.duplicates,
            overwrite=args.overwrite,
            progress=show,
        )
    about = _about(packed, time.monotonic() - begin)
    if args.json:
        print_json({**about, "out": args.out})
        return
    print_text(
        f"{count(len(packed), 'rating')} by {count(packed.n_users, 'user')} of "
        f"{count(packed.n_items, 'item')}, {about['bytes_per_rating']:.1f} bytes a rating; "
        f"{about['seconds']:.1f} s, {short_count(about['ratings_per_second'])} ratings/s, "
        f"peak memory {about['peak_rss_mb'] or 0:.0f} MB"
    )


def _about(packed: PackedRatings, seconds: float) -> dict[str, Any]:
    size = packed.path.stat().st_size
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
