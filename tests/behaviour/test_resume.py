"""A run that was stopped anywhere goes on to the bits of the run that never was."""

import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import SGD, SGHMC, SGLD, SGNHT, BayesianMF, Checkpoint, Gibbs, Interrupted
from bayesmf.chains.callbacks import EarlyStop, History
from bayesmf.chains.pairs import Validation, WatchedPairs
from bayesmf.chains.rounds.blocks import BlockRounds, data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial, Threads
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.run import driver as server
from bayesmf.run.driver import run
from bayesmf.worker.block_tasks import GradientTask
from bayesmf.worker.row_tasks import RowsTask
from contract import draws_digest
from dying import Dying, Killed, facts, killed_and_resumed, tasks_of
from perverse import Perverse
from problems import planted, random_data

DATA = random_data(40, 30, 500)
SHAPE = data_shape(DATA)
_TRIPLES = [part[:200] for part in DATA.triples()]
KNOWN = Validation(WatchedPairs(_TRIPLES[0], _TRIPLES[1], np.ones(200, bool)), _TRIPLES[2])
SHORT = {"batch_size": 100, "round_length": 2}


def _settings(sampler, prior=None, **more):
    base = RunSettings(sampler.resolve(SHAPE), prior or GammaPrior(), 2, None, 0, 50)
    return replace(base, **more)


def _never_stopped(settings, validation=None, callbacks=()):
    history = History()
    return facts(run(DATA, settings, Serial(), validation, (history, *callbacks)), history)


