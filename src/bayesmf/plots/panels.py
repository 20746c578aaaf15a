"""Figures of a fit: panels, each of which fills one Axes, and the files of `diagnose --plots`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.diagnostics.calibration import (
    COUNTED,
    FINE_LEVELS,
    GROUP_TOLERANCE,
    STANDARD_ERRORS,
    TOLERANCE,
    Calibration,
    Gap,
    Group,
    allowed_gap,
)
from bayesmf.diagnostics.convergence import DECIDED_BY
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.plots import style as canvas
from bayesmf.plots.style import COLOURS, GREY
from bayesmf.plots.style import check_matplotlib as check_matplotlib

Floats = NDArray[np.float64]
Event = Mapping[str, Any]

DASHES = ("-", "--", ":", "-.")
BAND = {"color": GREY, "linewidth": 0}
# More chains than this share one entry of the legend.
NAMED_CHAINS = 4
MEDIANS = 14  # groups of rows behind a running median
Curve = tuple[str, int, Sequence[float]]  # a name, ratings, coverage by level

NAMES = ("reliability.png", "pit.png", "traces.png", "rmse.png")
# Titles of groups, and of their legends, by side.
SIDES = {
    "": ("All ratings", None),
    "user": ("By users", "training ratings of the user"),
    "item": ("By items", "training ratings of the item"),
    "error": ("By users' training error", "user's training RMSE"),
    "std": ("By predicted std", "predicted std"),
}


class RowSpread(NamedTuple):
    """Training ratings of each row, and standard deviation of its predictions without noise."""

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
    # A single epoch is a point, which a line does not show.
    marker = "o" if len(events) == 1 else None
    ax.plot([e[over] for e in events], [e[name] for e in events], marker=marker, **style)


def _followed(ax: Any, history: Sequence[Event], chains: list[int], over: str) -> None:
    """Draw RMSE of the validation set: of each chain's state, then of the average of all draws."""
    after = sorted((e for e in history if e["draws"]), key=lambda e: (e[over], e["seconds"]))
    # SGD has no draws to average.
    before = {"linestyle": ":", "linewidth": 1.0 if after else 2.0, "color": "black"}
    # After burn-in there is one average of all chains.
    for chain in chains:
        mine = [e for e in history if e["chain"] == chain and not e["draws"]]
        label = "validation, current state" if chain == chains[0] and mine else None
        _over(ax, mine, over, "rmse", **before, label=label)
    if after:
        # The last chain to reach an epoch has the draws of all.
        last = list({e[over]: e for e in after}.values())
        thick: dict[str, Any] = {"color": "black", "linewidth": 2.2}
        _over(ax, last, over, "rmse_all_chains", **thick, label="validation, average of draws")


def convergence(ax: Any, history: Sequence[Event], burn_in: float | None, title: str) -> None:
    """Draw errors over epochs and the end of burn-in, under a title."""
    rmse_curves(ax, history, "epoch")
    if burn_in is not None:
        # As high as the curves, below the legend.
        ends = ax.get_ylim()
        style = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
        ax.plot([burn_in, burn_in], ends, **style, label="burn-in ends")
        ax.set_ylim(ends)
    ax.set_xlabel("passes over the ratings (log scale)")
    canvas.set_title(ax, title)
    canvas.add_legend(ax, 3, fontsize="small")


# -- calibration ----------------------------------------------------------------------------------


def gap_band(ax: Any, n: int, tolerance: float, alpha: float, label: str | None = None) -> None:
    """Fill the band of allowed gaps for n ratings, by level."""
    allowed = np.array([allowed_gap(level, n, tolerance) for level in FINE_LEVELS])
    ax.fill_between(FINE_LEVELS, -allowed, allowed, **BAND, alpha=alpha, label=label)


def gap_curve(ax: Any, observed: Sequence[float], **style: Any) -> None:
    """Draw observed minus nominal coverage, by level."""
    ax.plot(FINE_LEVELS, 100 * np.array(observed) - np.array(FINE_LEVELS), **style)


