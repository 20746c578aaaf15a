"""The model that is served, and its replacement by a newer one without losing a request."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import logging
import math
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bayesmf.errors import BayesMFError, InputError, captured_warnings
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.storage.artefact import MODEL, peek
from bayesmf.web.items import ItemTable

LOG = logging.getLogger("bayesmf.web")

# Ratings sent by `try_out`.
_N_TRIED = 3
# Longest pause after a model that could not be loaded, in seconds.
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Served:
    """A model with its items' titles; a request keeps the one it began with.

    Attributes
    ----------
    model : BayesianMF
        The model, which answers on the calling thread.
    items : ItemTable
        Titles and other columns of its items.
    version : str
        Beginning of the digest of its file, or `unsaved`.
    name : str
        Name of its file.
    levels : list of float or None
        Values that ratings take, if these are few.
    loaded_at : str
        Time of loading.
    notes : list of str
        Warnings about the table of items.
    computed : dict
        Diagnostics and calibration, once they are computed.
    """

    model: BayesianMF
    items: ItemTable
    version: str
    name: str
    levels: list[float] | None
    loaded_at: str
    notes: list[str]
    computed: dict[str, Any] = field(default_factory=dict)


def serve_model(
    model: BayesianMF, item_info: str | os.PathLike[str] | None, name: str, version: str
) -> Served:
    """Prepare a copy of a model that computes on one thread and shows no progress line."""
    model._fitted()
    own = copy.copy(model)
    own.n_workers, own.progress = 1, False
    counts = own.posterior_.ratings.item_counts()
    with captured_warnings() as notes:
        items = ItemTable.read(own.item_ids_, counts, item_info)
    levels = own.rating_levels_.tolist() if hasattr(own, "rating_levels_") else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Served(own, items, version, name, levels, now, notes)


def load(path: Path, item_info: str | os.PathLike[str] | None, mmap: bool = False) -> Served:
    """Load a model from its file and verify all of it."""
    for _ in range(3):
        digest = peek(path, MODEL)
        model = BayesianMF.load(path, mmap=mmap)
        if digest is not None and peek(path, MODEL) == digest:  # else it was just replaced
            return serve_model(model, item_info, path.name, version_of(digest))
    raise InputError(f"{path} changes while it is loaded: replace it less than once a second")


def version_of(digest: str | None) -> str:
    """Version of a model as shown to clients: the beginning of its digest."""
    return (digest or "unknown")[:12]


def try_out(served: Served) -> None:
    """Answer a request of each kind, so that no client waits for computations done once.

    This includes a copy of the items' draws in another layout, which saves a fifth of the time of
    an answer.
    """
    model = served.model
    _ = model.posterior_.with_items.sides.source.everything
    some = [(item, model.posterior_.high) for item in model.item_ids_.ids[:_N_TRIED].tolist()]
    with captured_warnings():
        for policy in ("mean", "ucb", "thompson"):
            model.recommend(ratings=some, n=2, policy=policy, random_state=0)
        if len(model.user_ids_):
            model.recommend(model.user_ids_[0], 2)
        model.predict_table(None, [some[0][0]], ratings=some)
        if served.levels is not None:
            model.predict_proba(None, [some[0][0]], ratings=some)
        model.explain(None, some[0][0], ratings=some)


def release_memory() -> None:
    """Return the memory of a replaced model to the system (glibc would keep some of it)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class ModelHolder:
    """The model that is served now, and the file it comes from, if any.

    `refresh` loads the model again when its file or the table `item_info` is replaced; `mmap` maps
    the file instead of reading it.
    """

    def __init__(
        self,
        source: BayesianMF | str | os.PathLike[str],
        item_info: str | os.PathLike[str] | None = None,
        mmap: bool = False,
    ) -> None:
        if not isinstance(source, BayesianMF | str | os.PathLike):
            raise InputError(f"give a fitted model or the path of one, not {type(source).__name__}")
        self.item_info, self.mmap = item_info, mmap
        self.path = None if isinstance(source, BayesianMF) else Path(source)
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self.failures = 0
        self._pause, self._retry_at = 1.0, math.inf  # after a failure
        self.ready = False
        if isinstance(source, BayesianMF):
            self.current = serve_model(source, item_info, "model", "unsaved")
        else:
            self.current = load(Path(source), item_info, mmap)

    def _stamps(self) -> tuple[Any, ...]:
        """Inode, time and size of the model's file and of the table."""
        if self.path is None:
            return ()  # a model in memory does not change, and neither does its table
        return tuple(_stamp(path) for path in (self.path, self.item_info) if path is not None)

    def changed(self) -> bool:
        """Whether a file was replaced, or a failed one is to be tried again."""
        return self._stamps() != self._stamp or time.monotonic() >= self._retry_at

    def refresh(self) -> bool:
        """Load the model again if its file or the table was replaced; return whether it was.

        The previous model answers until the new one is verified and tried out, and is kept if
        that fails.
        """
        with self._lock:
            stamp = self._stamps()
            if self.path is None or not self.changed():
                return False
            self._stamp = stamp
            try:
                if self.item_info is None and self._same_model():
                    self._pause, self._retry_at = 1.0, math.inf
                    return False
                new = load(self.path, self.item_info, self.mmap)
                try_out(new)
            except Exception as error:  # of any kind: the previous model is kept
                self.failures += 1
                # The file may be a copy that is not complete yet.
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                self._retry_at = time.monotonic() + self._pause
                LOG.warning(
                    "The new model cannot be used, and the previous one is kept: %s",
                    error if isinstance(error, BayesMFError | OSError) else type(error).__name__,
                )
                return False
            self._pause, self._retry_at = 1.0, math.inf
            self.current = new
            LOG.info("Model %s is served now", new.version)
            return True

    def _same_model(self) -> bool:
        assert self.path is not None
        return version_of(peek(self.path, MODEL)) == self.current.version


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
