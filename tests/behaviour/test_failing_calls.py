"""I/O that fails at every call in turn: the old state or the new one is there, never less."""

import os
import shutil
from functools import partial

import pytest

from bayesmf import BayesianMF, Gibbs, InputError, PackedRatings, Synthetic, pack
from cli_tools import run
from failing_calls import each_call
from problems import planted


@pytest.fixture(scope="module")
def model():
    return BayesianMF(2, sampler=Gibbs(epochs=4, burn_in=1), random_state=0).fit(planted())


@pytest.fixture
def box(tmp_path):
    folder = tmp_path / "box"
    folder.mkdir()
    return folder


def states_after_failures(box, target, write, state, full, stride=1):
    """Let calls fail one after the other; the states of the target, and what was raised."""
    before = shutil.copy(target, box.parent / "before") if target.exists() else None
    found = []
    for shim in each_call(box, full, stride):
        shutil.rmtree(box)
        box.mkdir()
        if before is not None:
            shutil.copy(before, target)
        error = None
        try:
            with shim:
                write()
        except (InputError, OSError) as raised:
            error = raised
        found.append((state() if target.exists() else None, error, shim.failed))
        left = set(os.listdir(box)) - {target.name}
        # What cannot be removed stays; a folder is opened before its files are removed.
        assert not left or shim.failed in ("unlink", "rmdir", "open"), (left, shim.failed)
    return found


@pytest.mark.parametrize("full", [False, True], ids=["once", "full"])
@pytest.mark.parametrize("what", ["save", "save over", "predict csv", "predict parquet", "pack"])
def test_a_file_is_the_old_or_the_new_one(what, full, model, box, tmp_path):
    target, stride = box / f"target.{what.split()[-1]}", 1
    if what.startswith("save"):
        write, state = partial(model.save, target), lambda: BayesianMF.load(target).predict(1, 5)
        if what == "save over":
            other = BayesianMF(2, sampler=Gibbs(epochs=4, burn_in=1), random_state=1)
            other.fit(planted()).save(target)
    elif what == "pack":
        Synthetic(30, 20, 300, stars=True).ratings().write(tmp_path / "ratings.csv")
        write = partial(pack, tmp_path / "ratings.csv", target, chunk=100, stretch=100)
        state, stride = lambda: len(PackedRatings.open(target, verify=True)), 5
    else:
        model.save(tmp_path / "model")
        (tmp_path / "pairs.csv").write_text("user,item\n1001,5\n1002,6\n")
        target.write_bytes(b"old")

        def write():
            ran = run("predict", tmp_path / "model", tmp_path / "pairs.csv", "--out", target)
            if ran.status:
                raise InputError(ran.sentence)

        state = target.read_bytes
    old = state() if target.exists() else None
    found = states_after_failures(box, target, write, state, full, stride)
    new = found[-1][0]
    assert new != old
    assert found[-1][1] is None
    assert len(found) > 4
    for now, error, failed in found:
        assert now in (old, new)
        assert isinstance(error, InputError) or (error is None and now == new), failed


def test_the_shim_sees_what_fails(box):
    """A writer that is not careful is found out: else nothing above would mean anything."""
    target = box / "target"
    target.write_bytes(b"old")

    def careless():
        with open(target, "wb") as file:
            file.write(b"new")

    found = states_after_failures(box, target, careless, target.read_bytes, False)
    assert [state for state, _, _ in found] == [b"old", b"", b"new"]
