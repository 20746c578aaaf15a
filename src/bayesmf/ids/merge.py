"""Ids that come later: one map of known and new ones, and where the rows of both are in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.wording import shown


class MergedIds(NamedTuple):
    """A map of two maps' ids; `old[k]` and `new[k]` are where their k-th ids are now.

    Ids ascend, so that rows move; they stay in the order they were in.
    """

    ids: IdMap
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @property
    def grown(self) -> bool:
        """Whether there are ids that were not known."""
        return len(self.ids) > len(self.old)


def merge_ids(known: IdMap, more: IdMap, side: str) -> MergedIds:
    """Add ids to those that are known; they become of the known kind, integers or strings.

    Parameters
    ----------
    known, more
        The ids.
    side
        "user" or "item", for the sentence where that cannot be.
    """
    rows = known.lookup(more)
    missing = more.ids[rows < 0]
    if not len(missing):
        return MergedIds(known, np.arange(len(known)), rows)
    if known.kind == "str":
        ids = IdMap(sorted({*known.ids.tolist(), *map(str, missing.tolist())}))
    else:
        ids = IdMap(np.union1d(known.ids, _integers(missing, side)))
    return MergedIds(ids, ids.lookup(known), ids.lookup(more))


def _integers(missing: NDArray[np.object_], side: str) -> NDArray[np.int64]:
    """New ids as integers, which those of the model are."""
    if missing.dtype.kind == "i":
        return missing.astype(np.int64)
    found = IdMap(missing.tolist())
    numbers = []
    for text in found.ids.tolist():
        number = int(text) if text.lstrip("-").isdecimal() and text.isascii() else None
        if number is None or str(number) != text or not -(2**63) <= number < 2**63:
            raise InputError(
                f"the {side} id {shown(text)} is text, and all {side} ids that the model knows are"
                " whole numbers: give ids as they were given to fit, those of new rows as well"
            )
        numbers.append(number)
    return np.array(numbers, np.int64)
