"""The server loop: chains that wait for nobody, burn-in, thinning, divergence, events."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import (
    SGD,
    SGLD,
    SGNHT,
    BayesianMF,
    ConvergenceWarning,
    DivergenceError,
    Gibbs,
    InputError,
)
from bayesmf.chains import chain as chain_module
from bayesmf.chains.callbacks import EarlyStop, History
from bayesmf.chains.monitor import Monitor, RunClock, RunningMean
from bayesmf.chains.pairs import Validation, WatchedPairs
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial, Threads
from bayesmf.engines.registry import make_engine
from bayesmf.model.draw_store import DrawStore
from bayesmf.model.priors import GammaPrior, Params, Precisions
from bayesmf.run.driver import run
from bayesmf.worker.block_tasks import GradientTask
from bayesmf.worker.row_tasks import RowsTask
from perverse import Perverse
from problems import planted, random_data

DATA = random_data(40, 30, 500)
SHAPE = data_shape(DATA)


def _settings(sampler, **more):
    base = RunSettings(sampler.resolve(SHAPE), GammaPrior(), 2, None, 0, 50)
    return replace(base, **more)


def _bits(report):
    return [report.draws.users.tobytes(), report.draws.items.tobytes(), report.draws.tau.tobytes()]


@pytest.mark.parametrize(
    "sampler",
    [SGLD(grid=(3, 3), n_chains=3, epochs=4), SGLD(grid=(4, 1), n_chains=4, epochs=3),
     Gibbs(n_chains=2, epochs=5), SGLD(grid=(2, 3), n_chains=2, epochs=3, visits=[3, 1, 1]),
     SGLD(grid=(2, 2), n_chains=2, epochs=4, shuffle_groups=True, minibatch="replacement"),
     SGLD(grid=(3, 3), group_size=2, n_chains=6, epochs=3),
     SGNHT(grid=(2, 2), group_size=1, n_chains=4, epochs=3)],
)  # fmt: skip
def test_the_order_of_completion_does_not_matter(sampler):
    reference = _bits(run(DATA, _settings(sampler), Serial()))
    for engine in (Perverse(0), Perverse(1), Perverse(2, stall=True), Threads(3)):
        assert _bits(run(DATA, _settings(sampler), engine)) == reference


def test_chains_do_not_wait_for_a_stalled_one():
    engine = Perverse(0, stall=True)
    run(DATA, _settings(SGLD(n_chains=3, epochs=5)), engine)
    rounds = [task.chain for task in engine.finished if isinstance(task, GradientTask)]
    assert sorted(rounds) == [0] * 5 + [1] * 5 + [2] * 5
    assert rounds[-5:] == [0] * 5


def test_chains_differ_by_their_random_numbers(monkeypatch):
    """From the same first precisions, too."""
    right = chain_module.first_precisions
    monkeypatch.setattr(chain_module, "first_precisions", lambda number, *more: right(0, *more))
    draws = run(DATA, _settings(SGLD(n_chains=2, epochs=4, burn_in=2)), Serial()).draws
    assert not np.array_equal(draws.users[0], draws.users[len(draws) // 2])


def test_errors_followed_are_those_of_the_average_over_all_chains():
    validation = Validation(WatchedPairs(*np.zeros((3, 4), np.int32)), np.zeros(4, np.float32))
    monitor = Monitor(validation, [], 2.0, RunClock(lambda: 0.0), nullcontext)
    for number, draws in enumerate(([1.0, 3.0], [-2.5])):
        monitor.means[number] = RunningMean(1)
        for x in draws:
            monitor.means[number].add(np.full(4, x, np.float32))
    assert monitor.rmse_all_chains() == pytest.approx(2.0 * (1.0 + 3.0 - 2.5) / 3)
    growing = Monitor(validation, [], 1.0, RunClock(lambda: 0.0), nullcontext, growing=True)
    growing.means[0] = RunningMean(4)
    for x in (10.0, 1.0, 2.0, 3.0):  # the first quarter is burn-in
        growing.means[0].add(np.full(4, x, np.float32))
    assert growing.rmse_all_chains() == pytest.approx(2.0)


def test_burn_in_and_thinning_keep_what_they_say():
    report = run(DATA, _settings(SGLD(epochs=20, burn_in=8, thin=3, n_chains=2)), Serial())
    assert report.draws.chain.tolist() == [0] * 4 + [1] * 4
    assert report.epochs == pytest.approx(20, rel=0.01)
    capped = _settings(SGLD(epochs=40, burn_in=8, n_chains=2), max_draws=10)
    assert len(run(DATA, capped, Serial()).draws) == 10


@pytest.mark.parametrize("rule", [SGD(epochs=0.3), SGLD(epochs=0.3), Gibbs(epochs=0.3)])
def test_less_than_an_epoch_leaves_a_draw(rule):
    rule = replace(rule, **({} if isinstance(rule, Gibbs) else {"round_length": 1}))
    draws = run(DATA, _settings(rule), Serial()).draws
    assert len(draws) >= 1
    assert np.isfinite(draws.tau).all()


def test_precisions_wait_for_burn_in_on_request():
    sampler = SGLD(epochs=6, burn_in=4, precisions_from="burn-in", initial_precision=2.0)
    draws = run(DATA, _settings(sampler, tau=1.0), Serial()).draws
    assert np.all(draws.user_Lambda != 2.0)
    assert np.all(draws.tau == 1.0)
    # Twelve rounds; precisions have their turn in the fifth and tenth, burn-in ends with the tenth.
    early = replace(sampler, burn_in=5, round_length=4, precision_every=5, thin=0.5)
    kept = run(DATA, _settings(early, tau=1.0), Serial()).draws
    drawn = run(DATA, _settings(replace(early, precisions_from="start"), tau=1.0), Serial()).draws
    assert np.all(kept.user_Lambda[0] == 2.0)
    assert np.all(drawn.user_Lambda[0] != 2.0)


def test_burn_in_until_rmse():
    rmse = []
    user, item, value = (part[:200] for part in DATA.triples())
    known = Validation(WatchedPairs(user, item, np.ones(200, bool)), value)
    watch = History()
    sampler = Gibbs(epochs=40, burn_in="rmse:0.97")
    run(DATA, _settings(sampler), Serial(), known, [watch])
    for event in watch.events:
        if event["burning"]:
            rmse.append(event["rmse"])
    assert all(r > 0.97 for r in rmse[:-1])
    assert rmse[-1] <= 0.97
    with pytest.raises(InputError, match="validation"):
        run(DATA, _settings(sampler), Serial())
    with pytest.raises(InputError, match="never ended"):
        run(DATA, _settings(Gibbs(epochs=5, burn_in="rmse:0.01")), Serial(), known)


class Planned(WatchedPairs):
    """Pairs with given errors: those of a chain, epoch by epoch, the last one for all after it."""

    def predict(self, state, rounds, fetch, kept):
        yield from ()
        errors = PLANNED[state.chain]
        k = self.epochs[state.chain] = self.epochs.get(state.chain, 0) + 1
        return np.full(2, errors[min(k, len(errors)) - 1], np.float32)


# Means of the first two chains: 1.35, 1.05, 0.9, 0.75, of all three 1.1, 0.9, 0.8, 0.7.
PLANNED = [0.7, 0.6, 0.5, 0.5], [2.0, 1.5, 1.3, 1.0], [0.6, 0.6, 0.6, 0.6]


def _planned():
    pairs = Planned(*np.zeros((2, 2), np.int32), np.ones(2, bool))
    vars(pairs)["epochs"] = {}
    return Validation(pairs, np.zeros(2, np.float32))


def _planned_run(burn_in, callbacks=(), engine=None, n_chains=2, **more):
    """Epochs in burn-in of each chain with the errors `PLANNED`, and the report."""
    history = History()
    settings = _settings(Gibbs(n_chains=n_chains, epochs=7, burn_in=burn_in), **more)
    report = run(DATA, settings, engine or Serial(), _planned(), [history, *callbacks])
    burning = [e["chain"] for e in history.events if e["burning"]]
    return [burning.count(chain) for chain in range(n_chains)], report


@pytest.mark.parametrize(("limit", "epochs"), [(1.4, 1), (1.1, 2), (0.91, 3), (0.8, 4)])
def test_the_mean_of_chains_ends_burn_in(limit, epochs):
    """Chain 0 is below each limit from the start, chain 1 above each up to its third epoch."""
    for engine in (Serial(), Threads(2), Perverse(0, stall=True), Perverse(1)):
        found, report = _planned_run(f"mean-rmse:{limit}", engine=engine)
        assert found == [epochs, epochs]
        assert np.bincount(report.draws.chain).tolist() == [7 - epochs] * 2
    alone, _ = _planned_run("rmse:1.4")
    assert alone == [1, 3]
    three, _ = _planned_run("mean-rmse:0.95", n_chains=3)
    assert three == [2, 2, 2]  # by their median it would be one


@pytest.mark.parametrize(("rule", "draws"), [("mean-rmse:0.91", [5, 5]), ("rmse:1.4", [7, 5])])
def test_burn_in_by_rmse_ends_between_epochs_where_draws_do(rule, draws):
    """Errors are measured after every 2 of 16 rounds, as draws are kept: 8 rounds are an epoch."""
    sampler = SGLD(
        n_chains=2, epochs=2, burn_in=rule, batch_size=len(DATA) // 8, round_length=1, thin=0.25
    )
    report = run(DATA, _settings(sampler), Serial(), _planned())
    assert np.bincount(report.draws.chain).tolist() == draws
    assert report.convergence["burn_in"] == ""


def test_the_mean_that_never_falls_is_named():
    with pytest.raises(InputError, match=r"chain 0 never ended: the lowest mean .* was 0\.7500 in"):
        _planned_run("mean-rmse:0.74")
    with pytest.raises(
        InputError, match=r"chain 1 never ended: the lowest validation .* 1\.0000 in"
    ):
        _planned_run("rmse:0.74")


def test_a_chain_that_a_callback_ended_has_no_part_in_the_mean():
    """Means of both chains 1.35 and 1.05, then 1.3 and 1.0 of chain 1 alone."""
    found, report = _planned_run("mean-rmse:1.0", [lambda e: e.chain == 0 and e.epoch == 2])
    assert found == [2, 4]
    assert report.draws.chain.tolist() == [0, 1, 1, 1]
    assert report.convergence["burn_in"] == (
        "Burn-in (mean-rmse:1) lasted until the end of 1 chain, where the lowest mean validation "
        "RMSE was 1.0000: the only draw of such a chain is its last state."
    )


def test_chains_wait_for_each_other_only_until_the_mean_ends_burn_in():
    engine = Perverse(0, stall=True)
    _planned_run("mean-rmse:0.91", engine=engine)
    sweeps = [task.chain for task in engine.finished if isinstance(task, RowsTask)]
    n = len(sweeps) // 14
    assert [sweeps[k * n] for k in range(14)] == [1, 0] * 3 + [1] * 4 + [0] * 4


def test_the_mean_of_one_chain_is_its_own():
    user, item, value = (part[:200] for part in DATA.triples())
    known = Validation(WatchedPairs(user, item, np.ones(200, bool)), value)
    own, mean = (
        run(DATA, _settings(Gibbs(epochs=9, burn_in=rule)), Serial(), known)
        for rule in ("rmse:0.8", "mean-rmse:0.8")
    )
    assert 1 < len(own.draws) < 8 and _bits(own) == _bits(mean)


class Ticking(Serial):
    """Its clock shows the sweeps of items, a second each."""

    n = 0

    def seconds(self):
        return float(self.n)

    def submit(self, task):
        self.n += isinstance(task, RowsTask) and task.shared.side == 1
        return super().submit(task)


def _note(sampler, known=None, **more):
    report = run(DATA, _settings(sampler, **more), Ticking(), known)
    found = report.convergence
    assert found["verdict"].startswith(found["burn_in"])
    return found["burn_in"], report


def test_a_burn_in_of_epochs_that_time_ended_is_noted():
    note, report = _note(Gibbs(n_chains=1, epochs=40, burn_in=20), max_seconds=20.0)
    assert note == (
        "Burn-in (20) ended at epoch 9, when 40% of max_seconds was over: make burn_in shorter "
        "or max_seconds longer."
    )
    assert report.convergence["ended_by"] == "max_seconds"
    assert (report.epochs, len(report.draws)) == (20, 11)
    for sampler, seconds in [
        (Gibbs(n_chains=1, epochs=20, burn_in=5), 20.0), (Gibbs(n_chains=1, epochs=9), 5.0),
        (SGD(epochs=4), 1.0),
    ]:  # fmt: skip
        assert _note(sampler, max_seconds=seconds)[0] == ""


def test_a_burn_in_by_rmse_is_not_ended_by_time():
    user, item, value = (part[:200] for part in DATA.triples())
    known = Validation(WatchedPairs(user, item, np.ones(200, bool)), value)
    for rule, lowest in ("rmse:0.01", "lowest"), ("mean-rmse:0.01", "lowest mean"):
        sampler = Gibbs(n_chains=2, epochs=40, burn_in=rule)
        note, report = _note(sampler, known, max_seconds=20.0)
        begin = (
            f"Burn-in ({rule}) lasted until the end of 2 chains, where the {lowest} validation "
            "RMSE was 0."
        )
        assert note.startswith(begin)
        assert note.endswith(": the only draw of such a chain is its last state.")
        assert len(report.draws) == 2 and report.epochs == pytest.approx(10, abs=1)
    note, _ = _note(Gibbs(epochs=40, burn_in="rmse:0.01"), known, max_seconds=0.5)
    assert "where the lowest validation RMSE was" in note


def test_a_fit_warns_once_of_the_burn_in_that_time_ended():
    user, item, value = planted()
    sampler = Gibbs(n_chains=3, epochs=400, burn_in=200)
    model = BayesianMF(3, sampler=sampler, max_seconds=90.0, engine=Ticking(), random_state=0)
    with pytest.warns(ConvergenceWarning) as told:
        model.fit((user, item, value))
    (sentence,) = [str(one.message) for one in told]
    assert sentence.startswith("Burn-in (200) ended at epoch ")
    assert model.report_["convergence"]["verdict"].startswith("Burn-in (200) ended at epoch ")


def test_stationary_burn_in_ends_before_half():
    watch = History()
    run(DATA, _settings(Gibbs(epochs=100, burn_in="stationary")), Serial(), callbacks=[watch])
    burning = [e["burning"] for e in watch.events]
    assert 19 <= sum(burning) <= 50
    assert burning == sorted(burning, reverse=True)


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("rule", [SGD, SGLD])
def test_divergence_is_noticed_and_explained(engine, rule):
    sampler = rule(epochs=50, step_size=3.0)
    with pytest.raises(DivergenceError, match=r"chain 0 diverged in round \d+ at step size 3"):
        run(DATA, _settings(sampler), make_engine(engine, 2))


def test_events_and_early_stop():
    user, item, value = planted()
    history, stop = History(), EarlyStop(patience=5)
    model = BayesianMF(3, sampler=SGD(epochs=300), callbacks=[history, stop], random_state=0)
    model.fit(
        (user[500:], item[500:], value[500:]), validation=(user[:500], item[:500], value[:500])
    )
    assert len(model.history_) < 300
    assert model.history_ == history.events
    event = history.events[-1]
    assert event["rmse"] < history.events[0]["rmse"]
    assert event["ratings_per_second"] > 0
    assert len(model.posterior_.draws) == 1


def test_a_chain_is_stopped_alone_and_results_do_not_depend_on_timing():
    def stop(event):
        return event.chain == 0 and event.epoch == 20

    settings = _settings(Gibbs(epochs=60, burn_in=5, n_chains=3))
    reference = run(DATA, settings, Serial(), callbacks=[stop])
    assert np.bincount(reference.draws.chain)[0] < np.bincount(reference.draws.chain)[1]
    for engine in (Perverse(1), Threads(3)):
        assert _bits(run(DATA, settings, engine, callbacks=[stop])) == _bits(reference)


def test_large_draws_are_mapped(monkeypatch):
    import bayesmf.model.mapped

    monkeypatch.setattr(bayesmf.model.mapped, "MAP_ABOVE_BYTES", 0)
    store = DrawStore(2, 5)
    rng = np.random.default_rng(0)
    prior = GammaPrior().initial(2)
    kept = []
    for chain, n in ((0, 3), (1, 2)):
        for k in range(n):
            params = Params(
                rng.normal(size=(4, 3)).astype(np.float32),
                rng.normal(size=(5, 3)).astype(np.float32),
                2,
            )
            precisions = Precisions(prior, prior, 1.0)
            parts = store.parts(params, precisions)
            if k == 0:
                store.reserve(chain, n, parts)
            store.add(chain, parts, precisions)
            kept.append(params)
    draws = store.draws()
    assert isinstance(draws.users, np.memmap)
    assert len(store) == len(draws) == 5
    for t, params in enumerate(kept):
        assert np.array_equal(draws.users[t], params.users)
        assert np.array_equal(draws.items[t], params.items)
