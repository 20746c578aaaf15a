"""Things go wrong in short runs on a cluster; all end with the bits of `serial`.

`python -m benchmarks.faults` does the same fifty times, at random moments.
"""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import faults, faults_nodes
from benchmarks.faults_driver import answer
from benchmarks.faults_kinds import (
    Trial,
    attempt,
    fill_disk,
    hang_worker,
    kill_driver,
    kill_worker,
    lose_and_add,
)

# After `faults_nodes`, which tells Ray to keep to the loopback before it is imported.
pytest.importorskip("ray", reason="the extra 'ray' is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's pipes
CASE = "DSGLD-S 3x3"


@pytest.fixture(scope="module")
def nodes():
    """Two nodes of one worker each; at the end no process of theirs is left."""
    with faults_nodes.nodes(cpus=1) as made:
        yield made


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return answer({"folder": tmp_path_factory.mktemp("serial"), "case": CASE, "engine": "serial"})


def trial_of(nodes, folder, kind, epochs=0):
    trial = Trial(kind, CASE, nodes, random.Random(0), folder, epochs, n_workers=2)
    trial.engine["start_timeout"] = 60.0  # on a busy machine, with all to compile
    return trial


def test_workers_and_nodes_are_lost_added_and_hang(nodes, known, tmp_path):
    trial = trial_of(nodes, tmp_path, "hang")
    run = trial.start()
    seen = []
    try:
        for epochs, fault in ((5, kill_worker), (30, hang_worker), (60, lose_and_add)):
            assert run.reach(epochs), run.wait()
            seen.append(fault(trial))
        found = run.wait()
        assert all(fault() for fault in seen), run.told
    finally:
        trial.close()
    assert found["status"] == "done", found
    assert found["sha256"] == known["sha256"]
    assert found["engine"]["faults"] == run.told
    # Tasks that were sent anew with a lost one are not waited for as if they were there already.
    assert not any("GetTimeoutError" in line for line in run.told)


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
    trial = trial_of(nodes, tmp_path, "added", epochs=5)
    trial.engine["start_timeout"] = 12.0
    found = attempt(trial)
    assert found["status"] == "done", found
    assert found["sha256"] == known["sha256"]
    assert "found no room" in found["told"][0] and "has come" in found["told"][-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kinds", "flood"], "'flood' is none of worker, node"),
        (["--n", "-1"], "0 or more"),
        (["--out", "."], "not empty"),
    ],
)
def test_bad_options_are_one_sentence(options, said, capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(SystemExit, match="2"):
        faults.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("faults: ") and said in line


def test_without_ray_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr(faults.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        faults.main([])
    assert "pip install ray" in capsys.readouterr().err


def test_the_seed_decides_what_happens():
    args = faults.parse(["--n", "14", "--drivers", "3", "--seed", "5"])
    kinds = faults.plan(args)
    assert kinds == faults.plan(args) and len(kinds) == 17
    assert all(kinds[:14].count(kind) == 2 for kind in faults.KINDS)
    assert kinds[14:] == ["driver"] * 3
