"""What listeners show and decide."""

import io
from dataclasses import replace

import pytest

from bayesmf.callbacks import EarlyStop, Event, History, Progress

EVENT = Event(
    chain=0, epoch=1, epochs=40, seconds=4.0, burning=False, draws=1, rmse=0.9,
    rmse_all_chains=0.8, train_rmse=0.7, tau=1.5, step_size=1e-3, ratings_per_second=2.5e7,
)  # fmt: skip


class _Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(terminal, monkeypatch):
    screen = _Screen(terminal)
    monkeypatch.setattr("sys.stderr", screen)
    progress = Progress(after_seconds=0.0, every_seconds=0.0)
    for epoch in (1, 2):
        progress(replace(EVENT, epoch=epoch))
    progress.close()
    shown = screen.getvalue()
    if not terminal:
        assert shown == ""
        return
    assert "RMSE 0.8000, 25.0M ratings/s" in shown
    assert "epoch 2/40" in shown
    # Two epochs took four seconds by the fit's own clock: 38 more take about 76.
    assert "01:1" in shown.split("epoch 2/40")[-1]
    assert "left" in shown


def test_progress_waits_and_starts_anew(monkeypatch):
    screen = _Screen(True)
    monkeypatch.setattr("sys.stderr", screen)
    patient, again = Progress(after_seconds=100.0), Progress(0.0, 0.0)
    patient(EVENT)
    assert screen.getvalue() == ""
    again(replace(EVENT, epoch=30, rmse=None, rmse_all_chains=None))
    again(EVENT)  # a second fit with the same object
    again.close()
    shown = screen.getvalue()
    assert "train RMSE 0.7000" in shown
    assert "epoch 1/40" in shown.split("epoch 30/40")[-1]


def test_early_stop_counts_epochs_without_improvement():
    stop = EarlyStop(patience=2, least=0.01)
    told = [stop(replace(EVENT, epoch=k + 1, rmse=r)) for k, r in enumerate([1, 0.9, 0.895, 0.9])]
    assert told == [False, False, False, True]
    assert not stop(replace(EVENT, epoch=1, rmse=2.0))  # another fit
    assert not stop(replace(EVENT, epoch=50, rmse=None))
    assert not EarlyStop(patience=0)(replace(EVENT, burning=True))


def test_history_keeps_dictionaries():
    history = History()
    history(EVENT)
    assert history.events[0]["rmse_all_chains"] == 0.8
