"""Packing, in this process or by the workers of a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bayesmf.checks import one_of
from bayesmf.engines.ray.cluster import Cluster, needs_ray
from bayesmf.errors import InputError
from bayesmf.packed import pack as packing
from bayesmf.packed.pack import CHUNK, STRETCH
from bayesmf.packed.ratings import PackedRatings
from bayesmf.packed.steps import Progress
from bayesmf.reading.chunks import Sources
from bayesmf.reading.datasets import is_dataset
from bayesmf.reading.memory import Columns

if TYPE_CHECKING:
    from bayesmf.engines.ray.packing import RayWorkers


def pack(
    source: Sources | Any,
    out: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    format: str = "auto",
    duplicates: str = "last",
    overwrite: bool = False,
    chunk: int = CHUNK,
    stretch: int = STRETCH,
    engine: str | Cluster = "threads",
    progress: Progress | None = None,
) -> PackedRatings:
    """Pack ratings, perhaps more than fit in memory, into a folder.

    A packing that was killed goes on where it was when it is called again with the same arguments.
    By ``engine="ray"`` or a `Cluster` the workers of a Ray cluster do the work, each on its part of
    the files, and no process holds all ratings; the result is the same to the byte.

    Parameters
    ----------
    source : path-like, sequence of path-like or ray.data.Dataset
        A file, a folder of a known format or of files of one kind, a pattern such as
        ``"part-*.parquet"``, a URI of Parquet files as pyarrow takes it (``s3://``, ``gs://``,
        ``hdfs://``, ``file://``), or several of these. With a cluster also a Ray Dataset, whose
        columns are user, item, rating and perhaps timestamp; its rows count in its own order.
    out : str or path-like
        The folder to make; it appears when it is complete. With a cluster it lies on storage
        that all nodes mount under the same path.
    columns : mapping, optional
        Which column is which, as for :meth:`Ratings.read`.
    format : str
        What the files are, as for :meth:`Ratings.read`.
    duplicates : {"last", "mean", "error"}
        What to do when a user rated an item more than once, as for `Ratings`.
    overwrite : bool
        Whether packed ratings that are at ``out`` already are replaced.
    chunk : int
        Ratings read at a time.
    stretch : int
        Ratings sorted at a time; a user or an item with more is sorted at once all the same.
    engine : {"threads", "ray"} or Cluster
        Where it is done: in this process, or by tasks on a Ray cluster. Of a `Cluster` count
        ``address``, ``n_workers`` (tasks at a time), ``cpus_per_worker``, ``resources``,
        ``placement`` and ``retries``.
    progress : callable, optional
        Called as ``progress(done, total, stage)`` after each step.

    Returns
    -------
    PackedRatings
        The ratings, opened.

    Raises
    ------
    InputError
        If the files cannot be read, or something else is at ``out``.
    EngineError
        If workers were lost more often than a packing can bear; the same call goes on from there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bayesmf import pack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder)
    ...     _ = (path / "a.csv").write_text("user,item,rating\\n1,7,4\\n2,7,5\\n")
    ...     print(pack(path / "a.csv", path / "packed"))
    PackedRatings(2 ratings of 1 item by 2 users, 4 to 5, mean 4.500)
    """
    options: dict[str, Any] = {
        "columns": columns, "format": format, "duplicates": duplicates, "overwrite": overwrite,
        "chunk": chunk, "stretch": stretch, "progress": progress,
    }  # fmt: skip
    if not isinstance(engine, Cluster):
        one_of("engine", engine, ("threads", "ray"), " or a Cluster")
    if engine == "threads":
        if is_dataset(source):
            raise InputError(
                'a Ray Dataset is packed by the workers of its cluster: give engine="ray", or a'
                " Cluster"
            )
        return packing.pack(source, out, **options)
    cluster = engine if isinstance(engine, Cluster) else Cluster()
    if not is_dataset(source):  # before a cluster is started for it
        packing.check(source, out, columns, format, duplicates, overwrite, chunk, stretch, True)
    with ray_workers(cluster) as workers:
        if is_dataset(source):
            source = workers.blocks(source, columns)
        return packing.pack(source, out, workers=workers, **options)


def ray_workers(cluster: Cluster) -> RayWorkers:
    """Workers of a Ray cluster, joined in a ``with``; InputError where Ray is not installed."""
    with needs_ray():
        from bayesmf.engines.ray.packing import RayWorkers
    return RayWorkers(cluster)
