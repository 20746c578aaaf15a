"""Packing by a Ray cluster of this machine: two nodes, of which one is lost on the way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for benchmarks

from bayesmf import BayesianMF, Cluster, InputError, PackedRatings, Ratings, Synthetic, pack
from bayesmf.errors import EngineError
from benchmarks import faults_nodes
from cli_tools import run
from rating_frames import SMALL, files_of, frame, write_parts

# After `faults_nodes`, which tells Ray to keep to the loopback before it is imported.
pytest.importorskip("ray", reason="the extra 'ray' is not installed")

# Ray's own: of a variable that it will read otherwise one day, and of pipes that it leaves open.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
]

SIZES = {"chunk": 2000, "stretch": 2000}
TWO = Cluster(n_workers=2)
DRIVER = """
import sys
from bayesmf import Cluster, pack
tell = lambda done, total, stage: print(stage, flush=True)
cluster = Cluster(sys.argv[3], n_workers=2)
pack(sys.argv[1], sys.argv[2], engine=cluster, chunk=2000, stretch=2000, progress=tell)
"""


@pytest.fixture(scope="module")
def nodes():
    """Two nodes of one core, joined by this process; at the end no process of theirs is left."""
    import ray

    with faults_nodes.nodes(cpus=1) as made:
        ray.init(address=made.address, logging_level=40, log_to_driver=False)
        yield made
        ray.shutdown()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Files of ratings that are ten tasks of each kind, and what they are packed."""
    folder = tmp_path_factory.mktemp("many")
    data = frame(20_000, users=500, items=300, times=True)
    parts = write_parts(folder / "parts", data, rows=4000)
    return parts, files_of(pack(parts, folder / "want", **SIZES).path)


def test_files(nodes, tmp_path):
    """By an address; and a bad row is told as one machine tells it."""
    made = frame(repeats=True, times=True, strings=True)
    parts = write_parts(tmp_path / "parts", made)
    want = files_of(pack(parts, tmp_path / "want", **SMALL).path)
    seen = []
    told = {"progress": lambda *about: seen.append(about)}
    got = pack(parts.as_uri(), tmp_path / "out", engine=TWO, **SMALL, **told)
    assert files_of(got.path) == want
    assert all(0 <= done <= total for done, total, _ in seen)
    stages = ["reading", "sorting by user", "sorting by item", "finished"]
    assert list(dict.fromkeys(stage for *_, stage in seen)) == stages
    made.with_columns(rating=pl.lit(np.nan)).write_parquet(parts / "part-02.parquet")
    with pytest.raises(InputError) as here:
        pack(parts, tmp_path / "bad", **SMALL)
    with pytest.raises(InputError) as there:
        pack(parts, tmp_path / "bad", engine="ray", **SMALL)
    assert str(there.value) == str(here.value) and "part-02.parquet row 0" in str(here.value)
    assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want"]


def test_a_dataset(nodes, tmp_path, monkeypatch):
    """Blocks of Arrow and of pandas, in their order; columns that nobody asks for."""
    monkeypatch.setenv("RAY_DATA_USAGE_DISABLED", "1")  # else a thread of Ray's goes on logging
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    data = frame(repeats=True).with_columns(colour=pl.lit("red"))
    data.write_parquet(tmp_path / "a.parquet")
    want = files_of(pack(tmp_path / "a.parquet", tmp_path / "want", **SMALL).path)
    parts = [part.to_arrow() for part in data.iter_slices(190)]
    dataset = ray.data.from_arrow([*parts[:2], parts[0].slice(0, 0), *parts[2:]])
    assert files_of(pack(dataset, tmp_path / "out", engine=TWO, **SMALL).path) == want
    frames = ray.data.from_pandas([part.to_pandas() for part in parts])
    mapped = frames.map_batches(lambda batch: batch, batch_format="pandas")
    again = pack(mapped, tmp_path / "out", engine="ray", overwrite=True, **SMALL)
    assert files_of(again.path) == want
    assert not dataset.context.execution_options.preserve_order  # as it was
    odd = ray.data.from_arrow([part.rename_columns(["user", "item", "a", "b"]) for part in parts])
    with pytest.raises(InputError, match="the Ray Dataset"):
        pack(odd, tmp_path / "odd", engine="ray")
    with pytest.raises(InputError, match='packed by the workers of its cluster: give engine="ray"'):
        pack(dataset, tmp_path / "odd")
    with pytest.raises(InputError, match="a Ray Dataset is packed first"):
        BayesianMF(2).fit(dataset)
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "out", "want"]


