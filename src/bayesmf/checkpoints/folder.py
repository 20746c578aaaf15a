"""Checkpoints on the disk: where they are, how they are written, verified, counted and found.

    FOLDER/lock              held by the one process that writes here
    FOLDER/run/              which run it is (fingerprint.py)
    FOLDER/chain-0/round-000000120/      a chain after 120 rounds (snapshots.py), and its batches
    FOLDER/chain-0/draws-000000-000012-4f1d09a2/    a batch: draws 0 to 11 of the chain

Every folder is written by storage/writer.py: it appears at once, any changed bit is noticed.
A batch is written once; checkpoints name theirs with the digests of their manifests.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.checkpoints.fingerprint import difference
from bayesmf.checkpoints.rules import Expecting
from bayesmf.checkpoints.snapshots import Arrays, Plain
from bayesmf.checks import whole, yes_or_no
from bayesmf.errors import InputError
from bayesmf.model.draws import Draws, DrawStore
from bayesmf.storage.exchange import FILES, HIDDEN
from bayesmf.storage.folders import foreign_name, is_real_folder, remove_known
from bayesmf.storage.journal import only_one
from bayesmf.storage.manifest import Kind
from bayesmf.storage.paths import (
    PathLike,
    as_folder,
    as_input_error,
    made_parents,
    sync_folder,
    temporary_name,
)
from bayesmf.storage.reader import open_folder, read_folder
from bayesmf.storage.verify import verify_all
from bayesmf.storage.writer import write_folder

log = logging.getLogger("bayesmf")

CURE = "an earlier one may do, or start in another folder"
RUN = Kind("bayesmf-run", "run", "start from the beginning in another folder")
CHAIN = Kind("bayesmf-checkpoint", "checkpoint", CURE)
BATCH = Kind("bayesmf-draws", "batch", CURE)

_RUN = "run"
_ROUND = re.compile(r"round-(\d{9,15})")
_BATCH = re.compile(r"draws-\d{6,12}-\d{6,12}-[0-9a-f]{8}")
_OURS = re.compile(r"lock|run|chain-\d+|\.bayesmf-.*")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is written down, so that it can go on after it was stopped.

    Parameters
    ----------
    folder : path-like
        A folder of its own for one run; made where it is missing.
    every : float
        Seconds between checkpoints of a chain, longer where writing them would take more than
        about a tenth of the time; 0 for one after every round.
    keep : int
        Checkpoints of a chain that are kept: should the newest be damaged, the one before serves.
    resume : bool
        Go on from the newest checkpoint in the folder, to the same bits as if the run had never
        been stopped; from the beginning if there is none.
    """

    folder: PathLike
    every: float = 60.0
    keep: int = 2
    resume: bool = False

    @classmethod
    def of(cls, given: PathLike | Checkpoint) -> Checkpoint:
        """From a folder alone; one sentence for what cannot be meant."""
        made = given if isinstance(given, Checkpoint) else cls(given)
        if not isinstance(made.folder, str | os.PathLike):
            raise InputError(f"checkpoint must be a folder or a Checkpoint; got {given!r}")
        every: Any = made.every
        good = isinstance(every, int | float) and not isinstance(every, bool)
        if not (good and math.isfinite(every) and every >= 0):
            raise InputError(f"checkpoint every must be seconds, 0 or more; got {every!r}")
        whole("checkpoint keep", made.keep)
        yes_or_no("checkpoint resume", made.resume)
        return made


