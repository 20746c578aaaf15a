"""Roles of columns: user, item, rating and timestamp, by name or by position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayesmf.errors import InputError
from bayesmf.reading.table import MISSING
from bayesmf.wording import cut

Columns = Mapping[str, str | int | None]
"""Role (user, item, rating, timestamp) to column name or position from 0; None to leave out."""

ROLES = ("user", "item", "rating", "timestamp")
TRIPLE = ("user", "item", "rating")
PAIR = ("user", "item")

# In order of preference; users and items are also recognised with "id" behind the name.
_BASES = {
    "user": "user customer reviewer member client profile person viewer visitor u",
    "item": "item movie film product song track book isbn asin business article artist album"
    " show anime game app recipe restaurant venue place hotel beer joke sku parentasin i",
    "rating": "rating score stars star value overall bookrating reviewscore reviewrating r",
    "timestamp": "timestamp unixtime unixreviewtime time ts datetime date reviewtime reviewdate"
    " when createdat created ratedat t",
}
NAMES = {
    role: [base + end for base in bases.split() for end in (("id", "") if role in PAIR else ("",))]
    for role, bases in _BASES.items()
}
_SHOWN = 12

# Times since 1970 are between these, in seconds or nanoseconds; ratings are not.
_TIME, _LATEST = 1e8, 1e19
_SMALL = 1e6
# Fewer counted lines may be a coincidence.
_FEW, _MANY = 5, 20

_INDEX = "its first column counts the rows, as an index that was saved with the data"


def find_columns(
    names: Sequence[str] | None,
    count: int,
    columns: Columns | None,
    need: Sequence[str],
    where: str,
    shown: str = "",
) -> dict[str, int]:
    """Find the position of each role's column.

    Parameters
    ----------
    names
        The columns' names, None where there are none: then the order is user, item,
        rating, timestamp, for at most four columns.
    count
        Number of columns.
    columns
        Columns named by the user.
    need
        The roles that must be found; with a rating, a timestamp is optional.
    where
        Name of the data in error messages.
    shown
        The first line or row, for error messages.

    Raises
    ------
    InputError
        If the column of a role is not found, or is ambiguous.
    """
    columns = check_columns(columns)
    wanted = [*need, *(("timestamp",) if "rating" in need else ())]
    found = {}
    for role in wanted:
        chosen = columns.get(role)
        if chosen is not None:
            found[role] = _chosen(role, chosen, names, count, where)
    taken = set(found.values())
    for role in (role for role in wanted if role not in columns):
        if names is not None:
            at = _by_name(names, role, taken, where)
        else:
            at = _by_position(role, count, taken, need, where, shown)
        if at is not None:
            found[role] = at
    missing = [role for role in need if role not in found]
    if missing:
        raise InputError(_not_found(missing, names, count, need, where))
    if len(set(found.values())) < len(found):
        raise InputError(f"{where}: one column cannot be two of user, item, rating and timestamp")
    return found


def check_columns(columns: Columns | None) -> Columns:
    """Validate columns named by the user."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InputError(
            f"columns is a dict such as {{'user': 'customer', 'item': 'sku'}}, not {columns!r}"
        )
    for role, column in columns.items():
        if role not in ROLES:
            swapped = isinstance(column, str) and column in ROLES
            turned = f"; write {{{column!r}: {role!r}}}" if swapped else ""
            raise InputError(
                f"columns: {role!r} is not one of user, item, rating, timestamp{turned}"
            )
        if isinstance(column, bool) or not isinstance(column, str | int | None):
            raise InputError(
                f"columns: {column!r} is neither the name nor the position of the {role} column"
            )
    return columns


def how_to_say(need: Iterable[str]) -> str:
    """How to name columns, in Python and on the command line."""
    return f"columns= (on the command line --columns {','.join(f'{role}=...' for role in need)})"


def recognise(names: Sequence[str], role: str) -> list[int]:
    """Columns with a usual name of a role, the most usual first."""
    plain = [plain_name(name) for name in names]
    return [k for known in NAMES[role] for k, name in enumerate(plain) if name == known]


def plain_name(name: str) -> str:
    """A name without case, ``_ -`` and white space."""
    return re.sub(r"[_\-\s]", "", name).lower()


