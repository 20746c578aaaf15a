"""Pictures of a fit: reliability, PIT, traces, RMSE over time."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import canvas
from bayesmf.calibration import (
    GROUP_TOLERANCE,
    STANDARD_ERRORS,
    TOLERANCE,
    Calibration,
    Gap,
    allowed_gap,
)
from bayesmf.canvas import COLOURS, GREY
from bayesmf.diagnostics import effective_sample_size, split_rhat
from bayesmf.errors import InputError

Floats = NDArray[np.float64]
Event = Mapping[str, Any]
Curve = tuple[str, int, Sequence[float]]  # a name, ratings, coverage by level

DASHES = ("-", "--", ":", "-.")
BAND = {"color": GREY, "alpha": 0.18, "linewidth": 0}
NAMES = ("reliability.png", "pit.png", "traces.png", "rmse.png")


def check_matplotlib() -> None:
    """Say how to get it where it is missing."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise InputError(
            'matplotlib is not installed, and plots need it: pip install "bayesmf[plots]"'
        ) from None


def _line(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line: colours first, then other dashes."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
    }


# -- calibration ----------------------------------------------------------------------------------


def reliability(calibration: Calibration, path: Path) -> Path:
    """Observed against nominal coverage, and the gap between them: overall, by user, by item."""
    overall = calibration.overall
    titles = {"": "Overall", "user": "By users", "item": "By items"}
    with canvas.drawing(12, 6.6) as figure:
        axes = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(1.6, 1))
        for k, (side, title) in enumerate(titles.items()):
            gaps = [g for g in calibration.gaps() if (g.group.side if g.group else "") == side]
            mine = [group for group in calibration.groups if group.side == side]
            curves: list[Curve] = [(group.span, group.n, group.observed) for group in mine]
            if not side:
                curves = [(f"{overall.n:,} test ratings", overall.n, calibration.observed)]
            _coverage(axes[0, k], calibration.levels, curves)
            axes[0, k].set_title(f"{title}: {_gap_told(gaps)}")
            heading = f"training ratings of the {side}" if side else None
            axes[0, k].legend(loc="lower right", fontsize=8.5, title=heading, title_fontsize=8.5)
            tolerance = GROUP_TOLERANCE if side else TOLERANCE
            _gap_curves(axes[1, k], calibration.levels, curves, tolerance)
        axes[0, 0].set_ylabel("test ratings inside (%)")
        axes[1, 0].set_ylabel("observed less nominal (points)")
        return canvas.save(figure, path)


def _gap_told(gaps: list[Gap]) -> str:
    worst = max(gaps, key=lambda gap: abs(gap.points))
    return f"largest gap {worst.points:+.1f} points"


def _coverage(ax: Any, levels: Sequence[int], curves: list[Curve]) -> None:
    promised = "as promised" if len(curves) == 1 else None
    ax.plot([0, 100], [0, 100], color=GREY, linestyle="--", linewidth=1.2, label=promised)
    for k, (label, _, observed) in enumerate(curves):
        shares = 100 * np.array(observed)
        ax.plot(levels, shares, color=COLOURS[k], linestyle=DASHES[k], linewidth=1.8, label=label)
    ax.set(xlim=(0, 100), ylim=(0, 100))


def _gap_curves(
    ax: Any,
    levels: Sequence[int],
    curves: list[Curve],
    tolerance: float,
) -> None:
    smallest = min(n for _, n, _ in curves)
    allowed = np.array([allowed_gap(level, smallest, tolerance) for level in levels])
    ax.fill_between(levels, -allowed, allowed, **BAND)
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
    for k, (_, _, observed) in enumerate(curves):
        gap = 100 * np.array(observed) - np.array(levels)
        ax.plot(levels, gap, color=COLOURS[k], linestyle=DASHES[k], linewidth=1.6)
    ax.set_xlabel("nominal coverage of central intervals (%)")
    chance = f" or {STANDARD_ERRORS:g} standard errors" if allowed.max() > tolerance else ""
    ax.set_title(f"grey: {tolerance:g} points{chance} allowed", fontsize=9, weight="normal")


def pit(calibration: Calibration, path: Path) -> Path:
    """Histogram of PIT values, with what chance leaves of a flat one."""
    counts = np.array(calibration.pit)
    bins, n = len(counts), int(counts.sum())
    flat = n / bins
    band = STANDARD_ERRORS * math.sqrt(n * (1 / bins) * (1 - 1 / bins))
    outside = int(np.sum(np.abs(counts - flat) > band))
    chance = f"{STANDARD_ERRORS:g} standard errors around it"
    with canvas.drawing(7, 4.2) as figure:
        ax = figure.subplots()
        left = np.arange(bins) / bins
        ax.bar(left, counts, 1 / bins, align="edge", color=COLOURS[4], edgecolor="white")
        ax.axhline(flat, color="black", linestyle="--", linewidth=1.3, label="flat: calibrated")
        ax.axhline(flat + band, color="black", linewidth=1.0, label=chance)
        ax.axhline(flat - band, color="black", linewidth=1.0)
        ax.set(xlim=(0, 1), ylim=(0, 1.22 * max(counts.max(), flat + band)))
        ax.set(
            xlabel="probability given to a smaller rating (PIT)",
            ylabel=f"test ratings, of {n:,} in all",
        )
        ax.set_title(f"PIT histogram: {outside} of {bins} bins are off by more than chance")
        ax.legend(loc="upper left", ncols=2)
        return canvas.save(figure, path)


# -- chains ---------------------------------------------------------------------------------------


