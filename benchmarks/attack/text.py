"""Text files of ratings, damaged as transfers, editors and exports damage them."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attack import strict
from benchmarks.attack.case import Case, Refused
from benchmarks.attack.registry import attack


class FileLayout(NamedTuple):
    """How a sound file is written."""

    name: str
    delimiter: str
    header: str | None
    width: int


LAYOUTS = (
    FileLayout("ratings.csv", ",", "userId,movieId,rating,timestamp", 4),
    FileLayout("plain.csv", ",", None, 3),
    FileLayout("ratings.tsv", "\t", None, 4),
    FileLayout("ratings.dat", "::", None, 4),
    FileLayout("names.csv", ",", "user,item,rating", 3),
    FileLayout("quoted.csv", ",", "user,item,rating", 3),
)
FIELDS = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e400", "1e39", "-1e39", "1e-400", "1e30", "100000001",
    "1_000",
    "0x10", "1,5", "4.5.6", "++4", "4-", "\uff12", "\u0663", "²", "true", "None", "null", "NA",
    "?", "-", "\\N",
    "2024-12-31", "2024-12-31T23:59:59Z", "23:59", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "99999999999999999999999", "0", "-0", "007", "+7", "1.0", "1e3", "=1+1",
    '"', '""', "'", '"4', '4"', "a\rb", "\x00", "\x1b[31mred", "\x07", "\u202e", "\ufeff", "ÿ",
    "🎬",
    "a" * 300, "9" * 400, "é", "4\u00a0", " 4 ", "4\t", "::", ";", "|", "\\", "%s", "{x}", "user",
    "rating",
)  # fmt: skip


# -- harm: each takes bytes and gives bytes --------------------------------------------------------


def flip(case: Case, raw: bytearray) -> bytearray:
    for _ in range(case.rng.choice((1, 1, 2, 20))):
        raw[case.rng.randrange(len(raw))] ^= 1 << case.rng.randrange(8)
    return raw


def cut(case: Case, raw: bytearray) -> bytearray:
    at = case.rng.randrange(len(raw))
    return raw[:at] if case.rng.random() < 0.5 else raw[at:]


def splice(case: Case, raw: bytearray) -> bytearray:
    """A piece taken out, put elsewhere, or twice."""
    a, b = sorted(case.rng.randrange(len(raw)) for _ in range(2))
    b = min(b, a + case.rng.choice((1, 5, 100)))
    piece, at = raw[a:b], case.rng.randrange(len(raw))
    if case.rng.random() < 0.5:
        del raw[a:b]
    raw[at:at] = piece
    return raw


def insert(case: Case, raw: bytearray) -> bytearray:
    what = case.rng.choice(
        (b"\0", b"\r", b"\n", b"\r\n", b'"', b'""', b"'", b",", b"\t", b"::", b"\xff", b"\xc3",
            b"\xef\xbb\xbf",
         b"\x1a", b"\x1b[2J", b"\x85", b"\xe2\x80\xa8", b"\\", b" ", b"\x0c", b"#", b"\0" * 4096)
    )  # fmt: skip
    for _ in range(case.rng.choice((1, 1, 3))):
        at = case.rng.randrange(len(raw) + 1)
        raw[at:at] = what
    return raw


def field(case: Case, raw: bytearray) -> bytearray:
    """A field, or a few, with another value."""
    lines = raw.split(b"\n")
    for _ in range(case.rng.choice((1, 1, 1, 3, 40))):
        k = case.rng.randrange(len(lines))
        delimiter = next((d for d in (b"::", b"\t", b",") if d in lines[k]), b",")
        parts = lines[k].split(delimiter)
        value = case.rng.choice(FIELDS)
        case.say(f"a field of line {k + 1} becomes {value[:40]!r}")
        parts[case.rng.randrange(len(parts))] = bytearray(value.encode())
        lines[k] = delimiter.join(parts)
    return bytearray(b"\n".join(lines))


def column(case: Case, raw: bytearray) -> bytearray:
    """All of a column with other values, or one more column, or one less."""
    lines = raw.split(b"\n")
    value = case.rng.choice(FIELDS).encode()
    at, how = case.rng.randrange(4), case.rng.choice(("set", "add", "drop", "large", "swap"))
    case.say(f"{how} column {at} {value[:30]!r}")
    for k, line in enumerate(lines[:-1]):
        delimiter = next((d for d in (b"::", b"\t", b",") if d in line), b",")
        parts = line.split(delimiter)
        if len(parts) <= at:
            continue
        if how == "set":
            parts[at] = bytearray(value)
        elif how == "add":
            parts.insert(at, bytearray(value))
        elif how == "drop":
            del parts[at]
        elif how == "large" and parts[at].isdigit():
            parts[at] = bytearray(str(100_000_000 + int(parts[at])).encode())
        elif how == "swap":
            parts[at], parts[-1] = parts[-1], parts[at]
        lines[k] = delimiter.join(parts)
    return bytearray(b"\n".join(lines))


def digits(case: Case, raw: bytearray) -> bytearray:
    """Other numbers, which are as good: repeats and ties come of it."""
    places = [at for at, byte in enumerate(raw) if byte in b"0123456789"]
    for at in case.rng.sample(places, min(len(places), case.rng.choice((1, 10, 300)))):
        raw[at] = case.rng.choice(b"123456789")
    return raw


def line(case: Case, raw: bytearray) -> bytearray:
    """Lines gone, twice, joined, blank, of another file, or a second header."""
    lines = raw.split(b"\n")
    k = case.rng.randrange(len(lines))
    how = case.rng.choice(
        ("gone", "twice", "join", "blank", "other", "header", "comment", "spaces")
    )
    case.say(f"line {k + 1}: {how}")
    if how == "gone":
        del lines[k]
    elif how == "twice":
        lines.insert(case.rng.randrange(len(lines)), lines[k])
    elif how == "join" and k:
        lines[k - 1 : k + 1] = [lines[k - 1] + lines[k]]
    elif how == "header":
        lines.insert(k, lines[0])
    else:
        new = {"blank": b"", "other": b"17:", "comment": b"# a comment", "spaces": b"   "}
        lines.insert(k, bytearray(new.get(how, b"")))
    return bytearray(b"\n".join(lines))


def whole(case: Case, raw: bytearray) -> bytearray:
    """Other line ends, another encoding, a mark at the beginning, quotes around everything."""
    how = case.rng.choice(
        ("crlf", "cr", "utf-16", "utf-16-le", "utf-32", "latin-1", "bom", "bom2", "upper", "quotes",
         "semicolons", "tail", "nothing", "no end", "reverse", "long")
    )  # fmt: skip
    case.say(f"the whole file: {how}")
    text = raw.decode()
    if how in ("utf-16", "utf-16-le", "utf-32", "latin-1"):
        return bytearray((text + "é,1,1\n").encode(how, "replace"))
    made = {
        "crlf": text.replace("\n", "\r\n"), "cr": text.replace("\n", "\r"), "bom": "\ufeff" + text,
        "bom2": "\ufeff\ufeff" + text, "upper": text.upper(), "semicolons": text.replace(",", ";"),
        "quotes": "\n".join(f'"{part}"' for part in text.split("\n")), "tail": text + "\0" * 9000,
        "nothing": case.rng.choice(("", "\n", "\n\n\n", " ")), "no end": text.rstrip("\n"),
        "reverse": "\n".join(reversed(text.split("\n"))),
        "long": text + '9,"' + "x" * case.rng.choice((131_072, 140_000, 1_000_000)) + '",4\n',
    }  # fmt: skip
    return bytearray(made[how].encode())


HARMS: tuple[Callable[[Case, bytearray], bytearray], ...] = (
    flip, flip, cut, splice, insert, insert, field, field, field, column, line, line, whole, whole,
    digits, digits, digits,
)  # fmt: skip


# -- attacks ---------------------------------------------------------------------------------------


def read(case: Case, name: str, verdict: Callable[[], strict.Found], **how: Any) -> None:
    """Compare Ratings.read and pack with the strict reader."""
    from bayesmf import Ratings

    expected: strict.Found | None = None
    wrong = ""
    try:
        expected = verdict()
    except strict.Wrong as error:
        wrong = str(error)
    except strict.Unclear:
        pass
    if case.rng.random() < 0.2:
        return agree(case, name)
    ratings = case.call(lambda: Ratings.read(case.work / name, **how))
    if wrong:
        case.find("other answers", f"read in spite of: {wrong}; {'; '.join(case.said)}")
    elif expected is not None:
        found = as_found(ratings)
        if found != expected:
            odd = [k for k in {*found, *expected} if found.get(k) != expected.get(k)][:3]
            differing = [(k, found.get(k), expected.get(k)) for k in odd]
            case.find("other answers", f"{len(odd)} ratings differ (found, expected): {differing}")
    return None


def as_found(ratings: Any) -> strict.Found:
    """Ratings by user and item, as text."""
    names = zip(map(str, ratings.users), map(str, ratings.items), ratings.rating, strict=True)
    return {(user, item): np.float32(rating) for user, item, rating in names}


def agree(case: Case, name: str) -> None:
    """Check that pack and Ratings.read agree on a file."""
    from bayesmf import Ratings, pack

    def packed() -> Any:
        return pack(case.work / name, case.work / "packed", chunk=case.rng.choice((64, 1 << 20)))

    found: list[Any] = []
    for ask in (packed, lambda: Ratings.read(case.work / name)):
        try:
            found.append(case.call(ask))
        except Refused:
            found.append(None)
    if any(of == "tracebacks" for of, _ in case.findings):
        return
    if (found[0] is None) != (found[1] is None):
        who = "pack" if found[0] is None else "Ratings.read"
        case.find("other answers", f"{who} alone refuses: {'; '.join(case.said)}")
    elif found[0] is not None:
        one, other = of_packed(found[0]), as_found(found[1])
        if one != other:
            odd = [k for k in {*one, *other} if one.get(k) != other.get(k)][:3]
            differing = [(k, one.get(k), other.get(k)) for k in odd]
            case.find("other answers", f"packed and read differ (packed, read): {differing}")


def of_packed(packed: Any) -> strict.Found:
    """Packed ratings by user and item, as text."""
    lists = packed.by_user
    user = np.repeat(np.arange(packed.n_users), lists.counts())
    value = lists.value if packed.levels is None else packed.levels[lists.value]
    ids = packed.user_ids.ids[user], packed.item_ids.ids[lists.other]
    return {
        (str(u), str(i)): np.float32(r) for u, i, r in zip(*ids, value, strict=True)
    }  # fmt: skip


@attack("text", 10)
def damaged(case: Case) -> None:
    """Delimited text."""
    layout = case.rng.choice(LAYOUTS)
    case.say(layout.name)
    raw = bytearray(case.material.bytes(layout.name))
    for _ in range(case.rng.choice((1, 1, 1, 2, 3))):
        harm = case.rng.choice(HARMS)
        case.say(harm.__name__)
        try:
            raw = harm(case, raw) if raw else raw
        except UnicodeDecodeError:
            continue  # harm to text that is none any more
    case.write(layout.name, bytes(raw))
    read(case, layout.name, lambda: strict.table(bytes(raw), *layout[1:]))


@attack("text", 3)
def netflix(case: Case) -> None:
    """Netflix's own format."""
    raw = bytearray(case.material.bytes("netflix.txt"))
    for _ in range(case.rng.choice((1, 1, 2))):
        try:
            raw = case.rng.choice(HARMS)(case, raw) if raw else raw
        except UnicodeDecodeError:
            continue
    case.write("netflix.txt", bytes(raw))

    def verdict() -> strict.Found:
        if not raw[:20].split(b"\n")[0].rstrip(b":").isdigit() or b":" not in raw[:10]:
            raise strict.Unclear("perhaps another format")
        return strict.netflix(bytes(raw))

    read(case, "netflix.txt", verdict)


