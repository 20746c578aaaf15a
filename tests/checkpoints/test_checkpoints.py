"""Checkpoints on the disk: whole or not at all, verified, few; refused where they do not fit."""

import os
import shutil
import subprocess
import sys
import textwrap
from itertools import chain, pairwise

import numpy as np
import pytest

from bayesmf import Gibbs, InputError
from bayesmf.checkpoints import folder as ck
from bayesmf.checkpoints import writer as saving
from bayesmf.engines.local import Serial
from bayesmf.model.draw_store import DrawStore
from bayesmf.worker.row_tasks import RowsTask
from checkpointed import names, run_kept, settings_of
from dying import Dying, Killed
from failing_calls import FailingCalls, each_call

# -- what is there ------------------------------------------------------------------------------


def test_layout_and_numbers_are_bounded(tmp_path, reference):
    seen = []

    class Watching(Serial):
        def submit(self, task):
            seen.append([path.name for path in (tmp_path / "c" / "chain-0").glob("*")])
            return super().submit(task)

    assert run_kept(tmp_path / "c", engine=Watching()) == reference
    assert names(tmp_path / "c") == ["chain-0", "chain-1", "run"]
    assert max(sum(name.startswith("round-") for name in names) for names in seen) == 2
    assert not any(name.startswith(".") for names in seen for name in names)
    rounds = sorted(name for name in seen[-1] if name.startswith("round-"))
    assert rounds == ["round-000000007", "round-000000008"]
    batches = [name for name in names(tmp_path / "c" / "chain-0") if name.startswith("draws-")]
    spans = [tuple(map(int, name.split("-")[1:3])) for name in batches]
    assert spans == [(k, k + 1) for k in range(6)]  # each draw once


def test_draws_are_written_once_and_again_when_some_were_forgotten(tmp_path, monkeypatch):
    written, left = [], []
    write, select = ck.write_file, DrawStore.select

    def noting(path, kind, arrays, meta):
        if kind is ck.BATCH:
            written.append(len(arrays["tau"]))
        return write(path, kind, arrays, meta)

    def selecting(self, chain, kept):
        left.append(len(kept))
        select(self, chain, kept)

    monkeypatch.setattr(ck, "write_file", noting)
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


def test_draws_of_no_checkpoint_are_removed(stopped, reference):
    orphan = stopped / "chain-0" / "draws-000000-000009-00000000"
    orphan.write_bytes(b"half")
    assert run_kept(stopped, resume=True) == reference
    assert not orphan.exists()


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


# -- damage -------------------------------------------------------------------------------------


def _flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= 1 << at % 8
    path.write_bytes(raw)


def test_any_flipped_bit_is_noticed(stopped, reference, tmp_path, caplog):
    """In the newest checkpoint the one before serves; in draws of both none does."""
    newest = max((stopped / "chain-0").glob("round-*"))
    last = max((stopped / "chain-0").glob("draws-*"))  # which the newest alone refers to
    rng = np.random.default_rng(0)
    for k, path in enumerate([newest, last, *sorted((stopped / "chain-0").glob("draws-*"))[:-1]]):
        for _ in range(3):
            copy = shutil.copytree(stopped, tmp_path / str(k))
            _flip(copy / path.relative_to(stopped), int(rng.integers(1 << 20)))
            caplog.clear()
            if path in (newest, last):
                assert run_kept(copy, resume=True) == reference
                assert "chain-0" in caplog.text
            else:
                with pytest.raises(InputError, match=r"no checkpoint in .* is sound: start"):
                    run_kept(copy, resume=True)
                assert (copy / newest.relative_to(stopped)).exists()  # somebody may mend it
            shutil.rmtree(copy)
    _flip(stopped / "run", 777)
    with pytest.raises(InputError, match=r"damaged|not a bayesmf run file"):
        run_kept(stopped, resume=True)


def test_the_one_before_serves_when_the_newest_is_damaged(stopped, reference, caplog):
    _flip(max((stopped / "chain-1").glob("round-*")), 1000)
    os.truncate(max((stopped / "chain-0").glob("round-*")), 2000)
    assert run_kept(stopped, resume=True) == reference
    assert caplog.text.count("damaged") == 2


@pytest.mark.parametrize("other", ["another run", "another chain", "other draws"])
def test_files_in_the_place_of_others_are_noticed(stopped, tmp_path, other):
    if other == "other draws":
        first, second, *_ = sorted((stopped / "chain-0").glob("draws-*"))
        shutil.copy(second, first)
    else:
        source = stopped
        if other == "another run":
            source = tmp_path / "other"
            settings = settings_of(Gibbs(n_chains=2, epochs=9, burn_in=3), seed=5)
            with pytest.raises(Killed):
                run_kept(source, settings, engine=Dying(Serial(), 66))
        chain = source / ("chain-0" if other == "another run" else "chain-1")
        shutil.rmtree(stopped / "chain-0")
        shutil.copytree(chain, stopped / "chain-0")
    with pytest.raises(InputError, match="sound"):
        run_kept(stopped, resume=True)


# -- kills and full disks -----------------------------------------------------------------------


class _Fuse(FailingCalls):
    """Lets some calls happen; then the process is dead and does none."""

    def meet(self, name, what):
        try:
            super().meet(name, what)
        except OSError:
            raise Killed from None
        if self.failed:
            raise Killed


def test_killed_between_any_two_calls(tmp_path):
    settings = settings_of(Gibbs(epochs=6, burn_in=2))
    reference = run_kept(None, settings)
    k, deaths = 1, 0
    while True:
        folder = tmp_path / str(k)
        try:
            with _Fuse(folder, k) as fuse:
                run_kept(folder, settings)
        except Killed:
            deaths += 1
        assert run_kept(folder, settings, resume=True) == reference
        if not fuse.failed:
            break
        k += 7
    assert deaths > 10


def test_every_call_fails_in_turn(tmp_path, caplog):
    """A sentence at the start, a warning later; in the end all is as if nothing had failed."""
    settings = settings_of(Gibbs(epochs=6, burn_in=2))
    reference = run_kept(None, settings)
    refused = survived = 0
    beginning = (FailingCalls(tmp_path, k) for k in range(1, 20))
    for k, shim in enumerate(chain(beginning, each_call(tmp_path, stride=9))):
        folder = tmp_path / str(k)
        caplog.clear()
        try:
            with shim:
                assert run_kept(folder, settings) == reference
        except InputError:
            refused += 1
        else:
            told = [record.getMessage() for record in caplog.records]
            assert all("the run continues, the last good one is of epoch" in one for one in told)
            survived += bool(told)
        assert run_kept(folder, settings, resume=True) == reference
    assert refused >= 1
    assert survived > 5


def test_a_disk_that_is_full_to_the_end_leaves_the_last_good_checkpoint(tmp_path, reference):
    with FailingCalls(tmp_path, 150, full=True) as shim:
        assert run_kept(tmp_path / "c") == reference
    assert shim.failed
    newest = max((tmp_path / "c" / "chain-0").glob("round-*")).name
    assert "round-000000001" < newest < "round-000000009"
    assert not list((tmp_path / "c").rglob(".bayesmf-*"))
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
