"""Runs that end by themselves: when they do, which draws they keep, and that timing is no part.

Traces of `judge` are random with fixed seeds; its tolerances are four standard errors or more.
All else is exact.
"""

import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, Ratings
from bayesmf.chains.monitor import SEGMENTS, RunningMean
from bayesmf.chains.pairs import Traces
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial, Threads
from bayesmf.model.noise import PARAMETERS
from bayesmf.model.priors import WishartPrior
from bayesmf.run.driver import run
from bayesmf.run.stopping import TARGETS, Convergence, Target, judge, stages
from bayesmf.samplers.gibbs import Auto
from contract import draws_digest
from perverse import Perverse
from problems import planted, random_data

DATA = random_data(20, 15, 120)
PLANTED = planted(40, 30, 600)


def _settings(sampler=None, **more):
    sampler = (sampler or Gibbs()).resolve(data_shape(DATA))
    base = RunSettings(sampler, WishartPrior(bias=True), 2, None, 3, max_draws=1000)
    return replace(base, **more)


def _until(epoch):
    """A callback that ends every chain after as many sweeps."""
    return lambda event: event.epoch >= epoch


# -- when a run ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["auto", Auto(n_chains=3), Gibbs(n_chains=2)])
def test_the_engine_does_not_matter(sampler):
    def fit(engine):
        model = BayesianMF(2, sampler=sampler, target="fast", engine=engine, random_state=1)
        model.fit(PLANTED)
        return draws_digest(model), model.report_["epochs"], model.report_["convergence"]

    reference = fit(Serial())
    for engine in (Threads(2), Perverse(0), Perverse(1, stall=True)):
        assert fit(engine) == reference


def test_targets_ask_for_more():
    done = {}
    for target in TARGETS:
        model = BayesianMF(2, target=target, max_draws=4000, random_state=0)
        report = model.fit(PLANTED).report_
        found, rule = report["convergence"], TARGETS[target]
        assert report["sampler"]["n_chains"] == rule.n_chains
        assert report["target"] == found["target"] == target
        assert rule.least <= report["epochs"] <= rule.most
        reached = (
            found["loss"] <= rule.loss and max(found["rhat"], found["rhat_noise"]) <= rule.rhat
        )
        assert found["ended_by"] == ("target" if reached else "longest run")
        done[target] = report["epochs"] * report["sampler"]["n_chains"]
    assert done["fast"] < done["balanced"] < done["accurate"]
    assert [TARGETS[name].n_chains for name in TARGETS] == [1, 2, 4]


def _slow(event):
    time.sleep(0.01)


@pytest.mark.parametrize("seconds", [1e-6, 0.2])
def test_time_ends_a_run(seconds):
    model = BayesianMF(
        2, target="accurate", max_seconds=seconds, callbacks=[_slow], engine="serial",
        random_state=0,
    )  # fmt: skip
    report = model.fit(PLANTED).report_
    assert report["convergence"]["ended_by"] == "max_seconds"
    # With 0.01 s for each sweep of four chains.
    assert report["epochs"] <= max(1, seconds / 0.04 + 1)
    draws = model.posterior_.draws
    assert np.unique(draws.chain).tolist() == [0, 1, 2, 3]
    assert np.isfinite(draws.items).all() and np.isfinite(model.predict(*PLANTED[:2])).all()
    assert report["draws"] == len(draws)


def test_time_ends_a_run_of_known_length():
    model = BayesianMF(
        2, sampler=Gibbs(epochs=400), max_seconds=0.2, callbacks=[_slow], random_state=0
    )
    report = model.fit(PLANTED).report_
    assert report["epochs"] < 30
    assert report["convergence"]["ended_by"] == "max_seconds"
    assert len(model.posterior_.draws) >= 1


def test_a_run_that_does_not_converge_has_an_end(monkeypatch):
    monkeypatch.setitem(TARGETS, "balanced", TARGETS["balanced"]._replace(loss=0.0, most=30))
    report = run(DATA, _settings(), Serial())
    assert report.convergence["ended_by"] == "longest run"
    assert report.epochs == 30


def test_no_run_is_shorter_than_its_target_says(monkeypatch):
    ends = stages(1.0, 60)
    easy = TARGETS["fast"]._replace(loss=np.inf, rhat=np.inf, least=ends[1] + 1, most=60)
    monkeypatch.setitem(TARGETS, "fast", easy)
    report = run(DATA, _settings(target="fast"), Serial())
    assert report.epochs == ends[2]
    assert report.convergence["ended_by"] == "target"


