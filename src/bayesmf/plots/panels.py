"""What fills one Axes: errors over epochs, gaps of coverage, uncertainty by number of ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.diagnostics.calibration import (
    COUNTED,
    FINE_LEVELS,
    GROUP_TOLERANCE,
    TOLERANCE,
    Calibration,
    Gap,
    Group,
    allowed_gap,
)
from bayesmf.plots import style as canvas
from bayesmf.plots.style import COLOURS, GREY

Floats = NDArray[np.float64]
Event = Mapping[str, Any]

DASHES = ("-", "--", ":", "-.")
BAND = {"color": GREY, "linewidth": 0}
# More chains than these have one entry in the legend together.
NAMED_CHAINS = 4
MEDIANS = 14  # groups of rows behind a running median


class RowSpread(NamedTuple):
    """By row of one side: training ratings, and standard deviation of predictions without noise."""

    n_ratings: NDArray[np.int64]
    std: Floats


def line(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line: colours first, then other dashes."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
    }


def plain_log_axis(ax: Any) -> None:
    """Make the x-axis logarithmic, with plain numbers, also within a decade."""
    ax.set_xscale("log", subs=[2, 5])
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    ax.xaxis.set_minor_formatter(lambda x, _: f"{x:,g}")
    ax.tick_params(axis="x", which="both", length=3.5, pad=3.5)  # labels on one line


# -- chains ---------------------------------------------------------------------------------------


def rmse_curves(ax: Any, history: Sequence[Event], over: str) -> None:
    """Draw RMSE over "epoch" or "seconds": of training by chain, of the validation set if any."""
    chains = sorted({event["chain"] for event in history})
    for k, chain in enumerate(chains):
        mine = [event for event in history if event["chain"] == chain]
        label = _chain_label(k, len(chains))
        _over(ax, mine, over, "train_rmse", **line(k), linewidth=1.1, alpha=0.9, label=label)
    if any(event["rmse"] is not None for event in history):
        _followed(ax, history, chains, over)
    plain_log_axis(ax)
    ax.set_ylabel("RMSE (points)")


def _chain_label(k: int, chains: int) -> str | None:
    if chains == 1:
        return "training"
    if chains <= NAMED_CHAINS:
        return f"training, chain {k + 1}"
    return f"training, {chains} chains" if k == 0 else None


def _over(ax: Any, events: Sequence[Event], over: str, name: str, **style: Any) -> None:
    # One epoch alone is a point, which a line does not show.
    marker = "o" if len(events) == 1 else None
    ax.plot([e[over] for e in events], [e[name] for e in events], marker=marker, **style)


def _followed(ax: Any, history: Sequence[Event], chains: list[int], over: str) -> None:
    """Draw RMSE of the validation set: of each chain's state, then of the average of all draws."""
    after = sorted((e for e in history if e["draws"]), key=lambda e: (e[over], e["seconds"]))
    # SGD averages nothing: its current state is all there is.
    before = {"linestyle": ":", "linewidth": 1.0 if after else 2.0, "color": "black"}
    # Chains differ in burn-in; after it there is one average of all.
    for chain in chains:
        mine = [e for e in history if e["chain"] == chain and not e["draws"]]
        label = "validation, current state" if chain == chains[0] and mine else None
        _over(ax, mine, over, "rmse", **before, label=label)
    if after:
        # The last of the chains to reach an epoch has the draws of all.
        last = list({e[over]: e for e in after}.values())
        thick: dict[str, Any] = {"color": "black", "linewidth": 2.2}
        _over(ax, last, over, "rmse_all_chains", **thick, label="validation, average of draws")


def convergence(ax: Any, history: Sequence[Event], burn_in: float | None, title: str) -> None:
    """Draw errors over epochs and the end of burn-in, under a title."""
    rmse_curves(ax, history, "epoch")
    if burn_in is not None:
        # Ends where the curves end, so as not to cross the legend.
        ends = ax.get_ylim()
        style = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
        ax.plot([burn_in, burn_in], ends, **style, label="burn-in ends")
        ax.set_ylim(ends)
    ax.set_xlabel("passes over the ratings (log scale)")
    canvas.set_title(ax, title)
    canvas.add_legend(ax, 3, fontsize="small")


# -- calibration ----------------------------------------------------------------------------------


def gap_band(ax: Any, n: int, tolerance: float, alpha: float, label: str | None = None) -> None:
    """Fill the band of gaps that are allowed for n ratings, by level."""
    allowed = np.array([allowed_gap(level, n, tolerance) for level in FINE_LEVELS])
    ax.fill_between(FINE_LEVELS, -allowed, allowed, **BAND, alpha=alpha, label=label)


def gap_curve(ax: Any, observed: Sequence[float], **style: Any) -> None:
    """Draw observed less promised coverage, by level."""
    ax.plot(FINE_LEVELS, 100 * np.array(observed) - np.array(FINE_LEVELS), **style)


def mark_worst(ax: Any, worst: Gap) -> None:
    """Draw a ring around the gap that the verdict is about."""
    ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.6}
    ax.plot(worst.level, worst.points, color="black", linestyle="none", label="worst gap", **ring)


