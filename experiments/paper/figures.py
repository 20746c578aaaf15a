"""The figures of the experiments. An algorithm has one colour and one mark everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmf.plots.style import GREY, drawing, save
from experiments.paper.trials import shown

# Okabe and Ito's colours; dashes and marks distinguish the lines in print without colour.
LOOKS: dict[str, dict[str, Any]] = {
    "SGD": {"color": "#999999", "linestyle": "--", "marker": "v"},
    "DSGD": {"color": "#000000", "linestyle": "--", "marker": "^"},
    "SGLD": {"color": "#56B4E9", "linestyle": "-", "marker": "o"},
    "DSGLD-S": {"color": "#0072B2", "linestyle": "-", "marker": "s"},
    "DSGLD-C": {"color": "#009E73", "linestyle": "-", "marker": "D"},
    "Gibbs": {"color": "#D55E00", "linestyle": "-.", "marker": "P"},
    "coordinate Gibbs": {"color": "#E69F00", "linestyle": "-.", "marker": "X"},
    "bayesmf": {"color": "#CC79A7", "linestyle": "-", "marker": "*"},
}
SHADES = ("#B0B0B0", "#56B4E9", "#0072B2", "#000000")
Record = Mapping[str, Any]
Curve = list[tuple[float, float, bool]]  # seconds, RMSE, whether it burns in


def label(record: Record) -> str:
    """An algorithm with its split."""
    plan = record["plan"]
    name, sampler = plan["algorithm"], plan["sampler"] or {}
    if name == "bayesmf":
        return "bayesmf's default"
    if "Gibbs" in name:
        return f"{name} ({plan['workers']} cores)"
    grid = sampler.get("grid", "1x1")
    if isinstance(grid, list):
        grid = "x".join(f"{int(n)}" for n in grid)
    return name if grid == "1x1" else f"{name} {grid}"


def save_both(figure: Any, path: Path) -> list[Path]:
    """PNG to look at, SVG to print."""
    return [save(figure, path.with_suffix(suffix)) for suffix in (".png", ".svg")]


def draw_convergence(
    records: Sequence[Record], floors: Mapping[str, float], title: str, clock: str, path: Path
) -> list[Path]:
    """Figures 3 and 4: RMSE against time, log and linear axis."""
    with drawing(10.5, 5.0) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis in axes:
            for record in records:
                _curve(axis, record, LOOKS[record["plan"]["algorithm"]], label(record))
            _floors(axis, floors)
            if any(any(record["trace"]["burning"]) for record in records):
                axis.plot([], [], "o", color=GREY, markersize=6, label="mark: burn-in ends")
        axes[0].set_xscale("log")
        axes[0].set_ylabel("RMSE on held-out ratings")
        axes[0].set_title(f"{title}, D = {records[0]['plan']['n_factors']}")
        axes[1].set_title("the same, linear axis")
        _zoom(axes, [shown(record["trace"]) for record in records], floors)
        _clock(figure, axes, clock)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8.5)
        return save_both(figure, path)


def draw_chains(
    groups: Sequence[Sequence[Record]],
    floors: Mapping[str, float],
    title: str,
    clock: str,
    path: Path,
) -> list[Path]:
    """Figure 5: DSGLD-C by chains, DSGLD-S by workers."""
    with drawing(10.5, 5.0) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        names = ("DSGLD-C: chains on a split of users", "DSGLD-S: workers on squares")
        for axis, group, name in zip(axes, groups, names, strict=True):
            for record, colour in zip(group, SHADES, strict=True):
                chains = record["plan"]["sampler"].get("n_chains", 1)
                workers = record["plan"]["workers"]
                text = f"{workers} worker{'s' * (workers > 1)}, {chains} chain{'s' * (chains > 1)}"
                _curve(axis, record, {"color": colour, "marker": "o"}, text)
            _floors(axis, floors)
            axis.set_xscale("log")
            axis.set_title(name)
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8.5)
        axes[0].set_ylabel(f"RMSE on held-out ratings\n{title}")
        _zoom(axes, [shown(r["trace"]) for group in groups for r in group], floors)
        _clock(figure, axes, clock)
        return save_both(figure, path)


def draw_dimension(
    table: Mapping[str, Sequence[tuple[int, float | None]]],
    floors: Mapping[str, float],
    title: str,
    path: Path,
) -> list[Path]:
    """Figure 6 (a, b): the final RMSE against D."""
    with drawing(6.2, 4.4) as figure:
        axis = _against_dimension(figure, table, "RMSE at the end", title)
        _floors(axis, floors)
        return save_both(figure, path)


def draw_cost(
    table: Mapping[str, Sequence[tuple[int, float | None]]], title: str, path: Path
) -> list[Path]:
    """Figure 6 (c): seconds for a draw against D."""
    with drawing(6.2, 4.4) as figure:
        _against_dimension(figure, table, "seconds for a draw", title).set_yscale("log")
        return save_both(figure, path)


def _against_dimension(figure: Any, table: Mapping[str, Any], what: str, title: str) -> Any:
    axis = figure.subplots()
    for name, points in table.items():
        known = [(d, value) for d, value in points if value is not None]
        axis.plot(*zip(*known, strict=True), **LOOKS[name], label=name, markersize=6)
    axis.set_xticks([d for d, _ in next(iter(table.values()))])
    axis.set_xlabel("latent features D")
    axis.set_ylabel(what)
    axis.set_title(title)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axis


def _curve(axis: Any, record: Record, look: Mapping[str, Any], text: str) -> None:
    """A curve, and a mark where burn-in ends: from there on draws are averaged."""
    points = shown(record["trace"])
    if not points:
        return
    seconds, rmse, burning = zip(*points, strict=True)
    line = {k: v for k, v in look.items() if k != "marker"}
    axis.plot(seconds, rmse, **line, linewidth=1.5, label=text)
    first = next((k for k, burns in enumerate(burning) if not burns), None)
    if first is not None and any(burning):
        # The line that the paper draws, at each one's own moment: draws are averaged behind it.
        axis.axvline(seconds[first], color=look["color"], linewidth=0.6, linestyle=":", alpha=0.7)
        axis.plot(seconds[first], rmse[first], look["marker"], color=look["color"], markersize=6)


def _floors(axis: Any, floors: Mapping[str, float]) -> None:
    names = {"noise": "noise of the ratings", "bound": "lower bound of a model"}
    for name, value in floors.items():
        axis.axhline(value, color=GREY, linewidth=0.9, linestyle=":")
        axis.annotate(
            names[name], (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=7.5, color=GREY,
        )  # fmt: skip


def _zoom(axes: Sequence[Any], curves: Sequence[Curve], floors: Mapping[str, float]) -> None:
    """Set limits from the lowest error to that at the end of burn-in; the start is cut off."""
    curves = [curve for curve in curves if curve]
    ends = [curve[-1][1] for curve in curves]
    # Of curves that have a burn-in; the others are averages from the first pass on.
    burnt = [curve for curve in curves if any(burning for _, _, burning in curve)]
    marks = [next((rmse for _, rmse, burning in curve if not burning), None) for curve in burnt]
    lowest, room = min([*ends, *floors.values()]), max(max(ends) - min(ends), 0.02 * min(ends))
    top = max([max(ends) + 0.5 * room, *(mark + 0.3 * room for mark in marks if mark is not None)])
    axes[0].set_ylim(lowest - 0.1 * room, top)
    for axis in axes:
        if axis.get_xscale() == "log":
            seen = [seconds for curve in curves for seconds, rmse, _ in curve if rmse <= top]
            axis.set_xlim(left=0.7 * min(seconds for seconds in seen if seconds > 0))


def _clock(figure: Any, axes: Any, clock: str) -> None:
    for axis in axes:
        axis.set_xlabel(f"seconds ({clock})", fontsize=8)
