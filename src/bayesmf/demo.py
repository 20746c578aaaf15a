"""`bayesmf demo`: ratings with a planted truth, fitted in three ways, and the uncertainty."""

from __future__ import annotations

import io
import json
import math
import sys
import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.diagnostics.metrics import LEVELS, Scores
from bayesmf.errors import ConvergenceWarning, DataWarning, captured_warnings
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.estimator.results import Recommendation
from bayesmf.plots import style as canvas
from bayesmf.plots.panels import Floats, RowSpread, running_median
from bayesmf.plots.style import COLOURS, GREY, make_folder
from bayesmf.process import is_terminal, screen_width
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.sgld import SGD, SGLD
from bayesmf.storage.atomic import replacing
from bayesmf.synthetic.synthetic import Synthetic
from bayesmf.synthetic.titles import film_titles
from bayesmf.synthetic.truth import Truth

NO_FIGURE = "no figure was drawn: matplotlib is not installed (pip install matplotlib)"
BAR, WIDTH = 36, 88  # characters of an interval, and of a line where there is no terminal
LEVEL = 0.9  # of the intervals around recommendations
PARTNERS = 50  # users over whom the uncertainty of an item is averaged
NEWCOMERS, SENT = 20, (0, 3, 10, 20)  # people whose ratings are sent, and how many of each
FACTORS = 8  # two more than are planted
# Of the fits in the figure: colours, markers, and their sizes and faces. The two Bayesian fits
# agree almost everywhere: an open marker frames a small full one.
LOOKS = COLOURS[:3], ("s", "o", "^"), (6, 9, 3.5), (COLOURS[0], "white", COLOURS[2])


@dataclass(frozen=True)
class DemoSizes:
    """Sizes of the data and epochs of the fits: seconds in all, once compiled."""

    users: int = 1000
    items: int = 1000
    ratings: int = 60_000
    sgd_epochs: int = 200
    sgld_epochs: int = 700
    gibbs_epochs: int = 200


@dataclass(frozen=True)
class World:
    """Synthetic ratings, split, with the planted truth."""

    plan: Synthetic
    truth: Truth
    train: Ratings
    test: Ratings

    def planted(self, user: str, item: str) -> float:
        """Planted rating of a pair, before noise: "film 17" is row 16."""
        truth, (i, j) = self.truth, (int(name.split()[1]) - 1 for name in (user, item))
        return float(self.plan.mean + truth.a[i] + truth.b[j] + truth.U[i] @ truth.V[j])


@dataclass(frozen=True)
class Fit:
    """A fitted model with its scores on the held-out ratings."""

    name: str
    model: BayesianMF
    scores: Scores
    above_floor: float  # percent of the RMSE that no model can beat


def run(out: Path, seed: int, as_json: bool, sizes: DemoSizes | None = None) -> None:
    """Fit synthetic ratings in three ways and compare, in under a minute.

    Parameters
    ----------
    out : Path
        Folder for the figure, made if missing.
    seed : int
        Seed of the ratings, the split and the chains.
    as_json : bool
        Print one JSON object in place of the text.
    sizes : DemoSizes, optional
        Smaller ones for tests.
    """
    # A few held-out films have no other rating; that runs are short is said below their table.
    with warnings.catch_warnings():
        for category in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        with redirect_stdout(io.StringIO()) if as_json else nullcontext():
            found = _run(out, seed, sizes or DemoSizes())
    if as_json:
        print(json.dumps(found))