@pytest.mark.parametrize(
    ("setting", "word"),
    [({"target": "best"}, "'fast', 'balanced', 'accurate'"), ({"target": None}, "None"),
     ({"max_seconds": 0}, "max_seconds"), ({"max_seconds": -1.0}, "max_seconds"),
     ({"max_seconds": np.nan}, "max_seconds"), ({"max_seconds": "soon"}, "max_seconds")],
)  # fmt: skip
def test_what_cannot_be_meant_is_said_in_a_sentence(setting, word):
    with pytest.raises(InputError, match=word) as caught:
        BayesianMF(2, **setting).fit(PLANTED)
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    assert len(message) < 120


@pytest.mark.parametrize("per_epoch", [0.2, 1.0, 2.7, 40.0])
@pytest.mark.parametrize("n_rounds", [1, 12, 13, 60, 500, 7001])
def test_stages_rise_to_the_end(per_epoch, n_rounds):
    ends = stages(per_epoch, n_rounds)
    assert ends == sorted(ends)
    assert ends[-1] == n_rounds and min(ends) >= 1
    assert per_epoch < 1 or len(set(ends)) == len(ends)
    assert len(ends) <= 40
    for before, after in pairwise(ends[1:]):
        assert after <= 1.25 * before + per_epoch + 1


# -- judgement ------------------------------------------------------------------------------------


def _judge(expected, drawn, tau, kept=None, noise=None, first=1000):
    """`expected` and `drawn` are (chains, passes, pairs); the chains set out long ago."""

    def traces(one, other, k):
        n = len(one)
        rounds, names = np.arange(first, first + n), np.full((n, len(PARAMETERS)), np.nan)
        if noise is not None:
            names[:, 0] = noise[k]
        which = np.arange(n) if kept is None else np.asarray(kept)
        return Traces(rounds, one, other, names, np.full(n, 1 / tau), which, 0)

    found = [traces(*each, k) for k, each in enumerate(zip(expected, drawn, strict=True))]
    return judge([SimpleNamespace(traces=lambda own=own: own) for own in found])


@pytest.mark.parametrize("n_chains", [1, 2, 4])
@pytest.mark.parametrize("every", [1, 5])
def test_the_loss_is_that_of_the_draws_that_are_kept(n_chains, every):
    """An average over n draws of variance s^2 has error s^2 / n, beside noise and spread."""
    rng, s, spread, tau, n = np.random.default_rng(0), 0.3, 0.5, 2.0, 200
    shape = n_chains, n, 400
    level, kept = rng.normal(size=400), np.arange(n)[::every]
    expected = level + s * rng.normal(size=shape)
    found = _judge(expected, level + spread * rng.normal(size=shape), tau, kept, first=3)
    error = s**2 / (n_chains * len(kept))
    assert found.loss == pytest.approx(np.sqrt(1 + error / (1 / tau + spread**2)) - 1, rel=0.3)
    assert found.ess == pytest.approx(n_chains * n, rel=0.15)  # of all passes
    assert found.rhat < 1.1
    # Where there is no room for all draws, or they are thinned, a run does not go on for it.
    assert found.loss / found.loss_of_all == pytest.approx(every, rel=0.3)
    assert found.enough(Target(1, 1, 2, loss=1.01 * found.loss_of_all, rhat=1.1))


@pytest.mark.parametrize("n_chains", [1, 2, 4])
@pytest.mark.parametrize(
    "law", [lambda t: 10 * t**-1.2, lambda t: 5 * np.exp(-t / 11)], ids=["power", "exponential"]
)
def test_what_the_start_has_left_is_part_of_the_loss(n_chains, law):
    """A trend that all chains have in common is no variance between them, yet it is an error."""
    rng, n, s = np.random.default_rng(1), 40, 0.1
    rounds, kept = np.arange(3, 3 + n) + 1.0, np.arange(n)[7:]
    left = law(rounds)
    trend = np.outer(left, rng.normal(size=400))
    x = trend + s * rng.normal(size=(n_chains, n, 400))
    error = left[kept].mean() ** 2 + s**2 / (n_chains * len(kept))
    assert left[kept].mean() ** 2 > s**2 / (2 * len(kept))
    rest = 1 + x.var(axis=(0, 1)).mean()
    claimed = _judge(x, x, 1.0, kept, first=3).loss
    # Many laws could have left these passes, and they are not known by name.
    assert 0.6 < claimed / (np.sqrt(1 + error / rest) - 1) < 1.5