def noted_run(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The run in the folder, None if there is none yet; refuse now what could not be used later."""
    folder = as_folder(checkpoint.folder)
    with as_input_error(folder):
        present = sorted(os.listdir(folder)) if folder.exists() else []
    if foreign := [name for name in present if not _is_ours(folder / name)]:
        raise InputError(
            f"{folder} also holds {foreign[0]!r}, which is no checkpoint: choose a folder of its "
            "own for checkpoint (--checkpoint)"
        )
    with as_input_error(folder), made_parents(folder, keep=False):  # the only way is to try
        probe = temporary_name(folder / _RUN)
        os.mkdir(probe)
        os.rmdir(probe)
    begun = [name for name in present if name == _RUN or name.startswith("chain-")]
    if not begun:
        return None
    if not checkpoint.resume:
        raise InputError(
            f"{folder} holds checkpoints of an earlier run: go on from them with resume=True "
            "(--resume), or choose another folder"
        )
    return read_folder(folder / _RUN, RUN)[1]


def _is_ours(path: Path) -> bool:
    """Whether something in the folder may be of a run: folders are folders, and no links to any."""
    if not _OURS.fullmatch(path.name):
        return False
    return is_real_folder(path) or (path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def opened(checkpoint: Checkpoint, here: dict[str, Any]) -> Iterator[list[ChainFolder]]:
    """The folders of all chains of a run, for this process alone."""
    folder = as_folder(checkpoint.folder)
    noted_run(checkpoint)  # before anything is made there
    with contextlib.ExitStack() as stack:
        with as_input_error(folder):
            stack.enter_context(only_one(folder))
        sync_folder(folder.absolute().parent)
        there = noted_run(checkpoint)
        if there is None:
            if checkpoint.resume:
                log.info("%s holds no checkpoint: starting from the beginning", folder)
            write_folder(folder / _RUN, {}, here, RUN)
        elif (found := difference(there, here)) is not None:
            raise InputError(
                f"the checkpoint in {folder} is of another run: {found}; give the same ratings and "
                "settings, or choose another folder"
            )
        _sweep(folder)
        run = open_folder(folder / _RUN, RUN).digest
        yield [
            ChainFolder(folder / f"chain-{number}", checkpoint.keep, f"{run} {number}")
            for number in range(here["sampler"].get("n_chains", 1))
        ]


class Batch(NamedTuple):
    """Draws of a chain that are on the disk."""

    name: str
    digest: str
    n: int


class Loaded(NamedTuple):
    """A checkpoint of a chain."""

    arrays: Arrays
    plain: Plain
    room: int
    draws: list[Draws]


class ChainFolder:
    """The checkpoints of one chain."""

    def __init__(self, path: Path, keep: int, of: str = "") -> None:
        self._path, self._keep, self._of = path, keep, of
        self._batches: list[Batch] = []  # with all draws that are on the disk, in order
        self._selections = 0
        self._named: dict[int, set[str]] = {}  # batches by the rounds of checkpoints
        with as_input_error(path):
            path.mkdir(exist_ok=True)
        sync_folder(path.parent)
        _sweep(path)

    @property
    def newest(self) -> int:
        """The rounds of the newest checkpoint, 0 without one."""
        return max(self._named, default=0)

    def write(self, t: int, arrays: Arrays, plain: Plain, store: DrawStore, chain: int) -> None:
        """Write a checkpoint after t rounds; after an InputError the earlier ones are there."""
        try:
            self._write_draws(store, chain)
            meta = {
                "chain": plain,
                "room": store.room(chain),
                "batches": self._batches,
                "of": self._of,  # which run, and which of its chains
            }
            write_folder(self._round(t), arrays, meta, CHAIN)
            self._named[t] = {batch.name for batch in self._batches}
        finally:
            self._remove_old()

    def _write_draws(self, store: DrawStore, chain: int) -> None:
        """Write the draws that no batch has; all of them once some were forgotten."""
        if store.selections(chain) != self._selections:
            self._batches, self._selections = [], store.selections(chain)
        first, n = sum(batch.n for batch in self._batches), store.count(chain)
        if n > first:
            name = f"draws-{first:06}-{n:06}-{secrets.token_hex(4)}"
            new = store.since(chain, first)
            digest = write_folder(self._path / name, new.arrays(), {}, BATCH)
            self._batches.append(Batch(name, digest, n - first))

    def _remove_old(self) -> None:
        for t in sorted(self._named)[: -self._keep]:
            _remove(self._round(t))
            del self._named[t]
        used = {batch.name for batch in self._batches}.union(*self._named.values())
        with contextlib.suppress(OSError):
            for name in os.listdir(self._path):
                if _BATCH.fullmatch(name) and name not in used:
                    _remove(self._path / name)

    def load(self, expecting: Expecting) -> Loaded | None:
        """The newest sound checkpoint, None if there is none at all.

        Those that are not sound are removed, unless none is.
        """
        damaged: list[int] = []
        found = None
        for t in sorted(self._rounds(), reverse=True):
            try:
                arrays, meta = read_folder(self._round(t), CHAIN, expecting.chain)
                batches = [Batch(*batch) for batch in meta["batches"]]
                if found is None:
                    draws = [self._read_batch(batch, expecting) for batch in batches]
                    self._check_counts(t, meta, batches)
                    found = Loaded(arrays, meta["chain"], meta["room"], draws)
                    self._batches = batches
                self._named[t] = {batch.name for batch in batches}
            except InputError as error:
                log.warning("%s", error)
                damaged.append(t)
        if found is None and damaged:
            raise InputError(
                f"no checkpoint in {self._path} is sound: start from the beginning in another "
                "folder, or restore this one from a copy"
            )
        for t in damaged:
            _remove(self._round(t))
        return found

    def _check_counts(self, t: int, meta: dict[str, Any], batches: list[Batch]) -> None:
        if meta.get("of", self._of) != self._of:
            raise InputError(f"The checkpoint {self._round(t)} is of another run or chain; {CURE}.")
        if meta["chain"]["t"] != t or sum(batch.n for batch in batches) > meta["room"]:
            raise InputError(f"The checkpoint {self._round(t)} is not what its name says; {CURE}.")

    def _read_batch(self, batch: Batch, expecting: Expecting) -> Draws:
        path = self._path / batch.name
        if not _BATCH.fullmatch(batch.name):
            raise InputError(f"A checkpoint in {self._path} names no batch of it; {CURE}.")
        found = open_folder(path, BATCH, expecting.batch)
        verify_all(found.claims.values())
        if found.digest != batch.digest or len(found.arrays["tau"]) != batch.n:
            raise InputError(f"The batch folder {path} is not the one that was noted; {CURE}.")
        return Draws.from_arrays(found.arrays)

    def _rounds(self) -> list[int]:
        found = map(_ROUND.fullmatch, os.listdir(self._path))
        return [int(match[1]) for match in found if match]

    def _round(self, t: int) -> Path:
        return self._path / f"round-{t:09}"


def _remove(path: Path) -> None:
    """Remove a folder: from its name at once, so that nobody meets half of it."""
    aside = temporary_name(path)
    with contextlib.suppress(OSError):
        if foreign_name(path, FILES) is not None:
            return  # somebody else's, too
        os.replace(path, aside)
        remove_known(aside, FILES)


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed has left; only the holder of the lock may do that."""
    for left in folder.glob(".bayesmf-*"):
        if HIDDEN.fullmatch(left.name):
            remove_known(left, FILES)
