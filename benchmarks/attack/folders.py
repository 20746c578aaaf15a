"""Folders whose bytes are damaged, digests left as they were: an answer must be the old answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.case import Case
from benchmarks.attack.material import answers, draws_of, estimator
from benchmarks.attack.registry import attack

KINDS = (
    "model", "model_str", "model_items", "model_users", "packed", "checkpoint"
)  # fmt: skip


# -- harm ------------------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    """All plain files in a folder and those below; the file itself for a file."""
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.is_file())


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
        # Sound bytes, but not in the folder: answers may be given, or not.
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


def add_file(case: Case, folder: Path) -> None:
    """Put something into a folder that is not of it."""
    inside = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    parent = case.rng.choice(sorted(inside))
    name = case.rng.choice(
        ("x.npy", ".hidden", "manifest.json~", "users.npy.bak", "draws", "a b\n")
    )
    how = case.rng.choice(("file", "folder", "link", "fifo"))
    case.say(f"{how} {name!r} is added to {parent.relative_to(case.work)}")
    path = parent / name
    if path.exists():
        return
    if how == "file":
        path.write_bytes(b"\x93NUMPY")
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        os.symlink(case.outside / "folder", path)
    else:
        os.mkfifo(path)


# -- questions -------------------------------------------------------------------------------------


def put(case: Case, kind: str) -> Path:
    """A sound folder of a kind in the working folder."""
    return case.copy(kind)


def ask(case: Case, kind: str) -> tuple[str, np.ndarray]:
    """Answers that need all of the folder, and the name of what they should be."""
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


def chosen_kind(case: Case) -> tuple[str, str]:
    """A kind of folder, and how it is asked."""
    kind = case.rng.choice(KINDS)
    return kind, "opened" if kind == "packed" and case.rng.random() < 0.5 else kind


# -- attacks ---------------------------------------------------------------------------------------


@attack("folders", 8)
def damaged(case: Case) -> None:
    """One or a few files with other bytes."""
    kind, how = chosen_kind(case)
    folder = put(case, kind)
    for _ in range(case.rng.choice((1, 1, 1, 2, 5))):
        damage_bytes(case, case.rng.choice(files_of(folder)))
    compare(case, how)


@attack("folders", 3)
def replaced(case: Case) -> None:
    """A file that is none."""
    kind, how = chosen_kind(case)
    folder = put(case, kind)
    replace_file(case, case.rng.choice(files_of(folder)))
    compare(case, how)


@attack("folders")
def more(case: Case) -> None:
    """Something that does not belong there."""
    kind, how = chosen_kind(case)
    folder = put(case, kind)
    if folder.is_file():
        return
    add_file(case, folder)
    compare(case, how)


@attack("folders", 2)
def commands(case: Case) -> None:
    """What the commands make of a damaged model or of damaged packed ratings."""
    kind = case.rng.choice(("model", "model_str", "packed"))
    folder = put(case, kind)
    pairs = case.copy("pairs.csv" if kind != "model_str" else "names.csv", "asked.csv")
    harm = case.rng.choice((damage_bytes, damage_bytes, replace_file))
    harm(case, case.rng.choice(files_of(folder)))
    if kind == "packed":
        quick = ("--sampler", "gibbs", "--epochs", 3, "--factors", 2, "--engine", "serial")
        case.cli("fit", folder, "--out", case.work / "out", *quick)
    else:
        command = case.rng.choice(
            (("predict", folder, pairs), ("recommend", folder, "1", "u1x"), ("diagnose", folder),
             ("evaluate", folder, case.material.folder / "names.csv"),
             ("fit", case.material.folder / "plain.csv", "--out", folder, "--epochs", 2,
              "--sampler", "gibbs", "--factors", 2))
        )  # fmt: skip
        case.cli(*command)


@attack("folders")
def out_places(case: Case) -> None:
    """What stands where a model is to be saved, and beside it."""
    from bayesmf import BayesianMF

    model = BayesianMF.load(case.material.folder / "model")
    target = case.work / "saved"
    how = case.rng.choice(("link", "foreign", "file", "fifo", "loop", "model+", "ours", "fine"))
    case.say(f"the place is {how}")
    if how == "link":
        os.symlink(case.outside / case.rng.choice(("folder", "empty", "nowhere")), target)
        case._before.pop("nowhere", None)
    elif how == "foreign":
        shutil.copytree(case.outside / "folder", target)
    elif how == "file":
        target.write_text("mine")
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "loop":
        os.symlink(target, target)
    elif how in ("model+", "ours"):
        case.copy("model", "saved")
        if how == "model+":
            (target / "notes.txt").write_text("mine")
    saved_to = os.path.realpath(target) if how == "link" else ""
    case.call(lambda: model.save(target))
    if saved_to.startswith(str(case.outside)):
        # A link to nowhere or to an empty folder names the place: that is what was asked for.
        shutil.rmtree(saved_to, ignore_errors=True)
        if saved_to.endswith("empty"):
            os.mkdir(saved_to)
        case._before = {k: v for k, v in case._before.items() if k != "empty"}
        case._before |= {k: v for k, v in _now(case).items() if k == "empty"}
    if how in ("foreign", "file", "fifo", "model+"):
        case.find("files touched", f"a model was saved over {how}")


def _now(case: Case) -> dict[str, Any]:
    from benchmarks.attack.case import fingerprint

    return fingerprint(case.outside)


@attack("folders")
def truth(case: Case) -> None:
    """A file of planted truth with other bytes."""
    from bayesmf.synthetic.truth import Truth

    file = case.copy("truth.npz")
    if case.rng.random() < 0.8:
        damage_bytes(case, file)
    else:
        replace_file(case, file)
    found = case.call(lambda: Truth.load(file))
    sound = Truth.load(case.material.folder / "truth.npz")
    for name, there, here in zip(sound._fields, sound, found, strict=True):
        if not np.array_equal(there, here):
            case.find("other answers", f"another {name} from a damaged truth")
