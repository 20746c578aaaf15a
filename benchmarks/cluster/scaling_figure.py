"""The figure of `benchmarks scaling --curves`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmf.plots.style import COLOURS, GREY, drawing, save
from benchmarks.cluster.scaling_curves import BEFORE

# Colours that every kind of colour vision tells apart, and shapes besides.
STYLES = {
    ("yahoo", "default"): {"color": COLOURS[5], "marker": "o", "linestyle": "-"},
    ("netflix", "default"): {"color": COLOURS[0], "marker": "D", "linestyle": "-"},
    ("netflix", "dsgld-s"): {"color": COLOURS[1], "marker": "s", "linestyle": "--"},
    ("netflix", "dsgld-c"): {"color": COLOURS[2], "marker": "^", "linestyle": "-."},
}
LABELS = {
    ("yahoo", "default"): "default, Yahoo! Music's shape",
    ("netflix", "default"): "default, Netflix's shape",
    ("netflix", "dsgld-s"): r"DSGLD-S, Netflix's: $\sqrt{W}$ chains",
    ("netflix", "dsgld-c"): "DSGLD-C, Netflix's: W chains",
}
TICKS = (1, 4, 16, 64, 256, 1000)


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Efficiency and seconds by workers; ImportError where matplotlib is missing."""
    with drawing(10.4, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        figure.suptitle(title, fontsize=9.5, color=GREY, x=0.01, ha="left")
        for case, style in STYLES.items():
            own = [row for row in rows if (row["shape"], row["split"]) == case]
            x = [row["workers"] for row in own]
            line = {"linewidth": 1.6, "markersize": 4.5, "label": LABELS[case], **style}
            left.plot(x, [100 * row["efficiency"] for row in own], **line)
            right.plot(x, [row["seconds_per_epoch"] / row["chains"] for row in own], **line)
            for row in own:
                if row["target"] is not None:
                    left.plot(
                        row["workers"], 100 * row["target"], marker="_", markersize=16,
                        markeredgewidth=2, color=style["color"],
                    )  # fmt: skip
        _before(left)
        left.set_ylim(0, 105)
        left.set_ylabel("per cent of the workers' time")
        left.set_title("efficiency, all chains together (bars: what was wanted)")
        right.set_yscale("log")
        right.set_ylabel("virtual seconds (log scale)")
        right.set_title("a pass over all ratings, of one chain in turn")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for ax in (left, right):
            ax.set_xscale("log")
            ax.set_xticks(TICKS, [f"{n:,}" for n in TICKS], minor=False)
            ax.minorticks_off()
            ax.set_xlabel("workers W (log scale)")
            ax.grid(color="#E5E5E5", linewidth=0.7)
            ax.set_axisbelow(True)
        left.legend(loc="lower left", fontsize=8)
        save(figure, path)


def _before(ax: Any) -> None:
    """The engine whose driver held all rows."""
    x, y = [n for n, _ in BEFORE], [100 * (1 - idle) for _, idle in BEFORE]
    ax.plot(
        x, y, color=GREY, marker="x", linestyle=":", linewidth=1.4,
        label="rows with the driver: DSGLD-S before",
    )  # fmt: skip