CASES = {
    "Gibbs, until it is enough": (_settings(Gibbs(), target="balanced"), KNOWN),
    "Gibbs, with draws forgotten": (
        _settings(Gibbs(n_chains=2), WishartPrior(bias=True), target="fast", max_draws=8),
        KNOWN,
    ),
    "Gibbs, one draw": (_settings(Gibbs(), target="balanced", max_draws=1), KNOWN),
    "Gibbs": (_settings(Gibbs(n_chains=2, epochs=9, burn_in=3), WishartPrior(False)), KNOWN),
    "Gibbs after SGD": (
        _settings(Gibbs(n_chains=2, epochs=9, burn_in=3, sgd_epochs=3), WishartPrior(False)), KNOWN,
    ),
    "Gibbs, noise of rows": (
        _settings(Gibbs(n_chains=2, epochs=9, burn_in=3), noise_by="both"), KNOWN,
    ),
    "Gibbs by columns, noise of users": (
        _settings(Gibbs(epochs=9, burn_in=3, joint=4), noise_by="user"), None,
    ),
    "Gibbs, burn-in by RMSE": (_settings(Gibbs(epochs=40, burn_in="rmse:0.97")), KNOWN),
    "Gibbs, burn-in by the mean RMSE": (
        _settings(Gibbs(n_chains=2, epochs=9, burn_in="mean-rmse:0.81")), KNOWN,
    ),
    "SGLD 3x3, burn-in by the mean RMSE": (
        _settings(
            SGLD(grid=(3, 3), n_chains=2, epochs=9, burn_in="mean-rmse:0.9", thin=1.2, batch_size=9,
                 round_length=7)
        ), KNOWN,
    ),
    "Gibbs, burn-in until stationary": (
        _settings(Gibbs(epochs=60, burn_in="stationary"), max_draws=7), None,
    ),
    "SGLD 3x3": (_settings(SGLD(grid=(3, 3), n_chains=3, epochs=4)), KNOWN),
    "SGLD 4x1": (_settings(SGLD(grid=(4, 1), n_chains=4, epochs=3)), None),
    "SGLD, short rounds": (
        _settings(
            SGLD(grid=(2, 2), epochs=6, thin=0.5, shuffle_groups=True, precisions_from="burn-in",
                 **SHORT)
        ), KNOWN,
    ),
    "SGLD with replacement": (
        _settings(SGLD(grid=(2, 1), n_chains=2, epochs=4, noise="paper"), tau=1.0), None,
    ),
    "SGHMC 2x2": (
        _settings(
            SGHMC(epochs=6, grid=(2, 2), n_chains=2, exact_below=12, **SHORT), WishartPrior(False)
        ), None,
    ),
    "SGNHT": (_settings(SGNHT(epochs=8, n_chains=2, exact_below=12, **SHORT)), KNOWN),
    "SGLD, noise of rows": (_settings(SGLD(epochs=12, grid=(2, 2)), noise_by="both"), KNOWN),
    "SGHMC, noise of users": (
        _settings(SGHMC(epochs=12, exact_below=12, n_chains=2), noise_by="user"), None,
    ),
    "SGD": (_settings(SGD(epochs=9)), KNOWN),
    "SGD 2x2, short rounds": (_settings(SGD(epochs=6, grid=(2, 2), **SHORT)), None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_killed_in_mid_round_again_and_again_on_any_engine(case, tmp_path):
    settings, validation = CASES[case]
    tasks = tasks_of(DATA, settings, validation) // 4 + 1
    report, history, deaths = killed_and_resumed(DATA, settings, tmp_path / "c", tasks, validation)
    assert deaths >= 3
    assert facts(report, history) == _never_stopped(settings, validation)


@pytest.mark.parametrize("rule", [SGHMC, SGNHT, SGLD])
def test_rounds_that_were_rolled_back(rule, tmp_path, monkeypatch):
    """The state to fall back on, halved steps, and moments that are found anew only sometimes."""
    sound = BlockRounds._sound

    def unlucky(self, result):
        bad = int(result.sse * 1e6) % 3 == 0  # by the result alone, so that it is repeated
        return sound(self, result) and not bad

    monkeypatch.setattr(BlockRounds, "_sound", unlucky)
    # Precisions are drawn every sixth round only: in between a roll-back finds them as they were.
    settings = _settings(rule(epochs=7, precision_every=6, **SHORT))
    reference = _never_stopped(settings)
    assert reference[1][-1] >= 3, "repairs"
    for tasks in range(2, 14):
        folder, history = tmp_path / str(tasks), History()
        with pytest.raises(Killed):
            run(DATA, settings, Dying(Serial(), tasks), None, [History()],
                checkpoint=Checkpoint(folder, every=0))  # fmt: skip
        again = Checkpoint(folder, resume=True)
        report = run(DATA, settings, Serial(), None, [history], checkpoint=again)
        assert facts(report, history) == reference


@pytest.mark.parametrize(
    ("tasks", "lost", "ages"), [(30, (), (0, 5)), (90, (), (4, 12)), (150, (0,), (0, 13))]
)
def test_resumed_from_checkpoints_of_different_ages(tasks, lost, ages, tmp_path, monkeypatch):
    """One chain ahead of the other, even in another stage: what was judged before stays so."""
    settings = _settings(Gibbs(n_chains=2), target="balanced", max_draws=20)
    folder, history = tmp_path / "c", History()
    engine = Dying(Perverse(0, stall=True), tasks)  # chain 0 is always the last to go on
    with pytest.raises(Killed):
        run(DATA, settings, engine, KNOWN, [History()], checkpoint=Checkpoint(folder, every=0))
    for chain in lost:
        shutil.rmtree(folder / f"chain-{chain}")
    assert tuple(max(_rounds(folder / f"chain-{chain}"), default=0) for chain in (0, 1)) == ages
    judged, judge = [], server.judge
    with monkeypatch.context() as patch:
        patch.setattr(
            server, "judge", lambda chains, *target: judged.append(chains) or judge(chains, *target)
        )
        again = Checkpoint(folder, resume=True)
        report = run(DATA, settings, Threads(2), KNOWN, [history], checkpoint=again)
    assert facts(report, history) == _never_stopped(settings, KNOWN)
    stages = [12, 15, 19, 24, 30, 38]
    assert len(judged) == len([end for end in stages if max(ages) <= end <= report.epochs])


def _rounds(folder):
    return [int(path.name.removeprefix("round-")) for path in folder.glob("round-*")]


def test_stopped_when_burn_in_was_just_over(tmp_path):
    """The RMSE that ends burn-in is met at the end of one round and looked at before the next."""
    settings, _ = CASES["Gibbs, burn-in by RMSE"]
    reference = _never_stopped(settings, KNOWN)
    last = max(event["epoch"] for event in reference[2] if event["burning"])
    again, history = Checkpoint(tmp_path / "c", every=0, resume=True), History()
    engine = Dying(Serial(), 3 * last + 1, RowsTask)  # users are two stripes, items one
    with pytest.raises(Killed):
        run(DATA, settings, engine, KNOWN, [History()], checkpoint=again)
    report = run(DATA, settings, Serial(), KNOWN, [history], checkpoint=again)
    assert facts(report, history) == reference


@pytest.mark.parametrize(("tasks", "lost"), [(10, 0), (25, 1), (43, 0), (50, 1)])
def test_a_chain_resumed_ahead_of_burn_in_of_all(tasks, lost, tmp_path):
    """One chain starts again; the other is in burn-in, or was after it when the run was killed."""
    settings, _ = CASES["Gibbs, burn-in by the mean RMSE"]
    reference = _never_stopped(settings, KNOWN)
    burning = [(e["chain"], e["epoch"]) for e in reference[2] if e["burning"]]
    assert burning == [(chain, epoch) for chain in (0, 1) for epoch in range(1, 7)]
    folder, history = tmp_path / "c", History()
    with pytest.raises(Killed):
        run(DATA, settings, Dying(Perverse(0, stall=True), tasks, RowsTask), KNOWN, [History()],
            checkpoint=Checkpoint(folder, every=0))  # fmt: skip
    ahead = max(_rounds(folder / f"chain-{1 - lost}"))
    assert 0 < ahead < 9 and (ahead > 6) == (tasks >= 40), "after burn-in"
    shutil.rmtree(folder / f"chain-{lost}")
    report = run(DATA, settings, Threads(2), KNOWN, [history],
                 checkpoint=Checkpoint(folder, resume=True))  # fmt: skip
    assert facts(report, history) == reference


class Clocked(Perverse):
    """Its clock shows the tasks that were done, a second each; with one of them comes a signal."""

    signal_at = None

    def seconds(self):
        return float(len(self.finished))

    def wait(self, handles):
        if len(self.finished) == self.signal_at:
            signal.raise_signal(signal.SIGTERM)
        return super().wait(handles)


# Five rounds an epoch: the first chain waits at the end of one while the other is in the middle.
TOGETHER = SGLD(n_chains=2, epochs=9, batch_size=100, round_length=1)


@pytest.mark.parametrize("ended_by", ["time", "signal"])
@pytest.mark.parametrize(("rmse", "epochs"), [(0.94, 2), (0.925, 8)])
def test_a_run_ended_while_a_chain_waits_for_the_mean(ended_by, rmse, epochs, tmp_path):
    """It does not go on by its own RMSE, .919 after two epochs: resumed, it has the same bits."""
    settings = _settings(replace(TOGETHER, burn_in=f"mean-rmse:{rmse}"))
    reference = _never_stopped(settings, KNOWN)
    burning = [(e["chain"], e["epoch"]) for e in reference[2] if e["burning"]]
    assert burning == [(chain, epoch) for chain in (0, 1) for epoch in range(1, epochs + 1)]
    for at in range(5, 45, 3):
        folder, history, engine = tmp_path / str(at), History(), Clocked(0, stall=True)
        if ended_by == "time":
            short = replace(settings, max_seconds=float(at))
            report = run(DATA, short, engine, KNOWN, [History()], checkpoint=Checkpoint(folder))
            assert report.convergence["ended_by"] == "max_seconds"
        else:
            engine.signal_at = at
            with pytest.raises(Interrupted):
                run(DATA, settings, engine, KNOWN, [History()], checkpoint=Checkpoint(folder))
        report = run(DATA, settings, Serial(), KNOWN, [history],
                     checkpoint=Checkpoint(folder, resume=True))  # fmt: skip
        assert facts(report, history) == reference


def test_a_chain_that_a_callback_ended_does_not_stand_for_one_that_waits(tmp_path):
    """Its last errors alone must not end burn-in when a signal comes before the other's."""

    def end_one(event):
        return event.chain == 1 and event.epoch >= 2

    settings = _settings(replace(TOGETHER, burn_in="mean-rmse:0.93"))
    reference = _never_stopped(settings, KNOWN, [end_one])
    for at in range(5, 30, 3):
        folder, history, engine = tmp_path / str(at), History(), Clocked(0, stall=True)
        engine.signal_at = at
        with pytest.raises(Interrupted):
            run(DATA, settings, engine, KNOWN, [History(), end_one], checkpoint=Checkpoint(folder))
        report = run(DATA, settings, Serial(), KNOWN, [history, end_one],
                     checkpoint=Checkpoint(folder, resume=True))  # fmt: skip
        assert facts(report, history) == reference


def test_a_finished_run_is_not_run_again(tmp_path):
    for settings in (CASES["Gibbs, with draws forgotten"][0], CASES["SGLD 3x3"][0]):
        folder = tmp_path / settings.target / type(settings.sampler).__name__
        one, two = History(), History()
        first = run(DATA, settings, Serial(), KNOWN, [one], checkpoint=Checkpoint(folder))
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("round-*")}
        again = run(DATA, settings, Dying(Serial(), 0), KNOWN, [two],
                    checkpoint=Checkpoint(folder, resume=True))  # fmt: skip
        assert facts(again, two) == facts(first, one)
        assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("round-*")}
        assert again.seconds >= first.seconds * 0.5  # its end was not timed


