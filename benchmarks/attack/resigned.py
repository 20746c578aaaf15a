"""Folders with wrong values and right digests: only a look at the values can tell.

What is put in is never valid, so that an answer is a finding; metadata alone may be passed over
where answers do not depend on it, and then the answer must be the old one.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.case import Case
from benchmarks.attack.folders import ask, compare, put
from benchmarks.attack.material import sign, sign_manifest
from benchmarks.attack.registry import attack

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, -(10**30), 1 << 63, float("nan"), float("inf"), 1e308, "",
    "3", "x" * 5000,
    [], {}, [[]], [1, 2], {"a": 1}, "\x1b[31m", "../../x", "nan", "0x1p-1080",
)  # fmt: skip


def chosen_folder(case: Case) -> tuple[str, Path]:
    """A kind of folder, and one that has a manifest and arrays."""
    models = "model", "model", "model_str", "model_items", "model_users"
    kind = case.rng.choice((*models, "checkpoint"))
    folder = put(case, kind)
    if kind == "checkpoint":
        rounds = sorted(p.parent for p in folder.rglob("manifest.json") if p.parent.name != "run")
        folder = case.rng.choice(rounds)
    return kind, folder


def resign(folder: Path) -> None:
    """Make digests anew; where it is a batch, also in the checkpoints that name it."""
    sign(folder)
    digest = (folder / "manifest.sha256").read_text().strip()
    if not folder.name.startswith("draws-"):
        return
    for other in folder.parent.glob("round-*"):
        manifest = json.loads((other / "manifest.json").read_bytes())
        for batch in manifest["meta"]["batches"]:
            if batch[0] == folder.name:
                batch[1] = digest
        sign_manifest(other, json.dumps(manifest, indent=1) + "\n")


def only_this_one(folder: Path) -> None:
    """Leave only the checkpoint of a chain that was changed, so that no other serves."""
    import shutil

    for other in folder.parent.glob("round-*"):
        if folder.name.startswith("round-") and other != folder:
            shutil.rmtree(other)


def note_entry(folder: Path, name: str, dtype: Any, shape: Any) -> None:
    """Let the manifest say of an array what its head says."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["arrays"].setdefault(name, {})
    manifest["arrays"][name] |= {"dtype": dtype, "shape": shape}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def must_refuse(case: Case, kind: str) -> None:
    """An answer from what cannot be valid is a finding."""
    if kind == "checkpoint":  # an earlier one may serve, or nobody needs what was changed
        return compare(case, kind)
    _, found = ask(case, kind)
    what = "with numbers that are none" if not np.isfinite(found).all() else "of numbers"
    return case.find("other answers", f"an answer {what} from a {kind} with {'; '.join(case.said)}")


# -- values ----------------------------------------------------------------------------------------


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
        flat[at] = case.rng.choice((np.nan, np.inf, -np.inf))
        case.say(f"{name}: {flat[at]}")
    else:
        return None
    return flat.reshape(array.shape)


@attack("resigned", 6)
def values(case: Case) -> None:
    """Values out of range."""
    kind, folder = chosen_folder(case)
    names = sorted(file.stem for file in folder.glob("*.npy"))
    for name in case.rng.sample(names, len(names)):
        made = wrong_values(case, name, np.load(folder / f"{name}.npy"))
        if made is not None:
            np.save(folder / f"{name}.npy", made)
            break
    else:
        return
    resign(folder)
    only_this_one(folder)
    must_refuse(case, kind)