def mark_worst(ax: Any, worst: Gap) -> None:
    """Draw a ring around the worst gap."""
    ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.6}
    ax.plot(worst.level, worst.points, color="black", linestyle="none", label="worst gap", **ring)


# Dashes of groups, by side.
BY: dict[str, Any] = {"user": "-", "item": (0, (4, 1.5)), "error": ":", "std": "-."}


def shown(found: Calibration) -> list[Group]:
    """Groups to draw: of fifths the outer ones, and the worst group."""
    middle = ("second", "middle", "third", "fourth")
    return [
        group
        for group in found.groups
        if group.side in COUNTED or group.name not in middle or group == found.worst.group
    ]


def calibration(ax: Any, found: Calibration) -> None:
    """Draw gaps of all ratings and of groups, the allowed band, and the verdict."""
    groups: dict[str, list[Group]] = {side: [] for side in BY}
    for group in shown(found):
        groups[group.side].append(group)
    smallest = min(group.n for group in found.groups)
    gap_band(ax, smallest, GROUP_TOLERANCE, 0.13, "allowed for a group")
    gap_band(ax, found.overall.n, TOLERANCE, 0.25, "allowed for all")
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
    ax.set_xlabel("nominal coverage of the interval (%)")
    ax.set_ylabel("observed minus nominal (points)")
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
        # Few rows are opaque, many are transparent.
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
    ax.set_ylabel("std of the prediction without noise (points)")
    canvas.set_title(ax, _uncertainty_title(items, n_draws))
    canvas.add_legend(ax, 2, fontsize="small", scatterpoints=1, markerscale=1.5)