@attack("text", 3)
def compressed(case: Case) -> None:
    """gzip and zstd, damaged or of damaged text."""
    suffix = case.rng.choice((".gz", ".gz", ".zst"))
    source = case.material.folder / f"ratings.csv{suffix}"
    raw = bytearray(source.read_bytes() if source.exists() else b"\x28\xb5\x2f\xfd" + b"\0" * 40)
    how = case.rng.choice(("bytes", "bytes", "cut", "twice", "tail", "inside", "name", "empty"))
    case.say(f"{suffix}: {how}")
    name = f"ratings.csv{suffix}"
    if how == "bytes":
        raw = flip(case, raw)
    elif how == "cut":
        del raw[case.rng.randrange(len(raw)) :]
    elif how == "twice":
        raw = raw * 2
    elif how == "tail":
        raw += case.rng.randbytes(20)
    elif how == "inside":
        raw = bytearray(gzip.compress(bytes(case.rng.choice(HARMS)(case, _text(case))), mtime=0))
    elif how == "name":
        name = case.rng.choice(("ratings.csv", "ratings", "ratings.parquet", "ratings.gz.csv"))
    else:
        raw = bytearray(gzip.compress(b"", mtime=0))
    case.write(name, bytes(raw))

    def verdict() -> strict.Found:
        if suffix != ".gz" or how in ("twice", "tail", "name"):
            raise strict.Unclear("")
        try:
            text = gzip.decompress(bytes(raw))
        except (OSError, EOFError, zlib.error, ValueError):
            raise strict.Wrong("gzip that does not unpack") from None
        return strict.table(text, *LAYOUTS[0][1:])

    read(case, name, verdict)


