"""A strict reader of ratings in text, with which bayesmf's is compared.

Three verdicts: the ratings, if there is one way to read the text; `Wrong` if there is none;
`Unclear` if readers may differ: then bayesmf must only not crash.
"""

from __future__ import annotations

import datetime
import re

import numpy as np

NUMBER = re.compile(r"[-+]?\d{1,40}(\.\d{1,40})?([eE][-+]?\d{1,3})?")
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
ID = re.compile(r"[A-Za-z0-9_.]+( [A-Za-z0-9_.]+)*")
OPENING = re.compile(r"\d{1,9}:")
DATED = re.compile(r"(\d{1,9}),(\d(?:\.\d)?),(\d{4})-(\d\d)-(\d\d)")
LARGEST = float(np.finfo(np.float32).max)
MISSING = ("nan", "na", "null", "none")

Found = dict[tuple[str, str], np.float32]


class Wrong(Exception):
    """No reader may take it for ratings."""


class Unclear(Exception):
    """Readers may differ."""


def as_text(raw: bytes) -> str:
    """Decoded, where that is beyond doubt."""
    try:
        text = raw.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        raise Wrong("not UTF-8") from None
    # Quotes, control characters and other spaces are read in more ways than one.
    if re.search(r'["\x00-\x08\x0b-\x1f\x7f]', text.replace("\r\n", "\n")):
        raise Unclear("control characters or quotes")
    if any(c.isspace() and c not in "\n\t " for c in text.replace("\r\n", "\n")):
        raise Unclear("odd spaces")
    return text.replace("\r\n", "\n")


def table(raw: bytes, delimiter: str, header: str | None, width: int) -> Found:
    """Read delimited text whose header and width are known."""
    lines = [line for line in as_text(raw).split("\n") if line.strip()]
    if header is not None:
        if not lines or lines[0] != header:
            raise Unclear("another header")
        lines = lines[1:]
    if len(lines) < 20:
        raise Unclear("too few lines to recognise the layout")
    rows = [line.split(delimiter) for line in lines]
    if sum(len(row) == width for row in rows) < 0.9 * len(rows):
        raise Unclear("many widths")
    if header is None and any(not NUMBER.fullmatch(row[2]) for row in rows[:1] if len(row) > 2):
        raise Unclear("the first line may be a header")
    for row in rows:
        if len(row) != width:
            raise Wrong(f"{len(row)} fields instead of {width}: {delimiter.join(row)[:80]!r}")
    return _values(rows)


def _values(rows: list[list[str]]) -> Found:
    out: dict[tuple[str, str], tuple[int, float]] = {}
    unclear = False
    for row in rows:
        user, item, rating, *time = row
        if not rating.strip() or re.fullmatch(r"[A-Za-z]+", rating):
            raise Wrong(f"a rating of {rating!r}")
        if not user.strip() or not item.strip():
            raise Wrong("an id is missing")
        odd = not NUMBER.fullmatch(rating) or not ID.fullmatch(user) or not ID.fullmatch(item)
        odd |= user.lower() in MISSING or item.lower() in MISSING
        odd |= bool(time) and not WHOLE.fullmatch(time[0])
        if odd:
            unclear = True
            continue
        if not abs(float(rating)) <= LARGEST:
            raise Wrong(f"a rating of {rating}")
        when = int(time[0]) if time else 0
        if (user, item) not in out or when >= out[user, item][0]:
            out[user, item] = when, float(rating)
    if unclear:
        raise Unclear("odd values")
    return _single({pair: rating for pair, (_, rating) in out.items()})


def _single(found: dict[tuple[str, str], float]) -> Found:
    values = np.array(list(found.values()))
    spread = values.max() - values.min()
    lost = np.abs(values - values.astype(np.float32)).max()
    if spread > 0 and lost > 0.01 * spread:
        raise Unclear("ratings that are equal in single precision: refused by fit")
    return {pair: np.float32(rating) for pair, rating in found.items()}


def netflix(raw: bytes) -> Found:
    """Read a Netflix file."""
    out: dict[tuple[str, str], tuple[datetime.date, float]] = {}
    movie = None
    for line in as_text(raw).split("\n"):
        if not line.strip():
            continue
        if OPENING.fullmatch(line):
            movie = str(int(line[:-1]))
            continue
        if line.count(",") != 2 and ":" not in line:
            raise Wrong(f"a line {line[:60]!r}")
        met = DATED.fullmatch(line)
        if met is None or movie is None or met[1] != str(int(met[1])):
            raise Unclear("an odd line")
        try:
            when = datetime.date(*map(int, met.groups()[2:]))
        except ValueError:
            raise Wrong("a date that is none") from None
        if (met[1], movie) not in out or when >= out[met[1], movie][0]:
            out[met[1], movie] = when, float(met[2])
    if not out:
        raise Wrong("no ratings")
    return _single({pair: rating for pair, (_, rating) in out.items()})
