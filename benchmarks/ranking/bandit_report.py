"""The tables, the verdicts and the file of `benchmarks bandit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.errors import InputError
from bayesmf.plots.style import COLOURS, GREY, drawing, save
from bayesmf.storage.atomic import replacing
from benchmarks.ranking.bandit_shop import CONTROLS, LATE, WORLDS

# Rows from the top, with colours that are distinct for all kinds of colour vision.
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
    what, _, who = WORLDS[world].title.rpartition(", ")
    axis.set_title(f"{what.capitalize()},\n{who}{'' if usual else ' (other scale)'}", fontsize=FONT)


# "gain", where there is one: percent more than the mean, and half of its interval.
Row = dict[str, Any]
HEAD = "world,seed,policy,visits,earned,regret,more,plus_minus"
FEW = 3  # seeds of the first run
# Columns of the short table on the page, and what they are called there.
SHORT = {
    "thompson": "thompson",
    "thompson-half": "drawn half as wide",
    "thompson-items": "thompson-items",
    "thompson-person": "person drawn only",
    "ucb": "ucb",
}


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows of each world and policy, seed by seed."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        found.setdefault((row["world"], row["policy"]), []).append(row)
    order = list(dict.fromkeys((row["world"], row["policy"]) for row in rows))
    return {key: found[key] for key in order}


def table(rows: list[Row]) -> list[str]:
    """A line for every policy in every world."""
    lines = [
        "| shop | policy | earned a visit, by seed | regret a visit | % more than mean, by seed |",
        "|---|---|---|--:|---|",
    ]
    for (world, policy), own in grouped(rows).items():
        earned = ", ".join(f"{a_visit(row):.3f}" for row in own)
        regret = np.mean([row["regret"][-1] / row["visits"] for row in own])
        gained = [row["gain"] for row in own if "gain" in row]
        more = ", ".join(f"{gain:+.1f} ±{half:.1f}" for gain, half in gained)
        more = "" if is_base(policy) else more
        lines.append(f"| {world} | {policy} | {earned} | {regret:.3f} | {more} |")
    return lines


def short_table(rows: list[Row]) -> list[str]:
    """Percent more than the mean in every world, on the first seeds."""
    found = grouped(rows)
    lines = [f"| shop | {' | '.join(SHORT.values())} |", "|---" * (len(SHORT) + 1) + "|"]
    for world in dict.fromkeys(world for world, _ in found):
        if all((world, policy) in found for policy in SHORT):
            cells = [percents(found[world, policy][:FEW]) for policy in SHORT]
            lines.append(f"| {world} | {' | '.join(cells)} |")
    return lines


def percents(rows: list[Row], between: str = ", ") -> str:
    """Gains, seed by seed."""
    return between.join(f"{row['gain'][0]:+.1f}" for row in rows)


def over_seeds(rows: list[Row], world: str, controls: bool = False) -> list[str]:
    """Gains on many seeds of a world, their mean and its standard error; none for few seeds."""
    found = {
        policy: own
        for (w, policy), own in grouped(rows).items()
        if w == world and (policy in CONTROLS) == controls
    }
    seeds = [row["seed"] for row in max(found.values(), key=len)] if found else []
    if len(seeds) <= FEW:
        return []
    lines = [
        f"| policy | earned a visit | {' | '.join(map(str, seeds))} | mean ± s.e. |",
        "|---|--:|" + "--:|" * (len(seeds) + 1),
    ]
    for policy, own in found.items():
        if [row["seed"] for row in own] != seeds:
            continue
        earned = np.mean([a_visit(row) for row in own])
        cells = " | ".join([""] * (len(seeds) + 1))
        if not is_base(policy):
            mean, error = mean_and_error(own)
            cells = f"{percents(own, ' | ')} | {mean:+.1f} ± {error:.1f}"
        lines.append(f"| {policy} | {earned:.3f} | {cells} |")
    return lines


def mean_and_error(rows: list[Row]) -> tuple[float, float]:
    """Mean gain over seeds, and its standard error."""
    more = [row["gain"][0] for row in rows]
    return float(np.mean(more)), float(np.std(more, ddof=1) / len(more) ** 0.5)


def a_visit(row: Row) -> float:
    """What was earned at a visit."""
    return float(row["curve"][-1] / row["visits"])


def is_base(policy: str) -> bool:
    """Whether others are compared with it: the mean, of the model or of a control."""
    return policy.split()[-1] == "mean"


def verdicts(rows: list[Row], wanted: float = 10.0) -> list[str]:
    """Which policies earn this much more than the mean on every seed."""
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
            and name not in ("best item", "oracle")
            and all("gain" in row and row["gain"][0] >= wanted for row in one)
        ]
        lines.append(
            f"{world} ({WORLDS[world].title}): thompson earns {abs(np.mean(more)):.1f}% "
            f"{'more' if np.mean(more) > 0 else 'less'} than mean, at least {wanted:g}% more on "
            f"{enough} of {len(more)} seeds; on every seed so much more: "
            f"{', '.join(others) or 'none'}"
        )
    return lines


def write(rows: list[Row], path: Path) -> None:
    """Write total earnings and regret after each tenth of the visits, as CSV.

    The last line of a run has its gain, and half of the interval of that.
    """
    lines = [HEAD]
    for row in rows:
        n = len(row["curve"])
        for k in np.unique(np.linspace(1, n, min(10, n)).round().astype(int)):
            numbers = f"{row['curve'][k - 1]:.1f},{row['regret'][k - 1]:.1f}"
            visits = round(k / n * row["visits"])
            gain = "{:.3f},{:.1f}".format(*row["gain"]) if k == n and "gain" in row else ","
            lines.append(f"{row['world']},{row['seed']},{row['policy']},{visits},{numbers},{gain}")
    with replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def read(path: Path) -> list[Row]:
    """What `write` has stored, in as many steps as it has stored."""
    try:
        head, *lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if head != HEAD:
        raise InputError(f"{path} is not a file of this benchmark: it has no line {HEAD!r}")
    found: dict[tuple[str, str, str], Row] = {}
    for line in lines:
        world, seed, policy, visits, earned, regret, more, half = line.split(",")
        new: Row = {"world": world, "seed": int(seed), "policy": policy, "curve": [], "regret": []}
        row = found.setdefault((world, seed, policy), new)
        row["visits"] = int(visits)
        row["curve"].append(float(earned))
        row["regret"].append(float(regret))
        if more:
            row["gain"] = float(more), float(half)
    return list(found.values())
