"""Room for draws: mapped where they are large, in memory where no disk has room."""

import errno
import os

import numpy as np

import bayesmf.model.mapped
from bayesmf import BayesianMF, Gibbs
from problems import planted


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
