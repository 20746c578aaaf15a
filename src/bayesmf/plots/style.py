"""Colours, style, saving, titles and legends of figures; matplotlib is imported on use."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.storage.atomic import replacing
from bayesmf.storage.paths import as_path

# Okabe and Ito: distinct for all kinds of colour vision.
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
GREY = "#6F6F6F"
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "bayesmf",  # the same figure is the same file
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """An empty figure, in inches; ImportError if matplotlib is missing."""
    import matplotlib  # first: a clear error if it is missing
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(STYLE):
        # Without pyplot, so that the user's backend is not changed.
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        yield Figure(figsize=(width, height), layout=layout)


def save(figure: Any, path: Path) -> Path:
    """Save a figure to a .png or .svg file, in one step."""
    # Without a date, the same figure is the same file.
    meta = {"Date": None} if path.suffix == ".svg" else None
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=meta)
    return path


def make_folder(folder: Path) -> None:
    """Make a folder for figures, and its parents."""
    as_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror or error
        raise InputError(
            f"cannot make the folder {folder}: {reason}; choose another name"
        ) from None


def check_matplotlib() -> None:
    """Raise InputError if matplotlib is missing."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise InputError(
            "matplotlib is not installed, and plots need it: pip install matplotlib"
        ) from None


@contextmanager
def given_or_new(ax: Any, width: float, height: float) -> Iterator[Any]:
    """The user's Axes in the user's style, or those of a new figure of pyplot in ours."""
    check_matplotlib()
    import matplotlib
    from matplotlib.axes import Axes

    if ax is None:
        from matplotlib import pyplot

        with matplotlib.rc_context(STYLE):
            yield pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    elif isinstance(ax, Axes):
        yield ax
    else:
        raise InputError(
            f"ax must be an Axes of matplotlib, not {type(ax).__name__}: give one that "
            "plt.subplots() returned, or leave it out"
        )


def set_title(ax: Any, text: str) -> None:
    """Set a title, wrapped to the width of the Axes."""
    ax.figure.canvas.figure.draw_without_rendering()  # so that the layout is known
    points = 72 * ax.get_window_extent().width / ax.figure.dpi
    # Letters of a bold title are about 0.6 times as wide as high.
    size = min(ax.title.get_fontsize(), 10.5)
    lines = textwrap.wrap(text, max(int(points / (0.6 * size)), 16))
    ax.set_title("\n".join(lines), fontsize=size)


def add_legend(ax: Any, columns: int, **options: Any) -> None:
    """Add a legend at the top, and extend the y-axis to make room for it.

    No corner is free of curves in every figure, and there may be other Axes outside.
    """
    figure = ax.figure.canvas.figure  # of a subfigure, too
    figure.draw_without_rendering()  # so that the layout is known
    bottom, top = ax.get_ylim()
    frame = ax.get_window_extent()
    for n in range(columns, 0, -1):
        legend = ax.legend(loc="upper center", ncols=n, **options)
        box = legend.get_window_extent()
        if box.width <= frame.width:
            break
    # At most half: a smaller figure has no room for its legend.
    share = min((frame.y1 - box.y0) / frame.height + 0.02, 0.5)
    ax.set_ylim(bottom, bottom + (top - bottom) / (1 - share))
