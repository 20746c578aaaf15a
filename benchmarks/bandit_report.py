"""The table, the verdicts, the file and the figure of `benchmarks.bandit`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.plots.style import COLOURS, GREY, drawing, save
from bayesmf.storage.atomic import replacing
from benchmarks.bandit_worlds import WORLDS

Row = dict[str, Any]


def table(rows: list[Row]) -> list[str]:
    """A line for every policy in every world."""
    lines = [
        "| world | policy | earned a visit, by seed | regret a visit | % more than mean, by seed |",
        "|---|---|---|--:|---|",
    ]
    for (world, policy), own in grouped(rows).items():
        earned = ", ".join(f"{row['curve'][-1] / row['visits']:.3f}" for row in own)
        regret = np.mean([row["regret"][-1] / row["visits"] for row in own])
        told = [row["gain"] for row in own if "gain" in row]
        more = ", ".join(f"{gain:+.1f} ±{(high - low) / 2:.1f}" for gain, low, high in told)
        more = "" if policy == "mean" else more
        lines.append(f"| {world} | {policy} | {earned} | {regret:.3f} | {more} |")
    return lines


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows of each world and policy, seed by seed."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["world"], row["policy"]), []).append(row)
    return found


def verdicts(rows: list[Row], wanted: float = 10.0) -> list[str]:
    """Does Thompson sampling earn so many percent more than the mean, on every seed? Who does?"""
    found, lines = grouped(rows), []
    for (world, policy), own in found.items():
        if policy != "thompson" or not all("gain" in row for row in own):
            continue
        more = [row["gain"][0] for row in own]
        enough = sum(one >= wanted for one in more)
        others = [
            name
            for (w, name), one in found.items()
            if w == world
            and name != "oracle"
            and all("gain" in row and row["gain"][0] >= wanted for row in one)
        ]
        lines.append(
            f"{world} ({WORLDS[world].told}): thompson earns {abs(np.mean(more)):.1f}% "
            f"{'more' if np.mean(more) > 0 else 'less'} than mean, at least {wanted:g}% more on "
            f"{enough} of {len(more)} seeds; on every seed so much more: "
            f"{', '.join(others) or 'nobody'}"
        )
    return lines


def write(rows: list[Row], path: Path) -> None:
    """What was earned and missed, all told, after each tenth of the visits, as text with commas."""
    lines = ["world,seed,policy,visits,earned,regret"]
    for row in rows:
        n = len(row["curve"])
        for k in np.unique(np.linspace(1, n, min(10, n)).round().astype(int)):
            numbers = f"{row['curve'][k - 1]:.1f},{row['regret'][k - 1]:.1f}"
            visits = round(k / n * row["visits"])
            lines.append(f"{row['world']},{row['seed']},{row['policy']},{visits},{numbers}")
    with replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


# Colours that every kind of colour vision tells apart; halves of a policy are dashed.
STYLES: dict[str, dict[str, Any]] = {
    "random": {"color": GREY, "linestyle": ":"},
    "mean": {"color": COLOURS[0]},
    "mean+random": {"color": COLOURS[5], "linestyle": "--"},
    "ucb": {"color": COLOURS[2]},
    "thompson": {"color": COLOURS[1], "linewidth": 2.2},
    "thompson-items": {"color": COLOURS[4], "linestyle": "--"},
    "thompson-person": {"color": COLOURS[3], "linestyle": "--"},
}


def draw(rows: list[Row], path: Path) -> None:
    """Regret by visits, and what each policy earned beside the mean, seed by seed."""
    found = grouped(rows)
    worlds = list(dict.fromkeys(world for world, _ in found))
    with drawing(2.7 * len(worlds) + 0.6, 6.2) as figure:
        axes = figure.subplots(2, len(worlds), squeeze=False, sharey="row", height_ratios=(3, 2))
        for (above, below), world in zip(axes.T, worlds, strict=True):
            _regret(above, {name: own for (w, name), own in found.items() if w == world})
            _bars(below, {name: own for (w, name), own in found.items() if w == world})
            above.set_title(f"{world}\n{textwrap.fill(WORLDS[world].told, 26)}", fontsize=9)
        axes[0, 0].set_ylim(0, None)
        axes[0, 0].set_ylabel("regret: purchases missed, all told")
        axes[1, 0].set_ylabel("% more than mean")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=7, loc="outside lower center")
        save(figure, path)


def _regret(axis: Any, policies: dict[str, list[Row]]) -> None:
    for name, style in STYLES.items():
        if name not in policies:
            continue
        curves = np.array([row["regret"] for row in policies[name]])
        n = curves.shape[1]
        x = np.arange(1, n + 1) * policies[name][0]["visits"] / n / 1000
        axis.plot(x, curves.mean(0), label=name, **{"linewidth": 1.5, **style})
        axis.fill_between(
            x, curves.min(0), curves.max(0), color=style["color"], alpha=0.15, linewidth=0
        )
    axis.set_xlabel("thousand visits")
    axis.grid(color="#E5E5E5", linewidth=0.7)


def _bars(axis: Any, policies: dict[str, list[Row]]) -> None:
    shown = [name for name in STYLES if name in policies and name not in ("mean", "random")]
    for place, name in enumerate(shown):
        for row in policies[name]:
            if "gain" not in row:
                continue
            more, low, high = row["gain"]
            at = place + 0.2 * (row["seed"] - (len(policies[name]) - 1) / 2)
            error = [[more - low], [high - more]]
            colour = STYLES[name]["color"]
            axis.errorbar(at, more, error, fmt="o", markersize=4, capsize=2, color=colour)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.axhline(10, color=GREY, linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(shown)), shown, fontsize=8, rotation=45, ha="right")
    axis.grid(axis="y", color="#E5E5E5", linewidth=0.7)
