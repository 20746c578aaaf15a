"""A model that is served, and how a newer one takes its place without a request being lost."""

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

# Ratings by which a model is tried before anybody asks it.
_TRIED = 3
UNKNOWN = "unknown"
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Served:
    """A model with its items' names: a request takes one, and keeps it to its end.

    Attributes
    ----------
    model : BayesianMF
        The model, which answers on the thread that asks.
    items : ItemTable
        Titles and other columns of its items.
    version : str
        The beginning of the digest of its file, or `unsaved`.
    name : str
        The name of its file.
    levels : list of float or None
        Values that ratings take, where these are few.
    loaded_at : str
        When it was loaded.
    found : dict
        What was found out about it since: diagnostics and calibration.
    """

    model: BayesianMF
    items: ItemTable
    version: str
    name: str
    levels: list[float] | None
    loaded_at: str
    notes: list[str]
    found: dict[str, Any] = field(default_factory=dict)


def serve_model(
    model: BayesianMF, item_info: str | os.PathLike[str] | None, name: str, version: str
) -> Served:
    """A model as it is served: a copy that computes on one thread and draws no progress line."""
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
    """A model from its file, every byte of it verified.

    Where it is mapped, somebody who writes into the file would change or end the service.
    """
    for _ in range(3):
        before = version_of(path)
        model = BayesianMF.load(path, mmap=mmap)
        if version_of(path) == before:  # else it was replaced meanwhile
            return serve_model(model, item_info, path.name, before)
    raise InputError(f"{path} is replaced again and again: let one model stay for a second")


def version_of(path: Path) -> str:
    """The beginning of the digest in the header of a model's file."""
    digest = peek(path, MODEL)
    return UNKNOWN if digest is None else digest[:12]


def try_out(served: Served) -> None:
    """Ask each kind of question once, so that nobody waits for the first.

    Items' rows are laid out for it once and for all: as many bytes again as the draws have, and a
    fifth of the time of an answer.
    """
    model = served.model
    model.posterior_.with_items.sides.source.given()
    some = [(item, model.posterior_.high) for item in model.item_ids_.ids[:_TRIED].tolist()]
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
    """Return what a model before had to the system, where the C library would keep it (glibc)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class ModelHolder:
    """The model that is served now, and the file that it comes from.

    Parameters
    ----------
    source : BayesianMF or path-like
        A fitted model, or the file of one, which is looked at again by `refresh`.
    item_info : path-like, optional
        Table of items.
    mmap : bool
        Map the file instead of reading it.

    Raises
    ------
    InputError
        If the model or the table cannot be used.
    """

    def __init__(
        self,
        source: BayesianMF | str | os.PathLike[str],
        item_info: str | os.PathLike[str] | None = None,
        mmap: bool = False,
    ) -> None:
        self.item_info, self.mmap = item_info, mmap
        self.path = None if isinstance(source, BayesianMF) else Path(source)
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self.failures = 0
        self._pause, self._again = 1.0, math.inf  # after a failure: when to look once more
        self.ready = False
        if isinstance(source, BayesianMF):
            self.current = serve_model(source, item_info, "model", "unsaved")
        else:
            self.current = load(Path(source), item_info, mmap)

    def _stamps(self) -> tuple[Any, ...]:
        """What changes when the file or the table is replaced."""
        if self.path is None:
            return ()  # a model in memory stays as it is, and so does its table
        files = [self.path]
        if self.item_info is not None:
            files.append(Path(self.item_info))
        return tuple(_stamp(file) for file in files)

    def changed(self) -> bool:
        """Whether the file or the table is another than the one that was loaded."""
        return self._stamps() != self._stamp or time.monotonic() >= self._again

    def refresh(self, wanted: bool = False) -> bool:
        """Take up a new model if there is one, or whatever is there if that is wanted.

        The one before answers until the new one is verified and tried out, and stays where that
        fails. Returns whether another is served now.
        """
        with self._lock:
            stamp = self._stamps()
            if self.path is None or not (wanted or self.changed()):
                return False
            self._stamp, before = stamp, self.current.version
            try:
                new = load(self.path, self.item_info, self.mmap)
                try_out(new)
            except Exception as error:  # whatever it is, the model before goes on
                self.failures += 1
                # What is wrong may pass: a copy that is not complete, no file left to open.
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                self._again = time.monotonic() + self._pause
                LOG.warning(
                    "The model before goes on answering, as the new one cannot be used: %s",
                    error if isinstance(error, BayesMFError | OSError) else type(error).__name__,
                )
                return False
            self._pause, self._again = 1.0, math.inf
            if new.version == before != UNKNOWN and not wanted and self.item_info is None:
                return False
            self.current = new
            LOG.info("Model %s is served now", new.version)
            return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def check_source(source: Any) -> None:
    """Refuse what is neither a model nor a path."""
    if not isinstance(source, BayesianMF | str | os.PathLike):
        raise InputError(f"give a fitted model or the file of one, not {type(source).__name__}")
