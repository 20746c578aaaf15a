"""Signals end a run with a checkpoint."""

import errno
import os
import signal
from contextlib import suppress

import pytest

from bayesmf import Checkpoint, Gibbs, Interrupted, Ratings
from bayesmf.chains.history import History
from bayesmf.engines.local import Serial
from bayesmf.kernels.jit import CLOCK
from bayesmf.server.run import run
from bayesmf.storage import writer
from bayesmf.system.signals import Ended, at_once, deferred, leaving
from checkpointed import DATA, SETTINGS, run_kept, settings_of
from cli_tools import run as command
from dying import facts

pytestmark = pytest.mark.usefixtures("signals_reach_us")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_checkpoint(signum, tmp_path, reference):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    def send(event):
        if (event.chain, event.epoch) == (1, 4):
            os.kill(os.getpid(), signum)

    checkpoint = Checkpoint(tmp_path / "c", every=1e9)
    history = History()
    with pytest.raises(Interrupted) as info:
        run(DATA, SETTINGS, Serial(), None, [history, send], checkpoint=checkpoint)
    assert info.value.signum == signum
    told = f"stopped by {signum.name} after epoch 4 of 9; go on with fit(..., checkpoint="
    assert str(info.value).startswith(told)
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert run_kept(tmp_path / "c", resume=True) == reference


def test_a_run_of_unknown_length_says_how_far_it_came(tmp_path):
    def send(event):
        if event.epoch == 14:  # in the second stage
            os.kill(os.getpid(), signal.SIGTERM)

    settings = settings_of(Gibbs(), target="fast")
    with pytest.raises(Interrupted, match="after epoch 14; go on with"):
        run(DATA, settings, Serial(), None, [History(), send],
            checkpoint=Checkpoint(tmp_path / "c"))  # fmt: skip
    assert run_kept(tmp_path / "c", settings, resume=True) == run_kept(None, settings)


def test_a_second_signal_ends_at_once(tmp_path, reference):
    tasks = []

    class Sending(Serial):
        def submit(self, task):
            tasks.append(task)
            if len(tasks) in (60, 61):
                os.kill(os.getpid(), signal.SIGINT)
            return super().submit(task)

    with pytest.raises(Interrupted, match="second time"):
        run_kept(tmp_path / "c", engine=Sending())
    assert len(tasks) <= 61
    assert run_kept(tmp_path / "c", resume=True) == reference


def test_a_signal_with_a_full_disk_tells_what_is_there(tmp_path, reference, monkeypatch):
    write = writer.write_chunks

    def full(file, chunks):
        raise OSError(errno.ENOSPC, "full")

    def send(event):
        if event.epoch == 4:
            monkeypatch.setattr(writer, "write_chunks", full)
        if (event.chain, event.epoch) == (0, 6):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="after epoch 3 of 9"):
        run(DATA, SETTINGS, Serial(), None, [History(), send],
            checkpoint=Checkpoint(tmp_path / "c", every=0))  # fmt: skip
    monkeypatch.setattr(writer, "write_chunks", write)
    assert run_kept(tmp_path / "c", resume=True) == reference


def test_signals_that_were_ignored_stay_so(tmp_path, reference):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:

        def send(event):
            os.kill(os.getpid(), signal.SIGINT)

        history = History()
        checkpoint = Checkpoint(tmp_path / "c")
        report = run(DATA, SETTINGS, Serial(), None, [history, send], checkpoint=checkpoint)
        assert facts(report, history) == reference
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("signum", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_command_with_nothing_to_go_on_from_clears_up_and_says_so(signum, said, monkeypatch):
    cleared = []

    def read(*args, **more):
        try:
            os.kill(os.getpid(), signum)
        finally:
            cleared.append(True)

    monkeypatch.setattr(Ratings, "read", read)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # and not the end of all tests
    try:
        ran = command("fit", "r.csv", "--out", "m")
        assert (ran.status, ran.out, ran.err) == (128 + signum, "", f"bayesmf: {said}\n")
        assert cleared
    finally:
        signal.signal(signal.SIGTERM, before)


# -- while it compiles ----------------------------------------------------------------------------


@pytest.fixture
def compiling():
    """A function is being compiled, until what is given is called."""
    CLOCK.on_start(None)
    state = {"busy": True}

    def done():
        if state.pop("busy", False):
            CLOCK.on_end(None)

    yield done
    done()


def test_ctrl_c_waits_for_the_compiler(compiling):
    reached = []

    def work():
        with deferred():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the function")
            compiling()
            CLOCK.on_start(None)  # the next one is not begun
            reached.append("the next one")

    with pytest.raises(KeyboardInterrupt):
        work()
    CLOCK.on_end(None)
    assert reached == ["the end of the function"]


def test_ctrl_c_after_the_last_function(compiling):
    def work():
        with deferred():
            signal.raise_signal(signal.SIGINT)
            compiling()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_leaves_at_once(compiling):
    """Nothing is raised into the compiler."""
    left = []
    with leaving(left.append), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert [type(error) for error in left] == [Ended]
    with leaving(left.append), at_once(), suppress(Interrupted):
        signal.raise_signal(signal.SIGTERM)
    assert left[1].signum == signal.SIGTERM
    compiling()
    with pytest.raises(KeyboardInterrupt), leaving(left.append):
        signal.raise_signal(signal.SIGINT)
    assert len(left) == 2
