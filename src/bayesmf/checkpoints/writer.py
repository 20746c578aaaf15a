"""When checkpoints of chains are written, and how chains are resumed.

Chains do not wait for each other, so each writes checkpoints at the end of its own rounds; together
they are the checkpoint of the run. Chains depend on each other only between stages, when all are
judged (run/driver.py).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence

from bayesmf.chains.chain import Chain, RunContext
from bayesmf.chains.pairs import Validation
from bayesmf.chains.state import RunSettings
from bayesmf.checkpoints import snapshots
from bayesmf.checkpoints.folder import ChainFolder, Checkpoint, begin, identity
from bayesmf.data.training import TrainingData
from bayesmf.errors import EngineError, InputError, Interrupted
from bayesmf.process import StopRequest, stop_requests

log = logging.getLogger("bayesmf")

# After a checkpoint that took s seconds to write, the next is REST * s seconds away or more.
REST = 10


class NoCheckpoints:
    """A run without checkpoints."""

    def begin(self, chains: Sequence[Chain], run: RunContext) -> None:
        """Called before the first round."""

    def round_done(self, chain: Chain) -> bool:
        """Called after every round of a chain; True lets it pause there."""
        return False

    def between(self) -> None:
        """Called while no chain runs: ends the run after a signal."""

    def finish(self) -> None:
        """Called when the chains have ended."""


class RunCheckpoints(NoCheckpoints):
    """Writes the checkpoints of a run."""

    def __init__(
        self, checkpoint: Checkpoint, folders: Sequence[ChainFolder], asked: StopRequest
    ) -> None:
        self._checkpoint, self._folders, self._asked = checkpoint, folders, asked
        self._chains: Sequence[Chain] = ()
        self._due = [time.monotonic() + checkpoint.every] * len(folders)

    def begin(self, chains: Sequence[Chain], run: RunContext) -> None:
        """Restore chains, and the clock of the run, from their newest checkpoints."""
        self._chains, self._run, clock = chains, run, run.monitor.clock
        for chain, folder in zip(chains, self._folders, strict=True):
            found = folder.load(snapshots.SnapshotRules(chain))
            if found is None:
                continue
            arrays, meta, draws = found
            try:
                snapshots.put_back(chain, arrays, meta["chain"])
            except (KeyError, TypeError, ValueError, IndexError, OverflowError):
                raise InputError(
                    f"the checkpoint of chain {chain.number} in {self._checkpoint.folder} is not "
                    "one of this run: start from the beginning in another folder"
                ) from None
            run.store.restore(chain.number, meta["room"], draws)
            clock.before = max(clock.before, meta["chain"]["seconds"])
        limit = run.settings.max_seconds  # which may have changed
        for chain in chains:
            chain.stopped |= limit is not None and clock.before >= limit

    def round_done(self, chain: Chain) -> bool:
        asked = self._asked.signum is not None
        # The chains of the SGD before a run have no checkpoints.
        if chain in self._chains and (asked or time.monotonic() >= self._due[chain.number]):
            self._write(chain)
        return asked

    def _write(self, chain: Chain) -> None:
        """Write a checkpoint. If that fails, the run continues, and writing is retried later."""
        begin, folder = time.monotonic(), self._folders[chain.number]
        per_epoch = self._run.length.per_epoch
        arrays, plain = snapshots.take(chain)
        try:
            folder.write(chain.t, arrays, plain, self._run.store, chain.number)
        except InputError as error:
            log.warning(
                "no checkpoint of chain %d after epoch %g, the run continues, the last good one is "
                "of epoch %g: %s",
                chain.number, chain.t / per_epoch, folder.newest / per_epoch, error,
            )  # fmt: skip
        now, every = time.monotonic(), self._checkpoint.every
        # One process writes all chains.
        rest = REST * len(self._folders) * (now - begin) if every else 0.0
        self._due[chain.number] = now + max(every, rest)

    def between(self) -> None:
        if self._asked.signum is not None:
            self.finish()
            self.end_if_asked()

    def end_if_asked(self) -> None:
        """Raise Interrupted after a signal; the message says how to resume."""
        if self._asked.signum is None:
            return
        newest, length = min(folder.newest for folder in self._folders), self._run.length
        of = "" if self._run.settings.sampler.adaptive else f" of {length.epochs:.0f}"
        raise Interrupted(
            self._asked.signum,
            f"after epoch {int(newest / length.per_epoch + 1e-9)}{of}",
            f"resume with fit(..., checkpoint=Checkpoint({str(self._checkpoint.folder)!r}, "
            "resume=True))",
        )

    def finish(self) -> None:
        """Write chains that have changed since their last checkpoint."""
        for chain, folder in zip(self._chains, self._folders, strict=True):
            if chain.t > folder.newest:
                self._write(chain)


@contextlib.contextmanager
def saving(
    checkpoint: Checkpoint | None,
    data: TrainingData,
    settings: RunSettings,
    validation: Validation | None,
) -> Iterator[NoCheckpoints]:
    """Context in which checkpoints of a run are written, if it has a `Checkpoint`.

    In it SIGINT and SIGTERM let chains end at their next round; `between` then ends the run.
    """
    if checkpoint is None:
        yield NoCheckpoints()
        return
    folders = begin(checkpoint, identity(data, settings, validation))
    with stop_requests() as asked:
        made = RunCheckpoints(checkpoint, folders, asked)
        try:
            yield made
        except EngineError:
            made.end_if_asked()  # the signal may have ended the workers, too
            raise
        made.end_if_asked()
