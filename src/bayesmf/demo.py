"""What `make demo` shows: ratings with a planted truth, three ways to learn them, and how sure."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.diagnostics.metrics import LEVELS, Scores
from bayesmf.errors import ConvergenceWarning, DataWarning
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.estimator.results import Recommendation
from bayesmf.plots import demo as figures
from bayesmf.plots.panels import Floats, RowSpread
from bayesmf.plots.style import make_folder
from bayesmf.process import is_terminal, screen_width
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.sgd import SGD
from bayesmf.samplers.sgld import SGLD
from bayesmf.synthetic.synthetic import Synthetic
from bayesmf.synthetic.truth import Truth

NO_FIGURE = "no figure was drawn: matplotlib is missing; pip install matplotlib brings it"
BAR, WIDTH = 36, 88  # characters of an interval, and of a line that goes to no terminal
LEVEL = 0.9  # of the intervals around recommendations
# The uncertainty of an item is averaged over this many users, the same for all items.
PARTNERS = 50
# People whose ratings are sent, and so many of each.
NEWCOMERS, SENT = 20, (0, 3, 10, 20)
FACTORS = 8  # two more than are planted: nobody knows the right number


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data and epochs of the fits: seconds in all, once compiled."""

    users: int = 1000
    items: int = 1000
    ratings: int = 60_000
    sgd_epochs: int = 200
    sgld_epochs: int = 700
    gibbs_epochs: int = 200


@dataclass(frozen=True)
class World:
    """Synthetic ratings, split, with what was planted in them."""

    plan: Synthetic
    truth: Truth
    train: Ratings
    test: Ratings

    @property
    def floor(self) -> float:
        """RMSE that no model can beat."""
        return self.plan.noise

    def planted(self, user: str, item: str) -> float:
        """Planted rating of a pair, before noise."""
        truth, i, j = self.truth, _row(user), _row(item)
        return float(self.plan.mean + truth.a[i] + truth.b[j] + truth.U[i] @ truth.V[j])


@dataclass(frozen=True)
class Fit:
    """A fitted model with its scores on the held-out ratings."""

    name: str
    model: BayesianMF
    scores: Scores
    above_floor: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seconds": self.model.report_["seconds"],
            "draws": self.model.report_["draws"],
            "above_floor_percent": self.above_floor,
            **self.scores.as_dict(),
        }


@dataclass(frozen=True)
class ItemSpread:
    """Standard deviation of the prediction for an item, noise left out."""

    item: str
    ratings: int
    std: float


@dataclass(frozen=True)
class Newcomer:
    """What is known of somebody who has sent so many ratings, over all films.

    `error` is the RMSE of expected ratings against the planted ones, `std` what is not known.
    """

    ratings: int
    error: float
    std: float


def run(out: Path, seed: int, as_json: bool, sizes: Sizes | None = None) -> None:
    """Fit synthetic ratings in three ways and compare, in under a minute.

    Parameters
    ----------
    out : Path
        Folder for the figure, made if missing.
    seed : int
        Seed of the ratings, the split and the chains.
    as_json : bool
        Print one JSON object in place of the text.
    sizes : Sizes, optional
        Smaller ones for tests.
    """
    # A few held-out films have no other rating; that runs are short is said below their table.
    with warnings.catch_warnings():
        for category in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        _run(out, seed, as_json, sizes or Sizes())


def _run(out: Path, seed: int, as_json: bool, sizes: Sizes) -> None:
    begin = time.monotonic()
    make_folder(out)
    story = _Story(quiet=as_json)
    story.begins(seed)
    world = make_world(sizes, seed)
    story.tells_world(world)
    fits = {}
    for key, (name, sampler) in _samplers(sizes, world.train, seed).items():
        fits[key] = _fit(name, sampler, world, seed)
        story.tells_fit(fits[key])
    story.tells_coverage(world, list(fits.values()))
    best = fits["gibbs"].model
    user = _typical_user(world.train)
    recommended = best.recommend(user, 10, level=LEVEL)
    story.tells_recommendations(world, user, recommended)
    certainty = _certainty(best, world.train)
    rare, popular = _extremes(best, certainty)
    story.tells_unknown(rare, popular)
    newcomer = _newcomers(best, world)
    story.tells_newcomer(newcomer)
    drawn = _draw(list(fits.values()), world.floor, certainty, out)
    seconds = time.monotonic() - begin
    story.ends(drawn, seconds)
    if as_json:
        numbers = {
            "seed": seed,
            "sizes": asdict(sizes),
            "train": len(world.train),
            "test": len(world.test),
            "noise_floor": world.floor,
            "fits": {key: fit.as_dict() for key, fit in fits.items()},
            "recommendations": _recommendation_dict(world, user, recommended),
            "unknown": {"rare": asdict(rare), "popular": asdict(popular)},
            "newcomer": [asdict(one) for one in newcomer],
            "figures": [str(path) for path in drawn],
            "seconds": seconds,
        }
        print(json.dumps(numbers))