# Dashes of groups by what they are grouped by.
BY: dict[str, Any] = {"user": "-", "item": (0, (4, 1.5)), "error": ":", "std": "-."}


def shown(found: Calibration) -> list[Group]:
    """Groups that are drawn where all are too many: of fifths the outer ones, and the worst."""
    middle = ("second", "middle", "third", "fourth")
    return [
        group
        for group in found.groups
        if group.side in COUNTED or group.name not in middle or group == found.worst.group
    ]


def calibration(ax: Any, found: Calibration) -> None:
    """Draw gaps of all ratings and of groups, what is allowed, and the verdict."""
    groups: dict[str, list[Group]] = {side: [] for side in BY}
    for group in shown(found):
        groups[group.side].append(group)
    smallest = min(group.n for group in found.groups)
    gap_band(ax, smallest, GROUP_TOLERANCE, 0.13, "allowed in a group")
    gap_band(ax, found.overall.n, TOLERANCE, 0.25, "allowed of all")
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
    for side, dashes in BY.items():
        name = f"{side}s" if side in COUNTED else side
        for group, colour in zip(groups[side], COLOURS, strict=False):
            style = {"color": colour, "linestyle": dashes, "linewidth": 1.4}
            gap_curve(ax, group.observed, **style, label=f"{name}, {group.span}")
    gap_curve(ax, found.observed, color="black", linewidth=2.4, label="all ratings")
    if found.calibrated is not None:
        mark_worst(ax, found.worst)
    ax.set_xlim(FINE_LEVELS[0] - 1, FINE_LEVELS[-1] + 1)
    ax.set_xlabel("promised coverage of the interval (%)")
    ax.set_ylabel("observed less promised (points)")
    canvas.set_title(ax, found.headline)
    heading = (
        "above 0: too wide, below: too narrow; by training\n"
        "ratings, training error of the user, predicted std"
    )
    dense = {"columnspacing": 1.0, "handlelength": 1.7, "labelspacing": 0.2, "borderpad": 0.2}
    canvas.add_legend(ax, 4, fontsize="small", title=heading, title_fontsize="small", **dense)


# -- uncertainty ----------------------------------------------------------------------------------


def running_median(rows: RowSpread) -> Floats:
    """Medians of ratings and of spread by group of rows, shape (groups, 2); empty for few rows."""
    order = np.argsort(rows.n_ratings, kind="stable")
    parts = np.array_split(order, min(MEDIANS, len(order) // 10) or 1)
    middles = [(np.median(rows.n_ratings[p]), np.median(rows.std[p])) for p in parts]
    return np.array(middles if len(middles) > 1 else []).reshape(-1, 2)


def uncertainty(ax: Any, items: RowSpread, users: RowSpread, n_draws: int) -> None:
    """Draw the spread of predictions against the number of ratings, of items and of users."""
    sides = {"item": (items, COLOURS[2], "o"), "user": (users, COLOURS[0], "s")}
    # A model may have been saved without users.
    sides = {name: side for name, side in sides.items() if len(side[0].std)}
    for name, (rows, colour, marker) in sides.items():
        # Enough colour for a few rows to be seen, and not too much for a thousand.
        alpha = float(np.clip(200 / len(rows.std), 0.25, 0.9))
        style = {"color": colour, "marker": marker, "alpha": alpha, "linewidths": 0}
        n = len(rows.std)
        label = f"{n:,} {name}{'s' * (n > 1)}"
        ax.scatter(rows.n_ratings, rows.std, s=10, label=label, **style)
    for name, (rows, colour, _) in sides.items():
        middles = running_median(rows)
        if len(middles) and n_draws > 1:
            ax.plot(*middles.T, color="white", linewidth=4.2)  # so that it stands out
            dashes = "-" if name == "item" else "--"
            style = {"color": _darker(colour), "linewidth": 2.2, "linestyle": dashes}
            ax.plot(*middles.T, **style, label=f"{name}s, running median")
    plain_log_axis(ax)
    ax.set_ylim(0, 1.05 * max(rows.std.max() for rows, *_ in sides.values()) or 1.0)
    ax.set_xlabel("training ratings of the item or user (log scale)")
    ax.set_ylabel("sd of the prediction without noise (points)")
    canvas.set_title(ax, _uncertainty_title(items, n_draws))
    canvas.add_legend(ax, 2, fontsize="small", scatterpoints=1, markerscale=1.5)


def _darker(colour: str) -> tuple[float, float, float]:
    """A colour at two thirds of its light."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 * 0.65 for k in (1, 3, 5))
    return red, green, blue


def _uncertainty_title(items: RowSpread, n_draws: int) -> str:
    if n_draws == 1:
        return "One draw: how much is not known cannot be told; fit with the defaults"
    middles = running_median(items)
    if not len(middles):
        return "What is not known of a rating, noise left out"
    rare, popular = middles[0, 1], middles[-1, 1]
    return f"Not known: {rare:.2g} points of rare items, {popular:.2g} of popular ones"
