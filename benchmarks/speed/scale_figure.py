"""The figure of `benchmarks scale`: an epoch's time by ratings and by D."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmf.plots.style import COLOURS, GREY, drawing, save
from benchmarks.speed.timers import LABELS

# Colours that every kind of colour vision tells apart, and shapes besides.
STYLES = {
    "sgd": {"color": COLOURS[5], "marker": "o", "linestyle": "-"},
    "sgld": {"color": COLOURS[1], "marker": "s", "linestyle": "--"},
    "gibbs-4": {"color": COLOURS[2], "marker": "^", "linestyle": "-."},
}


def draw(found: dict[str, Any], path: Path) -> None:
    """Two panels, logarithmic on both axes; ImportError where matplotlib is missing."""
    rows, fits = found["rows"], found["exponents"]
    by_ratings = [row for row in rows if row["factors"] == 30]
    by_factors = [row for row in rows if row["factors"] != 30]
    with drawing(9.6, 4.2) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        _panel(left, by_ratings, fits, "ratings")
        _panel(right, by_factors, fits, "factors")
        left.set_title("by the number of ratings, D = 30")
        right.set_title(f"by D, {by_factors[0]['ratings'] / 1e6:.3g}M ratings")
        left.set_xlabel("ratings (log scale)")
        right.set_xlabel("latent features D (log scale)")
        left.set_ylabel("seconds per epoch, one thread (log scale)")
        save(figure, path)


def _panel(ax: Any, rows: list[dict[str, Any]], fits: dict[str, Any], by: str) -> None:
    x = [row[by] for row in rows]
    for rule, style in STYLES.items():
        label = f"{LABELS[rule]}: exponent {fits[rule][by]:.2f}"
        ax.plot(x, [row[rule] for row in rows], label=label, linewidth=1.6, markersize=5, **style)
    # Twice as much to do in twice the time is a line of this slope.
    low = min(row[rule] for row in rows[:1] for rule in STYLES) * 0.6
    ax.plot([x[0], x[-1]], [low, low * x[-1] / x[0]], color=GREY, linewidth=1.0, label="linear")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(x, [_short(value) for value in x], minor=False)
    ax.minorticks_off()
    ax.grid(color="#E5E5E5", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.legend(loc="upper left", fontsize=8.5)


def _short(value: float) -> str:
    return f"{value / 1e6:.0f}M" if value >= 1e6 else f"{value:,.0f}"