def _recommendation_dict(
    world: World, user: str, recommended: list[Recommendation]
) -> dict[str, Any]:
    items = [{**r._asdict(), "planted": world.planted(user, r.item)} for r in recommended]
    return {"user": user, "level": LEVEL, "items": items}


def make_world(sizes: Sizes, seed: int) -> World:
    """Make ratings with six planted factors, one in ten of them held out."""
    plan = Synthetic(
        sizes.users, sizes.items, sizes.ratings,
        n_factors=6, noise=0.7, factor_strength=0.6, random_state=seed,
    )  # fmt: skip
    made = plan.ratings()
    users = [f"user {k}" for k in made.users]
    items = [f"film {k}" for k in made.items]
    train, test = Ratings.from_data((users, items, made.rating)).split(0.1, random_state=seed)
    return World(plan, plan.truth(), train, test)


def _samplers(sizes: Sizes, train: Ratings, seed: int) -> dict[str, tuple[str, Sampler]]:
    # Four mini-batches a block: with so few ratings a row, drawing noise costs more than gradients.
    batch = round(0.9 * sizes.ratings / 16)
    sgld = SGLD(grid=(2, 2), n_chains=2, epochs=sizes.sgld_epochs, batch_size=batch)
    sgd = SGD(epochs=sizes.sgd_epochs)
    return {
        "sgd": ("SGD", replace(sgd, regularization=_regularization(sgd, train, seed))),
        "sgld": ("DSGLD 2x2, 2 chains", sgld),
        "gibbs": ("Gibbs", Gibbs(epochs=sizes.gibbs_epochs)),
    }


def _regularization(sgd: SGD, train: Ratings, seed: int) -> float:
    """Best regularization of SGD on a part of the training ratings; samplers draw theirs."""
    part, rest = train.split(0.1, random_state=seed + 1)

    def rmse(regularization: float) -> float:
        rule = replace(sgd, regularization=regularization)
        model = BayesianMF(FACTORS, sampler=rule, random_state=seed).fit(part)
        return model.evaluate(rest).rmse

    return min((2.0, 4.0, 8.0), key=rmse)


def _fit(name: str, sampler: Sampler, world: World, seed: int) -> Fit:
    model = BayesianMF(FACTORS, sampler=sampler, random_state=seed)
    model.fit(world.train, validation=world.test)
    scores = model.evaluate(world.test)
    return Fit(name, model, scores, 100 * (scores.rmse / world.floor - 1))


def _short_runs(fits: list[Fit]) -> list[str]:
    """A sentence for each sampler that has not converged."""
    return [
        f"{fit.name} has not converged in so short a run (R-hat {found['rhat']:.2f})."
        for fit in fits
        if (found := fit.model.report_["convergence"])["converged"] is False
    ]


def _row(name: str) -> int:
    """Planted row of an id: "film 17" is row 16."""
    return int(name.split()[1]) - 1


