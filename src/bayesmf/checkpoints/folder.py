"""Checkpoints on disk: identity of the run, writing, verification, search.

    FOLDER/run                                     which run it is, by what its bits depend on
    FOLDER/chain-0/round-000000120                 a chain after 120 rounds, and its batches
    FOLDER/chain-0/draws-000000-000012-4f1d09a2    a batch: draws 0 to 11 of the chain

All are files of storage/artefact.py: written atomically, and verified by digests. A batch is
written once; checkpoints list their batches with the digests of their headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf import __version__
from bayesmf.chains.pairs import Validation
from bayesmf.chains.state import RunSettings
from bayesmf.checkpoints.snapshots import Arrays, Plain, SnapshotRules
from bayesmf.checks import not_negative, whole, yes_or_no
from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.model.draw_store import DrawStore
from bayesmf.model.draws import Draws
from bayesmf.samplers.registry import settings_dict
from bayesmf.storage.artefact import Kind, check_writable, open_file, read_file, write_file
from bayesmf.storage.paths import PathLike, as_input_error, as_path

log = logging.getLogger("bayesmf")

_CURE = "an earlier one may do, or start in another folder"
RUN = Kind("bayesmf-run", "run", "start from the beginning in another folder")
CHAIN = Kind("bayesmf-checkpoint", "checkpoint", _CURE)
BATCH = Kind("bayesmf-draws", "draws", _CURE)

_RUN = "run"
_ROUND = re.compile(r"round-(\d{9,15})")
_BATCH = re.compile(r"draws-\d{6,12}-\d{6,12}-[0-9a-f]{8}")
_CHUNK = 1 << 24  # elements hashed at a time
_NO_MATTER = ("n_stripes",)  # settings that no bit depends on


@dataclass(frozen=True)
class Checkpoint:
    """Settings of checkpoints of a run, for `BayesianMF.fit`.

    Parameters
    ----------
    folder : path-like
        The folder of one run; made if it is missing.
    every : float
        Seconds between checkpoints of a chain, longer if writing would take more than about a tenth
        of the time; 0 for one after every round.
    keep : int
        Number of checkpoints kept of each chain: if the newest is damaged, the one before is used.
    resume : bool
        Resume from the newest checkpoint in the folder, with the same bits as an uninterrupted run;
        start from the beginning if there is none.

    Examples
    --------
    A run that was ended by `max_seconds` is resumed with more time:

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


