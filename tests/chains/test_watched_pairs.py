"""Errors that are followed with one side integrated out: against dense linear algebra."""

from dataclasses import replace

import numpy as np
import pytest

import bayesmf.chains.pairs
from bayesmf import SGD, SGHMC, SGLD, Gibbs
from bayesmf.chains.callbacks import History
from bayesmf.chains.pairs import IntegratedPairs, Validation, WatchedPairs, followed
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial, Threads
from bayesmf.model.priors import GammaPrior, RowPrior, WishartPrior
from bayesmf.process import Pool
from bayesmf.run.driver import run
from driving import start_chain
from problems import random_data

DATA = random_data(40, 30, 500)
SHAPE = data_shape(DATA)
RNG = np.random.default_rng(5)
# A user and an item that nobody knows among them, and pairs that were rated.
USER = np.append(RNG.integers(0, 40, 90), [-1, 3, -1]).astype(np.int32)
ITEM = np.append(RNG.integers(0, 30, 90), [4, -1, -1]).astype(np.int32)
KNOWN = Validation(WatchedPairs(USER, ITEM, np.zeros(93, bool)), RNG.normal(size=93).astype("f4"))


def settings(sampler, keep="items", prior=None):
    prior = prior or GammaPrior()
    return RunSettings(sampler.resolve(SHAPE), prior, 2, None, 0, 500, keep=keep)


def expected(kept, own, unseen, tau, n_factors, keep):
    """Predictions of the pairs, each by a system of its own, in float64."""
    lists = DATA.by_user if keep == "items" else DATA.by_item
    rows, others = (USER, ITEM) if keep == "items" else (ITEM, USER)
    kept, width = np.asarray(kept, float), kept.shape[1]
    matrix = own.Lambda if own.Lambda.ndim == 2 else np.diag(own.Lambda)
    out = np.empty(len(rows))
    for n, (i, j) in enumerate(zip(rows, others, strict=True)):
        A, b = matrix.copy(), matrix @ own.mu
        if i >= 0:
            at = slice(lists.starts[i], lists.starts[i + 1])
            x = np.ones((at.stop - at.start, width))
            x[:, :n_factors] = kept[lists.other[at], :n_factors]
            r = DATA.decode(lists.value[at]) - kept[lists.other[at], n_factors:].sum(1)
            A, b = A + tau * x.T @ x, b + tau * x.T @ r
        m, partner = np.linalg.solve(A, b), unseen if j < 0 else kept[j]
        out[n] = m[:n_factors] @ partner[:n_factors] + m[n_factors:].sum()
        out[n] += partner[n_factors:].sum()
    return out


@pytest.mark.parametrize("keep", ["items", "users"])
@pytest.mark.parametrize("prior", [GammaPrior(), WishartPrior(False), WishartPrior(True)])
def test_a_state_predicts_by_the_posterior_of_rows(keep, prior):
    chosen = settings(SGLD(epochs=2), keep, prior)
    state = start_chain(0, chosen, SHAPE)
    own, other = prior.draw(state.params.users, RNG), prior.draw(state.params.items, RNG)
    state.precisions = replace(state.precisions, users=own, items=other, tau=1.7)
    kept = state.params.items
    if keep == "users":
        own, other, kept = other, own, state.params.users
    found = followed(KNOWN, DATA, chosen).pairs.expected(state)
    wanted = expected(kept, own, other.mu, 1.7, 2, keep)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def averages(sampler, keep="items"):
    """Errors that a run has told after each pass, and those of its draws by dense algebra."""
    history = History()
    draws = run(DATA, settings(sampler, keep), Serial(), KNOWN, callbacks=[history]).draws
    sides = ("user", "item") if keep == "items" else ("item", "user")
    passes = []
    for t in range(len(draws)):
        mu, Lambda = (getattr(draws, f"{sides[0]}_{name}")[t] for name in ("mu", "Lambda"))
        unseen = getattr(draws, f"{sides[1]}_mu")[t]
        own = RowPrior(mu, Lambda)
        passes.append(expected(draws.kept[t], own, unseen, draws.tau[t], 2, keep))
    return [event["rmse"] for event in history.events], np.array(passes)


def rmse(prediction):
    return np.sqrt(np.mean((prediction - KNOWN.value) ** 2))


@pytest.mark.parametrize("keep", ["items", "users"])
@pytest.mark.parametrize("rule", [SGLD, SGHMC])
def test_the_error_of_a_run_is_that_of_its_last_three_quarters(rule, keep):
    told, passes = averages(rule(epochs=12), keep)
    assert len(told) == 12 and len(passes) == 9  # the first quarter is gone
    assert told[-1] == pytest.approx(rmse(passes.mean(0)), rel=1e-4)
    # And on the way: after eleven passes the same three are left out.
    assert told[10] == pytest.approx(rmse(passes[:8].mean(0)), rel=1e-4)
    assert np.isfinite(told).all()


def test_a_given_burn_in_is_heeded():
    told, passes = averages(SGLD(epochs=12, burn_in=6))
    assert len(passes) == 6
    assert told[-1] == pytest.approx(rmse(passes.mean(0)), rel=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_threads_or_engines(threads, monkeypatch):
    def told(engine):
        history = History()
        run(DATA, settings(SGLD(grid=(2, 2), epochs=5)), engine, KNOWN, callbacks=[history])
        return [event["rmse"] for event in history.events]

    reference = told(Serial())
    monkeypatch.setattr(bayesmf.chains.pairs, "ROW_BLOCK", 7)
    monkeypatch.setattr(bayesmf.chains.pairs, "Pool", lambda: Pool(threads))
    assert told(Threads(3)) == told(Serial()) == reference


def test_who_is_followed_by_what():
    for sampler, keep in ((SGD(), "both"), (SGLD(), "both"), (Gibbs(), "items")):
        assert followed(KNOWN, DATA, settings(sampler, keep)) is KNOWN
    exact = followed(KNOWN, DATA, settings(SGHMC(), "users"))
    assert isinstance(exact.pairs, IntegratedPairs) and exact.value is KNOWN.value
    assert followed(None, DATA, settings(SGLD())) is None


def test_predictions_say_whether_they_are_of_a_kept_draw():
    """Five epochs with a burn-in of two: a state at the end of each of these, then three draws."""
    seen = []

    class Recorded(WatchedPairs):
        def predict(self, state, rounds, fetch, kept):
            seen.append(kept)
            return super().predict(state, rounds, fetch, kept)

    pairs = Recorded(USER, ITEM, KNOWN.pairs.rated)
    run(DATA, settings(Gibbs(epochs=5, burn_in=2)), Serial(), replace(KNOWN, pairs=pairs))
    assert seen == [False, False, True, True, True]
