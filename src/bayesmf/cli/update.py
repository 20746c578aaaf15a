"""`bayesmf update`: add ratings to a model, save it as another."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import peak_rss_mb, print_facts, print_json
from bayesmf.wording import count

if TYPE_CHECKING:
    from bayesmf.estimator.bayesian_mf import BayesianMF


def parser() -> options.Parser:
    """The options of `update`."""
    out = options.command(
        "update",
        "Add ratings to a model, of new users and items too, in a fraction of the time of a fit. "
        "A rating of a user and an item that had one replaces it.",
        "model new.csv --out model",
    )
    options.add_model(out)
    add = out.add_argument
    add("ratings", metavar="RATINGS", help="file or folder of ratings")
    add("--out", required=True, metavar="MODEL2", help="folder to save to; it may be MODEL")
    add("--workers", type=options.whole(1), metavar="N", help="threads (one for each core)")
    options.add_file_options(out)
    options.add_duplicates(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Add the ratings, save, and print what there is now."""
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.storage.writer import check_writable

    check_writable(args.out)
    model = BayesianMF.load(args.model)
    more = options.read_ratings(args.ratings, args)
    before, begin = dict(model.report_), time.monotonic()
    model.n_workers = args.workers
    model.partial_fit(more)
    seconds = time.monotonic() - begin
    model.save(args.out)
    told = _result(model, before, len(more), seconds)
    if args.json:
        print_json({**told, "model": args.out})
    else:
        _tell(args, told)


def _result(
    model: BayesianMF, before: dict[str, Any], n_new: int, seconds: float
) -> dict[str, Any]:
    now = model.report_
    sizes = ("ratings", "users", "items")
    return {
        "added": n_new,
        "replaced": n_new - (now["ratings"] - before["ratings"]),
        **{f"new_{name}": now[name] - before[name] for name in sizes[1:]},
        **{name: now[name] for name in (*sizes, "draws", "updates")},
        "seconds": seconds,
        "peak_rss_mb": peak_rss_mb(),
    }


def _tell(args: argparse.Namespace, told: dict[str, Any]) -> None:
    replaced = f", {told['replaced']:,} of them instead of others" if told["replaced"] else ""
    new = f"{count(told['new_users'], 'new user')}, {count(told['new_items'], 'new item')}"
    sizes = count(told["users"], "user"), count(told["items"], "item")
    print_facts(
        [
            ("added", f"{count(told['added'], 'rating')}{replaced}; {new}"),
            ("ratings", f"{told['ratings']:,} by {sizes[0]} of {sizes[1]}"),
            ("draws", str(told["draws"])),
            ("time", f"{told['seconds']:.1f} s"),
            ("saved", args.out),
        ]
    )
