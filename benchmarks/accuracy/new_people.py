"""Coverage of intervals for people who are not in the training data (extra `web`).

Some people are removed from training altogether. Of each, 0, 1, 5 and 20 ratings are sent to the
service, and those that come after the first 20 in a random order are predicted by POST /v1/predict:
the same ones whatever was sent. Standard errors take the ratings of one person together.

Thirds of the people are by what is known before those ratings: how many they have, and how far the
first 20 are from what people in general give. Sorted by the errors of the predicted ratings
themselves, the noisiest would seem to have too narrow intervals whatever these are. Items
without other ratings are left out.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from bayesmf import BayesianMF, Ratings
from bayesmf.errors import ConvergenceWarning, InputError
from benchmarks.options import BenchParser, command

SENT = (0, 1, 5, 20)
FIRST = max(SENT)
# Pairs of one request, at most.
PAIRS = 1000
NUMBERS = ("mean", "std", "low", "high", "unknown")


class PersonAnswers(NamedTuple):
    """Arrays over predicted ratings: index of the person, the rating, the answer's numbers."""

    person: Any
    rating: Any
    mean: Any
    std: Any
    low: Any
    high: Any
    unknown: Any


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("new_people", __doc__)
    parser.add_argument("ratings", metavar="RATINGS", help="a file of ratings")
    parser.add_argument("--people", type=int, default=300, metavar="N", help="left out (300)")
    parser.add_argument("--level", type=float, default=0.9, metavar="P", help="of intervals (0.9)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of people and fit (0)")
    return parser


def left_out(ratings: Ratings, people: int, seed: int) -> tuple[Ratings, list[list[Any]]]:
    """Ratings of the others, and (item, rating) of each who is left out, in a random order."""
    rng = np.random.default_rng(seed)
    enough = np.flatnonzero(np.bincount(ratings.user_rows, minlength=ratings.n_users) > FIRST)
    if not 0 < people < len(enough):
        raise InputError(f"{len(enough):,} people have more than {FIRST} ratings: leave out fewer")
    chosen = rng.permutation(enough)[:people]
    away = np.isin(ratings.user_rows, chosen)
    rest = ratings.take(np.flatnonzero(~away))
    others = Ratings.from_data((rest.users, rest.items, rest.rating))  # which knows no other ids
    known = np.isin(ratings.items, others.items)
    owned = []
    for row in chosen.tolist():
        own = rng.permutation(np.flatnonzero(known & (ratings.user_rows == row)))
        columns = ratings.items[own].tolist(), ratings.rating[own].tolist()
        owned.append(list(zip(*columns, strict=True)))
    return others, owned


def answers(client: Any, owned: list[list[Any]], n: int, level: float, first: int) -> PersonAnswers:
    """Answers of the service for ratings after the `first` of each person; n of those are sent."""
    rows = []
    for place, own in enumerate(owned):
        sent = [{"item": item, "rating": rating} for item, rating in own[:n]]
        for k in range(first, len(own), PAIRS):
            asked = own[k : k + PAIRS]
            body = {"items": [item for item, _ in asked], "ratings": sent, "level": level}
            answer = client.post("/v1/predict", json=body | {"parts": True, "probabilities": False})
            answer.raise_for_status()
            rows += [
                (place, rating, *(one[name] for name in NUMBERS))
                for (_, rating), one in zip(asked, answer.json()["predictions"], strict=True)
            ]
    return PersonAnswers(*(np.array(column) for column in zip(*rows, strict=True)))


def clustered(value: Any, person: Any) -> tuple[float, float]:
    """Mean of values, and its standard error where those of one person go together."""
    sums, counts = np.bincount(person, value), np.bincount(person)
    mean = sums.sum() / counts.sum()
    return float(mean), float(np.sqrt(((sums - mean * counts) ** 2).sum()) / counts.sum())


def line(found: PersonAnswers, some: Any) -> str:
    """Coverage, RMSE, width and uncertainty without noise, of the chosen ratings."""
    person, rating = found.person[some], found.rating[some]
    inside = (found.low <= found.rating) & (found.rating <= found.high)
    held, error = clustered(inside[some].astype(float), person)
    square, square_error = clustered((found.mean[some] - rating) ** 2, person)
    said, _ = clustered(found.std[some] ** 2, person)
    width, unknown = (found.high - found.low)[some].mean(), found.unknown[some].mean()
    rmse = square**0.5
    return (
        f"{100 * held:5.1f} +/- {100 * error:3.1f}   {rmse:.3f} +/- {square_error / 2 / rmse:.3f}"
        f"   {said**0.5:.3f}   {width:.2f}   {unknown:.2f}"
    )


def thirds(value: Any) -> Any:
    """0, 1 and 2 for the lower, middle and upper third of people."""
    order = np.argsort(np.argsort(value, kind="stable"), kind="stable")
    return order * 3 // len(value)


def report(client: Any, owned: list[list[Any]], level: float) -> list[str]:
    """The lines of the table."""
    before = answers(client, [own[:FIRST] for own in owned], 0, level, 0)
    spread = np.bincount(before.person, (before.rating - before.mean) ** 2)
    groups = {
        "number of ratings": thirds(np.array([len(own) for own in owned])),
        "noise": thirds(spread),
    }
    head = f"{level:.0%} hold        RMSE              said    width  unknown"
    lines = [f"{'people':<28} sent   {head}"]
    for n in SENT:
        found = answers(client, owned, n, level, FIRST)
        if n == SENT[0]:
            lines.insert(0, f"{len(found.rating):,} ratings predicted")
        lines.append(f"{'all':<28} {n:4d}  {line(found, slice(None))}")
        for name, third in groups.items():
            for k, which in enumerate(("lowest", "middle", "highest")):
                some = third[found.person] == k
                lines.append(f"  {which + ' third by ' + name:<34}{line(found, some)}")
    return lines


@command
def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    options = make_parser().parse_args(arguments)
    from starlette.testclient import TestClient

    from bayesmf.web import create_app

    others, owned = left_out(Ratings.read(options.ratings), options.people, options.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BayesianMF(random_state=options.seed).fit(others)
    with TestClient(create_app(model)) as client:
        print(f"{len(others):,} training ratings, {options.people} people left out", flush=True)
        for text in report(client, owned, options.level):
            print(text, flush=True)
    return 0