def _darker(colour: str) -> tuple[float, float, float]:
    """A colour at two thirds of its light."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 * 0.65 for k in (1, 3, 5))
    return red, green, blue


def _uncertainty_title(items: RowSpread, n_draws: int) -> str:
    if n_draws == 1:
        return "One draw has no uncertainty: fit with the default settings"
    middles = running_median(items)
    if not len(middles):
        return "Uncertainty of a rating, without noise"
    rare, popular = middles[0, 1], middles[-1, 1]
    return f"Uncertainty: {rare:.2g} points for rare items, {popular:.2g} for popular ones"


# -- files of `bayesmf diagnose --plots` -----------------------------------------------------------


def reliability(calibration: Calibration, path: Path) -> Path:
    """Draw observed against nominal coverage, and the gap: overall, and by each kind of group."""
    overall, worst = calibration.overall, calibration.worst
    found = {group.side for group in calibration.groups}
    sides = [side for side in SIDES if not side or side in found]
    with canvas.drawing(1.5 + 3.6 * len(sides), 7.6) as figure:
        axes = figure.subplots(2, len(sides), sharex=True, sharey="row", height_ratios=(1.5, 1))
        for side, top, bottom in zip(sides, *axes, strict=True):
            title, heading = SIDES[side]
            mine = [group for group in calibration.groups if group.side == side]
            curves: list[Curve] = [(group.span, group.n, group.observed) for group in mine]
            if not side:
                curves = [(f"{overall.n:,} test ratings", overall.n, calibration.observed)]
            _coverage(top, curves)
            top.set_title(title)
            # On the other side of the diagonal than the curves.
            corner = "upper left" if _mean_gap(curves) < 0 else "lower right"
            dense = {"labelspacing": 0.2, "borderpad": 0.2, "handlelength": 1.7}
            top.legend(loc=corner, fontsize=8, title=heading, title_fontsize=8, **dense)
            _gaps(bottom, curves, GROUP_TOLERANCE if side else TOLERANCE)
            judged = calibration.calibrated is not None
            if judged and (worst.group.side if worst.group else "") == side:
                mark_worst(bottom, worst)
        axes[0, 0].set_ylabel("test ratings inside (%)")
        axes[1, 0].set_ylabel("observed minus nominal (points)")
        where = "" if calibration.calibrated is None else f", {worst.where} (ring)"
        figure.suptitle(f"{calibration.headline}{where}", weight="bold")
        return canvas.save(figure, path)


def _mean_gap(curves: list[Curve]) -> float:
    return float(np.mean([np.array(shares) - np.array(FINE_LEVELS) / 100 for *_, shares in curves]))


def _dashes(k: int) -> Any:
    return DASHES[k % len(DASHES)]


def _coverage(ax: Any, curves: list[Curve]) -> None:
    ends = FINE_LEVELS[0], FINE_LEVELS[-1]
    label_exact = "exact" if len(curves) == 1 else None
    ax.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.2, label=label_exact)
    for k, (label, _, observed) in enumerate(curves):
        shares = 100 * np.array(observed)
        ax.plot(FINE_LEVELS, shares, color=COLOURS[k], linestyle=_dashes(k), label=label)
    ax.set_xlim(*ends)


def _gaps(ax: Any, curves: list[Curve], tolerance: float) -> None:
    smallest = min(n for _, n, _ in curves)
    gap_band(ax, smallest, tolerance, 0.18)
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
    for k, (_, _, observed) in enumerate(curves):
        gap_curve(ax, observed, color=COLOURS[k], linestyle=_dashes(k), linewidth=1.6)
    ax.set_xlabel("nominal coverage of central intervals (%)")
    few = allowed_gap(FINE_LEVELS[0], smallest, tolerance) > tolerance
    chance = f" or {STANDARD_ERRORS:g} standard errors" if few else ""
    ax.set_title(f"grey: {tolerance:g} points{chance} allowed", fontsize=9, weight="normal")


def pit(calibration: Calibration, path: Path) -> Path:
    """Draw the histogram of PIT values; no verdict depends on it."""
    counts = np.array(calibration.pit)
    bins, n = len(counts), int(counts.sum())
    flat = n / bins
    band = STANDARD_ERRORS * math.sqrt(n * (1 / bins) * (1 - 1 / bins))
    with canvas.drawing(7, 4.4) as figure:
        ax = figure.subplots()
        left = np.arange(bins) / bins
        ax.bar(left, counts, 1 / bins, align="edge", color=COLOURS[4], edgecolor="white")
        ax.axhline(flat, color="black", linestyle="--", linewidth=1.3, label="all bars equal")
        top = max(counts.max(), flat)
        if calibration.few_values:
            # No band of standard errors: discrete values make these bars uneven.
            figure.supxlabel(
                "Ratings take few values: whole stars make bars uneven even when intervals are "
                "right.",
                fontsize=9,
            )
        else:
            chance = f"{STANDARD_ERRORS:g} standard errors around that"
            ax.axhline(flat + band, color="black", linewidth=1.0, label=chance)
            ax.axhline(flat - band, color="black", linewidth=1.0)
            top = max(top, flat + band)
        ax.set(xlim=(0, 1), ylim=(0, 1.05 * top))
        ax.set(
            xlabel="probability given to a smaller rating (PIT)",
            ylabel=f"test ratings, of {n:,} in all",
        )
        ax.set_title("PIT histogram")
        canvas.add_legend(ax, 2)
        return canvas.save(figure, path)


def traces(quantities: Mapping[str, Floats], path: Path, headline: str = "") -> Path:
    """Draw tau, the worst of the precisions, and three predictions over draws, by chain.

    `headline` is the verdict on convergence; R-hats of single panels are details.
    """
    parts = [("Noise precision", "tau (1 / points$^2$)", quantities["tau"])]
    for side, names in (("user", ("lambda_U", "lambda_a")), ("item", ("lambda_V", "lambda_b"))):
        x = _together([quantities[name] for name in names if name in quantities])
        of = f"Worst of {n} {side} precisions" if (n := x.shape[2]) > 1 else f"Precision of {side}s"
        parts.append((of, "lambda (model units)", x[:, :, _by_rhat(x)[-1]]))
    x = quantities["prediction"]
    order = _by_rhat(x)
    picks = {"Worst": order[-1], "Median": order[len(order) // 2], "Best": order[0]}
    for of, pair in picks.items():
        parts.append((f"{of} of {len(order)} predictions", "rating (points)", x[:, :, pair]))
    with canvas.drawing(12, 6.2) as figure:
        axes = figure.subplots(2, 3, sharex=True)
        figure.suptitle(headline or None, fontsize=12, weight="bold", x=0.01, ha="left")
        for ax, (title, unit, values) in zip(axes.flat, parts, strict=True):
            _trace(ax, title, unit, values)
        for ax in axes[1]:
            ax.set_xlabel("kept draw of the chain (number)")
        heading = f"{DECIDED_BY}; single panels may be above its limit."
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = {"ncols": min(len(labels), 8), "title": heading, "title_fontsize": 9}
            figure.legend(handles, labels, loc="outside lower center", **columns)
        else:
            figure.supxlabel(heading, fontsize=9)
        return canvas.save(figure, path)


def _together(quantities: Sequence[Floats]) -> Floats:
    """Concatenate quantities of shape (chains, draws, n) or (chains, draws)."""
    parts = [x[:, :, None] if x.ndim == 2 else x for x in quantities]
    return np.concatenate(parts, axis=2)


def _by_rhat(x: Floats) -> NDArray[np.int64]:
    """Indices of quantities by R-hat, best first; those without one come first."""
    rhat = split_rhat(x)
    return np.argsort(np.where(np.isnan(rhat), -np.inf, rhat), kind="stable")


def _trace(ax: Any, title: str, unit: str, values: Floats) -> None:
    for chain, draws in enumerate(values):
        ax.plot(
            np.arange(1, len(draws) + 1), draws, **line(chain), linewidth=0.9, alpha=0.85,
            label=f"chain {chain + 1}",
        )  # fmt: skip
    rhat = split_rhat(values[:, :, None])[0]
    ess = effective_sample_size(values[:, :, None])[0]
    known = f"\nR-hat {rhat:.3f}, ESS {ess:.0f}" if rhat == rhat and ess == ess else ""
    ax.set_title(title + known)
    ax.set_ylabel(unit)


def rmse(history: Sequence[Event], path: Path, validation: float | None = None) -> Path:
    """Draw RMSE over seconds: of training by chain, and of the validation set if there was one.

    `validation` is the RMSE of the kept draws, as in the report.
    """
    with canvas.drawing(7.5, 4.4) as figure:
        ax = figure.subplots()
        rmse_curves(ax, history, "seconds")
        ax.set_xlabel("time since the chains began (seconds, log scale)")
        ax.set_title(_rmse_title(history, validation))
        figure.legend(loc="outside lower center", ncols=3)
        return canvas.save(figure, path)


def _rmse_title(history: Sequence[Event], validation: float | None) -> str:
    last = {event["chain"]: event for event in history}
    training = np.mean([event["train_rmse"] for event in last.values()])
    if validation is None:
        return f"RMSE over time: training ends at {training:.4f}"
    return f"RMSE: training ends at {training:.4f}, validation at {validation:.4f}"


def draw(
    folder: Path,
    quantities: Mapping[str, Floats],
    history: Sequence[Event],
    calibration: Calibration | None = None,
    headline: str = "",
    validation_rmse: float | None = None,
) -> tuple[list[Path], list[str]]:
    """Draw the figures into an existing folder; `headline` is the verdict on the chains.

    Returns
    -------
    paths : list of Path
        Files that were drawn.
    missing : list of str
        A sentence for each file that could not be drawn.
    """
    todo: list[Callable[[], Path]] = []
    missing = []
    if calibration is not None:
        todo.append(lambda: reliability(calibration, folder / "reliability.png"))
        todo.append(lambda: pit(calibration, folder / "pit.png"))
    if quantities["tau"].shape[1] > 1:
        todo.append(lambda: traces(quantities, folder / "traces.png", headline))
    else:
        missing.append("traces.png is not drawn: it needs two draws of a chain")
    if history:
        todo.append(lambda: rmse(history, folder / "rmse.png", validation_rmse))
    else:
        missing.append("rmse.png is not drawn: the model has no history of epochs")
    return [make() for make in todo], missing
