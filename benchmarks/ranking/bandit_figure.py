"""The figure of `benchmarks bandit`: what each policy earned beside always the highest mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmf.plots.style import COLOURS, GREY, drawing, save
from benchmarks.ranking.bandit_report import FEW, Row, grouped
from benchmarks.ranking.bandit_worlds import LATE, WORLDS

# Rows from the top, with colours that every kind of colour vision tells apart.
SHOWN = {
    "thompson": COLOURS[1],
    "thompson-half": COLOURS[4],
    "thompson-items": COLOURS[3],
    "ucb": COLOURS[2],
    "mean+random": COLOURS[5],
}
USUAL = -34, 26  # percent: where all dots of a panel are within, it has this scale
WIDTH, FONT = 8.0, 11  # inches, points: still nine points where the figure is 800 pixels wide


def draw(rows: list[Row], path: Path) -> None:
    """A panel for each world, a row for each policy, a dot for each seed."""
    found = grouped(rows)
    worlds = [world for world in WORLDS if (world, "mean") in found]
    deep = -(-len(worlds) // 2)
    with drawing(WIDTH, 2.3 * deep + 0.9) as figure:
        axes = figure.subplots(deep, 2, squeeze=False, sharey=True).ravel()
        for axis, world in zip(axes, worlds, strict=False):
            _panel(axis, world, {name: own for (w, name), own in found.items() if w == world})
        for axis in axes[len(worlds) :]:
            axis.axis("off")
        axes[0].invert_yaxis()
        figure.supxlabel(
            "percent more than always the highest mean\n"
            "a dot for each seed, hollow if it came after the first three",
            size=FONT,
        )
        save(figure, path)


def _panel(axis: Any, world: str, policies: dict[str, list[Row]]) -> None:
    names = list(SHOWN)
    for place, name in enumerate(names):
        for row in policies.get(name, []):
            if "gain" not in row:
                continue
            later = row["seed"] >= FEW and world not in LATE
            inside, edge = ("none", SHOWN[name]) if later else (SHOWN[name], "white")
            axis.plot(
                row["gain"][0], place + 0.17 * (row["seed"] % FEW - 1), "o", markersize=6.5,
                markerfacecolor=inside, markeredgecolor=edge,
            )  # fmt: skip
    low, high = axis.get_xlim()
    usual = USUAL[0] < low and high < USUAL[1]
    if usual:
        axis.set_xlim(*USUAL)
    axis.axvline(0, color="black", linewidth=1)
    axis.axvline(10, color=GREY, linewidth=1.2, linestyle=":")
    axis.text(10, -0.62, " 10%", color=GREY, fontsize=FONT, va="center")
    axis.set_yticks(range(len(names)), names, fontsize=FONT)
    axis.set_ylim(-0.9, len(names) - 0.5)
    axis.tick_params(axis="x", labelsize=FONT, labelbottom=True)
    axis.grid(axis="x", color="#E5E5E5", linewidth=0.7)
    what, _, who = WORLDS[world].told.rpartition(", ")
    axis.set_title(f"{what.capitalize()},\n{who}{'' if usual else ' (other scale)'}", fontsize=FONT)
