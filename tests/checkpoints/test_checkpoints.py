"""Checkpoints on the disk: whole or not at all, verified, few; refused where they do not fit."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from itertools import pairwise

import numpy as np
import pytest

from bayesmf import Gibbs, InputError
from bayesmf.checkpoints import folder as ck
from bayesmf.checkpoints import writer as saving
from bayesmf.engines.local import Serial
from bayesmf.model.draw_store import DrawStore
from bayesmf.storage import reader, writer
from bayesmf.storage.contents import ANY, Expected
from bayesmf.worker.row_tasks import RowsTask
from checkpointed import names, run_kept, settings_of
from dying import Dying, Killed

# -- what is there ------------------------------------------------------------------------------


def test_layout_and_numbers_are_bounded(tmp_path, reference):
    seen = []

    class Watching(Serial):
        def submit(self, task):
            seen.append(names(tmp_path / "c" / "chain-0"))
            return super().submit(task)

    assert run_kept(tmp_path / "c", engine=Watching()) == reference
    assert names(tmp_path / "c") == ["chain-0", "chain-1", "lock", "run"]
    assert max(sum(name.startswith("round-") for name in names) for names in seen) == 2
    assert not any(name.startswith(".") for names in seen for name in names)
    rounds = [name for name in seen[-1] if name.startswith("round-")]
    assert rounds == ["round-000000007", "round-000000008"]
    batches = [name for name in names(tmp_path / "c" / "chain-0") if name.startswith("draws-")]
    spans = [tuple(map(int, name.split("-")[1:3])) for name in batches]
    assert spans == [(k, k + 1) for k in range(6)]  # each draw once


def test_draws_are_written_once_and_again_when_some_were_forgotten(tmp_path, monkeypatch):
    written, left = [], []
    write, select = writer.write_array, DrawStore.select

    def noting(folder, name, array):
        if name == "users":
            written.append(array.shape[0] if array.ndim == 3 else 0)
        return write(folder, name, array)

    def selecting(self, chain, kept):
        left.append(len(kept))
        select(self, chain, kept)

    monkeypatch.setattr(writer, "write_array", noting)
    monkeypatch.setattr(DrawStore, "select", selecting)
    run_kept(tmp_path / "fixed", settings_of(Gibbs(epochs=30, burn_in=5)))
    assert sum(written) == 25
    written.clear()
    settings = settings_of(Gibbs(), target="fast", max_draws=6)
    _, _, events = run_kept(tmp_path / "growing", settings)
    *left, _ = left  # the last time, what is kept was on the disk already
    assert left
    kept = sum(now["draws"] != before["draws"] for before, now in pairwise(events))
    assert sum(written) == kept + sum(left)
    batches = [n for n in names(tmp_path / "growing" / "chain-0") if n.startswith("draws-")]
    assert len(batches) <= 12  # of two checkpoints


def test_draws_are_not_written_again_after_a_resume(stopped, reference):
    before = set(stopped.glob("chain-*/draws-*"))
    assert len(before) >= 4
    assert run_kept(stopped, resume=True) == reference
    assert before < set(stopped.glob("chain-*/draws-*"))


def test_how_often(tmp_path, monkeypatch):
    """Every minute; where writing takes six seconds for each of two chains, every two."""

    class Clock:
        now, cost = 0.0, 0.0

        def monotonic(self):
            return self.now

    def rounds_written(every, cost):
        clock, written = Clock(), []
        clock.cost = cost
        monkeypatch.setattr(saving, "time", clock)
        write = ck.ChainFolder.write

        def slow(self, t, arrays, plain, store, chain):
            clock.now += clock.cost
            written.append((chain, t))
            write(self, t, arrays, plain, store, chain)

        class Ticking(Serial):
            def submit(self, task):
                if isinstance(task, RowsTask) and task.shared.side == 1:
                    clock.now += 10  # seconds of a sweep, whose items are one stripe
                return super().submit(task)

        with monkeypatch.context() as patch:
            patch.setattr(ck.ChainFolder, "write", slow)
            settings = settings_of(Gibbs(epochs=40, burn_in=35))
            run_kept(tmp_path / f"{every}-{cost}", settings, Ticking(), every=every)
        return [t for chain, t in written if chain == 0]

    assert rounds_written(60.0, 0.0) == [6, 12, 18, 24, 30, 36, 40]
    assert rounds_written(60.0, 10.0) == [6, 16, 26, 36, 40]
    assert rounds_written(0, 10.0) == list(range(1, 41))
    assert rounds_written(1e9, 0.0) == [40]  # at the end always


SAMPLER = Gibbs(n_chains=2, epochs=9, burn_in=3)

# -- damage -------------------------------------------------------------------------------------


class Unasked:
    """Nothing is expected of numbers: what is noticed is noticed by digests."""

    def chain(self, arrays, meta):
        return {name: Expected(array.dtype, array.shape, ANY) for name, array in arrays.items()}

    batch = chain


def first_of(folder):
    """What the checkpoints of a run's first chain say that they are of."""
    return f"{reader.open_folder(folder / 'run', ck.RUN).digest} 0"