def test_listeners_remember(tmp_path):
    """EarlyStop counts on from where it was, and a chain that it ended stays so."""
    settings = _settings(SGD(epochs=80, step_size=0.01))
    stop = EarlyStop(patience=4, least=0.001)
    reference = _never_stopped(settings, KNOWN, [stop])
    epochs = len(reference[2])
    assert 6 < epochs < 80
    for tasks in (1, 5):
        report, history, deaths = killed_and_resumed(
            DATA, settings, tmp_path / str(tasks), tasks, KNOWN,
            lambda: [EarlyStop(patience=4, least=0.001)], GradientTask,
        )  # fmt: skip
        assert deaths == (epochs - 1) // tasks
        assert facts(report, history) == reference
    again = run(DATA, settings, Dying(Serial(), 0, GradientTask), KNOWN,
                checkpoint=Checkpoint(tmp_path / "5", resume=True))  # fmt: skip
    assert facts(again, history)[:2] == reference[:2]


def test_a_listener_that_cannot_remember_does_not_end_the_run(tmp_path):
    class Odd:
        def __call__(self, event):
            return None

        def state(self, chain):
            return {1, 2}

        def restore(self, chain, state):
            raise AssertionError

    report = run(DATA, _settings(SGD(epochs=2)), Serial(), None, [Odd()],
                 checkpoint=Checkpoint(tmp_path / "c"))  # fmt: skip
    assert len(report.draws) == 1
    (sentence,) = report.failures
    assert "the state of the callback Odd could not be saved" in sentence