def test_the_loss_of_draws_that_hang_together():
    """AR(1) with rho = 0.8: nine draws are worth one."""
    rng, rho, n = np.random.default_rng(1), 0.8, 400
    x = rng.normal(size=(4, n, 400))
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    error = (1 + rho) / (1 - rho) / (4 * n)
    found = _judge(x, x, 1.0, first=3)
    assert found.loss == pytest.approx(np.sqrt(1 + error / 2) - 1, rel=0.3)


def test_a_trace_that_begins_late_is_not_taken_for_a_start():
    x = np.random.default_rng(5).normal(size=(2, 40, 400))
    assert _judge(x, x, 1.0).loss < 5 * (np.sqrt(1 + 1 / 80 / 2) - 1)


def test_noise_that_has_not_mixed_is_not_enough():
    rng = np.random.default_rng(2)
    x, walk = rng.normal(size=(2, 300, 50)), np.linspace(0, 1, 300)
    steady, target = rng.normal(size=(2, 300)), Target(2, 1, 2, loss=1.0, rhat=1.1)
    found = _judge(x, x, 1.0, noise=steady)
    assert found.enough(target) and found.rhat_noise < 1.05 and found.slowest == "tau"
    found = _judge(x, x, 1.0, noise=steady + 5 * walk)
    assert not found.enough(target) and found.rhat_noise > 1.5 > 1.1 > found.rhat
    # What costs less than the loss that the target allows is not waited for.
    assert not _judge(x, x, 1.0, noise=1e-3 * steady + 0.05 * walk).rhat_noise > 1.1
    # A noise that is given has nothing to mix.
    found = _judge(x, x, 1.0, noise=np.zeros((2, 300)))
    assert found.enough(target) and np.isnan(found.rhat_noise) and found.slowest == ""


def test_stuck_chains_are_not_enough():
    rng = np.random.default_rng(2)
    apart = np.array([-1.0, 1.0])[:, None, None]
    x = apart + 0.05 * rng.normal(size=(2, 300, 100))
    found = _judge(x, x, 1.0)
    assert found.rhat > 5
    assert found.loss > 0.05
    assert not any(found.enough(TARGETS[name]) for name in TARGETS)
    # Chains that do not move at all: apart they disagree without end, alike nothing is known.
    still = apart + np.zeros((2, 300, 100))
    assert _judge(still, still, 1.0).rhat == np.inf
    assert np.isnan(_judge(0 * still, 0 * still, 1.0).rhat)
    rounding = 1e-7 * np.cumsum(rng.normal(size=(2, 300, 100)), axis=1)
    assert np.isnan(_judge(rounding, rounding, 1.0).rhat)
    # A few pairs that do not agree are borne.
    x[:, :, 3:] = 0.05 * rng.normal(size=(2, 300, 97))
    assert _judge(x, x, 1.0).rhat < 1.1


def test_every_condition_counts():
    target = Target(n_chains=2, least=1, most=2, loss=1e-3, rhat=1.1)
    assert Convergence(1e-3, 1.1, 100.0).enough(target)
    for loss, rhat in ((2e-3, 1.0), (0.0, 1.2), (np.nan, 1.0), (0.0, np.nan)):
        assert not Convergence(loss, rhat, 100.0).enough(target)
    assert not Convergence(1e-3, 1.1, 100.0, rhat_noise=1.2).enough(target)


def test_little_is_not_enough_nor_is_what_does_not_move():
    rng = np.random.default_rng(3)
    few = rng.normal(size=(2, 3, 10))
    assert not _judge(few, few, 1.0).enough(TARGETS["fast"])
    same = np.ones((2, 50, 10))
    assert not _judge(same, same, 1.0).enough(TARGETS["fast"])


def test_chains_of_unequal_length_are_judged_by_their_ends():
    rng = np.random.default_rng(4)
    long, short = rng.normal(size=(60, 50)), rng.normal(size=(40, 50))
    cut = np.array([long[-40:], short])
    unequal, equal = (_judge(x, x, 1.0, first=3) for x in ([long, short], cut))
    assert (unequal.rhat, unequal.ess, unequal.passes) == (equal.rhat, equal.ess, equal.passes)
    assert unequal.loss == pytest.approx(equal.loss, rel=0.5)


# -- which draws are kept -------------------------------------------------------------------------


@pytest.fixture
def endless(monkeypatch):
    """Runs that only a callback ends."""
    never = TARGETS["balanced"]._replace(loss=-1.0, most=10_000)
    monkeypatch.setitem(TARGETS, "balanced", never)


@pytest.fixture(scope="module")
def states():
    """All states of two chains, by a run of known length."""
    sampler = Gibbs(n_chains=2, epochs=45, burn_in=0)
    draws = run(DATA, _settings(sampler), Serial()).draws
    assert len(draws) == 90
    return draws


