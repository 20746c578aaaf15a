"""SGHMC and SGNHT: noise of mini-batches, the exact posterior, beside Gibbs; divergence."""

import itertools
import logging
from dataclasses import dataclass

import numpy as np
import pytest

from bayesmf import SGHMC, SGLD, SGNHT, BayesianMF, DivergenceError, Gibbs, Ratings
from bayesmf.chains.rounds.blocks import MOST_REPAIRS, data_shape
from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.rounds.momentum import MomentumRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.samplers.momentum import RowFacts, kinetic_survival, longest, row_steps, survival
from driving import sweep
from momentum_problems import Joint, Known, batches, by_class
from problems import planted, random_data

# --- how much of the mini-batches' noise survives


def _one(function, eta, keep, visits):
    return float(function(np.array([eta]), np.array([keep]), np.array([float(visits)]))[0])


@pytest.mark.parametrize("delta", [0.01, 0.2, 1.0, 1.9])
@pytest.mark.parametrize("visits", [2, 8, 50])
def test_survival_is_the_closed_form_of_a_first_order_filter(delta, visits):
    a, k = 1 - delta / 2, visits
    every = (1 - a ** (2 * k)) / (1 - a**2)
    phi = k / (k - 1) * (every - ((1 - a**k) / (1 - a)) ** 2 / k) / every
    independent = delta / 4 / (1 - delta / 4)
    assert _one(survival, delta, 0.0, np.inf) == pytest.approx(independent, rel=1e-6)
    assert _one(survival, delta, 0.0, visits) == pytest.approx(independent * phi, rel=1e-5)


@pytest.mark.parametrize("eta", [0.003, 0.1, 0.9])
@pytest.mark.parametrize("keep", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("visits", [2, 7, np.inf])
def test_survival_is_the_sum_over_the_response(eta, keep, visits):
    s = np.sqrt(eta)
    update = np.array([[1 - eta * (1 + keep) / 2, s * (1 + keep) / 2], [-keep * s, keep]])
    x, response = np.array([eta * (1 + keep) / 2, keep * s]), []
    for _ in range(14_000):
        response.append(x[0])
        x = update @ x
    h = np.array(response)
    if np.isinf(visits):
        expected = np.sum(h**2)
    else:
        parts = h.reshape(-1, visits)
        expected = visits / (visits - 1) * np.sum((parts**2).sum(1) - parts.sum(1) ** 2 / visits)
    assert _one(survival, eta, keep, visits) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("eta", "keep", "visits"), [(0.2, 0.0, 8), (0.02, 0.9, 8), (0.3, 0.4, 3)])
def test_survival_matches_simulation(eta, keep, visits):
    """20,000 rows, 40 passes after 20; to four standard errors of a variance (6e-5 a case)."""
    rng, n = np.random.default_rng(0), 20_000
    x, u, s = np.zeros(n), np.zeros(n), np.sqrt(eta)
    ends, kinetic = [], []
    for lap in range(40):
        noise = rng.normal(size=(visits, n))
        noise = (noise - noise.mean(0)) * np.sqrt(visits / (visits - 1))
        for k in range(visits):
            u1 = u - s * x + s * noise[k]
            u = keep * u1
            x = x + s * (u1 + u) / 2
            if lap >= 20:
                kinetic.append(np.mean((u1**2 + u**2) / 2))
        if lap >= 20:
            ends.append(np.mean(x**2))
    tolerance = 4 * np.sqrt(2 / n)  # of one pass; the average over twenty is no worse
    assert np.mean(ends) == pytest.approx(_one(survival, eta, keep, visits), rel=tolerance)
    expected = _one(kinetic_survival, eta, keep, visits)
    assert np.mean(kinetic) == pytest.approx(expected, rel=tolerance)


def test_no_noise_no_limit_and_limits_are_kept():
    visits = np.array([1.0, 2.0, 4.0, 8.0, 100.0])
    for rule in (SGHMC(), SGNHT()):
        eta = longest(rule, visits, visits - 1, 0.05)
        assert eta[0] == pytest.approx(2.0)
        heat = (visits - 1) * rule.heat(eta, visits)
        assert np.all(heat <= 0.05 + 1e-9)
        assert np.all(heat[1:] > 0.03)
    facts = RowFacts(10 * visits, visits, visits - 1, np.full(5, 10.0))
    steps = row_steps(SGHMC(), facts, np.array([0.3, 0.3, 0.3, 0.0, 0.3]), 0.2, 0.05)
    assert steps.eta.max() == np.float32(0.2)
    assert steps.eta[3] == 0


