"""Thompson sampling in a shop, against showing what looks best: `python -m benchmarks.bandit`.

    python -m benchmarks.bandit --visits 20000 --seeds 3 [--worlds settled] [--policies mean,ucb]
        [--csv FILE] [--figure FILE]
    python -m benchmarks.bandit --spread

Made-up shops (bandit_worlds.py): old goods and known people; known people and goods that come and
go; old goods and new people; and two with few goods. At each visit one item is shown, and bought or
not. What a person did counts at once, for that person; after every 400 visits the model learns it
for good. Earned is the probability that what was shown is bought, so that luck at the till does not
count. Regret is what somebody who knows every probability would have earned more, under the same
rules.

The interval of a gain is a bootstrap over people, of one seed. It leaves out that another history
would have led to another model: how seeds differ shows that.

`--spread` asks instead, before the first visit, whether the model knows what it does not know: the
standard deviation that it states for probabilities, beside their true error, by how many answers
an item has.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF
from bayesmf.errors import DataWarning, InputError
from bayesmf.estimator.fold_in import sent_table, with_senders
from bayesmf.posterior.catalogue import Catalogue, OwnRows, own_rows
from bayesmf.posterior.one_user import Pick, UserScores, thompson_pick, thompson_row
from bayesmf.system.threads import Pool
from benchmarks.arguments import Parser
from benchmarks.bandit_report import Row, draw, table, verdicts, write
from benchmarks.bandit_worlds import ROUND, WORLDS, Index, Shop

Asked = Callable[[BayesianMF, Index, Any, Index, int], Index]
# Of the visits of "mean+random"; chosen once, as everybody chooses it.
RANDOM_SHARE = 0.1
DRAWS = 40  # so that all runs take ten minutes of one core


def by_policy(policy: Any) -> Asked:
    """The library's own policies."""

    def ask(model: BayesianMF, people: Index, sent: Any, items: Index, seed: int) -> Index:
        found = model.recommend_many(
            people, 1, ratings=sent, items=items, policy=policy, random_state=seed
        )
        return np.asarray(found.items[:, 0], np.int64)

    return ask


def by_person() -> Asked:
    """Thompson sampling by half: only the person is drawn.

    A draw of items has a best guess of the person beside it, and a spread around that guess. This
    takes the mean of all draws, and the spread; "thompson-items" takes the draw and the guess.
    """

    def ask(model: BayesianMF, people: Index, sent: Any, items: Index, seed: int) -> Index:
        found = model._fitted()
        if sent is not None:
            found = with_senders(found, people, sent_table(sent))
        ids, n_draws = found.item_ids, len(found.posterior.draws)
        catalogue = Catalogue.of(found.posterior, np.sort(ids.lookup(items)))
        rows, everything = found.user_ids.lookup(people), np.arange(len(items))
        solved, expected = catalogue.users(rows), UserScores(catalogue, "mean", True, Pool(1))
        n_factors, best = found.posterior.n_factors, np.empty(len(people), np.int64)
        for k, row in enumerate(rows):
            own = own_rows(solved, k)
            pick = thompson_pick(seed, k, n_draws, own.means.shape[1])
            beside = beside_guess(own, pick, catalogue.rows[pick.draw], n_factors)
            scores = expected.for_user(int(row), own, None, everything) + beside
            if row >= 0:
                scores[catalogue.seen(int(row))] = -np.inf
            best[k] = catalogue.items[np.argmax(scores)]
        return np.asarray(ids.ids[best], np.int64)

    return ask


def beside_guess(own: OwnRows, pick: Pick, goods: Any, n_factors: int) -> Any:
    """What Thompson sampling adds to the scores of items by the guess beside a draw."""
    beside = (thompson_row(own, pick) - np.array(own.means[pick.draw]))[:n_factors]
    return goods[:, :n_factors] @ beside


POLICIES: dict[str, Asked | None] = {
    "random": None,
    "mean": by_policy("mean"),
    "mean+random": by_policy("mean"),
    "ucb": by_policy("ucb"),
    "thompson": by_policy("thompson"),
    "thompson-items": by_policy("thompson-items"),
    "thompson-person": by_person(),
    "oracle": None,
}


def first_model(shop: Shop, seed: int) -> BayesianMF:
    """What is known when the doors open."""
    people, items = shop.past
    # A purchase is 0 or 1: with noise of their own, people who never buy would look free of noise.
    model = BayesianMF(
        noise_by=None, max_draws=DRAWS, n_workers=1, random_state=seed, progress=False
    )
    return model.fit((people, items, shop.buys[people, items].astype(np.float32)))


def run(shop: Shop, name: str, model: BayesianMF | None, seed: int) -> NDArray[np.float64]:
    """Probability that what was shown is bought: (rounds, visits, people)."""
    rng, ask = np.random.default_rng([seed, 1]), POLICIES[name]
    model = copy.copy(model)  # `partial_fit` puts what it has learnt in place of what was known
    shown, earned = np.zeros(shop.chance.shape, np.bool_), []
    shown[shop.past] = True
    for number, people in enumerate(shop.visitors):
        old, new = shop.on_sale(number)
        session = np.empty((shop.world.visits, shop.people), np.int64)
        for visit in range(shop.world.visits):
            free = shop.unseen(people, items := np.append(old, new), shown)
            if name == "oracle":
                best = np.where(free, shop.chance[np.ix_(people, items)], -1).argmax(1)
                chosen = items[best]
            else:
                lucky = items[np.where(free, rng.random(free.shape), -1).argmax(1)]
                chosen = lucky
                if ask is not None:
                    assert model is not None
                    sent = _answers(shop, people, session[:visit]) if visit else None
                    chosen = ask(model, people, sent, old, int(rng.integers(1 << 31)))
                if name == "mean+random":
                    chosen = np.where(rng.random(shop.people) < RANDOM_SHARE, lucky, chosen)
                if visit == 0 and len(new):
                    chosen[shop.debuts[number]] = new
            session[visit] = chosen
            shown[people, chosen] = True
        earned.append(shop.chance[people, session])
        if ask is not None and model is not None:
            model.partial_fit(_answers(shop, people, session))
    return np.array(earned, np.float64)


