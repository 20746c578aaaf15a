"""The figures of the experiments. An algorithm has one colour and one mark everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from bayesmf.plots.style import GREY, drawing, save
from experiments.paper.tables import Record, Row, n_chains
from experiments.paper.trials import burn_in_end, by_draws, shown

# Okabe and Ito's colours; dashes and marks distinguish the lines in print without colour.
LOOKS: dict[str, dict[str, Any]] = {
    "SGD": {"color": "#999999", "linestyle": "--", "marker": "v"},
    "DSGD": {"color": "#000000", "linestyle": "--", "marker": "^"},
    "SGLD": {"color": "#56B4E9", "linestyle": "-", "marker": "o"},
    "DSGLD-S": {"color": "#0072B2", "linestyle": "-", "marker": "s"},
    "DSGLD-C": {"color": "#009E73", "linestyle": "-", "marker": "D"},
    "DSGLD-1": {"color": "#E69F00", "linestyle": ":", "marker": "X"},
    "Gibbs": {"color": "#D55E00", "linestyle": "-.", "marker": "P"},
    "bayesmf": {"color": "#CC79A7", "linestyle": "-", "marker": "*"},
}
SHADES = (
    ("#B0B0B0", "o", "-"), ("#56B4E9", "s", "--"), ("#0072B2", "D", "-."), ("#000000", "^", "-"),
    ("#CC79A7", "v", "--"),
)  # fmt: skip
POINTS = 300  # of the common times of several seeds
MARKS = 7  # along a line, at places of its own
Group = Sequence[Record]  # the same trial with each seed
Curve = tuple[Any, Any, Any, Any]  # times, and the mean, lowest and highest RMSE of the seeds


def label(record: Record) -> str:
    """An algorithm with its split."""
    plan = record["plan"]
    name, sampler = plan["algorithm"], plan["sampler"] or {}
    if name == "bayesmf":
        return "bayesmf's default"
    if name == "Gibbs":
        return f"{name} ({plan['workers']} cores)"
    grid = sampler.get("grid", "1x1")
    if isinstance(grid, list):
        grid = "x".join(f"{int(n)}" for n in grid)
    return name if grid == "1x1" else f"{name} {grid}"


def band(curves: Sequence[Sequence[tuple[float, float]]], log: bool = True) -> Curve | None:
    """Mean, lowest and highest of the curves, at times that all of them have."""
    arrays = [np.array(curve, float).T for curve in curves if len(curve)]
    if not arrays or len(arrays) < len(curves):
        return None
    if len(arrays) == 1:
        return arrays[0][0], *[arrays[0][1]] * 3
    first, last = max(a[0][0] for a in arrays), min(a[0][-1] for a in arrays)
    if last < first:
        return None
    times = (
        np.geomspace(first, last, POINTS) if log and first > 0 else np.linspace(first, last, POINTS)
    )
    values = np.array([np.interp(times, *a) for a in arrays])
    return times, values.mean(0), values.min(0), values.max(0)


def mean_burn_in_end(group: Group) -> tuple[float, float] | None:
    """Mean seconds and RMSE of the last point before averages, where all seeds have one."""
    ends = [end for one in group if (end := burn_in_end(one["trace"]))]
    if len(ends) < len(group):
        return None
    seconds, rmse = np.mean(ends, axis=0)
    return float(seconds), float(rmse)


def draw_convergence(
    groups: Sequence[Group], floors: Mapping[str, float], title: str, clock: str, path: Path
) -> Path:
    """Figures 3 and 4: RMSE against time, log and linear axis."""
    with drawing(10.5, 5.4) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis in axes:
            for k, group in enumerate(groups):
                _curve(axis, group, LOOKS[group[0]["plan"]["algorithm"]], label(group[0]), k)
        _log(axes[0])
        axes[0].set_ylabel("RMSE on held-out ratings")
        figure.suptitle(f"{title}, D = {groups[0][0]['plan']['n_factors']}")
        axes[0].set_title("logarithmic axis of time")
        axes[1].set_title("linear axis of time")
        _zoom(axes, groups, floors)
        _clock(axes, clock)
        _legend(figure, axes[0], 5)
        return save(figure, path)


def draw_averages(groups: Sequence[Group], title: str, clock: str, path: Path) -> Path:
    """Both estimators against time; the printed one by draws, and thinned to those of one chain."""
    with drawing(10.5, 5.2) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for group in groups:
            look = LOOKS[group[0]["plan"]["algorithm"]]
            for estimator, dashes in (("printed", "-"), ("exact", ":")):
                after = [[(t, r) for t, r, burning in shown(one["trace"], estimator) if not burning]
                         for one in group]  # fmt: skip
                text = label(group[0]) if estimator == "printed" else f"{label(group[0])}, exact"
                _line(axes[0], band(after), {**look, "linestyle": dashes}, text, 0)
            for thinned in (False, True)[: 1 + (n_chains(group[0]) > 1)]:
                draws = band([by_draws(one["trace"], thinned) for one in group])
                text = f"{label(group[0])}, {'thinned' if thinned else 'all draws'}"
                _line(axes[1], draws, {**look, "linestyle": ":" if thinned else "-"}, text, 0)
        for axis in axes:
            _log(axis)
        axes[0].set_ylabel("RMSE on held-out ratings")
        axes[0].set_title(title)
        axes[1].set_title("by draws, printed")
        _clock(axes[:1], clock)
        axes[1].set_xlabel("draws in the average", fontsize=8)
        for axis in axes:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)
        return save(figure, path)


def draw_chains(
    panels: Sequence[Sequence[Group]],
    floors: Mapping[str, float],
    title: str,
    clock: str,
    path: Path,
) -> Path:
    """Figure 5: DSGLD-C by chains, DSGLD-S by workers."""
    with drawing(10.5, 5.4) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        names = ("DSGLD-C: chains on a split of users", "DSGLD-S: workers on squares")
        for axis, panel, name in zip(axes, panels, names, strict=True):
            squares = [group for group in panel if group[0]["plan"]["algorithm"] != "DSGLD-1"]
            for k, group in enumerate(panel):
                chains, workers = n_chains(group[0]), group[0]["plan"]["workers"]
                text = f"{workers} worker{'s' * (workers > 1)}, {chains} chain{'s' * (chains > 1)}"
                if k < len(squares):
                    colour, mark, dashes = SHADES[k % len(SHADES)]
                    look: dict[str, Any] = {"color": colour, "marker": mark, "linestyle": dashes}
                else:
                    look, text = LOOKS["DSGLD-1"], f"DSGLD-1: {text}"
                _curve(axis, group, look, text, k)
            _log(axis)
            axis.set_title(name)
        axes[0].set_ylabel(f"RMSE on held-out ratings\n{title}")
        _zoom(axes, [group for panel in panels for group in panel], floors)
        for axis in axes:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8.5)
        _clock(axes, clock)
        return save(figure, path)


def draw_by_dimension(
    rows: Sequence[Row], column: str, what: str, title: str, path: Path, log: bool = False
) -> Path:
    """Figure 6: a column of a table against D, a line for each algorithm."""
    with drawing(6.8, 4.4) as figure:
        axis = figure.subplots()
        for name in dict.fromkeys(row["algorithm"] for row in rows):
            known = [(row["D"], row[column]) for row in rows
                     if row["algorithm"] == name and row[column] is not None]  # fmt: skip
            if known:
                d, spans = zip(*known, strict=True)
                mean = [span.mean for span in spans]
                errors = [[s.mean - s.low for s in spans], [s.high - s.mean for s in spans]]
                axis.errorbar(d, mean, yerr=errors, **LOOKS[name], label=name, markersize=6,
                              capsize=3, linewidth=1.5)  # fmt: skip
        axis.set_xticks(sorted({row["D"] for row in rows}))
        axis.set_xlabel("latent features D")
        axis.set_ylabel(what)
        axis.set_title(title)
        axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        if log:
            _log(axis, "y")
        return save(figure, path)


def _curve(axis: Any, group: Group, look: Mapping[str, Any], text: str, place: int) -> None:
    """A curve, and a mark where burn-in ends: from there on draws are averaged."""
    _line(axis, band([[p[:2] for p in shown(one["trace"])] for one in group]), look, text, place)
    if (end := mean_burn_in_end(group)) is not None:
        axis.plot(*end, look["marker"], color=look["color"], mfc="white", markersize=8, zorder=3)


def _line(axis: Any, curve: Curve | None, look: Mapping[str, Any], text: str, place: int) -> None:
    if curve is None:
        return
    times, mean, low, high = curve
    step = 1 / MARKS
    axis.plot(times, mean, **look, linewidth=1.5, label=text, markersize=4.5,
              markevery=(step * (0.1 + 0.12 * place) % step, step))  # fmt: skip
    axis.fill_between(times, low, high, color=look["color"], alpha=0.13, linewidth=0)


def _floors(axis: Any, floors: Mapping[str, float]) -> None:
    """Lines of those in view."""
    low, high = axis.get_ylim()
    looks = {"bound": ("lower bound of a model", ":"), "biases": ("biases alone", (0, (6, 3)))}
    for name, value in floors.items():
        if low < value < high:
            text, dashes = looks[name]
            axis.axhline(value, color=GREY, linewidth=0.9, linestyle=dashes, label=text)


def _zoom(axes: Sequence[Any], groups: Sequence[Group], floors: Mapping[str, float]) -> None:
    """Limits from the lowest error, or a bound that is near, to that at the end of burn-in."""
    curves = [curve for group in groups for one in group if (curve := shown(one["trace"]))]
    ends = [curve[-1][1] for curve in curves]
    marks = [end[1] for group in groups if (end := mean_burn_in_end(group)) is not None]
    room = max(max(ends) - min(ends), 0.02 * min(ends))
    lowest = min([min(ends), *(x for x in floors.values() if x > min(ends) - room)])
    top = max([max(ends) + 0.5 * room, *(mark + 0.3 * room for mark in marks)])
    axes[0].set_ylim(lowest - 0.1 * room, top)
    for axis in axes:
        _floors(axis, floors)
        if marks:
            axis.plot([], [], "o", mfc="white", color=GREY, markersize=8, label="burn-in ends")
        if axis.get_xscale() == "log":
            seen = [seconds for curve in curves for seconds, rmse, _ in curve if rmse <= top]
            axis.set_xlim(left=0.7 * min(seconds for seconds in seen if seconds > 0))


def _log(axis: Any, which: str = "x") -> None:
    """A log axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set(**{f"{which}scale": "log"})
    scale = getattr(axis, f"{which}axis")
    scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(NullFormatter())


def _legend(figure: Any, axis: Any, columns: int) -> None:
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8.5)


def _clock(axes: Any, clock: str) -> None:
    for axis in axes:
        axis.set_xlabel("\n".join(wrap(f"seconds ({clock})", 70)), fontsize=8)