def test_limits_come_down_within_burn_in():
    shape = data_shape(random_data(40, 30, 500))
    rule = SGHMC(epochs=60, burn_in=20).resolve(shape)
    assert rule.limits(0).delta_max == 1.0
    assert rule.limits(0).rho == 4.0
    for epoch in (10, 20, 59):
        assert rule.limits(epoch)[:2] == (rule.delta_max, rule.rho)
    assert rule.limits(20).warm == 0
    # Where no burn-in is given: within the quarter of the run that will be burn-in.
    growing = SGHMC(epochs=40).resolve(shape)
    assert growing.growing and growing.limits(10)[:2] == (rule.delta_max, rule.rho)
    assert growing.limits(0)[:2] == rule.limits(0)[:2]


# --- the exact posterior


@pytest.fixture(scope="module")
def known():
    return Known(7)


@pytest.mark.parametrize("rule", [SGHMC, SGNHT])
@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_variance_of_every_class_of_rows(known, rule, share):
    """At default settings every class's variance is right to 5%, its mean to 0.15 deviations.

    The Monte Carlo error of a class is 0.5 to 2%; of 30 runs with other problems and seeds none
    failed, with 4% the largest difference.
    """
    mean, variance = known.chain(rule(batch_size=batches(known, share)), 800)
    ratio, error = by_class(variance / known.variance)
    assert np.all(error < 0.03)
    assert np.all(np.abs(ratio - 1) < 0.05)
    shift, _ = by_class((mean - known.mean) ** 2 / known.variance)
    assert np.all(shift < 0.15**2)


@pytest.mark.parametrize("rule", [SGHMC, SGNHT])
def test_ratings_of_unequal_precision(rule):
    """Users and items have precisions of their own, which are given. Tolerances are those above."""
    known = Known(4, noise=True, classes=(3, 30, 100, 300))
    mean, variance = known.chain(rule(batch_size=batches(known, 0.1)), 800)
    ratio, error = by_class(variance / known.variance)
    assert np.all(error < 0.03)
    assert np.all(np.abs(ratio - 1) < 0.05)
    shift, _ = by_class((mean - known.mean) ** 2 / known.variance)
    assert np.all(shift < 0.15**2)


@pytest.mark.parametrize("rule", [SGHMC, SGNHT])
def test_variance_of_rows_of_thousands_of_ratings(rule):
    """As above; the Monte Carlo error is 1%."""
    known = Known(5, classes=(3000,))
    mean, variance = known.chain(rule(batch_size=batches(known, 0.01)), 400)
    ratio, error = by_class(variance / known.variance)
    assert error < 0.03
    assert abs(ratio - 1) < 0.05
    shift, _ = by_class((mean - known.mean) ** 2 / known.variance)
    assert shift < 0.15**2


def test_a_thermostat_meets_noise_that_nobody_told_it_about(known):
    """Gradient noise believed to be a quarter of what it is: SGHMC runs hot, SGNHT much less."""

    def believing(rule):
        @dataclass(frozen=True)
        class Mistaken(rule):
            def heat(self, eta, visits):
                return 0.25 * super().heat(eta, visits)

            def known(self, eta, visits):
                return 0.25 * super().known(eta, visits)

        return Mistaken

    size, heat = batches(known, 0.1), []
    for rule in (SGHMC, SGNHT):
        chain = believing(rule)(batch_size=size, rho=0.1, minibatch="replacement")
        _, variance = known.chain(chain, 300)
        heat.append(by_class(variance / known.variance)[0][3:].mean() - 1)
    assert heat[0] > 0.15
    assert abs(heat[1]) < 0.5 * heat[0]


@pytest.fixture(scope="module")
def joint():
    return Joint()


@pytest.fixture(scope="module")
def reference(joint):
    return joint.draws(Gibbs(epochs=700, burn_in=100, n_chains=2, n_stripes=1), seed=1)


@pytest.mark.parametrize("rule", [SGHMC, SGNHT])
def test_unseen_pairs_as_gibbs_has_them(joint, reference, rule):
    """Mean and deviation of 1,000 unseen pairs, U, V, precisions and tau all unknown.

    Means differ by what Monte Carlo leaves (0.05 deviations for two runs of this length) and by
    what mini-batches bring.
    """
    found, _ = joint.draws(rule(epochs=700, burn_in=100, n_chains=2))
    exact, _ = reference
    assert len(found) >= 1000
    assert np.corrcoef(found.std(0), exact.std(0))[0, 1] > 0.96
    assert found.std(0).mean() / exact.std(0).mean() == pytest.approx(1, abs=0.05)
    shift = (found.mean(0) - exact.mean(0)) / exact.std(0)
    assert np.sqrt(np.mean(shift**2)) < 0.1
    assert abs(shift.mean()) < 0.02


