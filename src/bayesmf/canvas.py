"""What all figures share: colours, style, saving. matplotlib is optional, so imported on use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError

# Okabe and Ito: told apart by every kind of colour vision.
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
    """An empty figure, in inches, in our style; ImportError where matplotlib is missing."""
    import matplotlib  # first by itself: a clear error where it is missing
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(STYLE):
        # A Figure of its own, without pyplot: the user's backend is neither asked nor changed.
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        yield Figure(figsize=(width, height), layout=layout)


def save(figure: Any, path: Path) -> Path:
    """Write under another name first: whoever looks sees the old file or all of the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Without a date, the same figure is the same file.
        meta = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(part, format=path.suffix[1:], dpi=150, metadata=meta)
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)
    return path
