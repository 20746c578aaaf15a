"""Where chains begin must not decide where they end, or it must be said.

Sparse ratings, six a user: there a chain that began with precisions of 300 once stayed without
factors and biases for ever, and called it converged. Seeds are fixed.
"""

import signal
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind

from bayesmf import (
    SGD,
    BayesianMF,
    Checkpoint,
    Gibbs,
    InputError,
    Interrupted,
    Progress,
    Ratings,
    Synthetic,
)
from bayesmf.chains import chain as chain_module
from bayesmf.chains.callbacks import History
from bayesmf.chains.chain import STARTS
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial, Threads
from bayesmf.model.priors import WishartPrior
from bayesmf.run.driver import run
from driving import start_chain
from dying import facts
from experiments.simulated import Simulated
from perverse import Perverse
from problems import random_data


def _sparse(n_users=500, n_items=80, each=8):
    """Ratings to learn from, six a user, and two of each user held out."""
    rng = np.random.default_rng(0)
    users, items = 0.6 * rng.normal(size=(n_users, 2)), 0.6 * rng.normal(size=(n_items, 2))
    a, b = 0.5 * rng.normal(size=n_users), 0.5 * rng.normal(size=n_items)
    user = np.repeat(np.arange(n_users), each)
    item = np.concatenate([rng.choice(n_items, each, replace=False) for _ in range(n_users)])
    rating = a[user] + b[item] + (users[user] * items[item]).sum(1)
    rating += 0.7 * rng.normal(size=len(user))
    held = np.arange(len(user)) % each < 2
    return [Ratings(user[part], item[part], rating[part]) for part in (~held, held)]


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
@pytest.mark.parametrize("noise_by", [None, "both"])
@pytest.mark.parametrize("n_chains", [1, 3])
def test_a_start_without_effects_is_overcome(noise_by, n_chains):
    train, held = _sparse()
    mean = np.sqrt(np.mean((held.rating - train.rating.mean()) ** 2))
    found = []
    for precision in (2.0, 300.0):
        sampler = Gibbs(n_chains=n_chains, epochs=120, initial_precision=precision)
        model = BayesianMF(3, sampler=sampler, noise_by=noise_by, random_state=1).fit(train)
        found.append(np.sqrt(np.mean((model.predict(held.users, held.items) - held.rating) ** 2)))
    # A chain that stays where it began predicts little better than the mean of all ratings.
    assert found[1] < found[0] + 0.1 * (mean - found[0])


def test_chains_begin_apart():
    data = random_data(200, 150, 1200)
    sampler = Gibbs(n_chains=5).resolve(data_shape(data))
    settings = RunSettings(sampler, WishartPrior(bias=True), 3, None, 0, max_draws=10)
    states = [start_chain(number, settings, data_shape(data)) for number in range(5)]
    precisions = [state.precisions.users.Lambda[0, 0] for state in states]
    assert precisions == [2.0 * STARTS[number % 4] for number in range(5)]
    variances = np.array([state.whole().users.var() for state in states])
    assert variances * precisions == pytest.approx(np.full(5, 2.0 * 0.01), rel=0.2)


# -- near the mode, by SGD -------------------------------------------------------------------------

TRAIN, TEST = Synthetic(150, 100, 4000).ratings().split(0.1, random_state=0)


@pytest.fixture
def starts(monkeypatch):
    """Rows and precisions of each chain of Gibbs before its first sweep."""
    found, right = {}, GibbsRounds.round

    def note(self, state, t):
        if t == 0:
            found[state.chain] = state.whole(), state.precisions
        return right(self, state, t)

    monkeypatch.setattr(GibbsRounds, "round", note)
    return found


@pytest.mark.parametrize(
    ("prior", "more"),
    [("gamma", {"tau": 1.5}), ("wishart", {"mu_0": 0.2}), ("wishart-bias", {"standardize": False})],
)
def test_chains_start_where_sgd_ends(prior, more, starts, monkeypatch):
    common = {"prior": prior, "random_state": 3, **more}
    model = BayesianMF(3, sampler=Gibbs(epochs=4, n_chains=2, sgd_epochs=15), **common).fit(TRAIN)
    right = chain_module.make_key
    for number in (0, 1):
        monkeypatch.setattr(chain_module, "make_key", lambda seed, n, c=number: right(seed, c))
        draws = BayesianMF(3, sampler=SGD(epochs=15), **common).fit(TRAIN).posterior_.draws
        rows, precisions = starts[number]
        assert np.array_equal(rows.users, draws.users[0])
        assert np.array_equal(rows.items, draws.items[0])
        assert np.array_equal(precisions.users.Lambda, draws.user_Lambda[0])
        assert (precisions.users.diagonal() == 16.0).all()
    assert not np.allclose(starts[0][0].users, starts[1][0].users, atol=0.05)
    assert model.report_["epochs"] == 4 and len(model.history_) == 8
    assert model.report_["seconds"] > model.report_["engine"]["seconds"]


