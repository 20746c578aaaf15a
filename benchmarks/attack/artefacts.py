"""Models, packed ratings and checkpoints: damaged bytes, and forged values with right digests.

After damage an answer must be the old one. Forged values are never valid, so an answer is a
finding; after a change of metadata that answers do not depend on, it must be the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.case import Case, fingerprint
from benchmarks.attack.material import answers, draws_of, estimator
from benchmarks.attack.registry import attack

MODELS = ("model", "model_str", "model_items", "model_users")
KINDS = (*MODELS, "packed", "opened", "checkpoint")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, -(10**30), 1 << 63, float("nan"), float("inf"), 1e308, "",
    "3", "x" * 5000, [], {}, [[]], [1, 2], {"a": 1}, "\x1b[31m", "../../x", "nan", "0x1p-1080",
)  # fmt: skip
DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
BLANK = "0" * 64


# -- the layout of a file --------------------------------------------------------------------------


class Artefact:
    """A file of arrays, taken apart so that it can be forged."""

    def __init__(self, file: Path) -> None:
        self.file, raw = file, file.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        self.entries = json.loads(raw[8:start])
        self.about = self.entries.pop("__metadata__")
        self.meta = json.loads(self.about["meta"])
        self.arrays: dict[str, np.ndarray] = {}
        for name, entry in self.entries.items():
            if not name.startswith("~"):
                begin, end = (start + offset for offset in entry["data_offsets"])
                array = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]])
                self.arrays[name] = array.reshape(entry["shape"]).copy()
        self.rest = raw[start:]

    def header(self, **changed: Any) -> dict[str, Any]:
        """All of the header but for its digest, of the arrays as they were."""
        meta = json.dumps(self.meta)
        return {"__metadata__": {**self.about, "meta": meta, **changed}, **self.entries}

    def save(self) -> None:
        """Lay out the arrays as they are now, with right digests."""
        codes, at, rest = {code: name for name, code in DTYPES.items()}, 0, b""
        self.entries, digests = {}, {}
        for name, array in self.arrays.items():
            if gap := -at % 64:
                pad = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
                self.entries[f"~{len(self.entries)}"] = pad
                rest, at = rest + bytes(gap), at + gap
            body = np.ascontiguousarray(array).tobytes()
            code = codes.get(array.dtype.str.replace("|", ""), array.dtype.str)
            offsets = [at, at + len(body)]
            entry = {"dtype": code, "shape": list(array.shape), "data_offsets": offsets}
            self.entries[name], digests[name] = entry, hashlib.sha256(body).hexdigest()
            rest, at = rest + body, at + len(body)
        self.rest = rest
        self.write(json.dumps(self.header(digests=json.dumps(digests)), separators=(",", ":")))

    def write(self, text: str) -> None:
        """A file with this header, whose digest is made right where it has one."""
        about = json.dumps(self.about["sha256"])
        raw = text.replace(about, f'"{BLANK}"', 1).encode(errors="surrogatepass")
        raw += b" " * (-(8 + len(raw)) % 64)
        raw = len(raw).to_bytes(8, "little") + raw
        digest = hashlib.sha256(raw).hexdigest().encode()
        self.file.write_bytes(raw.replace(BLANK.encode(), digest, 1) + self.rest)


def files_of(place: Path) -> list[Path]:
    """A file, or all plain files in a folder and those below."""
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    return [path for path in found if path.is_file() and path.stat().st_size]


def put(case: Case, kind: str) -> Path:
    """A sound file, or folder of a checkpoint, in the working folder."""
    return case.copy("packed" if kind == "opened" else kind)


def chosen(case: Case) -> tuple[str, Artefact]:
    """A kind, and a file of it to be forged; of a checkpoint no other snapshot shall serve."""
    kind = case.rng.choice((*KINDS, *MODELS[:1] * 2))
    files = [file for file in files_of(put(case, kind)) if b"__metadata__" in _start(file)]
    file = case.rng.choice(files)
    case.say(f"{file.relative_to(case.work)}")
    return kind, Artefact(file)


def _start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(64)


# -- questions -------------------------------------------------------------------------------------


def ask(case: Case, kind: str) -> tuple[str, np.ndarray]:
    """Answers that need all of it, and the name of what they should be."""
    from bayesmf import BayesianMF, Checkpoint, PackedRatings, Ratings

    if kind.startswith("model"):
        return kind, case.call(lambda: answers(BayesianMF.load(case.work / kind)))
    if kind == "packed":
        return "packed_draws", case.call(lambda: draws_of(estimator().fit(case.work / "packed")))
    if kind == "opened":
        opened = case.call(lambda: PackedRatings.open(case.work / "packed"))
        return "packed_draws", case.call(lambda: draws_of(estimator().fit(opened)))
    known = Ratings.read(case.material.folder / "ratings.csv")
    kept = Checkpoint(case.work / "checkpoint", every=3600, resume=True)
    return "model_draws", case.call(lambda: draws_of(estimator().fit(known, checkpoint=kept)))


def compare(case: Case, kind: str) -> None:
    """The old answer, or a refusal."""
    name, found = ask(case, kind)
    expected = case.material.answers[name]
    if found.shape != expected.shape or not np.array_equal(found, expected):
        case.find("other answers", f"another answer from a damaged {kind}: {'; '.join(case.said)}")


def must_refuse(case: Case, kind: str) -> None:
    """Report an answer from an invalid file as a finding."""
    if kind == "checkpoint":  # an earlier one may serve, or what was changed is not needed
        return compare(case, kind)
    _, found = ask(case, kind)
    what = "with numbers that are not finite" if not np.isfinite(found).all() else "of numbers"
    return case.find("other answers", f"an answer {what} from a {kind} with {'; '.join(case.said)}")


# -- damage ----------------------------------------------------------------------------------------


def damage_bytes(case: Case, file: Path) -> None:
    """Change some bytes of a file, or its length."""
    raw = bytearray(file.read_bytes())
    at = case.rng.randrange(len(raw) + 1) if raw else 0
    how = case.rng.choice(("flip", "flip", "flip", "set", "zero", "cut", "grow", "insert", "swap"))
    case.say(f"{how} at {at} of {len(raw)} bytes of {file.relative_to(case.work)}")
    at = min(at, max(len(raw) - 1, 0))
    if how == "flip" and raw:
        raw[at] ^= 1 << case.rng.randrange(8)
    elif how == "set" and raw:
        raw[at] = case.rng.choice((0, 255, 128, 127, raw[at] ^ 255))
    elif how == "zero":
        n = case.rng.randrange(1, 64)
        raw[at : at + n] = bytes(len(raw[at : at + n]))
    elif how == "cut":
        del raw[at:]
    elif how == "grow":
        raw += case.rng.randbytes(case.rng.choice((1, 8, 1000)))
    elif how == "insert":
        raw[at:at] = case.rng.randbytes(case.rng.choice((1, 4, 8)))
    else:
        n = case.rng.randrange(1, 32)
        raw[at : at + n], raw[-n:] = raw[-n:], raw[at : at + n]
    file.write_bytes(raw)


def replace_file(case: Case, file: Path) -> None:
    """Put something else in the place of a file."""
    how = case.rng.choice(
        ("fifo", "folder", "link", "itself", "device", "full", "empty", "gone", "giant", "dangling",
         "other", "socket")
    )  # fmt: skip
    case.say(f"{file.relative_to(case.work)} becomes {how}")
    kept = file.read_bytes()
    file.unlink()
    if how == "fifo":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
        (file / "more").write_text("what")
    elif how == "link":
        os.symlink(case.outside / "precious.txt", file)
    elif how == "itself":
        # Sound bytes under another name: answers may be given, or not.
        aside = case.work / "elsewhere"
        aside.write_bytes(kept)
        os.symlink(aside, file)
    elif how in ("device", "full"):
        os.symlink("/dev/zero" if how == "device" else "/dev/full", file)
    elif how == "empty":
        file.touch()
    elif how == "giant":
        file.write_bytes(kept)
        os.truncate(file, 1 << 40)
    elif how == "dangling":
        os.symlink(case.work / "nowhere", file)
    elif how == "other":
        others = [path for path in files_of(file.parent) if path != file]
        shutil.copyfile(case.rng.choice(others), file) if others else file.touch()
    elif how == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as sock:
            here = os.getcwd()
            os.chdir(file.parent)  # names of sockets are short
            try:
                sock.bind(file.name)
            finally:
                os.chdir(here)


@attack("artefacts", 8)
def damaged(case: Case) -> None:
    """One or a few changes of bytes, digests left as they were."""
    kind = case.rng.choice(KINDS)
    files = files_of(put(case, kind))
    for _ in range(case.rng.choice((1, 1, 1, 2, 5))):
        damage_bytes(case, case.rng.choice(files))
    compare(case, kind)


@attack("artefacts", 3)
def replaced(case: Case) -> None:
    """Something else in the place of a file."""
    kind = case.rng.choice(KINDS)
    replace_file(case, case.rng.choice(files_of(put(case, kind))))
    compare(case, kind)


@attack("artefacts", 2)
def commands(case: Case) -> None:
    """Commands with a damaged model or damaged packed ratings."""
    kind = case.rng.choice(("model", "model_str", "packed"))
    place = put(case, kind)
    harm = case.rng.choice((damage_bytes, damage_bytes, replace_file))
    harm(case, case.rng.choice(files_of(place)))
    questions(case, kind, place)


def questions(case: Case, kind: str, place: Path) -> None:
    """A command that reads it."""
    pairs = case.copy("pairs.csv" if kind != "model_str" else "names.csv", "asked.csv")
    quick = ("--sampler", "gibbs", "--epochs", 3, "--factors", 2, "--engine", "serial")
    if kind == "packed":
        case.cli("fit", place, "--out", case.work / "out", *quick)
        return
    case.cli(*case.rng.choice(
        (("predict", place, pairs), ("recommend", place, "1", "u1x"), ("diagnose", place),
         ("diagnose", place, "--json"), ("evaluate", place, case.material.folder / "names.csv"),
         ("fit", case.material.folder / "plain.csv", "--out", place, *quick))
    ))  # fmt: skip


@attack("artefacts")
def out_places(case: Case) -> None:
    """Saving a model to a path where something else exists."""
    from bayesmf import BayesianMF

    model = BayesianMF.load(case.material.folder / "model")
    target = case.work / "saved"
    how = case.rng.choice(("link", "foreign", "file", "fifo", "loop", "ours", "fine"))
    case.say(f"the place is {how}")
    if how == "link":
        os.symlink(case.outside / case.rng.choice(("folder", "empty", "nowhere")), target)
    elif how == "foreign":
        shutil.copytree(case.outside / "folder", target)
    elif how == "file":
        target.write_text("mine")
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "loop":
        os.symlink(target, target)
    elif how == "ours":
        case.copy("model", "saved")
    saved_to = Path(os.path.realpath(target))
    case.call(lambda: model.save(target))
    if how == "link" and saved_to.is_relative_to(case.outside) and saved_to.is_file():
        saved_to.unlink()  # a link to nowhere names the place: that is what was asked for
        case._before = fingerprint(case.outside)
    if how in ("foreign", "file", "fifo"):
        case.find("files touched", f"a model was saved over {how}")


@attack("artefacts")
def damaged_truth(case: Case) -> None:
    """A file of planted truth with other bytes."""
    from bayesmf.synthetic.truth import Truth

    file = case.copy("truth.safetensors")
    if case.rng.random() < 0.8:
        damage_bytes(case, file)
    else:
        replace_file(case, file)
    found = case.call(lambda: Truth.load(file))
    sound = Truth.load(case.material.folder / "truth.safetensors")
    for name, there, here in zip(sound._fields, sound, found, strict=True):
        if not np.array_equal(there, here):
            case.find("other answers", f"another {name} from a damaged truth")


# -- forged: digests are right ---------------------------------------------------------------------


def wrong_values(case: Case, name: str, array: np.ndarray) -> np.ndarray | None:
    """An array that cannot be right, None where every value of its type may be."""
    flat = array.copy().reshape(-1)
    at = case.rng.randrange(len(flat)) if len(flat) else 0
    if not len(flat):
        return None
    value: Any
    if name.endswith(("starts", "offsets")):
        how = case.rng.choice(("first", "fall", "end", "huge", "negative", "shift"))
        if how == "first":
            flat[0] = case.rng.choice((1, -1, -50_000_000, 2**40))
        elif how == "fall":
            flat[case.rng.randrange(1, len(flat) - 1)] = flat[-1] + case.rng.choice(
                (1, 1000, 2**40)
            )
        elif how == "end":
            flat[-1] += case.rng.choice((1, -1, 1000, 2**40, -(2**40)))
        elif how == "shift":
            flat += 1
        else:
            flat[case.rng.randrange(1, len(flat))] = 2**62 if how == "huge" else -(2**40)
        case.say(f"{name}: {how}")
    elif (name.endswith("items") and array.dtype.kind == "i") or name.endswith("_other"):
        value = case.rng.choice(
            (-1, -2, -1000, -50_000_000, -(2**31), 25, 40, 41, 10**6, 2**31 - 1)
        )
        if value in (25, 40, 41):
            value = 25 if name in ("seen_items", "by_user_other") else 40
        if case.rng.random() < 0.3:
            flat[:] = value
        else:
            flat[at] = value
        case.say(f"{name}: {value}")
    elif name.endswith(("_value", "_values")) and array.dtype.kind == "u":
        flat[at] = case.rng.choice((5, 6, 128, 255))
        case.say(f"{name}: code {flat[at]} of 5 levels")
    elif name == "item_counts":
        flat[at] = case.rng.choice((-1, flat[at] + 1, 10**6, -(2**62), 2**62))
        case.say(f"item_counts: {flat[at]}")
    elif name == "tau":
        flat[at] = case.rng.choice((0.0, -1.0, np.nan, np.inf, -np.inf, -0.0))
        case.say(f"tau: {flat[at]}")
    elif name.endswith("id_ids"):
        flat[at] = flat[at - 1] if at else 2**62
        case.say(f"{name}: not ascending")
    elif name.endswith("id_bytes"):
        flat[at] = 0xFF
        case.say(f"{name}: no UTF-8")
    elif array.dtype.kind == "f" and name not in ("history", "train_rmse", "validation_rmse"):
        # A row's NaN says that its precision was not drawn.
        odd = (0.0, -1.0) if name.endswith("_tau") else (np.nan,)
        flat[at] = case.rng.choice((*odd, np.inf, -np.inf))
        case.say(f"{name}: {flat[at]}")
    else:
        return None
    return flat.reshape(array.shape)


@attack("forged", 6)
def values(case: Case) -> None:
    """Values out of range."""
    kind, made = chosen(case)
    for name in case.rng.sample(sorted(made.arrays), len(made.arrays)):
        wrong = wrong_values(case, name, made.arrays[name])
        if wrong is not None:
            made.arrays[name] = wrong
            break
    else:
        return
    made.save()
    must_refuse(case, kind)


@attack("forged", 3)
def forms(case: Case) -> None:
    """Another dtype or another shape than the array must have."""
    kind, made = chosen(case)
    if not made.arrays:
        return
    name = case.rng.choice(sorted(made.arrays))
    array = made.arrays[name]
    how = case.rng.choice(
        ("dtype", "dtype", "swapped", "row less", "row more", "turned", "flat", "deeper", "empty",
         "scalar", "complex", "bool", "gone", "twice")
    )  # fmt: skip
    other = case.rng.choice([d for d in DTYPES.values() if np.dtype(d) != array.dtype])
    case.say(f"{name}: {how} {other if how == 'dtype' else ''}")
    first = array[:1] if array.ndim else array.reshape(1)
    if how == "gone":
        del made.arrays[name]
    elif how == "twice":
        made.arrays[f"{name}_more"] = array
    else:
        with np.errstate(all="ignore"):
            made.arrays[name] = {
                "dtype": lambda: array.astype(other),
                "swapped": lambda: array.astype(array.dtype.newbyteorder(">")),
                "row less": lambda: array[:-1] if array.ndim else array,
                "row more": lambda: np.concatenate([array if array.ndim else first, first]),
                "turned": lambda: np.ascontiguousarray(array.T),
                "flat": lambda: array.reshape(-1), "deeper": lambda: array[None],
                "empty": lambda: array.reshape(-1)[:0], "scalar": lambda: array.reshape(-1)[:1][0],
                "complex": lambda: array.astype(complex), "bool": lambda: array.astype(bool),
            }[how]()  # fmt: skip
            made.arrays[name] = np.asarray(made.arrays[name])
    made.save()
    compare(case, kind)  # it may be of a form that answers do not depend on


SHAPES = (
    [-1], [5], [-5, -8], [2**62, 4], [2**32, 2**32], [True, 25], 25, ["a"], [2.0], None, [],
    [1] * 64, [0], [2**63], "5", {"0": 5},
)  # fmt: skip
OFFSETS = (
    [0, 0], [-64, 0], [0, 2**62], [2**63, 2**63 + 64], [64, 0], [1, 65], [0], [0, 64, 128], None,
    [0.0, 64.0], ["0", "64"], {}, [True, False], [10**30, 10**30 + 1],
)  # fmt: skip


@attack("forged", 3)
def entries(case: Case) -> None:
    """The header describes an array that cannot be, or that overlaps another."""
    kind, made = chosen(case)
    name = case.rng.choice(sorted(made.entries) or ["~0"])
    entry = made.entries.setdefault(name, {})
    how = case.rng.choice(("dtype", "shape", "data_offsets", "more", "gone", "same", "odd"))
    if how == "dtype":
        entry[how] = case.rng.choice(("F8_E4M3", "BF16", "O", "|O", "V8", "", "f4", None, 4, []))
    elif how == "shape":
        entry[how] = case.rng.choice([shape for shape in SHAPES if shape != entry.get(how)])
    elif how == "data_offsets":
        entry[how] = case.rng.choice([at for at in OFFSETS if at != entry.get(how)])
    elif how == "more":
        entry["unheard of"] = case.rng.choice(ODD)
    elif how == "gone":
        del made.entries[name]
    elif how == "same":  # two names for the same bytes
        made.entries[f"{name}_same"] = dict(entry)
    else:
        made.entries[name] = case.rng.choice(ODD)
    case.say(f"{name}: {how} {str(made.entries.get(name))[:90]}")
    made.write(json.dumps(made.header(), separators=(",", ":")))
    if how in ("more", "gone"):
        compare(case, kind)
    else:
        must_refuse(case, kind)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in plain JSON."""
    found = [path] if path else []
    pairs = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in pairs:
        found += places(value, (*path, key))
    return found


