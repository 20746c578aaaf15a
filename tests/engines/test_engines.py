"""Parts of engines that need no cluster: arrays from elsewhere, notes, settings, partitions."""

import ast
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("ray")

import bayesmf
from bayesmf import SGLD, BayesianMF, InputError
from bayesmf.engines.base import Ledger, payload
from bayesmf.engines.local import Serial
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.lineage import Export, Input, Order, ResultRef
from bayesmf.engines.ray.worker import (
    About,
    Missing,
    NotFetched,
    NotHeld,
    Store,
    Worker,
    check_versions,
    contiguous,
    packed,
    private_copy,
    unpacked,
    versions,
    writable,
)
from bayesmf.model.refs import Ref, tree_map, value_of
from bayesmf.worker.block_tasks import GradientTask
from problems import planted


class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray | None


@dataclass(frozen=True)
class Box:
    pair: Pair
    many: tuple
    word: str


class Watched(Serial):
    """Remembers what it was started with and the first tasks."""

    def start(self, work):
        self.work, self.tasks = work, []
        super().start(work)

    def submit(self, task):
        self.tasks.append(task)
        return super().submit(task)


@pytest.fixture(scope="module")
def watched():
    engine = Watched()
    sampler = SGLD(grid=(2, 2), n_chains=2, epochs=2)
    BayesianMF(6, sampler=sampler, engine=engine, random_state=0).fit(planted())
    return engine


def _frozen(array):
    array.flags.writeable = False
    return array


def _box():
    wide = np.arange(60, dtype=np.float32).reshape(6, 10)
    return Box(Pair(_frozen(wide)[:, :7], None), (np.arange(3), "text", 2.5), "word")


def test_private_copies_are_writable_aligned_and_equal():
    box = _box()
    made = private_copy(box)
    assert type(made) is Box and type(made.pair) is Pair and type(made.many) is tuple
    assert made.word == "word" and made.many[1:] == ("text", 2.5) and made.pair.right is None
    for mine, theirs in ((made.pair.left, box.pair.left), (made.many[0], box.many[0])):
        assert mine.flags.writeable and mine.flags.c_contiguous
        assert mine.ctypes.data % 64 == 0
        assert mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes()
        assert not np.shares_memory(mine, theirs)


def _with_arrays(task):
    return tree_map(task, Ref, value_of)


def test_payload_is_what_is_pickled(watched):
    task = next(t for t in watched.tasks if isinstance(t, GradientTask))
    many = np.zeros((20_000, 9), np.float32)
    large = GradientTask(**{**vars(_with_arrays(task)), "users": many, "items": many.copy()})
    assert payload(large) == pytest.approx(len(pickle.dumps(large, protocol=5)), rel=0.01)
    held = watched.work.held[0]
    assert payload(held) <= len(pickle.dumps(held, protocol=5)) <= payload(held) + 3000


class Shelf(Store):
    """A store of one process: what is got from it cannot be written to, as with Ray."""

    def put(self, value):
        return pickle.dumps(value)

    def get(self, refs, patience):
        if None in refs:
            raise Missing(None)
        return [[(_frozen(array), width) for array, width in pickle.loads(ref)] for ref in refs]


def order(tasks, phase=0, refs=None, dropped=(), export=True):
    return Order(0, tasks, phase, refs or {}, list(dropped), export, 1.0)


def test_a_worker_returns_the_bits_of_the_task(watched):
    """Rows come with the task, stay from task to task, or come from another worker."""
    here, there = (Worker("here", [], Shelf()) for _ in range(2))
    for partition, held in enumerate(watched.work.held):
        here.hold(partition, contiguous(held))
        there.hold(partition, contiguous(held))
    task = next(t for t in watched.tasks if isinstance(t, GradientTask))
    plain = replace(_with_arrays(task), shared=None)
    shared = replace(task.shared)
    ((found, seconds),) = here.run(order([(7, plain)], phase=3), shared)
    expected = _with_arrays(task).execute(watched.work.held[task.partition])
    assert seconds > 0 and found.sse == expected.sse
    users, items = found.users, found.items
    assert isinstance(users, ResultRef) and {users.key, items.key} == {(7, 0), (7, 1)}
    (stays, goes) = (users, items) if found.fixed == 0 else (items, users)
    assert stays.export is None and goes.export is not None
    for ref, array in ((users, expected.users), (items, expected.items)):
        (mine,) = here.fetch([ref.key])
        assert mine.tobytes() == np.ascontiguousarray(array).tobytes()

    moved = replace(_with_arrays(task), users=expected.users, items=expected.items)
    second = moved.execute(watched.work.held[task.partition])
    named = replace(plain, users=Input(users.key), items=Input(items.key))
    ((again, _),) = here.run(order([(8, named)], phase=3), None)
    assert again.sse == second.sse
    refs = dict(zip((users.key, items.key), here.export([users.key, items.key]), strict=True))
    ((elsewhere, _),) = there.run(order([(9, named)], phase=3, refs=refs), shared)
    assert elsewhere.sse == second.sse

    assert there.keep({(20, 0): here.put_temporarily([users.key])[0][0]}, 1.0, ()) >= 0
    assert there.fetch([(20, 0)])[0].tobytes() == here.fetch([users.key])[0].tobytes()
    with pytest.raises(NotFetched):
        there.run(order([(10, named)], phase=3, refs={users.key: Export(None, 0)}), None)
    with pytest.raises(NotFetched):  # what tasks share was never sent
        there.run(order([(10, named)], phase=4, refs=refs), None)
    here.drop([users.key])
    with pytest.raises(NotFetched):
        here.run(order([(11, named)], phase=3), None)
    here.release(task.partition)
    with pytest.raises(NotHeld, match="never sent"):
        here.run(order([(12, plain)], phase=3), shared)


