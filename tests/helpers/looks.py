"""What every picture must keep to: text inside, labels on axes, legends beside what is drawn."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg


def check_text(figure):
    """Titles and labels stay in the figure, titles do not touch, every axis is labelled."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    whole = figure.bbox
    for ax in figure.axes:
        box = ax.get_tightbbox(renderer)
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, ax.get_title(loc="left")
        assert box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1, ax.get_title(loc="left")
    below = getattr(figure, "_supxlabel", None)
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert box.x0 >= whole.x0 and box.x1 <= whole.x1
        assert below is None or not box.overlaps(below.get_window_extent(renderer))
    titles = [ax._left_title.get_window_extent(renderer) for ax in figure.axes]
    for k, one in enumerate(titles):
        assert not any(one.overlaps(other) for other in titles[k + 1 :])
    assert all(ax.get_title(loc="left") or ax.get_title() for ax in figure.axes)
    rows = {ax.get_subplotspec().rowspan.start for ax in figure.axes}
    for ax in figure.axes:
        place = ax.get_subplotspec()
        assert ax.get_xlabel() or place.rowspan.start < max(rows)
        assert ax.get_ylabel() or place.colspan.start > 0


def lines(ax):
    return {line.get_label(): np.column_stack(line.get_data()) for line in ax.get_lines()}


def check_legends(figure):
    """No legend lies on a curve, a point or a bar."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        box = legend.get_window_extent()
        frame = ax.get_window_extent()
        assert box.y0 >= frame.y0 and box.y1 <= frame.y1
        for points in _shown(ax):
            inside = (points > box.min).all(axis=1) & (points < box.max).all(axis=1)
            assert not inside.any(), ax.get_title(loc="left")


def _shown(ax):
    """Points on the screen along all that is drawn."""
    for line in ax.get_lines():
        if len(line.get_xdata()):
            yield line.get_transform().transform_path(line.get_path()).interpolated(50).vertices
    for collection in ax.collections:
        yield ax.transData.transform(collection.get_offsets())
    for bar in ax.patches:
        yield np.array([bar.get_window_extent().max, bar.get_window_extent().min])
