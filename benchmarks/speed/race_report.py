"""What `benchmarks time_to_rmse` writes: a table of times to an RMSE, and a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.race import Run

# Okabe and Ito's colours, distinct for all kinds of colour vision; lines differ in shape too.
COLOURS = {
    "auto": "#0072B2",
    "auto fast": "#56B4E9",
    "gibbs": "#56B4E9",
    "sghmc": "#009E73",
    "sgld": "#009E73",
    "myfm": "#D55E00",
    "smurff": "#E69F00",
    "cmfrec": "#CC79A7",
    "surprise": "#000000",
    "libmf": "#7A7A7A",
}
SPARE = ("#0072B2", "#56B4E9", "#009E73")
MARKERS = {"myfm": "s", "smurff": "^", "cmfrec": "D", "surprise": "v", "libmf": "P"}
NAMES = {
    "auto": "bayesmf (default)",
    "auto fast": "bayesmf (fast)",
    "gibbs": "bayesmf Gibbs",
    "sghmc": "bayesmf SGHMC",
    "sgld": "bayesmf SGLD",
    "myfm": "myFM",
    "smurff": "SMURFF",
    "cmfrec": "cmfrec ALS",
    "surprise": "Surprise SVD",
    "libmf": "LIBMF",
}
# How much worse than the best the figure shows.
WORST = 0.07


@dataclass(frozen=True)
class RaceCurve:
    """The checkpoints of one system with one setting, in one run."""

    run: Run
    settings: str
    points: list[tuple[float, float]]  # seconds, RMSE

    @property
    def is_path(self) -> bool:
        """Whether the checkpoints are those of one fit, not of a fit each."""
        return self.run.ours or self.settings.startswith("burn-in")

    @property
    def seconds(self) -> float:
        """Seconds of the whole fit; where every checkpoint is a fit, of the most accurate."""
        if not self.is_path:
            return min(self.points, key=lambda point: point[1])[0]
        return self.run.total_seconds or self.points[-1][0]

    @property
    def end(self) -> float:
        """The RMSE of the whole fit: a user cannot stop where the test set likes it best."""
        return self.points[-1][1] if self.is_path else self.best

    @property
    def best(self) -> float:
        return min(rmse for _, rmse in self.points)

    def reaches(self, rmse: float) -> float:
        """Seconds to an RMSE, infinite where it is not reached."""
        return min((s for s, reached in self.points if reached <= rmse), default=math.inf)


def curves(runs: list[Run], data: str, system: str) -> list[RaceCurve]:
    """All curves of a system, those of every repeat."""
    found = []
    for run in runs:
        if (run.data, run.system) == (data, system):
            for settings in dict.fromkeys(line["settings"] for line in run.lines):
                lines = [line for line in run.lines if line["settings"] == settings]
                points = [(line["seconds"], line["rmse"]) for line in lines]
                found.append(RaceCurve(run, settings, points))
    return found


def winners(found: list[RaceCurve], targets: list[float]) -> list[str]:
    """The settings that are best at something: the only ones worth repeating."""
    names = [min(found, key=lambda c: c.best).settings] if found else []
    for target in targets:
        first = min(found, key=lambda c: c.reaches(target), default=None)
        if first is not None and math.isfinite(first.reaches(target)):
            names.append(first.settings)
    return list(dict.fromkeys(names))


def best_curve(found: list[RaceCurve]) -> RaceCurve:
    """The most accurate setting, in its fastest run."""
    settings = min(found, key=lambda c: c.best).settings
    return min((c for c in found if c.settings == settings), key=lambda c: c.seconds)


def systems_of(runs: list[Run], data: str) -> list[str]:
    return list(dict.fromkeys(run.system for run in runs if run.data == data))


def table(runs: list[Run], data: str, targets: list[float]) -> Iterator[str]:
    """Markdown: a line a system. Ratios are to the first of our own systems that was run."""
    systems = systems_of(runs, data)
    ours = [run.system for run in runs if run.data == data and run.ours]
    reference = curves(runs, data, ours[0]) if ours else []
    heads = ["system", *(f"s to {t:.4f}" for t in targets)]
    heads += [
        "best RMSE",
        "RMSE at the end",
        "total s",
        "compile s",
        "total cold s",
        "setting of the best RMSE",
    ]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for system in systems:
        found = curves(runs, data, system)
        cells = [NAMES.get(system, system)]
        if not found:
            problem = next(r.problem for r in runs if (r.data, r.system) == (data, system))
            yield f"| {cells[0]} |" + " |" * (len(heads) - 2) + f" {problem or 'no checkpoint'} |"
            continue
        cells += [_time_cell(found, reference, t) for t in targets]
        top = best_curve(found)
        compiling = min(c.run.compile_seconds for c in found)
        setting = f"{top.settings}, {top.run.rule}" if top.run.rule else top.settings
        cells += [f"{min(c.best for c in found):.4f}", f"{top.end:.4f}", f"{top.seconds:.1f}"]
        cells += [f"{compiling:.1f}", f"{top.seconds + compiling:.1f}", setting]
        yield "| " + " | ".join(cells) + " |"


def _time_cell(found: list[RaceCurve], reference: list[RaceCurve], target: float) -> str:
    seconds = min(c.reaches(target) for c in found)
    if math.isinf(seconds):
        return "never"
    ours = min((c.reaches(target) for c in reference), default=math.inf)
    if math.isinf(ours):
        return f"{seconds:.2f}"
    ratio = seconds / ours
    return f"{seconds:.2f} ({ratio:.{1 if ratio >= 1 else 2}f}x)"


def draw(
    runs: list[Run], targets: dict[str, list[float]], subtitles: dict[str, str], path: Path
) -> None:
    """RMSE against seconds, a panel for each data set; ImportError where matplotlib is missing."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
        "legend.frameon": False,
    }  # fmt: skip
    shown = [d for d in targets if any(run.lines for run in runs if run.data == d)]
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(1.9 + 5.0 * len(shown), 4.6), layout="constrained")
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        handles: dict[str, Any] = {}
        for ax, data in zip(panels, shown, strict=True):
            handles |= _panel(ax, runs, data, targets[data])
            ax.set_title(f"{data}: {subtitles[data]}")
        panels[0].set_ylabel("RMSE on held-out ratings")
        note = "dotted: every point\nis a fit of its own"
        figure.legend(
            handles.values(), handles, loc="outside right center", title=note, title_fontsize=9,
            alignment="left",
        )  # fmt: skip
        figure.savefig(path, dpi=150)