@pytest.mark.parametrize(
    ("grid", "size"),
    [((1, 1), None), ((2, 2), None), ((4, 1), None), ((3, 2), None), ((2, 2), 1), ((3, 3), 2)],
)
def test_visits_are_counted_over_all_blocks(grid, size):
    """A row's visits in a cycle, one by one; f is the same where all blocks come as often."""
    data = random_data(30, 20, 300)
    rule = SGHMC(grid=grid, group_size=size, batch_size=20, exact_below=0).resolve(data_shape(data))
    rounds = MomentumRounds(data, rule, 0)
    for side, n_rows in enumerate((30, 20)):
        count = np.zeros(n_rows)
        for held in rounds.blocks:
            block = held.block
            rows, own = (block.user_rows, block.item_rows)[side], block.triples()[side]
            for lo, hi in itertools.pairwise(block.rating_starts):
                count[rows[np.unique(own[lo:hi])]] += 1
        facts = rounds.facts[side]
        assert np.allclose(facts.visits, count, atol=1e-3)
        assert np.allclose(facts.noise, count - 1, atol=1e-3)
        n = np.bincount(data.triples()[side], minlength=n_rows)
        assert np.allclose(facts.per_visit, n / count, rtol=1e-3)


def test_variance_on_a_grid():
    """Four blocks in two groups, whose order is drawn anew each cycle.

    In a fixed order the last block would always have the last word: means would be 0.2 deviations
    off, as they are with `shuffle_groups=False`.
    """
    known = Known(5)
    mean, variance = known.chain(SGHMC(grid=(2, 2), batch_size=batches(known, 0.025)), 800)
    ratio, _ = by_class(variance / known.variance)
    assert np.all(np.abs(ratio - 1) < 0.05)
    shift, _ = by_class((mean - known.mean) ** 2 / known.variance)
    assert np.all(shift < 0.15**2)


def test_without_exact_draws_rare_rows_are_right_too():
    """Here the rare rows take Langevin steps; they mix slower, so 8% are allowed."""
    known = Known(7)
    _, variance = known.chain(SGHMC(batch_size=batches(known, 0.1), exact_below=0), 800)
    ratio, _ = by_class(variance / known.variance)
    assert np.all(np.abs(ratio - 1) < 0.08)


def test_without_the_correction_rows_are_too_hot():
    """The test above can fail: gradient noise at ten times the share, and not taken away."""

    @dataclass(frozen=True)
    class Ignorant(SGHMC):
        def known(self, eta, visits):
            return np.zeros_like(eta)

    known = Known(5)
    rule = Ignorant(batch_size=batches(known, 0.1), rho=0.3)
    _, variance = known.chain(rule, 300)
    ratio, _ = by_class(variance / known.variance)
    assert np.all(ratio[3:] > 1.1)


# --- divergence is repaired


def test_a_diverging_round_is_run_again_with_half_the_step(caplog):
    data = random_data(60, 40, 900)
    rounds = GradientRounds(data, SGLD(epochs=20).resolve(data_shape(data)), 0)
    prior = RowPrior(np.zeros(4), np.full(4, 2.0))
    params = Params.initial(60, 40, 3, bias=True, key=make_key(0))
    state = ChainState(0, make_key(0), params, Precisions(prior, prior, 1.0), step_factor=4096.0)
    with caplog.at_level(logging.WARNING, "bayesmf"):
        for t in range(20):
            sweep(rounds, state, t)
    assert 5 < state.repairs < MOST_REPAIRS
    assert state.step_factor == 4096.0 / 2**state.repairs
    assert caplog.messages[0] == "chain 0 diverged in round 1: rolled back, steps halved"
    assert state.sse / state.count < 2


@pytest.mark.parametrize("rule", [SGHMC, SGNHT])
def test_steps_that_are_too_long_recover(rule, caplog, monkeypatch):
    """Steps that are stable for independent columns alone; a chain finds its way back by itself."""
    monkeypatch.setattr(
        "bayesmf.worker.momentum_tasks.stable_steps",
        lambda facts, width: np.full(len(facts.n), 2.0),
    )
    train, test = Ratings(*planted()).split(0.15, random_state=1)
    sampler = rule(epochs=300, burn_in=100, delta_max=2.0, batch_size=10**9, exact_below=0)
    model = BayesianMF(5, sampler=sampler, random_state=0)
    with caplog.at_level(logging.WARNING, "bayesmf"):
        model.fit(train)
    assert any("rolled back" in message for message in caplog.messages)
    assert model.evaluate(test).rmse < 1.0


def test_what_no_step_can_mend_is_reported():
    data = random_data(20, 15, 200)
    user, item, value = data.triples()
    value = value.copy()
    value[7] = np.nan
    broken = TrainingData.from_triples(user, item, value, 20, 15)
    rule = SGLD(epochs=3).resolve(data_shape(data))
    rounds = GradientRounds(broken, rule, 0)
    prior = RowPrior(np.zeros(4), np.full(4, 2.0))
    params = Params.initial(20, 15, 3, bias=True, key=make_key(0))
    state = ChainState(0, make_key(0), params, Precisions(prior, prior, 1.0))
    with pytest.raises(DivergenceError, match="halved 30 times"):
        sweep(rounds, state, 0)
