"""Callbacks: progress, early stopping, failures; the history of a fit in model files."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmf import SGD, BayesianMF, CallbackWarning, Gibbs, InputError
from bayesmf.chains.callbacks import (
    HISTORY_COLUMNS,
    EarlyStop,
    Event,
    History,
    Progress,
    RunPlan,
    history_array,
    history_events,
)
from forged import file_contents
from problems import planted
from waiting import until

EVENT = Event(
    chain=0, epoch=1, epochs=40, stage=0, seconds=4.0, burning=False, draws=1, rmse=0.9,
    rmse_all_chains=0.8, train_rmse=0.7, tau=1.5, step_size=1e-3, ratings_per_second=2.5e7,
)  # fmt: skip


class _Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.fixture(autouse=True)
def redrawn_at_once(monkeypatch):
    monkeypatch.setattr("bayesmf.process._REDRAWN_EVERY", 0.0)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(terminal, monkeypatch):
    monkeypatch.setattr("sys.stderr", screen := _Screen(terminal))
    monkeypatch.setenv("COLUMNS", "100")
    progress = Progress(after_seconds=0.0)
    for epoch in (1, 2):
        progress(replace(EVENT, epoch=epoch))
    if terminal:
        until(lambda: "| pass 2 of 40, RMSE 0.8000, 25.0M ratings/s" in screen.getvalue())
    progress.close()
    assert terminal or screen.getvalue() == ""


def test_a_growing_run_has_a_stage_and_no_time_left(monkeypatch):
    """Beyond the end of a stage, and up to the longest there can be: never a traceback."""
    monkeypatch.setattr("sys.stderr", screen := _Screen(True))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(
        "bayesmf.chains.callbacks.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    clock = iter(range(10_000))
    progress = Progress(after_seconds=0.0)
    for epoch in range(1, 121):
        event = replace(EVENT, epoch=epoch, epochs=120, stage=1 + epoch // 12, rmse_all_chains=None)
        progress(event)
        assert progress._pieces(event, epoch)[0] == f"pass {epoch} of at most 120"
        assert not any("left" in piece for piece in progress._pieces(event, epoch))
    until(lambda: "pass 120 of at most 120, train RMSE 0.7000" in screen.getvalue())
    progress.close()
    assert "stage 11 |" in screen.getvalue()


def test_the_time_left_is_by_the_walls_clock(monkeypatch):
    """The fit's own clock may be a simulated one. Three seconds a pass, 30 passes to come."""
    now = [100.0]
    monkeypatch.setattr("bayesmf.chains.callbacks.time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = Progress(show=False)
    progress.begin(RunPlan(n_chains=1, epochs=40, max_seconds=None))
    for epoch in range(1, 11):
        progress(replace(EVENT, epoch=epoch, seconds=0.001 * epoch))
        now[0] += 3.0
    now[0] -= 3.0
    left = [piece for piece in progress._pieces(replace(EVENT, epoch=10), 10) if "left" in piece]
    assert left == ["01:30 left"]
    # Where the clock ends the run sooner, that is what is left.
    progress._plan = RunPlan(1, 40, max_seconds=10.0)
    assert "00:06 left" in progress._pieces(replace(EVENT, epoch=10, seconds=4.0), 10)


def test_progress_waits_and_starts_anew(monkeypatch):
    monkeypatch.setattr("sys.stderr", screen := _Screen(True))
    patient, again = Progress(after_seconds=100.0), Progress(0.0)
    patient(EVENT)
    assert screen.getvalue() == ""
    patient.close()
    again(replace(EVENT, epoch=30, rmse=None, rmse_all_chains=None))
    until(lambda: "pass 30 of 40, train RMSE 0.7000" in screen.getvalue())
    again(EVENT)  # a second fit with the same object
    until(lambda: "pass 1 of 40" in screen.getvalue().split("pass 30 of 40")[-1])
    again.close()


# -- callbacks that are none, and callbacks that fail ---------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([Progress], "the class Progress: pass an instance, Progress()"),
        (
            Progress(),
            "callbacks must be a list of callables: write callbacks=[...] around Progress",
        ),
        (print, "around print"),
        ([3], "callbacks holds 3, which cannot be called"),
        ([EarlyStop()], "EarlyStop needs a validation set: pass validation= to fit"),
    ],
)
def test_callbacks_are_checked_before_anything_is_done(given, says):
    with pytest.raises(InputError, match=re.escape(says)):
        BayesianMF(2, callbacks=given).fit("no such file")


