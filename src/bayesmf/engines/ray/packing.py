"""Tasks of a packing on a Ray cluster: plain ones, which Ray does again where a worker is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import ray
from ray.exceptions import RayError, RayTaskError

from bayesmf.engines.ray.addresses import first_line
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.joining import check_servers, connect, disconnect
from bayesmf.engines.ray.scheduling import room
from bayesmf.errors import BayesMFError, EngineError, InputError
from bayesmf.packed.cluster import Blocks
from bayesmf.reading.columns import Columns

# Tasks that wait for each one under way, so that a cluster that can grow sees what it is for.
_WAITING = 2
_PATIENCE = 10.0  # seconds between looks at the cluster while no task ends


class RayWorkers:
    """The workers of a Ray cluster; use it in a ``with``, by which the cluster is joined.

    Parameters
    ----------
    cluster
        Which cluster, and what a task needs there.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._joined = False
        self._under_way: dict[Any, tuple[int, Any]] = {}

    def __enter__(self) -> Self:
        self._joined = connect(self.cluster)
        spread = "SPREAD" if self.cluster.placement == "spread" else "DEFAULT"
        self._remote = ray.remote(perform).options(
            num_cpus=self.cluster.cpus_per_worker,
            resources=dict(self.cluster.resources) or None,
            max_retries=self.cluster.retries,
            scheduling_strategy=spread,
        )
        return self

    def __exit__(self, *ended: object) -> None:
        for ref in self._under_way if ray.is_initialized() else ():
            ray.cancel(ref, force=True)
        if self._joined:
            disconnect()

    def share(self, value: Any) -> Any:
        """Put a value into the object store, once for all calls."""
        return ray.put(value)

    def blocks(self, dataset: Any, columns: Columns | None) -> Blocks:
        """The blocks of a Ray Dataset, in its order, as they are made."""
        schema = dataset.schema()
        names = [] if schema is None else list(schema.names)
        return Blocks(names, columns, lambda: _block_refs(dataset))

    def each(
        self, calls: Iterable[tuple[Any, Callable[..., Any], tuple[Any, ...]]]
    ) -> Iterator[tuple[Any, Any]]:
        """Do calls; see `bayesmf.packed.cluster.Workers`."""
        waiting = self._under_way = {}
        errors: dict[int, Exception] = {}
        todo = enumerate(calls)
        more = True
        while True:
            while more and not errors and len(waiting) < self._most():
                found = next(todo, None)
                if found is None:
                    more = False
                else:
                    n, (key, function, arguments) = found
                    waiting[self._remote.remote(function, *arguments)] = n, key
            if not waiting:
                break
            for ref in self._some_ended(list(waiting)):
                n, key = waiting.pop(ref)
                try:
                    result = _result(ref)
                except Exception as error:
                    errors[n] = error  # those before it were begun before it, and are waited for
                else:
                    yield key, result
        if errors:
            raise errors[min(errors)]

    def _most(self) -> int:
        """How many tasks there may be at a time."""
        if self.cluster.n_workers is not None:
            return self.cluster.n_workers
        cpus = ray.cluster_resources().get("CPU", 0.0)
        return max(1, int(_WAITING * cpus / self.cluster.cpus_per_worker))

    def _some_ended(self, refs: list[Any]) -> list[Any]:
        """Wait until one has ended; InputError where a cluster that does not grow has no room."""
        waited, patience = 0.0, min(_PATIENCE, self.cluster.start_timeout)
        while True:
            ended, _ = ray.wait(refs, timeout=patience)
            if ended:
                return list(ended)
            waited += patience
            check_servers()
            if waited >= self.cluster.start_timeout:
                room(self.cluster)


def perform(function: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """Do a call in a worker; what is wrong with the input is told in a plain sentence.

    Some of our errors cannot be sent as they are, and a trace of another process tells users less.
    """
    # Before polars is imported: Ray has set this many cores aside, and others have theirs.
    os.environ.setdefault("POLARS_MAX_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    try:
        return "done", function(*arguments)
    except BayesMFError as error:
        return "refused", str(error)
    except OSError as error:
        return "failed", (error.errno, error.strerror or str(error), error.filename)


def _result(ref: Any) -> Any:
    try:
        how, what = ray.get(ref)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
    except RayError as error:
        raise EngineError(
            f"a worker was lost, and those in its place too ({first_line(error)}): look at the "
            "memory of the nodes, or raise retries"
        ) from None
    if how == "refused":
        raise InputError(what)
    if how == "failed":
        number, said, name = what
        raise OSError(number, said, name) if number is not None else OSError(said)
    return what


def _block_refs(dataset: Any) -> Iterator[tuple[Any, int]]:
    """References to the blocks, and their bytes: in order, and each let go when it was sorted."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        for bundle in dataset.iter_internal_ref_bundles():
            for entry in bundle.blocks:
                # Pairs in some versions of Ray, and entries with names in others.
                ref = entry.ref if hasattr(entry, "ref") else entry[0]
                about = entry.metadata if hasattr(entry, "metadata") else entry[1]
                yield ref, int(about.size_bytes or 0)
    finally:
        options.preserve_order = before
