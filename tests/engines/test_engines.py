"""Parts of engines that need no cluster: arrays from elsewhere, notes, settings, partitions."""

import ast
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import bayesmf
from bayesmf import SGLD, BayesianMF, InputError
from bayesmf.engines.ledger import Ledger, payload
from bayesmf.engines.local import Serial
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.transport import contiguous, own, packed, unpacked
from bayesmf.engines.ray.worker import About, Holder, NotHeld, check_versions, versions
from bayesmf.worker.clock_tasks import ClockResult
from bayesmf.worker.gradient_tasks import GradientTask
from bayesmf.worker.tasks import run_task
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


def test_own_arrays_are_writable_aligned_and_the_same():
    box = _box()
    made = own(box)
    assert type(made) is Box and type(made.pair) is Pair and type(made.many) is tuple
    assert made.word == "word" and made.many[1:] == ("text", 2.5) and made.pair.right is None
    for mine, theirs in ((made.pair.left, box.pair.left), (made.many[0], box.many[0])):
        assert mine.flags.writeable and mine.flags.c_contiguous
        assert mine.ctypes.data % 64 == 0
        assert mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes()
        assert not np.shares_memory(mine, theirs)


def test_contiguous_copies_only_what_is_not():
    box = _box()
    made = contiguous(box)
    assert made.pair.left.flags.c_contiguous
    assert np.array_equal(made.pair.left, box.pair.left)
    assert made.many[0] is box.many[0]
    assert len(pickle.dumps(made.pair.left, protocol=5)) < 6 * 7 * 4 + 200


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), ()])
def test_own_of_nothing(shape):
    made = own(np.zeros(shape, np.float32))
    assert made.shape == shape and made.flags.writeable


def test_payload_is_what_is_pickled(watched):
    task = next(t for t in watched.tasks if isinstance(t, GradientTask))
    many = np.zeros((20_000, 9), np.float32)
    large = GradientTask(**{**vars(task), "users": many, "items": many.copy()})
    assert payload(large) == pytest.approx(len(pickle.dumps(large, protocol=5)), rel=0.01)
    held = watched.work.held[0]
    assert payload(held) <= len(pickle.dumps(held, protocol=5)) <= payload(held) + 3000


def test_a_holder_gives_the_bits_of_run_task(watched):
    holder = Holder(watched.work.rehearsal)
    for partition, held in enumerate(watched.work.held):
        holder.hold(partition, contiguous(held))
    tasks = watched.tasks[:6]
    found = holder.run(pickle.loads(pickle.dumps(tasks)), 0, None)
    for task, (result, seconds) in zip(tasks, found, strict=True):
        width = getattr(task, "users", np.empty((0, 0))).shape[1]
        made = contiguous(unpacked(pickle.loads(pickle.dumps(result)), width))
        expected = contiguous(run_task(watched.work.held[task.partition], task))
        assert pickle.dumps(made) == pickle.dumps(expected)
        assert seconds > 0
    holder.drop(0)
    with pytest.raises(NotHeld, match="never sent"):
        holder.run([next(t for t in watched.tasks if t.partition == 0)], 0, None)


@pytest.mark.parametrize(("width", "wide"), [(31, 32), (7, 8), (32, 32), (33, 40)])
def test_rows_travel_padded_where_that_is_hardly_more(width, wide):
    rng = np.random.default_rng(0)
    whole = rng.random((5, wide)).astype(np.float32)
    rows, momenta = whole[:, :width], rng.random((5, width + 1)).astype(np.float32)
    result = ClockResult(rows, rows.copy(), 1.0, 2, momenta=(momenta, momenta))
    sent = packed(result)
    assert sent.users.flags.c_contiguous
    assert (sent.users is whole) == (wide <= 1.04 * width)
    back = unpacked(pickle.loads(pickle.dumps(sent)), width)
    np.testing.assert_array_equal(back.users, rows)
    np.testing.assert_array_equal(back.items, rows)
    np.testing.assert_array_equal(back.momenta[0], momenta)  # one column more, of thermostats


def test_a_ledger_adds_up():
    now = [0.0]
    ledger = Ledger("test", 2, lambda: now[0])
    for worker, partition, seconds in ((0, 0, 1.0), (0, 1, 3.0), (1, 0, 2.0)):
        ledger.done(worker, partition, seconds)
    ledger.moved(sent=10)
    ledger.moved(received=7)
    ledger.fault("something was lost")
    now[0] = 8.0
    told = ledger.report()
    assert told["idle"] == [0.5, 0.75] and told["tasks"] == 3
    assert told["slowest_partitions"][0] == {"partition": 0, "tasks": 2, "mean": 1.5, "max": 2.0}
    assert (told["bytes_sent"], told["bytes_received"]) == (10, 7)
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
    ],
)
def test_bad_settings_of_a_cluster_are_one_sentence(settings, said):
    with pytest.raises(InputError, match=said):
        Cluster(**settings)


def test_other_versions_elsewhere_are_refused():
    check_versions(About(1, "n", "there", versions()))
    with pytest.raises(InputError, match=r"there has numba 0\.1, this process .*same versions"):
        check_versions(About(1, "n", "there", {**versions(), "numba": "0.1"}))


def test_only_the_engine_imports_ray():
    root = Path(bayesmf.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            if any(name.split(".")[0] == "ray" for name in names):
                found.add(path.relative_to(root).as_posix())
    assert found == {f"engines/ray/{name}.py" for name in ("engine", "joining", "private")}


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
