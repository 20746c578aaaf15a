"""The engine `ray` on a cluster of this machine: two nodes, each a raylet with its own workers.

At the end things go wrong in short runs; `python -m benchmarks faults` does the same fifty times,
at random moments.
"""

import functools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for benchmarks

from bayesmf import SGHMC, SGLD, Auto, BayesianMF, Gibbs, InputError, PackedRatings, pack
from bayesmf.engines.base import Workload
from bayesmf.engines.local import Serial
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import EngineError
from bayesmf.kernels.csr import Origin
from bayesmf.worker.block_tasks import ErrorsTask
from benchmarks.faults import nodes as faults_nodes
from benchmarks.faults.driver import answer
from benchmarks.faults.kinds import (
    Trial,
    attempt,
    fill_disk,
    hang_worker,
    kill_driver,
    kill_worker,
    lose_and_add,
)
from contract import draws_digest
from problems import planted

# After `faults_nodes`, which tells Ray to keep to the loopback before it is imported.
pytest.importorskip("ray", reason="the extra 'ray' is not installed")

# Ray's own: of a variable that it will read otherwise one day, and of pipes that it leaves open.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
RATINGS = planted(300, 200, 6000)
# Rows of seven columns: not whole vectors, and one vector as in most other tests.
L, M, D = 300, 200, 6
CASES = {
    "DSGLD-S 3x3": (SGLD(grid=(3, 3), n_chains=3, epochs=6), {"tau": 4.0}),
    "DSGLD-C 4x1": (SGLD(grid=(4, 1), n_chains=4, epochs=6), {"tau": 4.0}),
    "default": (Auto(), {"target": "fast"}),
    # Stripes of rare rows too, drawn exactly once an epoch.
    "SGHMC 2x2": (SGHMC(grid=(2, 2), n_chains=2, epochs=4, exact_below=20), {}),
    "DSGLD 2x3": (SGLD(grid=(2, 3), n_chains=2, epochs=6), {}),
}
# Bytes through the driver in a round of one chain: statistics, and nothing that grows with rows.
MOST = {"DSGLD-S 3x3": 8e3, "DSGLD-C 4x1": 10e3, "default": 80e3, "SGHMC 2x2": 60e3,
        "DSGLD 2x3": 40e3}  # fmt: skip


@pytest.fixture(scope="module")
def nodes():
    """Two nodes of two; at the end no process of theirs is left."""
    with faults_nodes.nodes() as made:
        yield made


@pytest.fixture(scope="module")
def address(nodes):
    """Joined by this process once for all tests, which takes a second."""
    import ray

    ray.init(address=nodes.address, logging_level=40, log_to_driver=False)
    yield nodes.address
    ray.shutdown()


@functools.cache
def known_bits(case):
    return draws_digest(fit(case, "serial"))