def _panel(ax: Any, runs: list[Run], data: str, targets: list[float]) -> dict[str, Any]:
    handles = {}
    lowest = min(line["rmse"] for run in runs if run.data == data for line in run.lines)
    ax.axhline(targets[-1], color="#6F6F6F", linestyle="-", linewidth=1.0, zorder=1)
    for number, system in enumerate(systems_of(runs, data)):
        found = curves(runs, data, system)
        if found:
            handles[NAMES.get(system, system)] = _line(ax, system, best_curve(found), number)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.set_ylim(lowest - 0.06 * WORST, lowest + WORST)
    ax.annotate(
        f"target {targets[-1]:g}", (0.0, targets[-1]), xycoords=("axes fraction", "data"),
        va="bottom", xytext=(3, 2), textcoords="offset points", color="#6F6F6F",
    )  # fmt: skip
    ax.set_xlabel("seconds of fitting, one thread (log scale)")
    ax.grid(axis="y", color="#E5E5E5", linewidth=0.7)
    ax.set_axisbelow(True)
    return handles


def _line(ax: Any, system: str, curve: RaceCurve, number: int) -> Any:
    x, y = zip(*curve.points, strict=True)
    colour = COLOURS.get(system, SPARE[number % len(SPARE)])
    if system == "auto":
        style: dict[str, Any] = {"linewidth": 3.5, "zorder": 3}
    elif curve.run.ours:
        # The default may be this one under another name: seen through, and drawn above.
        style = {"linewidth": 2.0, "zorder": 4, "linestyle": (0, (4, 1.5))}
    else:
        style = {"linewidth": 1.5, "marker": MARKERS.get(system, "o"), "zorder": 2}
        # A checkpoint that is a fit of its own is not a point on a path.
        style |= {"markevery": 0.12} if curve.is_path else {"linestyle": ":"}
    return ax.plot(x, y, color=colour, **style)[0]