def at_work():
    """Workers of ours that are at a task."""
    own = (pid for pid, _ in faults_nodes.descendants(os.getpid()))
    return [pid for pid in own if faults_nodes.title(pid).startswith("ray::perform")]


def test_a_worker_and_a_node_are_lost(nodes, many, tmp_path):
    parts, want = many
    lost = []

    def lose(done, total, stage):
        if stage == "reading" and not lost and (pids := at_work()):
            os.kill(pids[0], signal.SIGKILL)
            lost.append("worker")
        if stage == "sorting by user" and "node" not in lost:
            nodes.lose(nodes.nodes[0])
            lost.append("node")

    got = pack(parts, tmp_path / "out", engine=TWO, progress=lose, **SIZES)
    assert "node" in lost
    assert files_of(got.path) == want
    assert os.listdir(tmp_path) == ["out"]
    nodes.restore()


def test_the_driver_is_killed(nodes, many, tmp_path):
    parts, want = many
    out = tmp_path / "out"
    command = [sys.executable, "-c", DRIVER, str(parts), str(out), nodes.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        next(line for line in process.stdout if line.startswith("sorting by user"))
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    with pytest.raises(InputError, match="is not finished: run it again"):
        PackedRatings.open(out)
    stages = set()
    told = {"progress": lambda done, total, stage: stages.add(stage)}
    assert files_of(pack(parts, out, engine=TWO, **told, **SIZES).path) == want
    assert "reading" not in stages and "sorting by item" in stages
    assert os.listdir(tmp_path) == ["out"]


def test_workers_that_die_again_and_again(nodes, many, tmp_path, monkeypatch, caplog):
    """What was done before stays; the same call goes on from there."""
    from bayesmf.packed import tasks

    parts, want = many
    whole, real = tmp_path / "out", tasks.number_chunks

    def doomed(job, numbers):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(tasks, "number_chunks", doomed)
    with pytest.raises(EngineError, match="a worker was lost, and those in its place too"):
        pack(parts, whole, engine=Cluster(n_workers=2, retries=1), **SIZES)
    assert "the same command goes on from there" in caplog.text
    monkeypatch.setattr(tasks, "number_chunks", real)
    assert files_of(pack(parts, whole, engine=TWO, **SIZES).path) == want


def test_no_node_has_room(nodes, many, tmp_path):
    nowhere = Cluster(n_workers=2, resources={"nowhere": 1}, start_timeout=0.5)
    with pytest.raises(InputError, match="no room for a worker, which needs 1 CPU, 1 nowhere"):
        pack(many[0], tmp_path / "out", engine=nowhere)
    assert os.listdir(tmp_path) == []


def test_the_command(nodes, tmp_path):
    Synthetic(60, 40, 900, random_state=1, stars=True).ratings().write(tmp_path / "a.parquet")
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    told = run("pack", path, "--out", out, "--engine", "ray", "--workers", "1", "--json").json
    assert told["ratings"] == len(Ratings.read(path))
    assert files_of(out) == files_of(pack(path, tmp_path / "want").path)
    for option in ("--workers", "--ray-address", "--retries"):
        refused = run("pack", path, "--out", out, option, "1")
        assert refused.status == 2 and f"{option} is for --engine ray" in refused.sentence


def test_engines_that_do_not_pack(tmp_path):
    with pytest.raises(InputError, match=r"engine .*threads.*ray.* or a Cluster"):
        pack(tmp_path, tmp_path / "out", engine="serial")