def _sweeps(draws, chain, states):
    """The sweeps whose states the draws of a chain are, every part of them."""
    mine, all_ = np.flatnonzero(draws.chain == chain), np.flatnonzero(states.chain == chain)
    found = [int(np.flatnonzero(states.tau[all_] == draws.tau[t])[0]) for t in mine]
    arrays, others = draws.arrays(), states.arrays()
    assert "item_means" in arrays
    for name in arrays:
        assert np.array_equal(arrays[name][mine], others[name][all_[found]]), name
    return found


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("n", [4, 5, 12, 33, 45])
def test_all_but_the_first_quarter_is_kept(n, states):
    draws = run(DATA, _settings(Gibbs(n_chains=2)), Serial(), callbacks=[_until(n)]).draws
    first = max(3, int(np.ceil(n / 4)))
    for chain in range(2):
        assert _sweeps(draws, chain, states) == list(range(first, n))


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("n", [4, 7, 8, 9, 14, 23, 38, 45])
@pytest.mark.parametrize("max_draws", [2, 5, 10])
def test_where_there_is_no_room_draws_are_thinned(n, max_draws, states):
    settings = _settings(Gibbs(n_chains=2), max_draws=max_draws)
    draws = run(DATA, settings, Serial(), callbacks=[_until(n)]).draws
    for chain in range(2):
        kept = _sweeps(draws, chain, states)
        gaps = np.diff(kept)
        assert 1 <= len(kept) <= max_draws // 2
        assert min(kept) >= min(n / 4 - 1, n - 1)
        assert np.all(gaps > 0)
        # Evenly, but for a step where the distance doubled; none is missing at the end.
        assert len(gaps) < 2 or max(gaps) <= 2 * min(gaps)
        assert n - 1 - max(kept) < max([1, n / 2 if len(kept) == 1 else 2 * max(gaps)])


@pytest.mark.usefixtures("endless")
def test_events_count_the_draws_that_are_there():
    counts = []

    def listen(event):
        counts.append(event.draws)
        return event.epoch >= 40

    run(DATA, _settings(max_draws=5), Serial(), callbacks=[listen])
    assert counts[:8] == [0, 0, 0, 1, 2, 3, 4, 5]
    assert max(counts) == 5


# -- averages without draws -----------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_late_averages_are_those_of_the_last_draws(share):
    x = np.random.default_rng(5).normal(size=(300, 4)).astype(np.float32)
    mean = RunningMean(SEGMENTS)
    for n in range(1, len(x) + 1):
        mean.add(x[n - 1])
        total, count = mean.late(share)
        assert 1 <= count <= n
        assert np.allclose(total, x[n - count : n].sum(0, dtype=float), atol=1e-4)
        assert abs((n - count) - share * n) <= max(1, n / 8)
        assert len(mean.totals) <= SEGMENTS
    assert mean.late(0.0)[1] == len(x)


def test_a_run_that_was_stopped_at_once_can_be_saved(tmp_path):
    """Of fewer than four draws convergence is not known: None, which JSON has, not NaN."""
    model = BayesianMF(2, max_seconds=1e-3, random_state=0).fit(planted(30, 20, 300))
    assert model.report_["convergence"]["loss"] is None
    model.save(tmp_path / "m")
    assert BayesianMF.load(tmp_path / "m").report_ == model.report_


def test_the_rmse_that_is_followed_is_that_of_predict():
    """Unseen ids included: 1,201 of both sides are in the validation set alone."""
    user, item, value = planted(60, 40, 1500)
    user, item = user.copy(), item.copy()
    user[:20], item[20:40] = 1_201, 1_201
    train = Ratings(user[300:], item[300:], value[300:])
    test = Ratings(user[:300], item[:300], value[:300])
    model = BayesianMF(2, sampler=Gibbs(epochs=30), max_draws=4000, random_state=0)
    model.fit(train, validation=test)
    error = model.predict(test.users, test.items) - test.rating
    assert len(model.history_) < SEGMENTS + 3 + SEGMENTS  # parts of at most two draws
    rmse = np.sqrt(np.mean(error**2))
    # Gibbs follows the means of its sweep, predict integrates users out: of 60 users and 30 sweeps
    # both have a Monte Carlo error of some .5%.
    assert model.history_[-1]["rmse_all_chains"] == pytest.approx(rmse, rel=1.5e-2)
    # At the end it is the same number, to the bit, as that of evaluate.
    assert model.report_["validation_rmse"] == model.evaluate(test).rmse
    assert model.report_["validation_rmse"] == pytest.approx(rmse, rel=1e-6)