def _typical_user(train: Ratings) -> str:
    counts = np.bincount(train.user_rows, minlength=train.n_users)
    order = np.argsort(counts, kind="stable")
    return str(train.user_ids.ids[order[len(order) // 2]])


def _unknown_std(model: BayesianMF, users: NDArray[Any], items: NDArray[Any]) -> Floats:
    """Standard deviation of predictions without the noise, which no model can reduce."""
    _, std = model.predict(users, items, return_std=True)
    rows = model.user_ids_.lookup(users), model.item_ids_.lookup(items)
    variance: Floats = np.maximum(std**2 - model.posterior_.noise_of(*rows), 0.0)
    return np.sqrt(variance)


def _certainty(model: BayesianMF, train: Ratings) -> RowSpread:
    users, items = model.user_ids_.ids, model.item_ids_.ids
    some = users[np.linspace(0, len(users) - 1, PARTNERS).astype(int)]
    std = _unknown_std(model, np.tile(some, len(items)), np.repeat(items, len(some)))
    ids, counts = np.unique(train.items, return_counts=True)
    by_item = dict(zip(ids, counts, strict=True))
    n = np.array([by_item[i] for i in items])
    return RowSpread(n, std.reshape(len(items), -1).mean(axis=1))


def _extremes(model: BayesianMF, certainty: RowSpread) -> tuple[ItemSpread, ItemSpread]:
    """Items with the fewest and the most ratings."""
    n = certainty.n_ratings
    rare, popular = (
        ItemSpread(str(model.item_ids_.ids[k]), int(n[k]), float(certainty.std[k]))
        for k in (n.argmin(), n.argmax())
    )
    return rare, popular


def _newcomers(model: BayesianMF, world: World) -> list[Newcomer]:
    """Users as if nobody knew whose the ratings are that come with the question."""
    names, counts = np.unique(world.train.users, return_counts=True)
    people = names[counts >= SENT[-1]][:NEWCOMERS].tolist()
    items, squares = model.item_ids_.ids, np.zeros((len(SENT), 2))
    for user in people:
        own = np.flatnonzero(world.train.users == user)
        sent = list(zip(world.train.items[own], world.train.rating[own].tolist(), strict=True))
        planted = np.array([world.planted(user, item) for item in items])
        for k, n in enumerate(SENT):
            mean, std = model.predict(None, items, ratings=dict(sent[:n]), return_std=True)
            asked, posterior = model._pairs(None, items, None, dict(sent[:n]))
            noise = posterior.noise_of(asked.user, asked.item)  # that of this person
            squares[k] += np.mean((mean - planted) ** 2), np.mean(std**2 - noise)
    found = np.sqrt(np.maximum(squares / len(people), 0.0))
    return [Newcomer(n, error, std) for n, (error, std) in zip(SENT, found.tolist(), strict=True)]


def _draw(fits: list[Fit], floor: float, certainty: RowSpread, out: Path) -> list[Path]:
    """Draw the figure; its files, none where matplotlib is missing."""
    drawn = []
    for fit in fits:
        # The first chain while it burns in, then the average over all chains, as in the paper.
        events = [e for e in fit.model.history_ if e["chain"] == 0]
        seconds = np.array([e["seconds"] for e in events])
        rmse = np.array([e["rmse" if e["burning"] else "rmse_all_chains"] for e in events])
        start = next((k for k, e in enumerate(events) if not e["burning"]), None) or None
        name = fit.name.split(",")[0]
        drawn.append(figures.Drawn(name, seconds, rmse, start, fit.scores.coverage))
    try:
        return figures.draw(drawn, floor, certainty, out)
    except ImportError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        return []


class _Story:
    """Prints the text as results come in. Plain ASCII, so that every pipe can carry it."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.width = screen_width(sys.stdout) if is_terminal(sys.stdout) else WIDTH
        # What is left beside a recommendation.
        self.bar = max(10, min(BAR, self.width - 45))

    def say(self, *lines: str) -> None:
        """Lines as they are."""
        if not self.quiet:
            print(*lines, sep="\n", flush=True)

    def explains(self, text: str, indent: str = "   ") -> None:
        """Sentences, in lines that fit."""
        self.say(*textwrap.wrap(text, self.width, initial_indent=indent, subsequent_indent=indent))

    def begins(self, seed: int) -> None:
        self.explains(
            f"bayesmf demo, seed {seed}. The first run compiles for about half a minute; later "
            "ones do not.",
            indent="",
        )

    def tells_world(self, world: World) -> None:
        plan = world.plan
        self.say("", "1. The data")
        self.explains(
            f"{plan.n_ratings:,} synthetic ratings of {plan.n_items:,} films by {plan.n_users:,} "
            f"users, {len(world.test):,} of them held out. Planted: {plan.n_factors} factors, "
            f"biases, and noise of standard deviation {plan.noise:g}, the error that nobody can "
            "beat."
        )
        self.say("", "2. Three ways to learn them (seconds without compilation)")
        self.say(f"   {'':<20} {'RMSE':>7} {'above floor':>11} {'in 90%':>7} {'seconds':>7}")

    def tells_fit(self, fit: Fit) -> None:
        scores = fit.scores
        self.say(
            f"   {fit.name:<20} {scores.rmse:7.4f} {fit.above_floor:10.1f}%"
            f" {scores.coverage['90']:7.1%} {fit.model.report_['seconds']:7.1f}"
        )

    def tells_coverage(self, world: World, fits: list[Fit]) -> None:
        self.say(f"   {'noise floor':<20} {world.floor:7.4f} {0:10.1f}% {0.9:7.1%}")
        self.explains(
            "In 90%: share of held-out ratings inside their 90% interval. SGD keeps one point: its "
            "intervals hold noise, nothing of what it does not know, so they are too narrow. Its "
            "regularization is the best of three on a part of the training ratings; the others "
            "learn theirs. " + " ".join(_short_runs(fits))
        )
        self.say("")
        self.explains("3. Do intervals hold what they promise? Held-out ratings inside:", "")
        self.say(f"   {'promised':<20} " + " ".join(f"{level:>6}%" for level in LEVELS))
        for fit in fits:
            shares = " ".join(f"{share:>7.1%}" for share in fit.scores.coverage.values())
            self.say(f"   {fit.name:<20} {shares}")

    def tells_recommendations(
        self, world: World, user: str, recommended: list[Recommendation]
    ) -> None:
        low = math.floor(min(r.low for r in recommended))
        high = math.ceil(max(r.high for r in recommended))
        scale = f"{low:<{self.bar - 2}}{high:>2}"
        self.say("")
        self.explains(f"4. Ten films for {user}, by Gibbs, with the 90% interval of a rating", "")
        self.explains("(o: expected, x: planted, which the model never saw)")
        self.say(f"   {'':<9} {'mean':>5} {'90% interval':>14} {'planted':>8}  {scale}")
        for r in recommended:
            planted = world.planted(user, r.item)
            self.say(
                f"   {r.item:<9} {r.mean:5.2f}   {r.low:5.2f}..{r.high:5.2f} {planted:8.2f}"
                f"  {_bar(r, planted, low, high, self.bar)}".rstrip()
            )

    def tells_unknown(self, rare: ItemSpread, popular: ItemSpread) -> None:
        self.say("")
        self.explains(
            f"What is not known, noise left out (standard deviation, mean over {PARTNERS} users):"
        )
        for kind, one in (("popular", popular), ("rare", rare)):
            self.say(f"   {kind:<8} {one.item:<9} {one.ratings:4} ratings   +-{one.std:.2f}")

    def tells_newcomer(self, found: list[Newcomer]) -> None:
        self.say("")
        self.explains("5. Somebody new: nothing is refitted, ratings come with the question", "")
        self.explains(
            f"(of {NEWCOMERS} people, without saying who they are; error against what was planted, "
            "and what the model says it does not know, both over all films)"
        )
        self.say(f"   {'ratings sent':<20} {'error':>7} {'says':>7}")
        for one in found:
            self.say(f"   {one.ratings:<20} {one.error:7.2f} {one.std:7.2f}")

    def ends(self, drawn: list[Path], seconds: float) -> None:
        self.say("")
        self.explains(f"figure: {drawn[0]}" if drawn else NO_FIGURE, "")
        self.say(f"{seconds:.0f} s in all")


def _bar(r: Recommendation, planted: float, low: float, high: float, width: int) -> str:
    """Interval drawn to scale, with the expected and the planted rating in it."""

    def at(value: float) -> int:
        return min(max(round((value - low) / (high - low) * (width - 1)), 0), width - 1)

    cells = [" "] * width
    for k in range(at(r.low), at(r.high) + 1):
        cells[k] = "-"
    cells[at(r.low)] = cells[at(r.high)] = "|"
    cells[at(r.mean)] = "o"
    cells[at(planted)] = "x"
    return "".join(cells)