def _run(out: Path, seed: int, sizes: DemoSizes) -> dict[str, Any]:
    """Print the results as they come in; return them for JSON."""
    begin = time.monotonic()
    make_folder(out)
    _say(
        f"bayesmf demo, seed {seed}. The first run compiles for about half a minute; later ones do "
        "not."
    )
    world = make_world(sizes, seed)
    _print_world(world)
    fits = {}
    for key, (name, sampler) in _samplers(sizes, world.train, seed).items():
        model = BayesianMF(FACTORS, sampler=sampler, random_state=seed)
        scores = model.fit(world.train, validation=world.test).evaluate(world.test)
        fits[key] = Fit(name, model, scores, 100 * (scores.rmse / world.plan.noise - 1))
        _print_fit(fits[key])
    _print_coverage(world, list(fits.values()))
    best = fits["gibbs"].model
    user = _typical_user(world.train)
    recommended = best.recommend(user, 10, level=LEVEL)
    _print_recommendations(world, user, recommended)
    certainty = _certainty(best, world.train)
    unknown = _extremes(best, certainty)
    _print_unknown(unknown)
    newcomer = _newcomers(best, world)
    _print_newcomer(newcomer)
    drawn = _draw(list(fits.values()), world.plan.noise, certainty, out)
    seconds = time.monotonic() - begin
    print()
    _say(f"figure: {drawn[0]}" if drawn else NO_FIGURE)
    print(f"{seconds:.0f} s in all", flush=True)
    items = [{**r._asdict(), "planted": world.planted(user, r.item)} for r in recommended]
    return {
        "seed": seed,
        "sizes": asdict(sizes),
        "train": len(world.train),
        "test": len(world.test),
        "noise_floor": world.plan.noise,
        "fits": {
            key: {
                "name": fit.name,
                "seconds": fit.model.report_["seconds"],
                "draws": fit.model.report_["draws"],
                "above_floor_percent": fit.above_floor,
                **fit.scores.as_dict(),
            }
            for key, fit in fits.items()
        },
        "recommendations": {"user": user, "level": LEVEL, "items": items},
        "unknown": unknown,
        "newcomer": newcomer,
        "figures": [str(path) for path in drawn],
        "seconds": seconds,
    }


def make_world(sizes: DemoSizes, seed: int) -> World:
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


def _samplers(sizes: DemoSizes, train: Ratings, seed: int) -> dict[str, tuple[str, Sampler]]:
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
    """Ratings of each item, and its uncertainty averaged over some users."""
    users, items = model.user_ids_.ids, model.item_ids_.ids
    some = users[np.linspace(0, len(users) - 1, PARTNERS).astype(int)]
    std = _unknown_std(model, np.tile(some, len(items)), np.repeat(items, len(some)))
    ids, counts = np.unique(train.items, return_counts=True)
    by_item = dict(zip(ids, counts, strict=True))
    n = np.array([by_item[i] for i in items])
    return RowSpread(n, std.reshape(len(items), -1).mean(axis=1))


def _extremes(model: BayesianMF, certainty: RowSpread) -> dict[str, dict[str, Any]]:
    """Items with the fewest and the most ratings, and their uncertainty."""
    n, std = certainty.n_ratings, certainty.std
    return {
        name: {
            "item": str(model.item_ids_.ids[k]),
            "ratings": int(n[k]),
            "std": float(std[k]),
        }
        for name, k in (("rare", n.argmin()), ("popular", n.argmax()))
    }


def _newcomers(model: BayesianMF, world: World) -> list[dict[str, Any]]:
    """Error and uncertainty, over all films, for users whose ratings are sent with the request.

    The error is that of expected ratings against the planted ones.
    """
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
    found = np.sqrt(np.maximum(squares / len(people), 0.0)).tolist()
    return [
        {"ratings": n, "error": error, "std": std}
        for n, (error, std) in zip(SENT, found, strict=True)
    ]


# -- the figure -----------------------------------------------------------------------------------


def _draw(fits: list[Fit], floor: float, certainty: RowSpread, out: Path) -> list[Path]:
    """Draw the figure; its files, none where matplotlib is missing."""
    curves = []
    for fit in fits:
        # The first chain while it burns in, then the average over all chains, as in the paper.
        events = [e for e in fit.model.history_ if e["chain"] == 0]
        seconds = np.array([e["seconds"] for e in events])
        rmse = np.array([e["rmse" if e["burning"] else "rmse_all_chains"] for e in events])
        start = next((k for k, e in enumerate(events) if not e["burning"]), None) or None
        name = fit.name.split(",")[0]
        curves.append(FitCurve(name, seconds, rmse, start, fit.scores.coverage))
    try:
        return draw_figure(curves, floor, certainty, out)
    except ImportError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        return []


@dataclass(frozen=True)
class FitCurve:
    """A fit as drawn: RMSE over seconds, and coverage by nominal level in percent."""

    name: str
    seconds: Floats
    rmse: Floats
    averaged_from: int | None  # index where averaging over draws begins
    coverage: Mapping[str, float]


def draw_figure(fits: list[FitCurve], floor: float, items: RowSpread, out: Path) -> list[Path]:
    """Draw demo.png and demo.svg in a folder; ImportError if matplotlib is missing."""
    with canvas.drawing(12, 3.8) as figure:
        left, middle, right = figure.subplots(1, 3)
        _draw_accuracy(left, fits, floor)
        _draw_reliability(middle, fits)
        _draw_items(right, items)
        for ax in (left, middle, right):  # after the labels, which take room
            canvas.add_legend(ax, 2)
        return [canvas.save(figure, out / f"demo.{suffix}") for suffix in ("png", "svg")]