@attack("resigned", 3)
def forms(case: Case) -> None:
    """Another dtype or another shape than the array must have."""
    kind, folder = chosen_folder(case)
    name = case.rng.choice(sorted(file.stem for file in folder.glob("*.npy")))
    array = np.load(folder / f"{name}.npy")
    how = case.rng.choice(
        ("dtype", "dtype", "swapped", "row less", "row more", "turned", "flat", "deeper", "empty",
            "scalar",
         "fortran", "strings", "complex", "bool", "times")
    )  # fmt: skip
    dtypes = [
        d
        for d in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "u8")
        if np.dtype(d) != array.dtype
    ]
    chosen = case.rng.choice(dtypes)
    case.say(f"{name}: {how} {chosen if how == 'dtype' else ''}")
    first = array[:1] if array.ndim else array.reshape(1)
    with np.errstate(all="ignore"):
        made: np.ndarray = {
            "dtype": lambda: array.astype(chosen),
            "swapped": lambda: array.astype(array.dtype.newbyteorder(">")),
            "row less": lambda: array[:-1], "row more": lambda: np.concatenate([array, first]),
            "turned": lambda: np.ascontiguousarray(array.T), "flat": lambda: array.reshape(-1),
            "deeper": lambda: array[None], "empty": lambda: array[:0],
            "scalar": lambda: array.reshape(-1)[0],
            "fortran": lambda: np.asfortranarray(array), "strings": lambda: array.astype("U8"),
            "complex": lambda: array.astype(complex), "bool": lambda: array.astype(bool),
            "times": lambda: array.astype("i8").astype("M8[s]"),
        }[how]()  # fmt: skip
    np.save(folder / f"{name}.npy", made)
    note_entry(folder, name, np.asarray(made).dtype.str, list(np.shape(made)))
    resign(folder)
    only_this_one(folder)
    compare(case, kind)  # it may be of a form that answers do not depend on


HEADS = (
    "{'descr': '|V0', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (5,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (5,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-5, -8), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (True, 25), }",
    "{'descr': '<i8', 'fortran_order': 1, 'shape': (25,), }",
    "{'descr': [('a', '<i8'), ('b', '<f4')], 'fortran_order': False, 'shape': (5,), }",
    "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (5,), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': 25, }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (25,), 'more': 1}",
    "{'descr': '<i8', 'shape': (25,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (9,), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (2.0,), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': ('a',), }",
    "{'descr': 'int', 'fortran_order': False, 'shape': (25,), }",
    "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (25,), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (" + "1, " * 64 + "), }",
    "(" * 200 + ")" * 200, "[" * 5000, "1", "", "\0", "__import__('os').abort()", "{" * 100_000,
)  # fmt: skip