def _flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= 1 << at % 8
    path.write_bytes(raw)


def test_any_flipped_bit_is_noticed(stopped, tmp_path, caplog):
    chain = stopped / "chain-0"
    newest, before = sorted(chain.glob("round-*"))[::-1]
    shared = set(chain.glob("draws-*"))
    last = max(shared)  # which the newest alone refers to
    files = [path for folder in (newest, *shared) for path in folder.iterdir()]
    assert len(files) > 30
    rng = np.random.default_rng(0)
    for k, path in enumerate(files):
        copy = tmp_path / str(k)
        shutil.copytree(chain, copy)
        _flip(copy / path.relative_to(chain), int(rng.integers(1 << 20)))
        caplog.clear()
        folder = ck.ChainFolder(copy, 2, first_of(stopped))
        if path.parent in (newest, last):
            loaded = folder.load(Unasked())
            assert loaded.plain["t"] == folder.newest == int(before.name[6:])
            assert "damaged" in caplog.text
            assert not (copy / newest.name).exists()
        else:
            with pytest.raises(InputError, match=r"no checkpoint in .* is sound: start"):
                folder.load(Unasked())
            assert (copy / newest.name).exists()  # somebody may mend it
        shutil.rmtree(copy)
    for name in names(stopped / "run"):
        copy = tmp_path / "whole"
        shutil.copytree(stopped, copy)
        _flip(copy / "run" / name, 77)
        with pytest.raises(InputError, match="damaged"):
            run_kept(copy, resume=True)
        shutil.rmtree(copy)


def test_the_one_before_serves_when_the_newest_is_damaged(stopped, reference, caplog):
    newest = max((stopped / "chain-1").glob("round-*"))
    _flip(newest / "users.npy", 1000)
    (max((stopped / "chain-0").glob("round-*")) / "items.npy").unlink()
    assert run_kept(stopped, resume=True) == reference
    assert caplog.text.count("damaged") == 2
    for chain in ("chain-0", "chain-1"):
        _flip(max((stopped / chain).glob("round-*")) / "manifest.json", 50)
    assert run_kept(stopped, resume=True) == reference


@pytest.mark.parametrize("other", ["another run", "another chain"])
def test_a_chain_in_the_place_of_another_is_noticed(stopped, tmp_path, other):
    source = stopped
    if other == "another run":
        source = tmp_path / "other"
        with pytest.raises(Killed):
            run_kept(source, settings_of(SAMPLER, seed=5), engine=Dying(Serial(), 66))
    chain = source / ("chain-0" if other == "another run" else "chain-1")
    shutil.rmtree(stopped / "chain-0")
    shutil.copytree(chain, stopped / "chain-0")
    with pytest.raises(InputError, match="sound"):
        run_kept(stopped, resume=True)


@pytest.mark.parametrize("name", ["chain-0", "run"])
def test_links_in_the_place_of_folders_are_not_followed(stopped, tmp_path, name):
    away = tmp_path / "away"
    (stopped / name).rename(away)
    (away / "draws-thesis").mkdir()
    (stopped / name).symlink_to(away)
    before = names(away)
    with pytest.raises(InputError, match=f"'{name}', which is no checkpoint"):
        run_kept(stopped, resume=True)
    assert names(away) == before


def test_a_batch_in_the_place_of_another_is_noticed(stopped, tmp_path):
    folder = stopped / "chain-0"
    first, second, *_ = sorted(folder.glob("draws-*"))
    for path in first.iterdir():
        shutil.copy(second / path.name, path)
    with pytest.raises(InputError, match="sound"):
        ck.ChainFolder(folder, 2, first_of(stopped)).load(Unasked())


def test_what_a_killed_process_left_is_swept_away(stopped, reference):
    for folder in (stopped, stopped / "chain-0"):
        (folder / ".bayesmf-1-0123456789ab").mkdir()
        (folder / ".bayesmf-1-0123456789ab" / "users.npy").write_bytes(b"half")
    orphan = stopped / "chain-0" / "draws-000000-000009-00000000"
    orphan.mkdir()
    assert run_kept(stopped, resume=True) == reference
    assert not list(stopped.rglob(".bayesmf-*"))
    assert not orphan.exists()