def _text(case: Case) -> bytearray:
    return bytearray(case.material.bytes("ratings.csv"))


@attack("text")
def noise(case: Case) -> None:
    """Anything at all, under any name."""
    n = case.rng.choice((0, 1, 2, 3, 10, 1000, 100_000))
    alphabet = case.rng.choice(
        (bytes(range(256)), b"0123456789,.\n", b'",\n\r1', b"1:\n,", b"\x00\xff")
    )
    raw = bytes(case.rng.choices(alphabet, k=n))
    magic = case.rng.choice((b"", b"", b"\x1f\x8b\x08", b"PAR1", b"ARROW1", b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04",
                             b"\xff\xfe", b"\x93NUMPY", b"\x78\x9c"))  # fmt: skip
    name = case.rng.choice(("a.csv", "a.dat", "u.data", "a", "a.gz", "a.zst", "a.parquet",
        "a.arrow",
                            "a[1].csv", "*.csv", "a b.tsv", "caf\udce9.csv",
                            "\u202e.csv"))  # fmt: skip
    case.say(f"{len(raw)} bytes of noise behind {magic!r} in {name!r}")
    case.write(name, magic + raw)
    _any(case, name)


def _any(case: Case, name: str) -> None:
    from bayesmf import Ratings

    if case.rng.random() < 0.5:
        case.call(lambda: Ratings.read(case.work / name))
    else:
        _commands(case, name)


def _commands(case: Case, name: str) -> None:
    quick = ("--sampler", "gibbs", "--epochs", 2, "--factors", 2, "--engine", "serial")
    model = case.material.folder / "model"
    commands: tuple[tuple[Any, ...], ...] = (
        ("fit", name, "--out", "out", *quick), ("predict", model, name), ("evaluate", model, name),
        ("pack", name, "--out", "packed"), ("recommend", model, "--users", name),
        ("diagnose", model, "--test", name), ("predict", model, name, "--out", "out.csv"),
    )  # fmt: skip
    case.cli(*case.rng.choice(commands))


@attack("text", 3)
def commands(case: Case) -> None:
    """Commands with damaged text."""
    layout = case.rng.choice((*LAYOUTS, FileLayout("pairs.csv", ",", "user,item", 2)))
    raw = bytearray(case.material.bytes(layout.name))
    with contextlib.suppress(UnicodeDecodeError):
        raw = case.rng.choice(HARMS)(case, raw)
    case.write(layout.name, bytes(raw))
    _commands(case, layout.name)
