"""`bayesmf update`: add ratings to a model."""

from __future__ import annotations

import argparse
import time

from bayesmf.cli import options
from bayesmf.cli.output import peak_rss_mb, print_facts, print_json
from bayesmf.wording import count


def parser() -> options.Parser:
    """Options of `update`."""
    out = options.command(
        "update",
        "Add ratings to a model, of new users and items too, in a fraction of the time of a fit. "
        "A rating of a user and an item that had one replaces it.",
        "films.bayesmf new.csv --out films.bayesmf",
    )
    options.add_model(out)
    add = out.add_argument
    add("ratings", metavar="RATINGS", help="file or folder of ratings")
    add("--out", required=True, metavar="MODEL2", help="file to save to; it may be MODEL")
    add("--workers", type=options.whole(1), metavar="N", help="threads (one for each core)")
    options.add_file_options(out)
    options.add_duplicates(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Add the ratings, save, and print the sizes."""
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.storage.artefact import check_writable

    check_writable(args.out)
    model = BayesianMF.load(args.model)
    more = options.read_ratings(args.ratings, args)
    before, begin = dict(model.report_), time.monotonic()
    model.n_workers = args.workers
    model.partial_fit(more)
    seconds = time.monotonic() - begin
    model.save(args.out)
    now, sizes = model.report_, ("ratings", "users", "items")
    result = {
        "added": len(more),
        "replaced": len(more) - (now["ratings"] - before["ratings"]),
        **{f"new_{name}": now[name] - before[name] for name in sizes[1:]},
        **{name: now[name] for name in (*sizes, "draws", "updates")},
        "seconds": seconds,
        "peak_rss_mb": peak_rss_mb(),
    }
    if args.json:
        print_json({**result, "model": args.out})
        return
    replaced = f", {result['replaced']:,} of them in place of others" if result["replaced"] else ""
    new = f"{count(result['new_users'], 'new user')}, {count(result['new_items'], 'new item')}"
    users, items = count(now["users"], "user"), count(now["items"], "item")
    print_facts(
        [
            ("added", f"{count(len(more), 'rating')}{replaced}; {new}"),
            ("ratings", f"{now['ratings']:,} by {users} of {items}"),
            ("draws", str(now["draws"])),
            ("time", f"{seconds:.1f} s"),
            ("saved", args.out),
        ]
    )