def list_names(names: Sequence[str]) -> str:
    """The names of columns, or the first of many."""
    shown = ", ".join(name or "(no name)" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ... ({len(names):,} in all)"


def _by_name(names: Sequence[str], role: str, taken: set[int], where: str) -> int | None:
    found = [at for at in recognise(names, role) if at not in taken]
    # Amazon's files have two columns of times, which are the same.
    if len(found) > 1 and role != "timestamp":
        raise InputError(_which(role, [names[at] for at in found], sorted(found), where))
    return found[0] if found else None


def _which(role: str, names: list[str], at: list[int], where: str) -> str:
    example: Any = names[0]
    listed = " or ".join(map(repr, names))
    if len(set(names)) < len(names):
        example, listed = at[0], f"{names[0]!r} at position {' or '.join(map(str, at))} (from 0)"
    return (
        f"{where}: which column is the {role}, {listed}? Name it with"
        f" columns={{{role!r}: {example!r}}} (on the command line --columns {role}={example})"
    )


def _by_position(
    role: str, count: int, taken: set[int], need: Sequence[str], where: str, shown: str
) -> int | None:
    at = ROLES.index(role)
    if role == "timestamp":
        return at if count == len(ROLES) and at not in taken else None
    if count > len(ROLES):
        raise InputError(
            f"{where} has {count} columns without names, so {_listed(need)} are not known;"
            f" name them by positions from 0 with {how_to_say(need)}"
            + (f"; the first line is {cut(shown, 80)!r}" if shown else "")
        )
    return at if at < count else None


def _listed(words: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _chosen(role: str, chosen: str | int, names: Sequence[str] | None, n: int, where: str) -> int:
    if names is not None and isinstance(chosen, str):
        plain = [name.strip().lower() for name in names]
        for listed_as, wanted in ((list(names), chosen), (plain, chosen.strip().lower())):
            found = [k for k, name in enumerate(listed_as) if name == wanted]
            if len(found) > 1:
                raise InputError(_which(role, [names[k] for k in found], found, where))
            if found:
                return found[0]
    # A position may come from a command line, as text.
    if isinstance(chosen, int) or chosen.isdecimal():
        if 0 <= int(chosen) < n:
            return int(chosen)
        raise InputError(
            f"{where} has {n} columns, so the {role} column cannot be number {chosen}"
            f" (positions count from 0)"
        )
    listed = "no column names" if names is None else f"the columns {list_names(names)}"
    raise InputError(f"{where} has {listed}; there is no column {chosen!r} for {role}")


def _not_found(
    missing: list[str], names: Sequence[str] | None, n: int, need: Sequence[str], where: str
) -> str:
    if names is None:
        return f"{where} has only {n} columns; {_listed(missing)} cannot be found in it"
    return (
        f"{where} has the columns {list_names(names)}, none of which is a known name of"
        f" {_listed(missing, 'or')}; name them with {how_to_say(need)}"
    )


# -- columns without names: signs that their order is not user, item, rating, timestamp -----------


def is_number(text: str) -> bool:
    """Whether a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def filled_width(rows: Sequence[Sequence[str]], width: int, least: int) -> int:
    """Number of columns, without empty ones after a last delimiter."""
    while width > least and all(not row[width - 1 : width] or not row[width - 1] for row in rows):
        width -= 1
    return width


def check_order(rows: Sequence[Sequence[str]], width: int, need: Sequence[str], where: str) -> None:
    """Refuse columns taken by position whose values show another order.

    Parameters
    ----------
    rows
        The fields of the first rows, as text.
    width
        Number of columns.
    need
        The roles that were taken: user, item, and perhaps rating.
    where
        Name of the data in error messages.
    """
    columns = list(zip(*(row[:width] for row in rows if len(row) >= width), strict=True))
    if len(columns) < 3:
        return
    sign = _sign_of_ratings(columns) if "rating" in need else _sign_of_pairs(columns)
    if sign:
        raise InputError(
            f"{where} has no column names, and {sign}; name them by positions from 0 with"
            f" {how_to_say(need)}"
        )


def _sign_of_pairs(columns: list[tuple[str, ...]]) -> str:
    third = [field for field in columns[2] if field.strip().lower() not in MISSING]
    if _has_index(columns):
        return _INDEX
    if third and not any(is_number(field.replace(",", ".")) for field in third):
        return f"its third column, {third[0][:40]!r} in the first line, is not a rating"
    return ""


def _sign_of_ratings(columns: list[tuple[str, ...]]) -> str:
    third = _numbers(columns[2])
    if third and all(_TIME <= value < _LATEST and value.is_integer() for value in third):
        return "its third column looks like times, not like ratings"
    return _INDEX if _has_index(columns) else ""


def _numbers(column: Sequence[str]) -> list[float]:
    """A column as numbers; empty if some are not numbers."""
    return [float(field) for field in column] if all(map(is_number, column)) else []


def _has_index(columns: list[tuple[str, ...]]) -> bool:
    """Whether the first column counts the rows; fewer rows suffice if the fourth is not a time."""
    numbers = _numbers(columns[0])
    start = numbers[0] if numbers else -1.0
    fourth = _numbers(columns[3]) if len(columns) > 3 else []
    small = bool(fourth) and all(abs(value) < _SMALL for value in fourth)
    counts = start in (0, 1) and numbers == [start + k for k in range(len(numbers))]
    return counts and len(numbers) >= (_FEW if small else _MANY)
