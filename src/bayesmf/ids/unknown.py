"""Ids that a model does not know: how many, which, and known ids that are written similarly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.ids.id_map import IdMap, column_of
from bayesmf.ids.strings import Strings

# At most this many unknown ids are compared with the known ones.
_COMPARED = 10_000


def unknown_examples(ids: IdMap, values: Any, most: int = 3) -> tuple[int, list[str], str]:
    """Unknown ids in a column, and a similar known one.

    Parameters
    ----------
    ids
        The known ids.
    values
        A column of ids.
    most
        Number of examples.

    Returns
    -------
    tuple of int, list of str, str
        The number of distinct unknown ids, the first of them as text, and a hint if one becomes
        known with other leading zeros, white space, case or without ".0".

    Examples
    --------
    >>> from bayesmf.ids.id_map import IdMap
    >>> from bayesmf.ids.unknown import unknown_examples
    >>> unknown_examples(IdMap(["0114709", "0133093"]), [114709, 5])
    (2, ['114709', '5'], "'0114709' is known: were leading zeros dropped?")
    """
    column = column_of(values)
    missing = np.flatnonzero(ids.lookup(column) < 0)
    texts = list(dict.fromkeys(_texts(column, missing)))
    return len(texts), texts[:most], _hint(ids, texts[:_COMPARED])


def _texts(column: NDArray[np.int64] | Strings, rows: NDArray[np.int64]) -> list[str]:
    """Some ids of a column as text."""
    if isinstance(column, Strings):
        return column.take(rows).tolist()
    return list(map(str, column[rows].tolist()))


def _hint(ids: IdMap, unknown: list[str]) -> str:
    """Hint for the first unknown id that is similar to a known one."""
    if not unknown or not len(ids):
        return ""
    known = _texts(column_of(ids), np.arange(len(ids)))
    for change, said in _CHANGES:
        asked = change(unknown)
        wanted = set(asked)
        there: dict[str, str] = {}
        for key, text in zip(change(known), known, strict=True):
            if key in wanted:
                there.setdefault(key, text)
        for key, was in zip(asked, unknown, strict=True):
            if key in there:
                return f"{there[key]!r} is known: {said(was, there[key])}"
    return ""


def _zeros(was: str, meant: str) -> str:
    return f"were leading zeros {'dropped' if len(was) < len(meant) else 'added'}?"


def _decimals(was: str, meant: str) -> str:
    return f"were ids turned into decimal numbers, as {max(was, meant, key=len)!r}?"


_ZEROS = re.compile(r"^0+(?=[0-9A-Za-z])")


def _without_zeros(texts: Iterable[str]) -> list[str]:
    return [_ZEROS.sub("", text) if text[:1] == "0" else text for text in texts]


_DECIMALS = re.compile(r"(-?[0-9]+)\.0+")


def _without_decimals(texts: Iterable[str]) -> list[str]:
    return [
        found[1] if text[-1:] == "0" and (found := _DECIMALS.fullmatch(text)) else text
        for text in texts
    ]


_CHANGES: tuple[tuple[Callable[[list[str]], list[str]], Callable[[str, str], str]], ...] = (
    (lambda ids: [id.strip() for id in ids], lambda *_: "is there white space around ids?"),
    (lambda ids: [id.lower() for id in ids], lambda *_: "upper and lower case differ"),
    (_without_zeros, _zeros),
    (_without_decimals, _decimals),
)
