"""`bayesmf recommend`: the best items for users."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesmf.cli import options
from bayesmf.cli.output import (
    check_file,
    print_facts,
    print_json,
    print_table,
    print_text,
    write_frame,
)
from bayesmf.errors import InputError
from bayesmf.posterior import DRAWN, POLICIES
from bayesmf.reading.columns import recognise
from bayesmf.reading.files import open_regular, reading
from bayesmf.wording import printable

if TYPE_CHECKING:
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.estimator.results import Recommendations
    from bayesmf.ids.id_map import IdMap

NUMBERS = ("mean", "std", "low", "high")
COLUMNS = ("items", *NUMBERS)
SUFFIXES = (".csv", ".parquet", ".jsonl")
# First lines of a file of ids by which a table is recognised.
LOOKED_AT = 20


class Answers(NamedTuple):
    """Recommendations for users; the id of an unknown one is as it was typed."""

    users: list[Any]
    known: list[bool]
    found: Recommendations

    def items(self, k: int) -> list[tuple[Any, ...]]:
        """Item, mean, std, low and high of each item for user k, best first."""
        columns = [getattr(self.found, name)[k, : self.found.counts[k]] for name in COLUMNS]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def parser() -> options.Parser:
    """Options of `recommend`."""
    out = options.command(
        "recommend",
        "Recommend the best items to users, without those they have rated. New users get "
        "recommendations for the ratings in --ratings; an unknown user without ratings gets what "
        "people in general rate highest.",
        "films.bayesmf 17 42 -n 5",
        "films.bayesmf --all --policy thompson --seed 1 --out best.csv",
        "films.bayesmf --users users.txt --out best.jsonl",
        "films.bayesmf --ratings new-users.csv",
    )
    options.add_model(out)
    add = out.add_argument
    add("user", metavar="USER", nargs="*", help="ids of users")
    add("--users", metavar="FILE", type=Path, help="file of users, one id a line")
    add("--all", action="store_true", help="every user the model was fitted on")
    options.add_sent(out)
    options.add_file_options(out, formats=False)
    add("-n", type=options.whole(1), default=10, metavar="N", help="items for each user (10)")
    add("--policy", choices=POLICIES, default="mean",
        help="rank by expected rating (mean), plus its uncertainty (ucb) or minus it (lcb), "
        "by a random draw (thompson), or one of the items alone (thompson-items)")  # fmt: skip
    add("--items", metavar="FILE", type=Path, help="items to choose from, one id a line")
    add("--exclude", metavar="FILE", type=Path, help="items to leave out, one id a line")
    add("--include-seen", action="store_true", help="also items the user has rated")
    options.add_level(out)
    add("--seed", type=options.whole(0), metavar="S", help="seed of thompson (new each time)")
    add("--out", metavar="FILE", type=Path, help=".csv, .parquet or .jsonl file (stdout)")
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Recommend items, and write or print them."""
    named = bool(args.user or args.users)
    if (args.all and (named or args.ratings)) or not (args.all or named or args.ratings):
        raise InputError(
            "no users given: give ids of users, --users FILE, --ratings FILE, or --all alone"
        )
    if args.columns is not None and args.ratings is None:
        raise InputError("--columns does nothing without --ratings, whose columns it names")
    if args.seed is not None and args.policy not in DRAWN:
        raise InputError(f"--seed does nothing with --policy {args.policy}: it is for thompson")
    if args.out is not None:
        inputs = [args.users, args.ratings, args.items, args.exclude]
        check_file(args.out, SUFFIXES, [path for path in inputs if path is not None])
    from bayesmf.estimator.bayesian_mf import BayesianMF

    model = BayesianMF.load(args.model)
    if args.all and not len(model.user_ids_):
        raise InputError(
            f"{args.model} was saved without its users: send the ratings of those to recommend to "
            "(--ratings FILE)"
        )
    listed = [] if args.users is None else _read_ids(args.users, model.user_ids_, "user")
    answers = _answers(model, [*args.user, *listed] if named else None, args)
    if args.out is not None:
        _write(args.out, answers)
    if args.json or args.out is not None:
        _print_all(args, answers)
        return
    for k in range(len(answers.users)):
        _print(answers, k)


def _read_ids(path: Path, known: IdMap, what: str) -> list[str]:
    """One id a line; a header is left out, a table refused."""
    if not path.exists():
        raise InputError(f"There is no file {path}: give a file with one {what} a line")
    with reading(path), open_regular(path) as file:
        lines = file.read().decode("utf-8-sig").splitlines()
    ids = [line.strip() for line in lines if line.strip()]
    if ids and ids[0] not in known and recognise(ids[:1], what):
        ids = ids[1:]
    if not ids:
        raise InputError(f"{path} has no {what} in it: give one id a line")
    if all(re.search(r"[,;\t|]|::", line) and line not in known for line in ids[:LOOKED_AT]):
        raise InputError(
            f"{path} is a table, with {ids[0][:40]!r} in its first line: give one id a line"
        )
    return ids


def _answers(model: BayesianMF, users: list[str] | None, args: argparse.Namespace) -> Answers:
    import numpy as np

    ids, items = model.user_ids_, model.item_ids_
    sent = None if args.ratings is None else options.read_ratings(args.ratings, args)
    only, without = (
        None if path is None else _read_ids(path, items, "item")
        for path in (args.items, args.exclude)
    )
    found = model.recommend_many(
        users,
        args.n,
        ratings=sent,
        items=only,
        exclude=without,
        policy=args.policy,
        exclude_seen=not args.include_seen,
        level=args.level,
        random_state=args.seed,
    )
    asked = found.users if users is None else users
    rows = ids.lookup(asked)
    known = rows >= 0
    if sent is not None:
        counts = items.lookup(sent.item_ids)[sent.item_rows] >= 0
        known |= np.isin(sent.user_ids.lookup(asked), sent.user_rows[counts])
    names = [ids[row] if row >= 0 else user for user, row in zip(asked, rows, strict=True)]
    plain = [name.item() if hasattr(name, "item") else name for name in names]
    return Answers(plain, known.tolist(), found)


def _print(answers: Answers, k: int) -> None:
    if k > 0:
        print()
    unknown = "" if answers.known[k] else " (unknown: from the prior)"
    print_text(f"user {printable(str(answers.users[k]))}{unknown}")
    items = answers.items(k)
    if items:
        print_table(("item", *NUMBERS), items)
    else:
        print("no items left to recommend")


def _print_all(args: argparse.Namespace, answers: Answers) -> None:
    about = {"model": args.model, "policy": args.policy, "level": args.level}
    about |= {"users": len(answers.users), "out": args.out}
    if not args.json:
        print_facts([("users", f"{len(answers.users):,}"), ("saved", str(args.out))])
    elif args.out is not None:
        print_json(about)
    else:
        names, rows = ("item", *NUMBERS), []
        for k, (user, known) in enumerate(zip(answers.users, answers.known, strict=True)):
            items = [dict(zip(names, row, strict=True)) for row in answers.items(k)]
            rows.append({"user": user, "known": known, "items": items})
        print_json(about | {"recommendations": rows})


def _write(path: Path, answers: Answers) -> None:
    import numpy as np
    import polars as pl

    # One column has one type: where an id is text, all are.
    text = any(isinstance(user, str) for user in answers.users)
    users = np.array([str(user) for user in answers.users] if text else answers.users, object)
    frame = replace(answers.found, users=users).to_polars()
    # Draws are single precision: more digits would be noise.
    write_frame(frame.with_columns(pl.col(NUMBERS).cast(pl.Float32)), path)