def fit(case, engine):
    sampler, more = CASES[case]
    model = BayesianMF(D, sampler=sampler, prior="gamma", engine=engine, random_state=0, **more)
    return model.fit(RATINGS)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    user, item, rating = RATINGS
    lines = [f"{u},{i},{r}" for u, i, r in zip(user, item, np.round(rating), strict=True)]
    (folder / "r.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    pack(folder / "r.csv", folder / "packed")
    return folder / "packed"


@pytest.mark.parametrize(
    ("sampler", "broken"),
    [(SGLD(grid=(2, 2), epochs=3), False), (Gibbs(epochs=3, burn_in=1), True)],
)
def test_workers_read_packed_ratings_themselves(address, packed, sampler, broken, monkeypatch):
    """A worker that cannot is sent its ratings, and that is told."""
    here = BayesianMF(D, sampler=sampler, engine="serial", random_state=0).fit(packed)
    if broken:
        elsewhere = property(lambda self: Origin(str(packed.parent / "gone"), "0" * 64, ""))
        monkeypatch.setattr(PackedRatings, "origin", elsewhere)
    cluster = Cluster(address, n_workers=2)
    there = BayesianMF(D, sampler=sampler, engine=cluster, random_state=0).fit(packed)
    assert draws_digest(there) == draws_digest(here)
    told = there.report_["engine"]
    assert (told["ratings_bytes_sent"] > 0) == broken
    assert all("could not read ratings itself" in fault for fault in told["faults"])
    assert bool(told["faults"]) == broken


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_serial_and_threads(case, address):
    threads = fit(case, "threads")
    n_workers = 4 if case == "DSGLD-S 3x3" else 2  # processes are what takes long
    model = fit(case, Cluster(address, n_workers=n_workers))
    assert draws_digest(model) == known_bits(case) == draws_digest(threads)
    told = model.report_["engine"]
    assert told["faults"] == [] and told["nodes"] == 2
    assert told["workers"] == min(n_workers, 3)  # of four a 3x3 grid leaves one nothing to do
    assert told["tasks"] == threads.report_["engine"]["tasks"]
    assert all(0 <= share < 1 for share in told["idle"])
    assert told["driver_bytes_per_round"] < MOST[case]
    if case.startswith("DSGLD-"):
        # Item stripes go from worker to worker, those of users stay; which of them are on one node
        # is Ray's to decide, and a slow machine has time for a copy of everything.
        assert 0 < told["peer_bytes_per_round"] < 2 * 4 * M * (D + 1)
    assert told["fetched_bytes"] > 0


def engine_of(cluster):
    from bayesmf.engines.ray.engine import Ray

    return Ray(cluster)


def held_blocks():
    """What an engine is started with, of a small run."""

    class Stop(Exception):
        pass

    class Catch(Serial):
        def start(self, work):
            self.work = work
            raise Stop

    engine = Catch()
    with pytest.raises(Stop):
        fit("DSGLD-S 3x3", engine)
    return engine.work


def test_what_a_task_raises_is_raised_here(address):
    engine = engine_of(Cluster(address, n_workers=1))
    work = held_blocks()
    engine.start(Workload(work.held[:1], [[0]], rehearsal=work.rehearsal))
    try:
        handle = engine.submit(ErrorsTask(0, 0, None, None, None, None, D, False, 0))
        assert engine.wait([handle]) == {handle}
        with pytest.raises(AttributeError, match="shape"):
            handle.result()
    finally:
        engine.close()


LOST = {"DSGLD 2x3": CASES["DSGLD 2x3"][0], "Gibbs": Gibbs(epochs=12)}


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("copied", [False, True])
def test_what_a_worker_had_is_made_anew(case, copied, nodes, address, monkeypatch):
    """From copies that another has, or all the way from the start."""
    from bayesmf.engines.ray import snapshots

    monkeypatch.setattr(snapshots, "LEAST", 0.0 if copied else 1e6)
    monkeypatch.setattr(snapshots, "SHARE", 0.0)
    events, done = [], []

    def kill(event):
        events.append(event)
        if len(events) == 9:
            done.append(engine.report()["tasks"])
            os.kill(min(nodes.workers())[0], 9)

    engine = engine_of(Cluster(address, n_workers=2))
    model, here = (
        BayesianMF(D, sampler=LOST[case], engine=one, random_state=0, callbacks=watching)
        for one, watching in ((engine, [kill]), ("serial", []))
    )
    assert draws_digest(model.fit(RATINGS)) == draws_digest(here.fit(RATINGS))
    told = model.report_["engine"]
    assert len(told["faults"]) == 1 and "was lost (ActorDiedError)" in told["faults"][0]
    assert told["copies"] > 0  # without any before: as soon as something was lost
    share = told["tasks_done_again"] / done[0]
    assert 0 < share < 0.2 if copied else share > 0.2


def test_the_only_worker_is_lost(address, nodes, monkeypatch):
    """A process of its own has copies of what it had."""
    from bayesmf.engines.ray import snapshots

    monkeypatch.setattr(snapshots, "LEAST", 0.0)
    monkeypatch.setattr(snapshots, "FIRST", 0.0)
    begun = []

    def kill(event):
        if not begun and engine._snapshots.taken:
            begun.append(True)
            (slot,) = engine._pool.slots
            os.kill(slot.process.about.pid, 9)
        time.sleep(0 if begun else 0.1)

    engine = engine_of(Cluster(address, n_workers=1))
    sampler = SGLD(grid=(2, 2), n_chains=1, epochs=40, burn_in=4)
    model = BayesianMF(D, sampler=sampler, engine=engine, random_state=0, callbacks=[kill])
    found = draws_digest(model.fit(RATINGS))
    here = BayesianMF(D, sampler=sampler, engine="serial", random_state=0).fit(RATINGS)
    assert found == draws_digest(here)
    assert begun and "worker 0" in model.report_["engine"]["faults"][0]


def test_what_is_lost_twice_is_a_sentence(address):
    from bayesmf.engines.ray.dispatch import Dispatch
    from bayesmf.engines.ray.lineage import LineageEntry
    from bayesmf.engines.ray.pool import WorkerPool

    entry = LineageEntry(None, 8)
    with pytest.raises(EngineError, match=r"and so was their copy: resume .*--resume"):
        Dispatch(WorkerPool(Cluster(address), held_blocks(), 1)).available(
            [entry], None, lambda: None
        )


def test_a_placement_group_fractions_of_cpus_and_names(address):
    import ray
    from ray.util import placement_group, remove_placement_group

    from bayesmf.engines.ray.pool import room

    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=30)
        cluster = Cluster(address, cpus_per_worker=0.5, placement_group=group)
        assert room(cluster) == 4
        seen = []
        sampler = SGLD(grid=(2, 2), epochs=2)

        def names(event):
            seen.extend(ray.util.list_named_actors(all_namespaces=True))

        model = BayesianMF(D, sampler=sampler, engine=cluster, random_state=0, callbacks=[names])
        model.fit(RATINGS)
        here = BayesianMF(D, sampler=sampler, engine="serial", random_state=0).fit(RATINGS)
        assert draws_digest(model) == draws_digest(here)
        found = {one["name"] for one in seen}
        runs = {name.partition("-worker-")[0] for name in found}
        assert len(runs) == 1 and {one["namespace"] for one in seen} == runs
        assert found == {f"{run}-worker-{k}" for run in runs for k in range(2)}
    finally:
        remove_placement_group(group)


