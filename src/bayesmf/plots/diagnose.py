"""Pictures of `bayesmf diagnose --plots`, as files: reliability, PIT, traces, RMSE over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.diagnostics.calibration import (
    FINE_LEVELS,
    GROUP_TOLERANCE,
    STANDARD_ERRORS,
    TOLERANCE,
    Calibration,
    allowed_gap,
)
from bayesmf.diagnostics.convergence import DECIDED_BY
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.plots import panels
from bayesmf.plots import style as canvas
from bayesmf.plots.panels import DASHES, Event, Floats
from bayesmf.plots.style import COLOURS, GREY
from bayesmf.plots.style import check_matplotlib as check_matplotlib

Curve = tuple[str, int, Sequence[float]]  # a name, ratings, coverage by level

NAMES = ("reliability.png", "pit.png", "traces.png", "rmse.png")
# Titles of groups by side, and of their legends.
SIDES = {
    "": ("All ratings", None),
    "user": ("By users", "training ratings of the user"),
    "item": ("By items", "training ratings of the item"),
    "error": ("By users' training error", "user's training RMSE"),
    "std": ("By predicted std", "predicted std"),
}


# -- calibration ----------------------------------------------------------------------------------


def reliability(calibration: Calibration, path: Path) -> Path:
    """Draw observed against promised coverage, and the gap: overall, and by each kind of group."""
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
            # The curves are on one side of the diagonal, the legend on the other.
            corner = "upper left" if _mean_gap(curves) < 0 else "lower right"
            dense = {"labelspacing": 0.2, "borderpad": 0.2, "handlelength": 1.7}
            top.legend(loc=corner, fontsize=8, title=heading, title_fontsize=8, **dense)
            _gaps(bottom, curves, GROUP_TOLERANCE if side else TOLERANCE)
            judged = calibration.calibrated is not None
            if judged and (worst.group.side if worst.group else "") == side:
                panels.mark_worst(bottom, worst)
        axes[0, 0].set_ylabel("test ratings inside (%)")
        axes[1, 0].set_ylabel("observed less promised (points)")
        where = "" if calibration.calibrated is None else f", {worst.where} (ring)"
        figure.suptitle(f"{calibration.headline}{where}", weight="bold")
        return canvas.save(figure, path)


def _mean_gap(curves: list[Curve]) -> float:
    return float(np.mean([np.array(shares) - np.array(FINE_LEVELS) / 100 for *_, shares in curves]))


def _dashes(k: int) -> Any:
    return DASHES[k % len(DASHES)]


def _coverage(ax: Any, curves: list[Curve]) -> None:
    ends = FINE_LEVELS[0], FINE_LEVELS[-1]
    promised = "as promised" if len(curves) == 1 else None
    ax.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.2, label=promised)
    for k, (label, _, observed) in enumerate(curves):
        shares = 100 * np.array(observed)
        ax.plot(FINE_LEVELS, shares, color=COLOURS[k], linestyle=_dashes(k), label=label)
    ax.set_xlim(*ends)


def _gaps(ax: Any, curves: list[Curve], tolerance: float) -> None:
    smallest = min(n for _, n, _ in curves)
    panels.gap_band(ax, smallest, tolerance, 0.18)
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
    for k, (_, _, observed) in enumerate(curves):
        panels.gap_curve(ax, observed, color=COLOURS[k], linestyle=_dashes(k), linewidth=1.6)
    ax.set_xlabel("promised coverage of central intervals (%)")
    few = allowed_gap(FINE_LEVELS[0], smallest, tolerance) > tolerance
    chance = f" or {STANDARD_ERRORS:g} standard errors" if few else ""
    ax.set_title(f"grey: {tolerance:g} points{chance} allowed", fontsize=9, weight="normal")


def pit(calibration: Calibration, path: Path) -> Path:
    """Draw the histogram of PIT values beside a flat one: a detail, on which no verdict rests."""
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
            # No band of standard errors: chance is the least of what makes these bars uneven.
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


# -- chains ---------------------------------------------------------------------------------------


def traces(quantities: Mapping[str, Floats], path: Path, headline: str = "") -> Path:
    """Draw tau, the worst of the precisions, and three predictions over draws, by chain.

    `headline` is the verdict on convergence; R-hats of single panels are details.
    """
    panels = [("Noise precision", "tau (1 / points$^2$)", quantities["tau"])]
    for side, names in (("user", ("lambda_U", "lambda_a")), ("item", ("lambda_V", "lambda_b"))):
        x = _together([quantities[name] for name in names if name in quantities])
        of = f"Worst of {n} {side} precisions" if (n := x.shape[2]) > 1 else f"Precision of {side}s"
        panels.append((of, "lambda (model units)", x[:, :, _by_rhat(x)[-1]]))
    x = quantities["prediction"]
    order = _by_rhat(x)
    picks = {"Worst": order[-1], "Median": order[len(order) // 2], "Best": order[0]}
    for of, pair in picks.items():
        panels.append((f"{of} of {len(order)} predictions", "rating (points)", x[:, :, pair]))
    with canvas.drawing(12, 6.2) as figure:
        axes = figure.subplots(2, 3, sharex=True)
        figure.suptitle(headline or None, fontsize=12, weight="bold", x=0.01, ha="left")
        for ax, (title, unit, values) in zip(axes.flat, panels, strict=True):
            _trace(ax, title, unit, values)
        for ax in axes[1]:
            ax.set_xlabel("kept draw of the chain (number)")
        told = f"{DECIDED_BY}; single panels may be above its limit."
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = {"ncols": min(len(labels), 8), "title": told, "title_fontsize": 9}
            figure.legend(handles, labels, loc="outside lower center", **columns)
        else:
            figure.supxlabel(told, fontsize=9)
        return canvas.save(figure, path)


def _together(quantities: Sequence[Floats]) -> Floats:
    """Concatenate quantities of shape (chains, draws, n) or (chains, draws)."""
    parts = [x[:, :, None] if x.ndim == 2 else x for x in quantities]
    return np.concatenate(parts, axis=2)


def _by_rhat(x: Floats) -> NDArray[np.int64]:
    """Indices of quantities, best R-hat first; those without one stay in order, before others."""
    rhat = split_rhat(x)
    return np.argsort(np.where(np.isnan(rhat), -np.inf, rhat), kind="stable")


def _trace(ax: Any, title: str, unit: str, values: Floats) -> None:
    for chain, draws in enumerate(values):
        ax.plot(
            np.arange(1, len(draws) + 1), draws, **panels.line(chain), linewidth=0.9, alpha=0.85,
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
        panels.rmse_curves(ax, history, "seconds")
        ax.set_xlabel("time since the chains began (seconds, log scale)")
        ax.set_title(_rmse_title(history, validation))
        # Outside: where the curves leave room differs from fit to fit.
        figure.legend(loc="outside lower center", ncols=3)
        return canvas.save(figure, path)


def _rmse_title(history: Sequence[Event], validation: float | None) -> str:
    last = {event["chain"]: event for event in history}
    training = np.mean([event["train_rmse"] for event in last.values()])
    if validation is None:
        return f"RMSE over time: training ends at {training:.4f}"
    return f"RMSE: training ends at {training:.4f}, validation at {validation:.4f}"


# -- all of them ----------------------------------------------------------------------------------


def draw(
    folder: Path,
    quantities: Mapping[str, Floats],
    history: Sequence[Event],
    calibration: Calibration | None = None,
    headline: str = "",
    validation_rmse: float | None = None,
) -> tuple[list[Path], list[str]]:
    """Draw what can be drawn into a folder that exists; `headline` is the verdict on the chains.

    Returns
    -------
    paths : list of Path
        Pictures that were drawn.
    missing : list of str
        A sentence for each picture that could not be drawn.
    """
    todo: list[Callable[[], Path]] = []
    missing = []
    if calibration is not None:
        todo.append(lambda: reliability(calibration, folder / "reliability.png"))
        todo.append(lambda: pit(calibration, folder / "pit.png"))
    if quantities["tau"].shape[1] > 1:
        todo.append(lambda: traces(quantities, folder / "traces.png", headline))
    else:
        missing.append("traces.png is not drawn: one draw of a chain is no trace")
    if history:
        todo.append(lambda: rmse(history, folder / "rmse.png", validation_rmse))
    else:
        missing.append(
            "rmse.png is not drawn: the model has no history of epochs, as those saved by earlier "
            "versions"
        )
    return [make() for make in todo], missing