def test_one_chain_ended_by_a_listener(tmp_path):
    def stop(event):
        return event.chain == 0 and event.epoch == 20

    settings = _settings(Gibbs(epochs=40, burn_in=5, n_chains=2))
    reference = _never_stopped(settings, callbacks=[stop])
    report, history, deaths = killed_and_resumed(
        DATA, settings, tmp_path / "c", 60, callbacks=lambda: [stop]
    )
    assert deaths > 2
    assert facts(report, history) == reference


def test_time_goes_on_and_more_may_be_given(tmp_path):
    sampler = Gibbs(n_chains=1)
    short = _settings(sampler, target="accurate", max_seconds=0.05)
    history = History()
    first = run(DATA, short, Serial(), None, [history], checkpoint=Checkpoint(tmp_path / "c"))
    assert first.convergence["ended_by"] == "max_seconds"
    told = History()
    again = run(DATA, short, Dying(Serial(), 0), None, [told],
                checkpoint=Checkpoint(tmp_path / "c", resume=True))  # fmt: skip
    assert facts(again, told) == facts(first, history)
    assert again.convergence["ended_by"] == "max_seconds"
    longer = replace(short, max_seconds=None, target="accurate")
    told = History()
    done = run(DATA, longer, Serial(), None, [told],
               checkpoint=Checkpoint(tmp_path / "c", resume=True))  # fmt: skip
    assert facts(done, told) == _never_stopped(longer)
    seconds = [event["seconds"] for event in told.events]
    assert seconds == sorted(seconds)


def test_the_estimator_takes_up_its_seed(tmp_path):
    user, item, value = planted()
    train, test = (user[500:], item[500:], value[500:]), (user[:500], item[:500], value[:500])

    def stop_at(epoch):
        def listen(event):
            if event.epoch == epoch:
                raise Killed

        return listen

    sampler = Gibbs(epochs=16, n_chains=2)
    model = BayesianMF(3, sampler=sampler, callbacks=[stop_at(7)])  # a seed that nobody knows
    with pytest.raises(Killed):
        model.fit(train, validation=test, checkpoint=Checkpoint(tmp_path / "c", every=0))
    assert not hasattr(model, "posterior_")
    model.set_params(callbacks=(), engine="serial")
    model.fit(train, validation=test, checkpoint=Checkpoint(tmp_path / "c", resume=True))
    assert [e["epoch"] for e in model.history_ if e["chain"] == 1] == list(range(1, 17))
    seed = model.report_["seed"]
    other = BayesianMF(3, sampler=sampler, random_state=seed).fit(train, validation=test)
    assert draws_digest(model) == draws_digest(other)
    same = ("epochs", "draws", "tau", "step_size", "convergence")
    assert [model.report_[name] for name in same] == [other.report_[name] for name in same]


def test_a_path_will_do_and_a_missing_folder_starts_from_the_beginning(tmp_path, caplog):
    settings = _settings(SGD(epochs=3))
    reference = _never_stopped(settings)
    history = History()
    with caplog.at_level("INFO", logger="bayesmf"):
        report = run(DATA, settings, Serial(), None, [history],
                     checkpoint=Checkpoint(tmp_path / "a" / "b", resume=True))  # fmt: skip
    assert "starting from the beginning" in caplog.text
    assert facts(report, history) == reference
    user, item, value = planted()
    model = BayesianMF(2, sampler=SGD(epochs=2), random_state=0)
    model.fit((user, item, value), checkpoint=tmp_path / "path")
    assert (tmp_path / "path" / "run").is_file()


def test_interrupted_is_a_keyboard_interrupt_that_tells():
    error = Interrupted(15, "after epoch 3 of 9", "go on so")
    assert isinstance(error, KeyboardInterrupt)
    assert (error.signum, str(error)) == (15, "stopped by SIGTERM after epoch 3 of 9; go on so")