def _draw_accuracy(ax: Any, fits: list[FitCurve], floor: float) -> None:
    ax.axhline(floor, color=GREY, linestyle="--", linewidth=1.2)
    turn = {"marker": "o", "markersize": 6, "markerfacecolor": "white", "linestyle": "none"}
    for fit, colour in zip(fits, COLOURS[:3], strict=True):
        ax.plot(fit.seconds, fit.rmse, color=colour, linewidth=1.8, label=fit.name)
        if (at := fit.averaged_from) is not None:
            ax.plot(fit.seconds[at], fit.rmse[at], color=colour, **turn)
    ax.plot([], [], color=GREY, label="averaging begins", **turn)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.set_ylim(bottom=floor - 0.12 * (ax.get_ylim()[1] - floor))
    ax.annotate(
        f"noise floor {floor:g}", (0.02, floor), xycoords=("axes fraction", "data"),
        xytext=(0, 4), textcoords="offset points", color=GREY,
    )  # fmt: skip
    ax.set(xlabel="time (seconds, log scale)", ylabel="RMSE on held-out ratings (points)")
    ax.set_title("Averaging draws beats one best point")


def _draw_reliability(ax: Any, fits: list[FitCurve]) -> None:
    ax.plot([45, 100], [45, 100], color=GREY, linestyle="--", linewidth=1.2)
    for fit, colour, marker, size, face in zip(fits, *LOOKS, strict=True):
        nominal = [float(level) for level in fit.coverage]
        observed = [100 * share for share in fit.coverage.values()]
        ax.plot(
            nominal, observed, marker=marker, markersize=size, color=colour, linewidth=1.8,
            markerfacecolor=face, markeredgewidth=1.8, label=fit.name,
        )  # fmt: skip
    ax.plot([], [], color=GREY, linestyle="--", linewidth=1.2, label="exact")
    ticks = [int(level) for level in fits[0].coverage]
    ax.set(xticks=ticks, yticks=ticks, xlim=(45, 100), ylim=(min(38, *ax.get_ylim()), 100))
    ax.set(xlabel="nominal coverage of intervals (%)", ylabel="held-out ratings inside (%)")
    ax.set_title("Bayesian intervals are calibrated")


def _draw_items(ax: Any, items: RowSpread) -> None:
    # Gibbs is the last of the fits, and this panel is about it.
    style = {"s": 9, "color": COLOURS[2], "alpha": 0.35, "linewidths": 0}
    ax.scatter(*items, **style, label="an item (Gibbs)")
    ax.plot(*running_median(items).T, color="black", linewidth=1.8, label="running median")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.set_ylim(bottom=0)
    ax.set(
        xlabel="ratings of the item (log scale)", ylabel="sd of prediction without noise (points)"
    )
    ax.set_title("Rare items are more uncertain")


# -- printing: plain ASCII, so that every pipe can carry it ---------------------------------------


def _width() -> int:
    return screen_width(sys.stdout) if is_terminal(sys.stdout) else WIDTH


def _say(text: str, indent: str = "") -> None:
    """Print sentences in lines that fit."""
    lines = textwrap.wrap(text, _width(), initial_indent=indent, subsequent_indent=indent)
    print(*lines, sep="\n", flush=True)


def _print_world(world: World) -> None:
    plan = world.plan
    print("\n1. The data")
    _say(
        f"{plan.n_ratings:,} synthetic ratings of {plan.n_items:,} films by {plan.n_users:,} "
        f"users, {len(world.test):,} of them held out. Planted: {plan.n_factors} factors, biases, "
        f"and noise of standard deviation {plan.noise:g}, the lowest possible error.",
        "   ",
    )
    print("\n2. Three ways to learn them (seconds without compilation)")
    print(f"   {'':<20} {'RMSE':>7} {'above floor':>11} {'in 90%':>7} {'seconds':>7}", flush=True)


def _print_fit(fit: Fit) -> None:
    scores = fit.scores
    print(
        f"   {fit.name:<20} {scores.rmse:7.4f} {fit.above_floor:10.1f}%"
        f" {scores.coverage['90']:7.1%} {fit.model.report_['seconds']:7.1f}",
        flush=True,
    )


