"""`bayesmf recommend`: the best items for users."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesmf.cli import options
from bayesmf.cli.output import (
    bar,
    check_file,
    count,
    note,
    print_facts,
    print_json,
    print_table,
    write_frame,
)
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.estimator import BayesianMF, Recommendation

NUMBERS = ("mean", "std", "low", "high")


class Answer(NamedTuple):
    """What a user is recommended."""

    user: Any
    known: bool
    items: list[Recommendation]


def parser() -> options.Parser:
    """The options of `recommend`."""
    out = options.command(
        "recommend",
        "The best items for users, those they have rated left out. An unknown user gets what the\n"
        "prior says.",
        "model 17 42 -n 5",
        "model --all --policy thompson --seed 1 --out best.csv",
    )
    out.add_argument("model", metavar="MODEL", type=Path, help="folder of a fitted model")
    out.add_argument("user", metavar="USER", nargs="*", help="ids of users")
    out.add_argument("--users", metavar="FILE", type=Path, help="file of users, one id a line")
    out.add_argument("--all", action="store_true", help="every user that was learnt from")
    out.add_argument("-n", type=options.whole(1), default=10, metavar="N", help="items each (10)")
    out.add_argument(
        "--policy",
        choices=("mean", "ucb", "thompson"),
        default="mean",
        help="by expected rating (mean), with a bonus for the unknown, or by one random draw",
    )
    out.add_argument("--include-seen", action="store_true", help="also items the user has rated")
    options.add_level(out)
    out.add_argument("--seed", type=options.whole(0), metavar="S", help="of thompson (a new one)")
    out.add_argument("--out", metavar="FILE", type=Path, help=".csv or .parquet file (stdout)")
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Recommend, and write or print it."""
    if args.all == bool(args.user or args.users):
        raise InputError("say for whom: give ids of users, --users FILE, or --all alone")
    if args.out is not None:
        inputs = [] if args.users is None else [args.users]
        check_file(args.out, (".csv", ".parquet"), inputs)
    from bayesmf.estimator import BayesianMF

    users = [*args.user, *(() if args.users is None else _read_ids(args.users))]
    model = BayesianMF.load(args.model)
    answers = _answers(model, users, args)
    if args.json or args.out is not None:
        with bar(len(model.user_ids_) if args.all else len(users), "users") as progress:
            gathered = []
            for answer in answers:
                gathered.append(answer)
                progress.update(1)
        _tell_all(args, gathered)
        return
    for k, answer in enumerate(answers):
        _tell(answer, first=k == 0)


def _read_ids(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise InputError(f"{path} has no user in it: give one id a line")
    return ids


def _answers(model: BayesianMF, users: list[str], args: argparse.Namespace) -> Iterator[Answer]:
    import numpy as np

    ids = model.user_ids_
    rows = range(len(ids)) if args.all else [ids.index(user) for user in users]
    for k, row in enumerate(rows):
        user = ids[row] if row >= 0 else users[k]
        seed = None
        if args.seed is not None:
            # A draw of one's own for each user, whoever else is asked for.
            seed = int(np.random.SeedSequence((args.seed, row + 1)).generate_state(1)[0])
        best = model.recommend(
            user,
            args.n,
            policy=args.policy,
            exclude_seen=not args.include_seen,
            level=args.level,
            random_state=seed,
        )
        if row < 0:
            note(f"user {user!r} is unknown, recommended from the prior")
        yield Answer(user, row >= 0, best)


def _tell(answer: Answer, first: bool) -> None:
    if not first:
        print()
    print(f"user {answer.user}" + ("" if answer.known else " (unknown: from the prior)"))
    if answer.items:
        print_table(("item", *NUMBERS), answer.items)
    else:
        print("nothing is left that the user has not rated")


def _tell_all(args: argparse.Namespace, answers: list[Answer]) -> None:
    if args.out is not None:
        _write(args.out, answers)
    about = {"model": args.model, "policy": args.policy, "level": args.level}
    about |= {"users": len(answers), "out": args.out}
    if args.json:
        found = [
            {"user": a.user, "known": a.known, "items": [r._asdict() for r in a.items]}
            for a in answers
        ]
        print_json(about if args.out is not None else about | {"recommendations": found})
    else:
        print_facts([("users", count(len(answers), "user")), ("saved", str(args.out))])


def _write(path: Path, answers: list[Answer]) -> None:
    import polars as pl

    rows = [
        (answer.user, rank, *best)
        for answer in answers
        for rank, best in enumerate(answer.items, start=1)
    ]
    # One column has one type: where an id is text, all are.
    numeric = all(not isinstance(answer.user, str) for answer in answers)
    frame = pl.DataFrame(
        {
            "user": [row[0] if numeric else str(row[0]) for row in rows],
            "rank": [row[1] for row in rows],
            "item": [row[2] for row in rows],
            **{
                name: pl.Series([row[3 + k] for row in rows], dtype=pl.Float32)
                for k, name in enumerate(NUMBERS)
            },
        }
    )
    write_frame(frame, path)
