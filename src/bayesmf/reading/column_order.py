"""Columns without names: signs that their order is not user, item, rating, timestamp."""

from __future__ import annotations

from collections.abc import Sequence

from bayesmf.errors import InputError
from bayesmf.reading.columns import how_to_say
from bayesmf.reading.table import MISSING

# Times since 1970 are between these, in seconds or nanoseconds, and no scale of ratings is.
_TIME, _LATEST = 1e8, 1e19
_SMALL = 1e6
# So many lines in a row are no coincidence.
_FEW, _MANY = 5, 20

_INDEX = "its first column counts the rows, as an index that was saved with the data"


def is_number(text: str) -> bool:
    """Tell whether a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def filled_width(rows: Sequence[Sequence[str]], width: int, least: int) -> int:
    """Count the columns without those at the end that are empty, behind a last delimiter."""
    while width > least and all(not row[width - 1 : width] or not row[width - 1] for row in rows):
        width -= 1
    return width


def check_order(
    rows: Sequence[Sequence[str]],
    width: int,
    need: Sequence[str],
    where: str,
    *,
    decimal: bool = False,
) -> None:
    """Refuse columns that were taken by position and cannot be what they were taken for.

    Parameters
    ----------
    rows
        The fields of the first rows, as text.
    width
        Number of columns.
    need
        The roles that were taken: user, item, and perhaps rating.
    where
        What to call the data in error messages.
    decimal
        Whether fields are separated by commas.

    Raises
    ------
    InputError
        If another order is beyond doubt.
    """
    columns = list(zip(*(row[:width] for row in rows if len(row) >= width), strict=True))
    if len(columns) < 3:
        return
    sign = _sign_of_ratings(columns, decimal) if "rating" in need else _sign_of_pairs(columns)
    if sign:
        raise InputError(
            f"{where} has no column names, and {sign}; say which is which by positions from 0 with"
            f" {how_to_say(need)}"
        )


def _sign_of_pairs(columns: list[tuple[str, ...]]) -> str:
    third = [field for field in columns[2] if field.strip().lower() not in MISSING]
    if _has_index(columns):
        return _INDEX
    if third and not any(is_number(field.replace(",", ".")) for field in third):
        return f"its third column, {third[0][:40]!r} in the first line, is not a rating"
    return ""


def _sign_of_ratings(columns: list[tuple[str, ...]], decimal: bool) -> str:
    third = _numbers(columns[2])
    fourth = _numbers(columns[3]) if len(columns) > 3 else []
    if third and all(_TIME <= value < _LATEST and value.is_integer() for value in third):
        return "its third column looks like times, not like ratings"
    if _has_index(columns):
        return _INDEX
    digits = all(len(field.strip()) == 1 for field in columns[-1])
    if decimal and fourth and digits and len(fourth) >= 2 * _FEW:
        return "its last column is a single digit, as of ratings with a decimal comma"
    return ""


def _numbers(column: Sequence[str]) -> list[float]:
    """Give a column as numbers, nothing where some are not."""
    return [float(field) for field in column] if all(map(is_number, column)) else []


def _has_index(columns: list[tuple[str, ...]]) -> bool:
    """Tell whether the first column counts the rows; the sooner, if the fourth is no time."""
    numbers = _numbers(columns[0])
    start = numbers[0] if numbers else -1.0
    fourth = _numbers(columns[3]) if len(columns) > 3 else []
    small = bool(fourth) and all(abs(value) < _SMALL for value in fourth)
    counts = start in (0, 1) and numbers == [start + k for k in range(len(numbers))]
    return counts and len(numbers) >= (_FEW if small else _MANY)