def recorded_run(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Identity of the run in the folder, None if it is empty; InputError if it is unusable."""
    folder = as_path(checkpoint.folder)
    with as_input_error(folder):
        present = os.listdir(folder) if folder.exists() else []
    begun = any(name == _RUN or name.startswith("chain-") for name in present)
    if begun and not checkpoint.resume:
        raise InputError(
            f"{folder} holds checkpoints of an earlier run: resume with resume=True (--resume), or "
            "choose another folder"
        )
    found = read_file(folder / _RUN, RUN)[1] if begun else None
    check_writable(folder / _RUN, RUN)
    return found


def begin(checkpoint: Checkpoint, here: dict[str, Any]) -> list[ChainFolder]:
    """The folders of all chains of a run, whose identity is `here`."""
    folder, there = as_path(checkpoint.folder), recorded_run(checkpoint)
    if there is None:
        if checkpoint.resume:
            log.info("%s holds no checkpoint: starting from the beginning", folder)
        run = write_file(folder / _RUN, RUN, {}, here)
    elif (found := difference(there, here)) is not None:
        raise InputError(
            f"the checkpoint in {folder} is of another run: {found}; give the same ratings and "
            "settings, or choose another folder"
        )
    else:
        run = open_file(folder / _RUN, RUN).digest
    return [
        ChainFolder(folder / f"chain-{number}", checkpoint.keep, f"{run} {number}")
        for number in range(here["sampler"].get("n_chains", 1))
    ]


def identity(
    data: TrainingData, settings: RunSettings, validation: Validation | None
) -> dict[str, Any]:
    """Everything that the bits of a run depend on, as JSON; not engine, threads, stripes or time.

    In order of cause: `difference` reports the first.
    """
    lists = data.by_user
    ratings = {
        "number": len(data),
        "users": data.n_users,
        "items": data.n_items,
        "digest": _digest(lists.starts, lists.other, lists.value, data.levels),
    }
    known = None
    if validation is not None:
        pairs, bounds = validation.pairs, np.array([validation.low, validation.high])
        known = {
            "number": len(validation.value),
            "digest": _digest(pairs.user, pairs.item, validation.value, bounds),
        }
    sampler = {k: x for k, x in settings_dict(settings.sampler).items() if k not in _NO_MATTER}
    prior = {"name": type(settings.prior).__name__, **vars(settings.prior)}
    found = {
        "version": __version__,
        "ratings": ratings,
        "validation": known,
        "seed": settings.seed,
        "n_factors": settings.n_factors,
        "target": settings.target,
        "sampler": sampler,
        "prior": prior,
        "tau": settings.tau,
        "noise_by": settings.noise_by,
        "keep": settings.keep,
        "max_draws": settings.max_draws,
        "scale": settings.scale,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first thing in which two runs differ, with both values; None if nothing does."""
    one, other = _flat(there), _flat(here)
    for name in dict.fromkeys((*other, *one)):
        a, b = one.get(name), other.get(name)
        if a != b:
            return f"{name} {_shown(a)} there, {_shown(b)} here"
    return None


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{before}{name} ")
        else:
            out[before + name] = value
    return out


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:  # a digest
        return value[:12]
    return "none" if value is None else str(value)


def _digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of types, shapes and bytes; arrays on disk need not fit in memory."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        for lo in range(0, len(array), _CHUNK):
            found.update(np.ascontiguousarray(array[lo : lo + _CHUNK]).data)
    return found.hexdigest()


class DrawsFile(NamedTuple):
    """A file with some draws of a chain."""

    name: str
    digest: str
    n: int


class ChainFolder:
    """The checkpoints of one chain."""

    def __init__(self, path: Path, keep: int, of: str = "") -> None:
        self._path, self._keep, self._of = path, keep, of
        self._batches: list[DrawsFile] = []  # with all draws that are on the disk, in order
        self._selections = 0
        self._named: dict[int, set[str]] = {}  # batches by the rounds of checkpoints

    @property
    def newest(self) -> int:
        """The rounds of the newest checkpoint, 0 without one."""
        return max(self._named, default=0)

    def write(self, t: int, arrays: Arrays, plain: Plain, store: DrawStore, chain: int) -> None:
        """Write a checkpoint after t rounds; an InputError leaves the earlier ones intact."""
        try:
            self._write_draws(store, chain)
            meta = {
                "chain": plain,
                "room": store.room(chain),
                "batches": self._batches,
                "of": self._of,  # which run, and which of its chains
            }
            write_file(self._round(t), CHAIN, arrays, meta)
            self._named[t] = {batch.name for batch in self._batches}
        finally:
            self._remove_old()

    def _write_draws(self, store: DrawStore, chain: int) -> None:
        """Write the draws that are in no batch; all draws if some were dropped."""
        if store.selections(chain) != self._selections:
            self._batches, self._selections = [], store.selections(chain)
        first, n = sum(batch.n for batch in self._batches), store.count(chain)
        if n > first:
            name = f"draws-{first:06}-{n:06}-{secrets.token_hex(4)}"
            new = store.since(chain, first)
            digest = write_file(self._path / name, BATCH, new.arrays(), {})
            self._batches.append(DrawsFile(name, digest, n - first))

    def _remove_old(self) -> None:
        for t in sorted(self._named)[: -self._keep]:
            _remove(self._round(t))
            del self._named[t]
        used = {batch.name for batch in self._batches}.union(*self._named.values())
        with contextlib.suppress(InputError):
            for name in self._names():
                if _BATCH.fullmatch(name) and name not in used:
                    _remove(self._path / name)

    def load(self, rules: SnapshotRules) -> tuple[Arrays, dict[str, Any], list[Draws]] | None:
        """Arrays, metadata and draws of the newest undamaged checkpoint, None if there is none.

        Damaged ones are removed, unless all are.
        """
        damaged: list[int] = []
        found = None
        for t in sorted(self._rounds(), reverse=True):
            try:
                arrays, meta = read_file(self._round(t), CHAIN, rules.chain)
                batches = [DrawsFile(*batch) for batch in meta["batches"]]
                if found is None:
                    draws = [self._read_draws(batch, rules) for batch in batches]
                    n = sum(batch.n for batch in batches)
                    if meta["of"] != self._of or meta["chain"]["t"] != t or n > meta["room"]:
                        raise InputError(f"{self._round(t)} is of another run, chain or round")
                    found, self._batches = (arrays, meta, draws), batches
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

    def _read_draws(self, batch: DrawsFile, rules: SnapshotRules) -> Draws:
        path = self._path / batch.name
        if not _BATCH.fullmatch(batch.name):
            raise InputError(f"a checkpoint in {self._path} names {batch.name[:40]!r}: {_CURE}")
        found = open_file(path, BATCH, rules.batch)
        found.verification.begin()
        found.verification.wait()
        if found.digest != batch.digest or len(found.arrays["tau"]) != batch.n:
            raise InputError(f"{path} is not the file of draws that was noted: {_CURE}")
        return Draws.from_arrays(found.arrays)

    def _rounds(self) -> list[int]:
        found = map(_ROUND.fullmatch, self._names())
        return [int(match[1]) for match in found if match]

    def _names(self) -> list[str]:
        with as_input_error(self._path, "read"):
            return os.listdir(self._path) if self._path.exists() else []

    def _round(self, t: int) -> Path:
        return self._path / f"round-{t:09}"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
