"""Ids that a model does not know: how many, which, and whether they were only written otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesmf.errors import DataWarning, warn
from bayesmf.ids import IdMap, as_ids

if TYPE_CHECKING:
    import polars as pl

# So many unknown ids are compared with the known ones; a slip shows in the first few.
_COMPARED = 10_000


def unknown_examples(ids: IdMap, values: Any, most: int = 3) -> tuple[int, list[str], str]:
    """Tell which ids are not known, and what may have happened to them.

    Parameters
    ----------
    ids
        The known ids.
    values
        A column of ids.
    most
        How many examples to give.

    Returns
    -------
    tuple of int, list of str, str
        The number of distinct unknown ids; the first of them, as text; and a hint where one of
        them becomes a known id with other leading zeros, without white space, in other case or
        without ".0", else an empty string.

    Raises
    ------
    InputError
        If the values are not ids.

    Examples
    --------
    >>> from bayesmf.ids import IdMap
    >>> from bayesmf.unknown import unknown_examples
    >>> unknown_examples(IdMap(["0114709", "0133093"]), [114709, 5])
    (2, ['114709', '5'], "'0114709' is known: were leading zeros dropped?")
    """
    import polars as pl

    column = as_ids(values)
    unknown = pl.Series(column).filter(pl.Series(ids.lookup(column) < 0))
    texts = unknown.unique(maintain_order=True).cast(pl.String)
    return len(texts), texts.head(most).to_list(), _hint(ids, texts.head(_COMPARED))


def _hint(ids: IdMap, unknown: pl.Series) -> str:
    import polars as pl

    if not len(unknown) or not len(ids):
        return ""
    known = ids.column(np.arange(len(ids))).cast(pl.String)
    for change, said in _CHANGES:
        asked = pl.DataFrame({"key": change(unknown), "asked": unknown})
        there = pl.DataFrame({"key": change(known), "known": known})
        found = asked.join(there, on="key", maintain_order="left_right").head(1)
        if found.height:
            was, meant = found["asked"][0], found["known"][0]
            return f"{meant!r} is known: {said(was, meant)}"
    return ""


def warn_of_twins(side: str, ids: IdMap) -> None:
    """Warn of ids that are one with other leading zeros, or without ".0", and stay two."""
    if ids.kind == "int":
        return
    texts = ids.column(np.arange(len(ids)))
    if not (texts.str.starts_with("0") | texts.str.ends_with("0")).any():
        return  # as most ids, and seen at once
    keys = texts.str.replace(r"^0+([0-9])", "${1}").str.replace(r"^(-?[0-9]+)\.0+$", "${1}")
    twins = keys.is_duplicated()
    if twins.any():
        first = keys.filter(twins)[0]
        one, other = texts.filter(keys == first).head(2).to_list()
        count = int(twins.sum() - keys.filter(twins).n_unique())
        warn(
            f'{count:,} {side} ids differ from another in leading zeros or ".0" alone, such as '
            f"{one!r} and {other!r}: they are taken as different {side}s",
            DataWarning,
        )


def _zeros(was: str, meant: str) -> str:
    return f"were leading zeros {'dropped' if len(was) < len(meant) else 'added'}?"


def _decimals(was: str, meant: str) -> str:
    return f"were ids turned into decimal numbers, as {max(was, meant, key=len)!r}?"


_CHANGES: tuple[tuple[Callable[[pl.Series], pl.Series], Callable[[str, str], str]], ...] = (
    (lambda ids: ids.str.strip_chars(), lambda *_: "is there white space around ids?"),
    (lambda ids: ids.str.to_lowercase(), lambda *_: "upper and lower case are told apart."),
    (lambda ids: ids.str.replace(r"^0+([0-9A-Za-z])", "${1}"), _zeros),
    (lambda ids: ids.str.replace(r"^(-?[0-9]+)\.0+$", "${1}"), _decimals),
)