def change_meta(case: Case, made: Artefact) -> str:
    """Something in the metadata of another type, gone or too much; the text of the header."""
    # Other levels and moments may be sound ones, of other ratings.
    taken = "levels", "mean", "squared_deviations"
    made.meta.setdefault("unheard of", 1)  # there may be no others
    every = [path for path in places(made.meta) if path[0] not in taken]
    at = case.rng.choice(every)
    if case.rng.random() < 0.4:  # what answers are made of, not the many numbers of the report
        at = case.rng.choice([path for path in every if path[0] != "report" or len(path) < 3])
    tree: Any = made.meta
    for key in at[:-1]:
        tree = tree[key]
    how = case.rng.choice(("odd", "odd", "odd", "gone", "more", "deep"))
    old = tree[at[-1]]
    if how == "gone":
        del tree[at[-1]]
    elif how == "more" and isinstance(old, dict):
        old["unheard of"] = case.rng.choice(ODD)
    elif how == "deep":
        tree[at[-1]] = "DEEP"
    else:
        tree[at[-1]] = case.rng.choice([odd for odd in ODD if odd is not old])
    shown = "nothing" if how == "gone" else repr(tree[at[-1]])[:60]
    case.say(f"{'/'.join(map(str, at))} was {str(old)[:40]!r}, {how}: {shown}")
    deep = "[" * 30_000 + "]" * 30_000
    meta = json.dumps(made.meta).replace('"DEEP"', deep)
    return json.dumps(made.header(meta=meta), separators=(",", ":"))