@pytest.mark.parametrize(("width", "wide"), [(31, 32), (7, 8), (32, 32), (33, 40)])
def test_rows_travel_padded_where_that_is_hardly_more(width, wide):
    whole = np.random.default_rng(0).random((5, wide)).astype(np.float32)
    rows = whole[:, :width]
    sent, _ = packed(rows)
    assert sent.flags.c_contiguous
    assert (sent is whole) == (wide <= 1.04 * width)
    np.testing.assert_array_equal(unpacked(pickle.loads(pickle.dumps(packed(rows)))), rows)
    numbers = np.arange(5.0)
    np.testing.assert_array_equal(unpacked(packed(numbers)), numbers)
    assert writable(numbers) is numbers and writable(_frozen(numbers.copy())).flags.writeable


def test_a_ledger_adds_up():
    now = [0.0]
    ledger = Ledger("test", 2, lambda: now[0])
    for worker, partition, seconds in ((0, 0, 1.0), (0, 1, 3.0), (1, 0, 2.0)):
        ledger.done(worker, partition, seconds)
    ledger.bytes_sent, ledger.bytes_received = 10, 7
    ledger.peer_bytes, ledger.fetched_bytes, ledger.rounds = 30, 40, 2
    ledger.fault("something was lost")
    now[0] = 8.0
    told = ledger.report()
    assert told["idle"] == [0.5, 0.75] and told["tasks"] == 3
    assert told["slowest_partitions"][0] == {"partition": 0, "tasks": 2, "mean": 1.5, "max": 2.0}
    assert (told["bytes_sent"], told["bytes_received"]) == (10, 7)
    assert (told["driver_bytes_per_round"], told["peer_bytes_per_round"]) == (8.5, 15.0)
    assert told["fetched_bytes"] == 40
    assert told["faults"] == ["something was lost"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_workers": 0}, "n_workers"),
        ({"n_workers": 2.0}, "n_workers"),
        ({"retries": -1}, "retries"),
        ({"task_timeout": 0}, "task_timeout"),
        ({"start_timeout": float("inf")}, "start_timeout"),
        ({"cpus_per_worker": "1"}, "cpus_per_worker"),
        ({"placement": "anywhere"}, "anywhere"),
        ({"placement_group": "mine"}, "placement_group of a Cluster must be what"),
    ],
)
def test_bad_settings_of_a_cluster_are_one_sentence(settings, said):
    with pytest.raises(InputError, match=said):
        Cluster(**settings)


def test_other_versions_elsewhere_are_refused():
    check_versions(About(1, "n", "there", versions()))
    with pytest.raises(InputError, match=r"there has numba 0\.1, this process .*same versions"):
        check_versions(About(1, "n", "there", {**versions(), "numba": "0.1"}))


def test_only_the_engine_and_the_deployment_import_ray():
    root = Path(bayesmf.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            if any(name.split(".")[0] == "ray" for name in names):
                found.add(path.relative_to(root).as_posix())
    names = ("dispatch", "engine", "pool", "worker")
    assert found == {*(f"engines/ray/{name}.py" for name in names), "web/run.py"}


def test_no_private_parts_of_ray_are_touched():
    """They move with any release."""
    root = Path(bayesmf.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text()
        for word in ("ray._", "_system_config", "_node_ip_address", "_temp_dir"):
            assert not re.search(rf"(?<![\w.]){re.escape(word)}", text), f"{word} in {path}"


def test_without_ray_all_else_works():
    """Ray is hidden from a process of its own."""
    program = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from bayesmf import BayesianMF, Gibbs, InputError, Synthetic
from bayesmf.engines.ray.cluster import Cluster
ratings = Synthetic(30, 20, 300, random_state=0).ratings()
BayesianMF(2, sampler=Gibbs(epochs=3), random_state=0).fit(ratings)
for engine in ("ray", Cluster(n_workers=2)):
    try:
        BayesianMF(2, sampler=Gibbs(epochs=3), engine=engine).fit(ratings)
    except InputError as error:
        print(error)
assert "ray" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all("pip install ray" in line for line in lines)