def _answers(shop: Shop, people: Index, session: Index) -> tuple[Index, Index, NDArray[Any]]:
    """What people did at their visits so far, as a table."""
    who, items = np.tile(people, len(session)), session.ravel()
    return who, items, shop.buys[who, items].astype(np.float32)


def gains(earned: NDArray[Any], base: NDArray[Any], shop: Shop) -> tuple[float, float, float]:
    """Percent more than another policy: the gain, and a bootstrap over people of 95%."""
    who = np.array(shop.visitors)
    both = np.array([
        np.bincount(who.ravel(), one.sum(1).ravel(), len(shop.chance)) for one in (earned, base)
    ])[:, np.unique(who)]  # fmt: skip
    rng = np.random.default_rng(0)
    times = rng.multinomial(both.shape[1], np.full(both.shape[1], 1 / both.shape[1]), 1000)
    more = 100 * ((times @ both[0]) / (times @ both[1]) - 1)
    low, high = np.quantile(more, [0.025, 0.975])
    return 100 * float(both[0].sum() / both[1].sum() - 1), float(low), float(high)


def study(world: str, seed: int, names: list[str], n_rounds: int) -> list[Row]:
    """Let every policy keep the same shop; a row for each."""
    shop = Shop(WORLDS[world], n_rounds, seed)
    model, rows = first_model(shop, seed), []
    oracle = run(shop, "oracle", None, seed)
    found: dict[str, NDArray[Any]] = {}
    for name in names:
        begin = time.perf_counter()
        found[name] = oracle if name == "oracle" else run(shop, name, model, seed)
        curve = np.cumsum(found[name].sum((1, 2)))
        row = {
            "world": world, "seed": seed, "policy": name, "curve": curve,
            "regret": np.cumsum(oracle.sum((1, 2))) - curve, "visits": oracle.size,
        }  # fmt: skip
        if "mean" in found:
            row["gain"] = gains(found[name], found["mean"], shop)
        rows.append(row)
        _progress(f"{world}, seed {seed}, {name}: {time.perf_counter() - begin:.1f} s")
    return rows


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def spread(seeds: int, worlds: list[str]) -> list[str]:
    """What the first models of each world do not know, as stated and in truth."""
    lines = ["| world | answers of an item | stated | true |", "|---|---|--:|--:|"]
    for world in worlds:
        found: list[NDArray[Any]] = []
        for seed in range(seeds):
            shop = Shop(WORLDS[world], 1, seed)
            model, people = first_model(shop, seed), np.arange(0, WORLDS[world].known, 5)
            answers = np.bincount(shop.past[1], minlength=WORLDS[world].on_sale)
            items = np.flatnonzero(answers)
            who, what = np.repeat(people, len(items)), np.tile(items, len(people))
            mean, std = model.predict(who, what, return_std=True)
            variance = np.maximum(std**2 - model.posterior_.noise(), 0.0)
            error = (mean - shop.chance[who, what]) ** 2
            found.append(np.array([answers[what], variance, error]))
        counts, variance, error = np.concatenate(found, axis=1)
        edges = np.quantile(counts, np.linspace(0, 1, 4)).astype(int)
        for low, high in zip([0, *edges[1:-1]], edges[1:], strict=True):
            own = (counts > low) & (counts <= high)
            stated, true = (np.sqrt(part[own].mean()) for part in (variance, error))
            lines.append(f"| {world} | {low + 1} to {high} | {stated:.3f} | {true:.3f} |")
    return lines


def chosen(asked: str | None, known: Any, what: str) -> list[str]:
    """Names from a list with commas, in the order in which they are known; all by default."""
    if asked is None:
        return list(known)
    names = [name.strip() for name in asked.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}: take some of {', '.join(known)}")
    return [name for name in known if name in names]


def main(argv: list[str] | None = None) -> int:
    """0 where all went well; 2 for bad input."""
    parser = Parser("bandit", __doc__)
    add = parser.add_argument
    add("--visits", type=int, default=20_000, metavar="N", help="of every run (20000)")
    add("--seeds", type=int, default=3, metavar="N", help="so many shops of each world (3)")
    add("--worlds", metavar="NAMES", help="some of them, with commas between")
    add("--policies", metavar="NAMES", help="some of them, with commas between")
    add("--spread", action="store_true", help="how sure the first models are, and may be")
    add("--csv", type=Path, metavar="FILE", help="write what was earned by then")
    add("--figure", type=Path, metavar="FILE", help="draw it")
    args = parser.parse_args(argv)
    try:
        if args.visits < ROUND or args.seeds < 1:
            raise InputError(f"--visits is at least {ROUND}, --seeds at least 1")
        worlds = chosen(args.worlds, WORLDS, "world")
        names = chosen(args.policies, POLICIES, "policy")
    except InputError as error:
        parser.error(str(error))
    warnings.simplefilter("ignore", DataWarning)  # of people who are not known yet
    if args.spread:
        print("\n".join(spread(args.seeds, worlds)))
        return 0
    rows: list[Row] = []
    for world in worlds:
        for seed in range(args.seeds):
            rows += study(world, seed, names, args.visits // (ROUND))
    print("\n".join([*table(rows), "", *verdicts(rows)]))
    if args.csv:
        write(rows, args.csv)
    if args.figure:
        draw(rows, args.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