def test_room_beside_the_fit_itself():
    from bayesmf.engines.ray.pool import _fitting

    bundles = [{"CPU": 2.0}, {"CPU": 1.0, "ratings": 1.0}]
    assert _fitting({"CPU": 0.5}, bundles, {}) == 6
    assert _fitting({"CPU": 1.0}, bundles, {"CPU": 1.0}) == 2
    assert _fitting({"CPU": 1.0, "ratings": 1.0}, bundles, {"CPU": 1.0}) == 1
    assert _fitting({"CPU": 1.5}, bundles, {}) == 1


def test_a_worker_that_dies_again_and_again_ends_the_run(address, monkeypatch):
    """Tries are counted: the run ends, soon, with a sentence."""
    from bayesmf.engines.ray import pool as module

    class Doomed(module.Worker):
        def run(self, order, shared):
            os.kill(os.getpid(), 9)

    monkeypatch.setattr(module, "Worker", Doomed)
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"block \d+ was lost with its worker 2 times.*--resume"):
        fit("DSGLD-C 4x1", Cluster(address, n_workers=1, retries=1))
    assert time.monotonic() - begin < 30


def test_nobody_comes(address):
    cluster = Cluster(address, n_workers=2, resources={"nowhere": 1}, start_timeout=1)
    with pytest.raises(EngineError, match="no worker started within 1 s"):
        fit("DSGLD-C 4x1", cluster)
    with pytest.raises(InputError, match="no room for a worker, which needs 1 CPU, 1 nowhere"):
        fit("DSGLD-C 4x1", Cluster(address, resources={"nowhere": 1}))


# -- programs of their own ------------------------------------------------------------------------

