"""Signals and a run on Ray: whoever handled them before still does, and the run can go on."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for benchmarks

from bayesmf.engines.ray.addresses import wants_token
from bayesmf.engines.ray.handlers import unchanged, unchanged_during

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


def reset():
    """As Ray does when it ends."""
    ctypes.CDLL(None).signal(ctypes.c_int(signal.SIGTERM), ctypes.c_void_p(0))


@linux
def test_handlers_are_kept(mine):
    own, usr1 = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    real = signal.signal

    def call():
        assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is own
        signal.raise_signal(signal.SIGTERM)  # ours, all the time
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is usr1  # others as they like
        reset()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), unchanged():
        call()
    assert signal.signal is real and caught()
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.signal(signal.SIGUSR1, usr1) is signal.SIG_IGN
    assert mine == ["SIGTERM"]


@linux
def test_a_handler_is_set_again_below_python(mine):
    with unchanged():
        reset()
        deadline = time.monotonic() + 10.0
        while not caught() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert caught()  # or the next line would end this process
        os.kill(os.getpid(), signal.SIGTERM)
        assert mine == ["SIGTERM"]


@linux
def test_handlers_are_kept_during_a_call_that_takes_them_away(mine):
    seen = []

    def call():
        reset()
        seen.append(wait_for(caught, 10))
        reset()

    unchanged_during(call)
    assert seen == [True] and caught()
    with pytest.raises(ZeroDivisionError):
        unchanged_during(lambda: 1 / 0)


@linux
def test_a_signal_during_the_call_lets_it_end(mine):
    ended = []

    def stop(*_):
        raise KeyboardInterrupt

    def call():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        reset()
        ended.append(True)

    signal.signal(signal.SIGTERM, stop)
    with pytest.raises(KeyboardInterrupt):
        unchanged_during(call)
    assert ended and caught()
    assert signal.getsignal(signal.SIGTERM) is stop


def test_in_another_thread_there_is_nothing_to_keep():
    done = []

    def work():
        with unchanged():
            unchanged_during(lambda: done.append(True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_who_ends_the_machines_too_hears_where_to_go_on(tmp_path, reference):
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
    """Ray tells of it in the text of a cause."""
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
def test_a_driver_is_stopped_twice_and_resumed(ray_folder, tmp_path, monkeypatch):
    """By SIGTERM to all of a job, as `ray job stop` does, and by Ctrl-C in a terminal."""
    data = make_data(tmp_path)
    folder, out, scratch = tmp_path / "c", tmp_path / "m", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    args = ["fit", data.train, "--out", out, *FIT, "--checkpoint", folder]
    command = shlex.join([sys.executable, "-m", "bayesmf", *map(str, args), *ON_RAY])
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"trap : TERM; {command}; echo status $?"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: newest(folder) >= 3 or process.poll() is not None, 60)
    started = descendants(process.pid)
    assert any("raylet" in title(pid) for pid, _ in started)
    os.killpg(process.pid, signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert stdout == "status 143\n"
    reached = newest(folder)
    assert stderr.startswith(f"bayesmf: stopped by SIGTERM after epoch {reached} of 300; go on")
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
    assert list(scratch.iterdir()) == []

    assert run(*args, "--resume").status == 0
    whole = tmp_path / "whole"
    assert run("fit", data.train, "--out", whole, *FIT).status == 0
    assert draws(out) == draws(whole)


@linux
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's pipes
@pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning")
def test_a_user_keeps_handlers_whatever_becomes_of_ray(ray_folder, mine):
    """Here its server is killed, which is told at once; Ray itself would wait for a minute."""
    killed = []

    def kill(event):
        if event.epoch == 3:
            assert caught()
            signal.raise_signal(signal.SIGTERM)
            (raylet,) = (p for p, _ in descendants(os.getpid()) if "raylet/raylet" in title(p))
            os.kill(raylet, signal.SIGKILL)
            killed.append(time.monotonic())

    own = signal.getsignal(signal.SIGTERM)
    engine = Cluster(n_workers=1)
    model = BayesianMF(3, sampler=SGLD(epochs=500, burn_in=1), engine=engine, callbacks=[kill])
    with pytest.raises(EngineError, match="Ray's raylet on this machine has ended"):
        model.fit(planted(300, 200, 6000))
    assert time.monotonic() - killed[0] < 30
    assert mine == ["SIGTERM"] and signal.getsignal(signal.SIGTERM) is own and caught()