def _print_coverage(world: World, fits: list[Fit]) -> None:
    print(f"   {'noise floor':<20} {world.plan.noise:7.4f} {0:10.1f}% {0.9:7.1%}")
    short_runs = [
        f" {fit.name} has not converged in so short a run (R-hat {found['rhat']:.2f})."
        for fit in fits
        if (found := fit.model.report_["convergence"])["converged"] is False
    ]
    _say(
        "In 90%: share of held-out ratings inside their 90% interval. SGD keeps one point: its "
        "intervals hold noise and no uncertainty of its own, so they are too narrow. Its "
        "regularization is the best of three on a part of the training ratings; the others learn "
        "theirs." + "".join(short_runs),
        "   ",
    )
    print("\n3. Coverage of intervals: held-out ratings inside")
    print(f"   {'promised':<20} " + " ".join(f"{level:>6}%" for level in LEVELS))
    for fit in fits:
        shares = " ".join(f"{share:>7.1%}" for share in fit.scores.coverage.values())
        print(f"   {fit.name:<20} {shares}", flush=True)


def _print_recommendations(world: World, user: str, found: Sequence[Recommendation]) -> None:
    low, high = math.floor(min(r.low for r in found)), math.ceil(max(r.high for r in found))
    width = max(10, min(BAR, _width() - 45))

    def at(value: float) -> int:
        return min(max(round((value - low) / (high - low) * (width - 1)), 0), width - 1)

    print()
    _say(f"4. Ten films for {user}, by Gibbs, with the 90% interval of a rating")
    _say("(o: expected, x: planted, which the model never saw)", "   ")
    scale = f"{low:<{width - 2}}{high:>2}"
    print(f"   {'':<9} {'mean':>5} {'90% interval':>14} {'planted':>8}  {scale}")
    for r in found:
        planted = world.planted(user, r.item)
        cells = [" "] * width
        cells[at(r.low) : at(r.high) + 1] = "-" * (at(r.high) + 1 - at(r.low))
        cells[at(r.low)] = cells[at(r.high)] = "|"
        cells[at(r.mean)], cells[at(planted)] = "o", "x"
        print(
            f"   {r.item:<9} {r.mean:5.2f}   {r.low:5.2f}..{r.high:5.2f} {planted:8.2f}"
            f"  {''.join(cells)}".rstrip()
        )


def _print_unknown(unknown: dict[str, dict[str, Any]]) -> None:
    print()
    _say(f"Uncertainty without noise (standard deviation, mean over {PARTNERS} users):", "   ")
    for kind in ("popular", "rare"):
        one = unknown[kind]
        print(f"   {kind:<8} {one['item']:<9} {one['ratings']:4} ratings   +-{one['std']:.2f}")


def _print_newcomer(found: list[dict[str, Any]]) -> None:
    print()
    _say("5. A new user: their ratings are sent with the request, without a refit")
    _say(
        f"(mean over {NEWCOMERS} people and all films: error against the planted rating, and the "
        "uncertainty that the model reports)",
        "   ",
    )
    print(f"   {'ratings sent':<20} {'error':>7} {'reports':>7}")
    for one in found:
        print(f"   {one['ratings']:<20} {one['error']:7.2f} {one['std']:7.2f}", flush=True)


# -- films to serve --------------------------------------------------------------------------------


class DemoData(NamedTuple):
    """Paths of a model, the table of its films, and held-out ratings."""

    model: Path
    films: Path
    test: Path


def write_demo(out: Path, seed: int, sizes: DemoSizes | None = None) -> DemoData:
    """Fit synthetic stars of invented films, and write all that `demo --serve` serves."""
    sizes = sizes or DemoSizes()
    make_folder(out)
    made = Synthetic(
        sizes.users, sizes.items, sizes.ratings,
        n_factors=6, noise=0.7, factor_strength=0.6, stars=True, random_state=seed,
    ).ratings()  # fmt: skip
    items = [f"film {k}" for k in made.items]
    data = [f"user {k}" for k in made.users], items, made.rating
    train, test = Ratings.from_data(data).split(0.1, random_state=seed)
    with captured_warnings():  # a short run, and films whose ratings are all held out
        model = BayesianMF(random_state=seed).fit(train, validation=test)
    found = DemoData(out / "films.bayesmf", out / "films.csv", out / "held-out.csv")
    model.save(found.model)
    ids = [f"film {k}" for k in range(1, sizes.items + 1)]
    _write_table(pl.DataFrame({"item": ids, "title": film_titles(len(ids), seed)}), found.films)
    held_out = {"user": test.users, "item": test.items, "rating": test.rating}
    _write_table(pl.DataFrame(held_out), found.test)
    return found


def _write_table(frame: pl.DataFrame, path: Path) -> None:
    with replacing(path) as file:
        frame.write_csv(file)
