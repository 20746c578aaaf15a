"""Types of the arrays that kernels read and write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows of one side, one parameter vector each: `[U_i1, ..., U_iD, a_i]`, perhaps padded.
Rows = NDArray[np.float32]


def readonly(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: kernels then compile once for fitted and loaded models."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
