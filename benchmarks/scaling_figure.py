"""The figure of `benchmarks.scaling --curves`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmf.plots.style import COLOURS, GREY, drawing, save
from benchmarks.scaling_curves import PASSES

# Colours that every kind of colour vision tells apart, and shapes besides.
STYLES = {
    "DSGD": {"color": COLOURS[5], "marker": "o", "linestyle": "-"},
    "DSGLD-S": {"color": COLOURS[1], "marker": "s", "linestyle": "--"},
    "DSGLD-C": {"color": COLOURS[2], "marker": "^", "linestyle": "-."},
}
LABELS = {
    "DSGD": "S x S grid, one chain",
    "DSGLD-S": r"DSGLD-S: $\sqrt{S}$ x $\sqrt{S}$, $\sqrt{S}$ chains",
    "DSGLD-C": "DSGLD-C: S x 1, S chains",
}
FORMULAS = {
    "DSGD": "(L + M)(D + 1) numbers",
    "DSGLD-S": r"$\sqrt{S}$ (L + M)(D + 1)",
    "DSGLD-C": "(L + S M)(D + 1)",
}


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Four panels by the number of workers; ImportError where matplotlib is missing."""
    short, long = ([row for row in rows if row["passes"] == n] for n in PASSES)
    with drawing(9.6, 7.6) as figure:
        (first, second), (third, fourth) = figure.subplots(2, 2)
        second.sharey(first)
        figure.suptitle(title, fontsize=9.5, color=GREY, x=0.01, ha="left")
        for ax, part, n in ((first, short, PASSES[0]), (second, long, PASSES[1])):
            _panel(ax, part, "seconds_per_epoch", LABELS)
            _ideal(ax, part, "seconds_per_epoch", -1)
            ax.set_title(f"an epoch of one chain: rounds of {n} pass{'es' if n > 1 else ''}")
            ax.set_ylabel("virtual seconds (log scale)")
        _panel(third, long, "epochs_per_second", LABELS)
        _ideal(third, long, "epochs_per_second", 1)
        third.set_title(f"all chains together: rounds of {PASSES[1]} passes")
        third.set_ylabel("epochs a second (log scale)")
        _panel(fourth, long, "bytes_per_round", FORMULAS, 1e-6)
        fourth.set_title("what a round of all chains sends")
        fourth.set_ylabel("MB each way (log scale)")
        first.legend(loc="lower left", fontsize=8.5)
        fourth.legend(loc="upper left", fontsize=8.5)
        save(figure, path)


def _panel(
    ax: Any, rows: list[dict[str, Any]], key: str, labels: dict[str, str], scale: float = 1.0
) -> None:
    from matplotlib.ticker import LogLocator

    for split, style in STYLES.items():
        own = [row for row in rows if row["split"] == split]
        x, y = [row["workers"] for row in own], [scale * row[key] for row in own]
        ax.plot(x, y, label=labels[split], linewidth=1.6, markersize=5, **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{n:,}" for n in x], minor=False)
    ax.minorticks_off()
    # Labels at 1, 2 and 5 where the axis spans less than two decades.
    few = ax.get_ylim()[1] < 100 * ax.get_ylim()[0]
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("workers S (log scale)")
    ax.grid(color="#E5E5E5", linewidth=0.7)
    ax.set_axisbelow(True)


def _ideal(ax: Any, rows: list[dict[str, Any]], key: str, power: int) -> None:
    """What S workers could reach at best."""
    x = sorted({row["workers"] for row in rows})
    one = next(row[key] for row in rows if row["workers"] == x[0])
    ends = [one, one * (x[-1] / x[0]) ** power]
    ax.plot([x[0], x[-1]], ends, color=GREY, linewidth=1.0, linestyle=":", label="S times as fast")