def test_early_stop_takes_numbers_that_mean_something():
    for options in ({"patience": -1}, {"patience": 1.5}, {"least": -1e-3}, {"least": "x"}):
        with pytest.raises(InputError, match=next(iter(options))):
            EarlyStop(**options)
    assert EarlyStop(0, 0).patience == 0


def test_a_callback_that_fails_never_loses_the_run():
    heard = []

    def broken(event):
        heard.append(event.epoch)
        raise ValueError("no such thing")

    after = History()
    with pytest.warns(CallbackWarning, match="broken failed after epoch 1 .*no such thing"):
        model = BayesianMF(
            2, sampler=Gibbs(epochs=8), callbacks=[broken, after], random_state=0
        ).fit(planted(30, 20, 300))
    assert heard == [1]  # once, and then left alone
    assert len(after.events) == 8 and model.report_["epochs"] == 8
    quiet = BayesianMF(2, sampler=Gibbs(epochs=8), random_state=0).fit(planted(30, 20, 300))
    assert np.array_equal(model.predict([1, 2], [3, 4]), quiet.predict([1, 2], [3, 4]))


def test_a_callback_that_fails_before_the_first_epoch():
    class Early:
        def begin(self, plan):
            raise ValueError("too early")

        def __call__(self, event):
            raise AssertionError("called again")

    with pytest.warns(CallbackWarning, match="Early failed before the first epoch .*too early"):
        BayesianMF(2, sampler=Gibbs(epochs=3), callbacks=[Early()], random_state=0).fit(
            planted(30, 20, 300)
        )


def test_a_callback_may_know_the_plan():
    class Planner:
        def begin(self, plan):
            self.plan = plan

        def __call__(self, event):
            assert event.epochs == self.plan.epochs

    planner = Planner()
    BayesianMF(2, callbacks=[planner], max_seconds=60, random_state=0).fit(planted(30, 20, 300))
    assert planner.plan == RunPlan(n_chains=2, epochs=120, max_seconds=60.0)


# -- EarlyStop and History ------------------------------------------------------------------------


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


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(
    "sampler", [Gibbs(n_chains=2, epochs=6, burn_in=2), SGD(epochs=3)], ids=["gibbs", "sgd"]
)
def test_it_comes_back_as_it_was(tmp_path, sampler, followed):
    triple = planted(n_users=20, n_items=15, n_ratings=200)
    model = BayesianMF(2, sampler=sampler, random_state=0)
    model.fit(triple, validation=triple if followed else None)
    model.save(tmp_path / "m")
    again = BayesianMF.load(tmp_path / "m").history_
    assert model.history_
    assert again == model.history_
    for old, new in zip(model.history_, again, strict=True):
        assert {k: type(v) for k, v in old.items()} == {k: type(v) for k, v in new.items()}


def test_it_is_an_array_and_not_in_the_header(tmp_path):
    triple = planted(n_users=20, n_items=15, n_ratings=200)
    BayesianMF(2, sampler=SGD(epochs=40), random_state=0).fit(triple).save(tmp_path / "m")
    arrays, meta = file_contents(tmp_path / "m")
    assert arrays["history"].shape == (40, len(HISTORY_COLUMNS))
    assert meta["history"] == list(HISTORY_COLUMNS)


def test_another_version_may_have_other_columns():
    assert history_events(["epoch", "speed"], np.array([[2.0, np.nan]])) == [
        {"epoch": 2, "speed": None}
    ]
    assert history_array([]).shape == (0, len(HISTORY_COLUMNS))


def test_a_history_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        history_events(["epoch"], np.ones((3, 2)))
