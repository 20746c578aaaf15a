"""One model under a name at every moment, whoever reads and writes; nothing left, nothing lost."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

import bayesmf.model.mapped
from bayesmf import BayesianMF, Gibbs, InputError
from bayesmf.storage import exchange, folders, lock
from bayesmf.storage.reader import read_folder
from bayesmf.storage.writer import write_folder
from problems import planted

LEFT = ".bayesmf-1-0123456789ab"


def arrays(k):
    return {"x": np.full(1000, k), "y": np.full((30, 4), float(k))}


def whole(folder):
    """Which it is, if it is one: the numbers of one and the meta data of another are none."""
    found, meta = read_folder(folder)
    assert set(np.unique(found["x"])) == set(np.unique(found["y"])) == {meta["k"]}
    return meta["k"]


def test_a_reader_beside_writers(tmp_path):
    """Two processes' worth of writers, by threads; a reader sees the one or the other, always."""
    folder = tmp_path / "model"
    write_folder(folder, arrays(0), {"k": 0})
    failures, done = [], threading.Event()

    def write(first):
        try:
            for k in range(first, first + 120):
                write_folder(folder, arrays(k), {"k": k})
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 1000)]
    watching = threading.Thread(target=lambda: [w.join() for w in writers] and done.set())
    for thread in (*writers, watching):
        thread.start()
    seen = set()
    while not done.is_set():
        seen.add(whole(folder))
    assert not failures
    assert len(seen) > 5
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_process_keeps_no_lock_of_ours(tmp_path, monkeypatch):
    with lock.one_writer(tmp_path):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with lock.one_writer(tmp_path) as alone:
            assert alone
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_nothing_is_removed_through_a_link(tmp_path, monkeypatch):
    """Not even where a folder becomes one between a look at it and its removal."""
    mine, left = tmp_path / "mine", tmp_path / LEFT
    mine.mkdir()
    left.mkdir()
    for folder in (mine, left):
        (folder / "x.npy").write_bytes(b"years")
    real = folders.foreign_name

    def swapped(*args):
        found = real(*args)
        left.rename(tmp_path / "away")
        left.symlink_to(mine)
        return found

    monkeypatch.setattr(exchange, "foreign_name", swapped)
    exchange.sweep(tmp_path)
    assert (mine / "x.npy").read_bytes() == b"years"


def test_a_private_model_stays_private(tmp_path):
    folder = tmp_path / "model"
    write_folder(folder, arrays(0), {"k": 0})
    for path in (*folder.iterdir(), folder):
        path.chmod(0o700 if path.is_dir() else 0o600)
    write_folder(folder, arrays(1), {"k": 1})
    assert whole(folder) == 1
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    """A reader waits for a moment without one; after a kill in it, a sentence says where it is."""
    monkeypatch.setattr(exchange, "exchange", lambda one, other: False)
    folder = tmp_path / "model"
    write_folder(folder, arrays(0), {"k": 0})
    old = tmp_path / ".bayesmf-old-0123456789ab-model"
    folder.rename(old)
    threading.Timer(0.1, lambda: old.rename(folder)).start()
    assert whole(folder) == 0
    folder.rename(old)
    with pytest.raises(InputError, match=rf"killed while it replaced it.*{old.name}: rename"):
        read_folder(folder)


def test_what_may_be_somebody_elses_stays(tmp_path, caplog):
    """One at work, a link, another name, one with something else in it."""
    home = tmp_path / "home"
    (home / LEFT).mkdir(parents=True)
    (home / LEFT / "thesis.txt").write_text("years")
    (home / ".bayesmf-2-0123456789ab").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.npy").write_bytes(b"years")
    (home / ".bayesmf-mine").mkdir()
    with exchange.new_folder(home / "other") as busy:
        (busy / "x.npy").write_bytes(b"half")
        write_folder(home / "model", arrays(1), {"k": 1})
        assert (busy / "x.npy").read_bytes() == b"half"
    assert not busy.exists()
    assert sorted(os.listdir(home)) == [LEFT, ".bayesmf-2-0123456789ab", ".bayesmf-mine", "model"]
    assert (home / LEFT / "thesis.txt").exists() and (tmp_path / "mine" / "x.npy").exists()
    assert "removed" not in caplog.text


def test_killed_while_saving_over(tmp_path):
    """At every file that is written and at the exchange: the old model is there, and loadable."""
    folder = tmp_path / "model"
    code = (
        "import os, sys; import numpy as np\n"
        "from bayesmf.storage import writer, exchange\n"
        "left = int(sys.argv[2])\n"
        "def dying(do):\n"
        "    def call(*args):\n"
        "        global left\n"
        "        left -= 1\n"
        "        if left < 0: os._exit(9)\n"
        "        return do(*args)\n"
        "    return call\n"
        "writer.write_chunks = dying(writer.write_chunks)\n"
        "exchange.exchange = dying(exchange.exchange)\n"
        "exchange.sync_folder = dying(exchange.sync_folder)\n"
        "for k in (1, 2): writer.write_folder(sys.argv[1], {'x': np.full(1000, k),"
        " 'y': np.full((30, 4), float(k))}, {'k': k})\n"
    )
    for calls, expected in ((5, 1), (7, 1), (9, 1), (10, 2), (11, 2)):
        shutil.rmtree(folder, ignore_errors=True)
        status = subprocess.run([sys.executable, "-c", code, folder, str(calls)]).returncode
        assert status == (0 if calls == 11 else 9)
        assert whole(folder) == expected
        assert len(os.listdir(tmp_path)) == 1 + (calls != 11)  # swept by the next


# -- room ---------------------------------------------------------------------------------------


def test_draws_take_their_room_before_they_are_mapped(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(bayesmf.model.mapped, "MAP_ABOVE_BYTES", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    data = planted(40, 30, 600)

    def fit():
        fitted = BayesianMF(3, sampler=Gibbs(epochs=8, burn_in=2), random_state=0).fit(data)
        return fitted.posterior_.draws

    mapped = fit()
    assert isinstance(mapped.items, np.memmap)
    assert os.listdir(tmp_path) == []  # without a name: nothing is left after a kill

    def full(handle, at, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    bayesmf.model.mapped._warn_once.cache_clear()
    in_memory = fit()
    assert not isinstance(in_memory.items, np.memmap)
    assert np.array_equal(in_memory.items, mapped.items)
    assert caplog.text.count("has no room for draws (No space left on device)") == 1