def _chain_statistics(sgd_epochs, pairs):
    """Mean, and logarithm of the variance, of each chain's predictions; tau and precisions."""
    sampler = Gibbs(epochs=90, burn_in=30, n_chains=6, n_stripes=1, sgd_epochs=sgd_epochs)
    settings = {"keep": "both", "noise_by": None, "engine": "serial", "max_draws": 10_000}
    model = BayesianMF(2, sampler=sampler, random_state=0 if sgd_epochs is None else 1, **settings)
    draws = model.fit(Synthetic(60, 40, 1200).ratings()).posterior_.draws
    users, items = draws.users[:, pairs[0]].astype(float), draws.items[:, pairs[1]].astype(float)
    found = (users[..., :2] * items[..., :2]).sum(-1) + users[..., 2] + items[..., 2]
    whole = [np.log(draws.tau), np.linalg.slogdet(draws.user_Lambda)[1]]
    found = np.column_stack([found, *whole]).reshape(6, 60, -1)
    return np.hstack([found.mean(1), np.log(found.var(1))])


def test_the_posterior_is_the_same():
    """Six chains against six: 44 t tests, one of which is false once in 10,000 runs."""
    pairs = np.random.default_rng(0).integers(0, (60, 40), (20, 2)).T
    random, by_sgd = (_chain_statistics(epochs, pairs) for epochs in (None, 20))
    p = ttest_ind(random, by_sgd, equal_var=False).pvalue
    assert p.shape == (44,)
    assert p.min() > 1e-4 / 44


DATA = random_data(60, 40, 700)


def _after_sgd(**more):
    sampler = Gibbs(n_chains=2, epochs=6, sgd_epochs=5).resolve(data_shape(DATA))
    settings = RunSettings(sampler, WishartPrior(bias=True), 2, None, 0, 50, noise_by="both")
    return replace(settings, **more)


def test_engines_agree_after_sgd():
    found = []
    for engine in (Serial(), Threads(3), Perverse(1), Simulated(3, rate=1e5)):
        history = History()
        report = run(DATA, _after_sgd(), engine, None, [history])
        found.append(facts(report, history))
    assert found[1:] == found[:1] * 3
    # Virtual seconds: five passes of SGD, the chains side by side.
    assert report.seconds > report.engine["seconds"] + 5 * len(DATA) / 1e5


def test_sgd_is_interrupted_and_begins_again(tmp_path):
    class Stop(Progress):
        def __call__(self, event):
            if not passes:
                signal.raise_signal(signal.SIGTERM)
            passes.append((event.chain, event.epoch, event.epochs))

    passes, one, other = [], History(), History()
    reference = facts(run(DATA, _after_sgd(), Serial(), None, [one]), one)
    with pytest.raises(Interrupted, match=r"after epoch 0 of 6; resume with .*resume=True"):
        run(DATA, _after_sgd(), Serial(), None, [Stop()], checkpoint=Checkpoint(tmp_path / "c"))
    assert passes == [(0, 1, 5), (1, 1, 5)]
    again = Checkpoint(tmp_path / "c", resume=True)
    assert facts(run(DATA, _after_sgd(), Serial(), None, [other], (), again), other) == reference


def test_time_of_sgd_counts():
    settings = _after_sgd(max_seconds=0.5)
    report = run(DATA, settings, Simulated(1, rate=1e4))  # 0.07 virtual seconds a pass and chain
    assert report.convergence["ended_by"] == "max_seconds"
    assert report.epochs == 1 and 0.5 < report.seconds < 1.0 and len(report.draws) == 2


def test_sgd_is_a_setting_like_others(tmp_path):
    sampler = Gibbs(epochs=5, sgd_epochs=2)
    model = BayesianMF(2, sampler=sampler, random_state=0).fit(TRAIN)
    assert model.report_["sampler"]["sgd_epochs"] == 2.0
    model.save(tmp_path / "model")
    assert BayesianMF.load(tmp_path / "model").partial_fit(TEST).sampler.sgd_epochs == 2.0
    for wrong, says in (
        ({"sgd_epochs": 0}, "sgd_epochs must be a positive number, not 0"),
        ({"sgd_epochs": 2, "initial_precision": 3.0}, "initial_precision does nothing with sgd_ep"),
    ):
        with pytest.raises(InputError, match=says):
            BayesianMF(2, sampler=Gibbs(**wrong)).fit(TRAIN)
