"""Checkpoints on disk: where they are, how they are written, verified, counted and found.

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
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.checkpoints.contents import Expecting
from bayesmf.checkpoints.fingerprint import difference
from bayesmf.checkpoints.snapshots import Arrays, Plain
from bayesmf.checks import not_negative, whole, yes_or_no
from bayesmf.errors import InputError
from bayesmf.model.draw_store import DrawStore
from bayesmf.model.draws import Draws
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

    It is given to `BayesianMF.fit`, which checks its values.

    Parameters
    ----------
    folder : path-like
        A folder of its own for one run; made where it is missing.
    every : float
        Seconds between checkpoints of a chain, longer where writing them would take more than
        about a tenth of the time; 0 for one after every round.
    keep : int
        Checkpoints of a chain that stay: should the newest be damaged, the one before serves.
    resume : bool
        Go on from the newest checkpoint in the folder, to the same bits as if the run had never
        been stopped; from the beginning if there is none.

    Examples
    --------
    A run that was cut short by its time goes on with more of it:

    >>> import tempfile
    >>> from bayesmf import BayesianMF, Checkpoint, Gibbs, Synthetic
    >>> ratings = Synthetic(40, 30, 600).ratings()
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = model.set_params(max_seconds=1e-9).fit(ratings, checkpoint=Checkpoint(folder))
    ...     short = model.report_["epochs"]
    ...     again = Checkpoint(folder, resume=True)
    ...     _ = model.set_params(max_seconds=None).fit(ratings, checkpoint=again)
    >>> short, model.report_["epochs"]
    (1.0, 20.0)
    """

    folder: PathLike
    every: float = 60.0
    keep: int = 2
    resume: bool = False


def as_checkpoint(given: PathLike | Checkpoint) -> Checkpoint:
    """A checkpoint from a folder or as it is; raises InputError for values that cannot be used."""
    made = given if isinstance(given, Checkpoint) else Checkpoint(given)
    if not isinstance(made.folder, str | os.PathLike):
        raise InputError(f"checkpoint must be a folder or a Checkpoint, not {given!r}")
    not_negative("checkpoint every", made.every)
    whole("checkpoint keep", made.keep)
    yes_or_no("checkpoint resume", made.resume)
    return made


def noted_run(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The run in the folder, None if there is none yet; refuses what could not be used later."""
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
    """Whether something in the folder may be ours: a real file or folder with one of our names."""
    if not _OURS.fullmatch(path.name):
        return False
    return is_real_folder(path) or (path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def opened(checkpoint: Checkpoint, here: dict[str, Any]) -> Iterator[list[ChainFolder]]:
    """Context with the folders of all chains of a run, locked for this process."""
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
    """Some draws of a chain, on disk."""

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
        """Write the draws that are in no batch; all of them once some were forgotten."""
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
            raise InputError(f"the checkpoint {self._round(t)} is of another run or chain: {CURE}")
        if meta["chain"]["t"] != t or sum(batch.n for batch in batches) > meta["room"]:
            raise InputError(f"the checkpoint {self._round(t)} is not what its name says: {CURE}")

    def _read_batch(self, batch: Batch, expecting: Expecting) -> Draws:
        path = self._path / batch.name
        if not _BATCH.fullmatch(batch.name):
            raise InputError(f"a checkpoint in {self._path} names no batch of it: {CURE}")
        found = open_folder(path, BATCH, expecting.batch)
        verify_all(found.claims.values())
        if found.digest != batch.digest or len(found.arrays["tau"]) != batch.n:
            raise InputError(f"the batch folder {path} is not the one that was noted: {CURE}")
        return Draws.from_arrays(found.arrays)

    def _rounds(self) -> list[int]:
        found = map(_ROUND.fullmatch, os.listdir(self._path))
        return [int(match[1]) for match in found if match]

    def _round(self, t: int) -> Path:
        return self._path / f"round-{t:09}"


def _remove(path: Path) -> None:
    """Remove a folder, first from its name, so that no process finds half of it."""
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
