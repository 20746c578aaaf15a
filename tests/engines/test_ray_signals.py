"""Signals and a run on Ray: handlers of the caller stay, and the run can be resumed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for benchmarks


from bayesmf import SGLD, BayesianMF, Interrupted
from bayesmf.engines.local import Serial
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import EngineError
from benchmarks.faults.nodes import alive, descendants, title, wait_for
from checkpointed import run_kept
from cli_tools import make_data, run
from forged import file_contents
from problems import planted
from terminal import bayesmf

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def caught() -> bool:
    """Whether SIGTERM has a handler below Python, which is what counts."""
    status = Path("/proc/self/status").read_text().split()
    return bool(int(status[status.index("SigCgt:") + 1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.fixture
def mine():
    """A handler of the user's own, and how often it was called."""
    calls = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append("SIGTERM"))
    yield calls
    signal.signal(signal.SIGTERM, before)


def test_a_signal_that_also_ends_the_workers_is_reported_as_one(tmp_path, reference):
    class Ending(Serial):
        tasks = 0

        def submit(self, task):
            self.tasks += 1
            if self.tasks == 66:
                os.kill(os.getpid(), signal.SIGTERM)
                raise EngineError("the raylet has ended")
            return super().submit(task)

    with pytest.raises(Interrupted, match=r"stopped by SIGTERM after epoch .* of 9; resume with"):
        run_kept(tmp_path / "c", engine=Ending())
    assert run_kept(tmp_path / "c", resume=True) == reference


def test_a_cluster_that_wants_a_token():
    """Ray says so in the text of a cause."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    from bayesmf.engines.ray.engine import wants_token

    error = ConnectionError("Failed to connect")
    assert not wants_token(error)
    error.__cause__ = RuntimeError("Last error: AuthenticationError: a token is missing")
    assert wants_token(error)


# -- with Ray -------------------------------------------------------------------------------------

FIT = (
    "--sampler", "gibbs", "--epochs", "300", "--chains", "2", "--factors", "3",
    "--max-draws", "20",
)  # fmt: skip
ON_RAY = ("--engine", "ray", "--workers", "1", "--checkpoint-every", "0")


@pytest.fixture
def ray_folder(monkeypatch):
    """Short, for the names of sockets."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    folder = tempfile.mkdtemp(prefix="bmf")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    yield
    shutil.rmtree(folder, ignore_errors=True)


def draws(model):
    arrays, _ = file_contents(model)
    return {name: np.array(a).tobytes() for name, a in arrays.items() if name != "history"}


def newest(folder):
    rounds = [int(path.name[6:]) for path in folder.glob("chain-1/round-*")]
    return max(rounds, default=0)


@linux
def test_a_driver_is_stopped_twice_and_resumed(ray_folder, tmp_path):
    """By SIGTERM, and by Ctrl-C in a terminal."""
    data = make_data(tmp_path)
    folder, out = tmp_path / "c", tmp_path / "m"
    args = ["fit", data.train, "--out", out, *FIT, "--checkpoint", folder]
    process = subprocess.Popen(
        [sys.executable, "-m", "bayesmf", *map(str, args), *ON_RAY],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: newest(folder) >= 3 or process.poll() is not None, 60)
    started = descendants(process.pid)
    assert any("raylet" in title(pid) for pid, _ in started)
    process.terminate()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (143, ""), stderr
    reached = newest(folder)
    assert f"stopped by SIGTERM after epoch {reached} of 300" in stderr
    assert len(stderr.splitlines()) == 1
    assert wait_for(lambda: not any(map(alive, started)), 10), [title(pid) for pid, _ in started]

    typed = []

    def ctrl_c(text):
        if newest(folder) < reached + 3 or typed:
            return None
        typed.append(b"\x03")
        return b"\x03"

    shown = bayesmf(*args, *ON_RAY, "--resume", on_screen=ctrl_c, columns=200)
    assert shown.status == 130, shown.text
    assert "stopped by SIGINT after epoch" in shown.text

    assert run(*args, "--resume").status == 0
    whole = tmp_path / "whole"
    assert run("fit", data.train, "--out", whole, *FIT).status == 0
    assert draws(out) == draws(whole)


@linux
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's pipes
@pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning")
def test_a_user_keeps_handlers(ray_folder, mine):
    """While Ray runs, and after it has ended, Python's and those below."""
    seen = []

    def stop(event):
        if not seen:
            seen.append(caught())
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    sampler = SGLD(epochs=3, burn_in=1)
    BayesianMF(3, sampler=sampler, engine=Cluster(n_workers=1), callbacks=[stop]).fit(
        planted(300, 200, 6000)
    )
    assert seen == [True] and mine == ["SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) is before and caught()
