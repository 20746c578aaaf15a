"""Figure of the demonstration: accuracy over time, reliability, uncertainty of rare items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesmf.plots import style as canvas
from bayesmf.plots.panels import Floats, RowSpread, running_median
from bayesmf.plots.style import GREY

# One for each fit; lines differ in their markers too.
COLOURS = canvas.COLOURS[:3]
MARKERS = ("s", "o", "^")
# The two Bayesian fits agree almost everywhere: an open marker frames a small full one.
SIZES, FACES = (6, 9, 3.5), (COLOURS[0], "white", COLOURS[2])


@dataclass(frozen=True)
class Drawn:
    """One algorithm: its name, its RMSE over seconds, its coverage by nominal level in percent.

    `averaged_from` is the index in `seconds` where averaging over draws begins, if it does.
    """

    name: str
    seconds: Floats
    rmse: Floats
    averaged_from: int | None
    coverage: Mapping[str, float]


def draw(fits: list[Drawn], floor: float, items: RowSpread, out: Path) -> list[Path]:
    """Draw demo.png and demo.svg in the folder `out`; ImportError where matplotlib is missing."""
    with canvas.drawing(12, 3.8) as figure:
        left, middle, right = figure.subplots(1, 3)
        _accuracy(left, fits, floor)
        _reliability(middle, fits)
        _rare_items(right, items)
        for ax in (left, middle, right):  # now that labels have taken their room
            canvas.add_legend(ax, 2)
        return [canvas.save(figure, out / f"demo.{suffix}") for suffix in ("png", "svg")]


def _accuracy(ax: Any, fits: list[Drawn], floor: float) -> None:
    ax.axhline(floor, color=GREY, linestyle="--", linewidth=1.2)
    turn = {"marker": "o", "markersize": 6, "markerfacecolor": "white", "linestyle": "none"}
    for fit, colour in zip(fits, COLOURS, strict=True):
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


def _reliability(ax: Any, fits: list[Drawn]) -> None:
    ax.plot([45, 100], [45, 100], color=GREY, linestyle="--", linewidth=1.2)
    for fit, colour, marker, size, face in zip(fits, COLOURS, MARKERS, SIZES, FACES, strict=True):
        nominal = [float(level) for level in fit.coverage]
        observed = [100 * share for share in fit.coverage.values()]
        ax.plot(
            nominal, observed, marker=marker, markersize=size, color=colour, linewidth=1.8,
            markerfacecolor=face, markeredgewidth=1.8, label=fit.name,
        )  # fmt: skip
    ax.plot([], [], color=GREY, linestyle="--", linewidth=1.2, label="as promised")
    ticks = [int(level) for level in fits[0].coverage]
    ax.set(xticks=ticks, yticks=ticks, xlim=(45, 100), ylim=(min(38, *ax.get_ylim()), 100))
    ax.set(xlabel="promised coverage of intervals (%)", ylabel="held-out ratings inside (%)")
    ax.set_title("Bayesian intervals keep their word")


def _rare_items(ax: Any, items: RowSpread) -> None:
    # Gibbs is the last of the fits, and this panel is about it.
    style = {"s": 9, "color": COLOURS[-1], "alpha": 0.35, "linewidths": 0}
    ax.scatter(*items, **style, label="an item (Gibbs)")
    ax.plot(*running_median(items).T, color="black", linewidth=1.8, label="running median")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.set_ylim(bottom=0)
    ax.set(
        xlabel="ratings of the item (log scale)", ylabel="sd of prediction without noise (points)"
    )
    ax.set_title("The rarer the item, the less is known")