# Begun before the other tests, since they wait most of the time.
PROGRAMS = {
    "nobody": """
from bayesmf import BayesianMF, InputError, Synthetic
from bayesmf.engines.ray.cluster import Cluster
import os
for port in (9, 19):
    os.environ["RAY_ADDRESS"] = "127.0.0.1:19"  # as in a job of Ray's, where nothing else is said
    try:
        cluster = Cluster("127.0.0.1:9" if port == 9 else None)
        BayesianMF(2, engine=cluster).fit(Synthetic(30, 20, 300).ratings())
    except InputError as error:
        print(error)
""",
    "own": """
import os
from bayesmf import BayesianMF, Gibbs, Synthetic
from benchmarks.faults.nodes import alive, descendants, wait_for
seen = set()
def watch(event):
    seen.update(descendants(os.getpid()))
model = BayesianMF(
    2, sampler=Gibbs(epochs=3), engine="ray", n_workers=1, callbacks=[watch], random_state=0
).fit(Synthetic(30, 20, 300).ratings())
print(model.report_["engine"]["name"], model.report_["engine"]["nodes"], len(seen) > 3)
wait_for(lambda: not any(map(alive, seen)), 10)
print(*filter(alive, seen), *descendants(os.getpid()))
""",
}


@pytest.fixture(scope="module", autouse=True)
def programs():
    """All of them, running."""
    begun = {
        name: subprocess.Popen(
            [sys.executable, "-c", text], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name, text in PROGRAMS.items()
    }  # fmt: skip
    yield begun
    for process in begun.values():
        process.kill()
        process.communicate()


def printed(process):
    """The lines that a program has printed."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.splitlines()


def test_an_address_where_nobody_answers_is_one_sentence(programs):
    for line, port in zip(printed(programs["nobody"]), (9, 19), strict=True):
        assert f"no Ray cluster answers at '127.0.0.1:{port}'" in line


def test_a_cluster_of_its_own_is_ended_with_the_run(programs):
    """By name alone, whatever clusters run here; no process is left."""
    assert printed(programs["own"]) == ["ray 1 True", ""]


# -- things go wrong, and all end with the bits of `serial` ----------------------------------------

FAULTY = "DSGLD-S 3x3"  # of benchmarks driver, with rounds enough for something to happen


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return answer({"folder": tmp_path_factory.mktemp("serial"), "case": FAULTY, "engine": "serial"})


def trial_of(nodes, folder, kind, epochs=0):
    trial = Trial(kind, FAULTY, nodes, random.Random(0), folder, epochs, n_workers=2)
    # One worker on each node; time enough on a busy machine, with all to compile.
    trial.engine.update(cpus_per_worker=2.0, start_timeout=60.0)
    return trial


def test_workers_and_nodes_are_lost_added_and_hang(nodes, known, tmp_path):
    trial = trial_of(nodes, tmp_path, "hang")
    run = trial.start()
    seen = []
    try:
        for epochs, fault in ((5, kill_worker), (25, hang_worker), (50, lose_and_add)):
            assert run.reach(epochs), run.wait()
            seen.append(fault(trial))
        found = run.wait()
        assert all(fault() for fault in seen), run.log
    finally:
        trial.close()
    assert found["status"] == "done", found
    assert found["sha256"] == known["sha256"]
    assert found["engine"]["faults"] == run.log
    # Tasks that were sent anew with a lost one are not waited for as if they were there already.
    assert not any("GetTimeoutError" in line for line in run.log)


def test_a_full_disk_and_a_driver_that_is_killed(nodes, known, tmp_path):
    trial = trial_of(nodes, tmp_path, "disk")
    trial.rng = random.Random(2)  # of the disk: only full
    try:
        assert trial.start().reach(20)
        assert fill_disk(trial)()
        trial.disk.free()
        assert trial.now().reach(50)
        assert kill_driver(trial)()
        found = trial.now().wait()
    finally:
        trial.close()
    assert found["status"] == "done", found
    assert found["sha256"] == known["sha256"]


def test_a_worker_that_comes_late_takes_its_work_back(nodes, known, tmp_path):
    """The time for it is waited out: little at first, more where no worker came in that."""
    for seconds in (4.0, 12.0, 40.0):
        trial = trial_of(nodes, tmp_path / f"{seconds:g}", "added", epochs=5)
        trial.engine["start_timeout"] = seconds
        found = attempt(trial)
        if "no worker started" not in found.get("error", ""):
            break
    assert found["status"] == "done", found
    assert found["sha256"] == known["sha256"]
    assert "found no room" in found["log"][0] and "has started" in found["log"][-1]