def traces(quantities: Mapping[str, Floats], path: Path) -> Path:
    """Tau, the worst of the precisions, and three predictions over draws, chain by chain."""
    panels = [("Noise precision", "tau (1 / points$^2$)", quantities["tau"])]
    for side, name in (("user", "lambda_U"), ("item", "lambda_V")):
        x = quantities[name]
        of = f"Worst of {n} {side} precisions" if (n := x.shape[2]) > 1 else f"Precision of {side}s"
        panels.append((of, f"{name} (model units)", x[:, :, _by_rhat(x)[-1]]))
    x = quantities["prediction"]
    order = _by_rhat(x)
    picks = {"Worst": order[-1], "Median": order[len(order) // 2], "Best": order[0]}
    for of, pair in picks.items():
        panels.append((f"{of} of {len(order)} predictions", "rating (points)", x[:, :, pair]))
    with canvas.drawing(12, 6.2) as figure:
        axes = figure.subplots(2, 3, sharex=True)
        for ax, (title, unit, values) in zip(axes.flat, panels, strict=True):
            _trace(ax, title, unit, values)
        for ax in axes[1]:
            ax.set_xlabel("kept draw of the chain (number)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if len(handles) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 8))
        return canvas.save(figure, path)


def _by_rhat(x: Floats) -> NDArray[np.int64]:
    """Numbers of quantities, the best first; what cannot be known is in the order given."""
    rhat = split_rhat(x)
    return np.argsort(np.where(np.isnan(rhat), -np.inf, rhat), kind="stable")


def _trace(ax: Any, title: str, unit: str, values: Floats) -> None:
    for chain, draws in enumerate(values):
        ax.plot(
            np.arange(1, len(draws) + 1), draws, **_line(chain), linewidth=0.9, alpha=0.85,
            label=f"chain {chain + 1}",
        )  # fmt: skip
    rhat = split_rhat(values[:, :, None])[0]
    ess = effective_sample_size(values[:, :, None])[0]
    known = f"\nR-hat {rhat:.3f}, ESS {ess:.0f}" if rhat == rhat and ess == ess else ""
    ax.set_title(title + known)
    ax.set_ylabel(unit)


def rmse(history: Sequence[Event], path: Path) -> Path:
    """RMSE over seconds: of training by chain and, if it was followed, of the validation set."""
    chains = sorted({event["chain"] for event in history})
    followed = any(event["rmse"] is not None for event in history)
    with canvas.drawing(7.5, 4.4) as figure:
        ax = figure.subplots()
        for k, chain in enumerate(chains):
            mine = [event for event in history if event["chain"] == chain]
            which = f", chain {chain + 1}" if len(chains) > 1 else ""
            _over_time(ax, mine, "train_rmse", **_line(k), linewidth=1.2, label=f"training{which}")
        if followed:
            _followed(ax, history, chains)
        ax.set_xscale("log", subs=[2, 5])
        # A short fit spans less than a decade: minor ticks are labelled, too.
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        ax.xaxis.set_minor_formatter(lambda x, _: f"{x:g}")
        ax.set(xlabel="time since the chains began (seconds, log scale)", ylabel="RMSE (points)")
        ax.set_title(_rmse_title(history, followed))
        # Outside: where the curves leave room differs from fit to fit.
        figure.legend(loc="outside lower center", ncols=3)
        return canvas.save(figure, path)


def _over_time(ax: Any, events: Sequence[Event], name: str, **style: Any) -> None:
    ax.plot([e["seconds"] for e in events], [e[name] for e in events], **style)


def _followed(ax: Any, history: Sequence[Event], chains: list[int]) -> None:
    """RMSE of the validation set: of each chain by itself, then of the average of all draws."""
    thick: dict[str, Any] = {"color": "black", "linewidth": 2.0}
    # While they burn in, the chains differ; of their average there is but one.
    for chain in chains:
        before = [e for e in history if e["chain"] == chain and not e["draws"]]
        label = "validation, current state" if chain == chains[0] and before else None
        _over_time(ax, before, "rmse", color="black", linewidth=1.0, linestyle=":", label=label)
    after = sorted((e for e in history if e["draws"]), key=lambda e: float(e["seconds"]))
    if after:
        _over_time(ax, after, "rmse_all_chains", **thick, label="validation, average of draws")


def _rmse_title(history: Sequence[Event], followed: bool) -> str:
    last = {event["chain"]: event for event in history}
    training = np.mean([event["train_rmse"] for event in last.values()])
    if not followed:
        return f"RMSE over time: training ends at {training:.4f}"
    return (
        f"RMSE: training ends at {training:.4f}, validation at {history[-1]['rmse_all_chains']:.4f}"
    )


# -- all of them ----------------------------------------------------------------------------------


def draw(
    folder: Path,
    quantities: Mapping[str, Floats],
    history: Sequence[Event],
    calibration: Calibration | None = None,
) -> tuple[list[Path], list[str]]:
    """Draw what can be drawn into a folder that exists.

    Returns
    -------
    paths : list of Path
    missing : list of str
        A sentence for each picture that could not be drawn.
    """
    todo: list[Callable[[], Path]] = []
    missing = []
    if calibration is not None:
        todo.append(lambda: reliability(calibration, folder / "reliability.png"))
        todo.append(lambda: pit(calibration, folder / "pit.png"))
    if quantities["tau"].shape[1] > 1:
        todo.append(lambda: traces(quantities, folder / "traces.png"))
    else:
        missing.append("traces.png is not drawn: one draw of a chain is no trace")
    if history:
        todo.append(lambda: rmse(history, folder / "rmse.png"))
    else:
        missing.append(
            "rmse.png is not drawn: the model has no history of epochs, as those saved by earlier "
            "versions"
        )
    return [make() for make in todo], missing