@attack("resigned", 3)
def heads(case: Case) -> None:
    """The head of an array file says what cannot be, and the manifest agrees where it can."""
    kind, folder = chosen_folder(case)
    name = case.rng.choice(sorted(file.stem for file in folder.glob("*.npy")))
    file = folder / f"{name}.npy"
    old = file.read_bytes()
    length = struct.unpack("<H", old[8:10])[0]
    head = case.rng.choice(HEADS)
    version = case.rng.choice(((1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (9, 9), (0, 0)))
    case.say(f"{name}: version {version}, {head[:90]!r}")
    text = head.encode() + b" " * (-(len(head) + 11) % 64) + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", min(len(text), 0xFFFF))
    if case.rng.random() < 0.2:
        size = case.rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"))[: len(size)]
    file.write_bytes(b"\x93NUMPY" + bytes(version) + size + text + old[10 + length :])
    if case.rng.random() < 0.7:
        described = case.rng.choice(("|V0", "<f4", "<i8", "|O"))
        note_entry(folder, name, described, case.rng.choice(([-1], [5], [25], [2**62, 4], [])))
    resign(folder)
    only_this_one(folder)
    must_refuse(case, kind)


# -- metadata --------------------------------------------------------------------------------------


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


@attack("resigned", 5)
def metadata(case: Case) -> None:
    """Something in a manifest is of another type, gone, or too much."""
    kind, folder = chosen_folder(case)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    at = case.rng.choice(places(manifest))
    if case.rng.random() < 0.4:  # what answers are made of, not the many numbers of the report
        few = [p for p in places(manifest) if p[:2] != ("meta", "report") or len(p) < 4]
        at = case.rng.choice(few)
    tree = manifest
    for key in at[:-1]:
        tree = tree[key]
    how = case.rng.choice(("odd", "odd", "odd", "gone", "more", "deep", "twice"))
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
    text = json.dumps(manifest, indent=1).replace('"DEEP"', "[" * 30_000 + "]" * 30_000)
    _sign_text(folder, text)
    only_this_one(folder)
    compare(case, kind)


def _sign_text(folder: Path, text: str) -> None:
    sign_manifest(folder, text + "\n")
    if folder.name.startswith("draws-"):
        digest = hashlib.sha256((text + "\n").encode()).hexdigest()
        for other in folder.parent.glob("round-*"):
            manifest = json.loads((other / "manifest.json").read_bytes())
            for batch in manifest["meta"]["batches"]:
                if batch[0] == folder.name:
                    batch[1] = digest
            sign_manifest(other, json.dumps(manifest, indent=1) + "\n")


@attack("resigned")
def manifests(case: Case) -> None:
    """A manifest that is another document altogether."""
    kind, folder = chosen_folder(case)
    text = case.rng.choice(
        ("", "null", "[]", "{}", "3", '"x"', "{" * 9000, "[" * 200_000,
            '{"format": "bayesmf-model"}', "NaN",
         '{"format": "bayesmf-model", "format_version": 1, "meta": {}, "arrays": {}}',
         '{"format": "bayesmf-ratings", "format_version": 1, "arrays": {}}', "\ufeff{}",
         "\ud800".encode(errors="surrogatepass").decode(errors="replace"),
         '{"format": ["bayesmf-model"], "format_version": 1}',
         '{"format": "bayesmf-model", "format_version": 1e999}',
         "9" * 5000, '{"format_version": ' + "9" * 5000 + "}")
    )  # fmt: skip
    case.say(f"the manifest is {text[:80]!r}")
    _sign_text(folder, text)
    only_this_one(folder)
    must_refuse(case, kind)


@attack("resigned", 2)
def commands(case: Case) -> None:
    """What the commands make of metadata of wrong types, the printing ones above all."""
    folder = case.copy("model")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    below = [p for p in places(manifest) if p[0] == "meta"]
    at = case.rng.choice(below)
    tree = manifest
    for key in at[:-1]:
        tree = tree[key]
    old, tree[at[-1]] = tree[at[-1]], case.rng.choice(ODD)
    case.say(f"{'/'.join(map(str, at))} was {str(old)[:40]!r}, now {repr(tree[at[-1]])[:60]}")
    _sign_text(folder, json.dumps(manifest, indent=1))
    pairs = case.copy("pairs.csv")
    case.cli(*case.rng.choice(
        (("diagnose", folder), ("diagnose", folder, "--json"), ("predict", folder, pairs),
         ("recommend", folder, 1), ("evaluate", folder, case.material.folder / "ratings.csv"),
         ("fit", case.material.folder / "plain.csv", "--out", folder, "--epochs", 2, "--sampler",
             "gibbs"))
    ))  # fmt: skip


@attack("resigned")
def truth(case: Case) -> None:
    """Planted truth with wrong values, packed as it should be."""
    from bayesmf.synthetic.truth import Truth

    found = dict(np.load(case.material.folder / "truth.npz"))
    name = case.rng.choice(sorted(found))
    array = found[name]
    how = case.rng.choice(("nan", "dtype", "shape", "gone", "object", "strings", "huge"))
    case.say(f"{name}: {how}")
    if how == "gone":
        del found[name]
    elif how == "nan":
        found[name] = np.full(array.shape, np.nan, np.float32 if array.ndim else np.float64)
    elif how == "shape":
        found[name] = array[None] if array.ndim == 0 else array[:-1]
    elif how == "dtype":
        found[name] = array.astype(np.complex64)
    elif how == "strings":
        found[name] = array.astype("U5")
    elif how == "huge":
        found[name] = (
            np.array(1e308) if array.ndim == 0 else np.full(array.shape, 3e38, array.dtype)
        )
    else:
        found[name] = np.array([print], dtype=object)
    np.savez(case.work / "truth.npz", **found)  # pickles what is no plain array
    case.call(lambda: Truth.load(case.work / "truth.npz"))
    if how not in ("huge",):
        case.find("other answers", f"a truth was read with {'; '.join(case.said)}")