@attack("forged", 5)
def metadata(case: Case) -> None:
    """Settings of other types."""
    kind, made = chosen(case)
    made.write(change_meta(case, made))
    compare(case, kind)


@attack("forged", 2)
def printed(case: Case) -> None:
    """Commands, mostly those that print settings, with settings of other types."""
    made = Artefact(put(case, "model"))
    made.write(change_meta(case, made))
    questions(case, "model", made.file)


@attack("forged")
def headers(case: Case) -> None:
    """A header that is another document altogether, or whose own fields are odd."""
    kind, made = chosen(case)
    if case.rng.random() < 0.5:
        field = case.rng.choice(("format", "format_version", "digests", "meta", "more"))
        value = case.rng.choice((*ODD, "[" * 9000, "{}", "9" * 5000, "bayesmf-draws"))
        case.say(f"{field} of the header: {str(value)[:60]!r}")
        text = json.dumps(made.header(**{field: value}), separators=(",", ":"))
        made.write(text)
        return compare(case, kind) if field == "more" else must_refuse(case, kind)
    text = case.rng.choice(
        ("", "null", "[]", "{}", "3", '"x"', "{" * 9000, "[" * 200_000, "NaN", "\ufeff{}",
         '{"__metadata__":{"format":"bayesmf-model"}}', '{"__metadata__":[]}', "9" * 5000,
         '{"__metadata__":{"format":"bayesmf-model","format_version":"1",'
         f'"sha256":"{BLANK}"}}}}',
         '{"__metadata__":{"format":"bayesmf-model","format_version":"999999999","sha256":"x"}}')
    )  # fmt: skip
    case.say(f"the header is {text[:80]!r}")
    made.write(text)
    if case.rng.random() < 0.3:
        raw, size = made.file.read_bytes(), case.rng.choice((0, 7, 2**24, 2**31, 2**62, 2**64 - 1))
        case.say(f"its length is {size}")
        made.file.write_bytes(size.to_bytes(8, "little") + raw[8:])
    return must_refuse(case, kind)


@attack("forged")
def forged_truth(case: Case) -> None:
    """Planted truth with wrong values, and right digests."""
    from bayesmf.synthetic.truth import Truth

    made = Artefact(case.copy("truth.safetensors"))
    name = case.rng.choice(sorted(made.arrays))
    array = made.arrays[name]
    how = case.rng.choice(("nan", "dtype", "shape", "gone", "complex"))
    case.say(f"{name}: {how}")
    if how == "gone":
        del made.arrays[name]
    else:
        made.arrays[name] = {
            "nan": lambda: np.full(array.shape, np.nan, array.dtype),
            "dtype": lambda: array.astype(np.float16), "complex": lambda: array.astype(complex),
            "shape": lambda: array[None] if array.ndim == 0 else array[:-1],
        }[how]()  # fmt: skip
    made.save()
    case.call(lambda: Truth.load(made.file))
    case.find("other answers", f"a truth was read with {'; '.join(case.said)}")