class _Fuse:
    """Lets so many writes, renames and removals happen; then the process is dead and does none."""

    def __init__(self, monkeypatch):
        self.left = self.used = 0
        for owner, name in (
            (writer, "write_chunks"), (os, "mkdir"), (os, "replace"), (shutil, "rmtree"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self._guarded(getattr(owner, name)))

    def _guarded(self, do):
        def guarded(*args, **more):
            self.left, self.used = self.left - 1, self.used + 1
            if self.left == 0 and do.__name__ == "write_chunks":
                args[0].write_bytes(b"half")
            if self.left <= 0:
                raise Killed
            return do(*args, **more)

        return guarded


def test_killed_between_any_two_steps_of_writing(tmp_path, monkeypatch):
    settings = settings_of(Gibbs(epochs=6, burn_in=2))
    reference = run_kept(None, settings)
    with monkeypatch.context() as patch:
        fuse = _Fuse(patch)
        fuse.left = 1 << 30
        run_kept(tmp_path / "whole", settings)
    steps = fuse.used
    assert steps > 150
    for k, at in enumerate(range(1, steps, 13)):  # 13 is no multiple of what a round writes
        folder = tmp_path / str(k)
        with monkeypatch.context() as patch:
            fuse = _Fuse(patch)
            fuse.left = at
            with pytest.raises(Killed):
                run_kept(folder, settings)
        assert run_kept(folder, settings, resume=True) == reference
        assert not list(folder.rglob(".bayesmf-*"))


# -- a full disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_full_disk_is_survived(code, tmp_path, reference, monkeypatch, caplog):
    write, calls = writer.write_chunks, []

    def full(file, chunks):
        calls.append(file)
        if 120 < len(calls) < 125:
            file.write_bytes(b"a part")
            raise OSError(code, os.strerror(code))
        return write(file, chunks)

    monkeypatch.setattr(writer, "write_chunks", full)
    assert run_kept(tmp_path / "c") == reference
    told = [record.getMessage() for record in caplog.records]
    assert len(told) > 2
    assert all("the run goes on, the last good one is of epoch" in one for one in told)
    assert not list((tmp_path / "c").rglob(".bayesmf-*"))
    assert max((tmp_path / "c" / "chain-0").glob("round-*")).name == "round-000000009"
    caplog.clear()
    assert run_kept(tmp_path / "c", engine=Dying(Serial(), 0), resume=True) == reference
    assert not caplog.records


def test_a_disk_that_is_full_to_the_end_leaves_the_last_good_checkpoint(
    tmp_path, reference, monkeypatch
):
    write, calls = writer.write_chunks, []

    def full(file, chunks):
        calls.append(file)
        if len(calls) > 150:
            raise OSError(errno.ENOSPC, "full")
        return write(file, chunks)

    monkeypatch.setattr(writer, "write_chunks", full)
    assert run_kept(tmp_path / "c") == reference
    monkeypatch.undo()
    newest = max((tmp_path / "c" / "chain-0").glob("round-*")).name
    assert "round-000000001" < newest < "round-000000009"
    assert run_kept(tmp_path / "c", resume=True) == reference


def test_a_limit_that_the_system_sets(tmp_path):
    """RLIMIT_FSIZE from the fifth epoch on: no file may be longer than 1000 bytes."""
    code = f"""
        import resource, sys, numpy as np
        from bayesmf import BayesianMF, Checkpoint, Gibbs
        rng = np.random.default_rng(0)
        ratings = rng.integers(0, 40, 400), rng.integers(0, 30, 400), rng.normal(size=400)
        def limit(event):
            if event.epoch == 5:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        def fit(callbacks, checkpoint):
            model = BayesianMF(3, sampler=Gibbs(epochs=12), random_state=0, callbacks=callbacks)
            return model.fit(ratings, checkpoint=checkpoint).posterior_.draws.items.tobytes()
        alone = fit((), None)
        assert fit((limit,), Checkpoint({str(tmp_path / "c")!r}, every=0)) == alone
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert fit((), Checkpoint({str(tmp_path / "c")!r}, every=0, resume=True)) == alone
        print("same")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "same\n", ran.stderr
    assert "File too large" in ran.stderr
    assert "the last good one is of epoch 4" in ran.stderr
