"""Thompson sampling in a simulated shop, compared with showing the best expected item.

    python -m benchmarks bandit --visits 20000 --seeds 3 [--worlds settled] [--policies mean,ucb]
        [--csv FILE] [--figure FILE]
    python -m benchmarks bandit --more [--csv FILE]
    python -m benchmarks bandit --from FILE [FILE ...] [--figure FILE]

Simulated shops (bandit_shop.py): old goods and known people; known people and goods that come and
go; old goods and new people; and three with few goods. At each visit one item is shown, and bought
or not. What a person did counts at once, for that person; after every 400 visits the model learns
it for good. Earned is the probability that what was shown is bought, so that the random purchase
does not count. Regret is the amount that a policy with the true probabilities would have earned
more, under the same rules.

The interval of a gain is a bootstrap over people, of one seed. It leaves out that another history
would have led to another model: how seeds differ shows that.

`--more` runs the seeds that came after the first three, and a control without any model. `--from`
reads what `--csv` has stored, for its tables and the figure.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from argparse import Namespace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF
from bayesmf.errors import DataWarning, InputError
from benchmarks.options import BenchParser, command
from benchmarks.ranking.bandit_report import Row, draw, over_seeds, read, table, verdicts, write
from benchmarks.ranking.bandit_shop import (
    CONTROLS,
    LATE,
    POLICIES,
    ROUND,
    WORLDS,
    Index,
    Shop,
    control,
)

# Share of the visits of "mean+random", a usual value.
RANDOM_SHARE = 0.1
DRAWS = 40  # so that all runs take half an hour of one core
# Runs after those of the first three seeds: worlds, seeds, policies. Of goods that come and go,
# is "ucb" ahead on seeds on which it was not found? Of strangers, who is?
ITEMS_ONLY = ["mean", "mean+random", "ucb", "thompson", "thompson-half", "thompson-items"]
MORE = [
    ("short lives", range(3, 7), ["mean", "ucb", "oracle"]),
    ("few goods", range(3, 7), ["mean", "ucb", "oracle"]),
    ("cold start", range(10), [*ITEMS_ONLY, "best item", "oracle"]),
    ("front page", range(3, 10), [*ITEMS_ONLY, "best item", "oracle"]),
    ("cold start", range(10), list(CONTROLS)),
    ("front page", range(10), list(CONTROLS)),
]


def first_model(shop: Shop, seed: int) -> BayesianMF:
    """The model of the answers before the first visit."""
    people, items = shop.past
    # A purchase is 0 or 1: with noise of their own, people who never buy would look free of noise.
    model = BayesianMF(
        noise_by=None, max_draws=DRAWS, n_workers=1, random_state=seed, progress=False
    )
    return model.fit((people, items, shop.buys[people, items].astype(np.float32)))


def run(shop: Shop, name: str, model: BayesianMF | None, seed: int) -> NDArray[np.float64]:
    """Probability that what was shown is bought: (rounds, visits, people)."""
    if name in CONTROLS:
        return control(shop, name, seed)
    rng, ask = np.random.default_rng([seed, 1]), POLICIES[name]
    model = copy.copy(model)  # `partial_fit` replaces the fitted attributes
    shown, earned = np.zeros(shop.chance.shape, np.bool_), []
    shown[shop.past] = True
    for number, people in enumerate(shop.visitors):
        old, new = shop.on_sale(number)
        session = np.empty((shop.world.visits, shop.people), np.int64)
        for visit in range(shop.world.visits):
            free = shop.unseen(people, items := np.append(old, new), shown)
            if name in ("oracle", "best item"):
                chosen = items[_known(shop, name, people, items, free)]
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


def _known(
    shop: Shop, name: str, people: Index, items: Index, free: NDArray[np.bool_]
) -> NDArray[Any]:
    """Choices with every probability known: of this person, or of people in general."""
    if name == "oracle":
        worth = shop.chance[np.ix_(people, items)]
    else:
        worth = np.broadcast_to(shop.chance[:, items].mean(0), free.shape)
    return np.asarray(np.where(free, worth, -1).argmax(1))


def _answers(shop: Shop, people: Index, session: Index) -> tuple[Index, Index, NDArray[Any]]:
    """What people did at their visits so far, as a table."""
    who, items = np.tile(people, len(session)), session.ravel()
    return who, items, shop.buys[who, items].astype(np.float32)


def gains(earned: NDArray[Any], base: NDArray[Any], shop: Shop) -> tuple[float, float]:
    """Percent more than another policy: the gain, and half of a 95% bootstrap over people."""
    who = np.array(shop.visitors)
    both = np.array([
        np.bincount(who.ravel(), one.sum(1).ravel(), len(shop.chance)) for one in (earned, base)
    ])[:, np.unique(who)]  # fmt: skip
    times = _times(both.shape[1])
    more = 100 * ((times @ both[0]) / (times @ both[1]) - 1)
    low, high = np.quantile(more, [0.025, 0.975])
    return 100 * float(both[0].sum() / both[1].sum() - 1), float(high - low) / 2


@lru_cache(maxsize=1)
def _times(people: int) -> NDArray[Any]:
    """How often each person is in each of 1,000 bootstrap samples."""
    rng = np.random.default_rng(0)
    return rng.multinomial(people, np.full(people, 1 / people), 1000)


def study(world: str, seed: int, names: list[str], n_rounds: int) -> list[Row]:
    """Run every policy in the same shop; a row for each."""
    shop = Shop(WORLDS[world], n_rounds, seed)
    asks = any(POLICIES.get(name) for name in names)
    model, rows = first_model(shop, seed) if asks else None, []
    oracle = run(shop, "oracle", None, seed)
    found: dict[str, NDArray[Any]] = {}
    for name in names:
        if name == "best item" and not shop.world.strangers:
            continue  # people come back, and no item is shown twice
        begin = time.perf_counter()
        found[name] = oracle if name == "oracle" else run(shop, name, model, seed)
        curve = np.cumsum(found[name].sum((1, 2)))
        row = {
            "world": world, "seed": seed, "policy": name, "curve": curve,
            "regret": np.cumsum(oracle.sum((1, 2))) - curve, "visits": oracle.size,
        }  # fmt: skip
        base = name.replace("thompson", "mean") if name in CONTROLS else "mean"
        if base in found:
            row["gain"] = gains(found[name], found[base], shop)
        rows.append(row)
        _progress(f"{world}, seed {seed}, {name}: {time.perf_counter() - begin:.1f} s")
    return rows


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def chosen(asked: str | None, known: Any, what: str, late: list[str]) -> list[str]:
    """Names from a list with commas, in the order in which they are known; most by default."""
    if asked is None:
        return [name for name in known if name not in late]
    names = [name.strip() for name in asked.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}: take some of {', '.join(known)}")
    return [name for name in known if name in names]


def arguments(argv: list[str] | None) -> Namespace:
    """Parsed options, with lists of worlds and policies."""
    parser = BenchParser("bandit", __doc__)
    add = parser.add_argument
    add("--visits", type=int, default=20_000, metavar="N", help="of every run (20000)")
    add("--seeds", type=int, default=3, metavar="N", help="shops of each world (3)")
    add("--worlds", metavar="NAMES", help="some of them, with commas between")
    add("--policies", metavar="NAMES", help="some of them, with commas between")
    add("--more", action="store_true", help="further seeds, and the control")
    add("--from", dest="stored", type=Path, nargs="+", metavar="FILE", help="read, do not run")
    add("--csv", type=Path, metavar="FILE", help="write what was earned by then")
    add("--figure", type=Path, metavar="FILE", help="draw it")
    args = parser.parse_args(argv)
    try:
        if args.visits < ROUND or args.seeds < 1:
            raise InputError(f"--visits is at least {ROUND}, --seeds at least 1")
        late = [] if args.more else LATE
        args.worlds = chosen(args.worlds, WORLDS, "world", late)
        args.policies = chosen(args.policies, POLICIES, "policy", [])
        args.rows = [row for path in args.stored or [] for row in read(path)]
    except InputError as error:
        parser.error(str(error))
    return args


def runs(args: Namespace) -> list[Row]:
    """Results of the requested runs, or those that were read."""
    if args.rows:
        return list(args.rows)
    asked = [(world, range(args.seeds), args.policies) for world in args.worlds]
    return [
        row
        for world, seeds, names in (MORE if args.more else asked)
        for seed in seeds
        if world in args.worlds
        for row in study(world, seed, names, args.visits // ROUND)
    ]


@command
def main(argv: list[str] | None = None) -> int:
    """0 where all went well; 2 for bad input."""
    args = arguments(argv)
    warnings.simplefilter("ignore", DataWarning)  # of people who are not known yet
    rows = runs(args)
    lines = table(rows)
    for world in WORLDS:
        for controls in (False, True):
            lines += ["", *over_seeds(rows, world, controls)]
    print("\n".join([*lines, "", *verdicts(rows)]))
    if args.csv:
        write(rows, args.csv)
    if args.figure:
        draw(rows, args.figure)
    return 0
