"""Settings of the update rules: defaults that follow the data, refusals, schedules."""

import numpy as np
import pytest

from bayesmf import SGD, SGHMC, SGLD, SGNHT, Auto, Gibbs, InputError
from bayesmf.samplers.base import BATCHES, SMALLEST_BATCH, DataShape
from bayesmf.samplers.registry import sampler_from, settings_dict
from bayesmf.samplers.schedules import (
    FixedBurnIn,
    Stationary,
    StepSize,
    Thinning,
    Trace,
    UntilRMSE,
    burn_in_rule,
)

SMALL = DataShape(80_000, 943, 1650, 200)
LARGE = DataShape(100_000_000, 480_000, 18_000, 800)
HUGE = LARGE._replace(n_ratings=10**9)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("rule", [SGD(), SGLD(), SGLD(noise="paper"), SGLD(grid=(3, 3)), Gibbs()])
def test_defaults_are_filled_in(rule, shape):
    full = rule.resolve(shape)
    missing = [k for k, v in settings_dict(full).items() if v is None]
    # The length of a Gibbs run follows from convergence; burn-in is a share of however long it is.
    assert missing in (
        ["step_size"],
        ["step_size", "burn_in"],
        ["epochs", "burn_in", "joint", "sgd_epochs"],
    )
    assert full.growing == ("burn_in" in missing)
    assert full.resolve(shape) == full
    assert full.rounds(shape) >= 60


def test_a_default_round_is_one_pass_over_a_block():
    rule = SGLD(grid=(2, 2)).resolve(SMALL)
    assert rule.round_length == rule.n_batches(SMALL) == SMALL.n_ratings // 4 // SMALLEST_BATCH
    assert SGLD(grid=(2, 2)).resolve(LARGE).n_batches(LARGE) == BATCHES // 2
    assert rule.rounds_per_epoch(SMALL) == 2
    assert SGLD().resolve(LARGE).batch_size == LARGE.n_ratings // BATCHES
    assert SGLD().resolve(HUGE).batch_size == 1_000_000


def test_smaller_groups():
    """More groups: as many more rounds in an epoch, and mini-batches of other blocks between."""
    for grid, size, groups in (((4, 4), 4, 4), ((4, 4), 2, 8), ((4, 4), 3, 8), ((4, 2), 1, 8)):
        rule = SGLD(grid=grid, group_size=size).resolve(LARGE)
        assert rule.n_groups() == rule.rounds_per_epoch(LARGE) == groups
        assert rule.n_batches(LARGE) == BATCHES // groups
        assert rule.inclusion(LARGE) == pytest.approx(1 / BATCHES)
        half = SGLD(grid=grid, group_size=size, round_length=BATCHES // groups // 2)
        assert half.resolve(LARGE).rounds_per_epoch(LARGE) == 2 * groups
        assert SGHMC(grid=grid, group_size=size).resolve(LARGE).precision_every == groups
    assert SGLD(grid=(4, 2)).resolve(LARGE) == SGLD(grid=(4, 2), group_size=2).resolve(LARGE)
    assert SGLD(grid=(4, 4), group_size=4).for_compiling(100).resolve(SMALL).n_groups() == 2


def test_a_chain_sets_out_without_noise_where_that_will_be_burn_in():
    quiet = [SGLD(epochs=40).resolve(SMALL).noise_share(epoch) for epoch in range(40)]
    assert quiet[:5] == [0, 0, 1 / 3, 2 / 3, 1] and set(quiet[4:]) == {1}
    for epochs in (3, 8, 10, 15, 16, 100):
        rule = SGLD(epochs=epochs).resolve(SMALL)
        assert rule.noise_share(epochs // 4) == 1  # what stays has all of it
    for loud in (SGLD(epochs=40, burn_in=10), SGLD(epochs=40, noise="paper"), SGNHT(epochs=40)):
        assert loud.resolve(SMALL).noise_share(0) == 1


def test_step_follows_tau_unless_it_is_given():
    rule = SGLD().resolve(SMALL)
    one = rule.first_step(SMALL, 685, 1.0, 10.0)
    assert rule.first_step(SMALL, 685, 2.0, 10.0) == pytest.approx(one / 2)
    assert rule.first_step(SMALL, 685, 1e-9, 10.0) == 0.1  # the prior's curvature counts too
    assert SGLD(step_size=1e-4).resolve(SMALL).first_step(SMALL, 685, 2.0, 10.0) == 1e-4
    for shape in (SMALL, LARGE):
        for r in (SGD(), SGLD(), SGLD(grid=(4, 1)), SGLD(noise="paper")):
            assert r.resolve(shape).first_step(shape, 685, 1.0, 10.0) * 685 < 4  # stable


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SGLD(noise="loud"), "noise must be 'matched' or 'paper'"),
        (SGLD(minibatch="all"), "minibatch"),
        (SGLD(epochs=-1), "epochs must be a positive number"),
        (SGLD(epochs="10"), "epochs must be a positive number"),
        (SGLD(n_chains=None), "n_chains must be a whole number"),
        (SGLD(decay="x"), "decay must be a number from 0 to 1"),
        (SGLD(grid=5), "grid 5 must be two whole numbers"),
        (SGLD(grid=(2, "a")), "grid"),
        (SGLD(batch_size=0), "batch_size"),
        (SGLD(batch_size=2.5), "batch_size must be a whole number"),
        (SGLD(step_size=float("nan")), "step_size"),
        (SGLD(decay=2), "decay must be a number from 0 to 1"),
        (SGLD(n_chains=0), "n_chains"),
        (SGLD(epochs=10, burn_in=10), "leaves no draw"),
        (Gibbs(burn_in=700), "leaves no draw out of 500"),
        (SGLD(burn_in="soon"), "burn_in 'soon'"),
        (SGLD(burn_in=-1), "burn_in"),
        (SGLD(group_size=2), "group_size .* of a 1x1 grid must be at most 1"),
        (SGHMC(grid=(2, 3), group_size=3), "of a 2x3 grid must be at most 2"),
        (SGLD(grid=(2, 2), group_size=0), "group_size must be a whole number"),
        (SGLD(grid=(1000, 1)), "grid 1000x1 is larger than the matrix"),
        (SGD(regularization=0), "regularization"),
        (Gibbs(n_stripes=0), "n_stripes"),
        (Gibbs(overrelax=1), "overrelax must be a number from 0 to below 1"),
        (Gibbs(overrelax=-0.5), "overrelax"),
    ],
)
def test_settings_that_cannot_be_meant(rule, words):
    with pytest.raises(InputError, match=words):
        rule.resolve(SMALL)


def test_whole_numbers_may_come_as_floats():
    assert SGLD(batch_size=10**30).resolve(SMALL).batch_size == 80_000
    rule = SGLD(n_chains=2.0, round_length=4.0, batch_size=np.int64(50)).resolve(SMALL)
    assert (rule.n_chains, rule.round_length, rule.batch_size) == (2, 4, 50)
    assert all(type(n) is int for n in (rule.n_chains, rule.round_length, rule.batch_size))


@pytest.mark.parametrize(
    "rule",
    [SGD(), SGLD(grid=(2, 3), burn_in="rmse:0.85", visits=[1, 2, 3]), Gibbs(burn_in="stationary"),
     SGHMC(grid=(2, 3), group_size=1), SGLD(burn_in=UntilRMSE(0.9)),
     SGLD(burn_in=UntilRMSE(0.9, mean=True)), Gibbs(burn_in=FixedBurnIn(3))],
)  # fmt: skip
def test_settings_survive_a_manifest(rule):
    import json

    full = rule.resolve(SMALL)
    again = sampler_from(json.loads(json.dumps(settings_dict(full)))).resolve(SMALL)
    assert settings_dict(again) == settings_dict(full)


def test_step_size_schedule():
    step = StepSize(9e-6, 1000, 0.51)
    assert step(0) == 9e-6
    assert step(1000) == pytest.approx(9e-6 * 2**-0.51)


def test_burn_in_rules():
    assert burn_in_rule(5) == FixedBurnIn(5.0)
    assert burn_in_rule("7") == FixedBurnIn(7.0)
    assert burn_in_rule("rmse:0.85") == UntilRMSE(0.85)
    assert burn_in_rule(" Mean-RMSE:1.08") == UntilRMSE(1.08, mean=True)
    assert str(burn_in_rule("mean-rmse:1.08")) == "mean-rmse:1.08"
    for wrong in ("mean:1", "mean-rmse", "mean-rmse:", "rmse:x", "xrmse:1", "median-rmse:1"):
        with pytest.raises(InputError, match="is none of: a number of epochs, 'rmse"):
            burn_in_rule(wrong)
    assert burn_in_rule("stationary") == Stationary()
    assert UntilRMSE(0.9).over(3, 10, Trace([], [1.0, 0.89]))
    assert not UntilRMSE(0.9).over(3, 10, Trace([], []))
    assert not UntilRMSE(0.9).over(3, 10, Trace([], [0.8, 1.0]))
    assert UntilRMSE(0.9, mean=True).over(3, 10, Trace([], [1.0], [0.9]))
    assert not UntilRMSE(0.9, mean=True).over(3, 10, Trace([], [0.8], [0.91]))


def test_stationary_sees_a_trend():
    rng = np.random.default_rng(0)
    flat = list(1 + 0.01 * rng.normal(size=40))
    falling = list(np.linspace(2, 1, 40))
    assert Stationary().over(40, 200, Trace(flat, []))
    assert not Stationary().over(40, 200, Trace(falling, []))
    assert Stationary().over(100, 200, Trace(falling, []))


@pytest.mark.parametrize("per_epoch", [32.16, 3.6, 10.72, 1.0, 0.7, 7.3, 1.18, 23 / 17])
@pytest.mark.parametrize("every", [1, 3, 10, 50])
def test_thinning_by_epochs_is_exact_in_rounds(per_epoch, every):
    """thin=every / per_epoch epochs: its product with per_epoch may be off by a rounding error."""
    for n_rounds in (every, 10 * every + every // 2, 100_000):
        thinning = Thinning.spread(n_rounds, every / per_epoch * per_epoch, n_rounds)
        kept = [k + 1 for k in range(n_rounds) if thinning.keeps(k)]
        assert kept == list(range(every, n_rounds + 1, every))
        assert thinning.draws(n_rounds) == len(kept)


def test_thinning_where_an_epoch_is_no_whole_number_of_rounds():
    """Every 3.6 rounds: after 3.6, 7.2, 10.8, 14.4 and 18.0, the first round that is past each."""
    thinning = Thinning.spread(20, 3.6, 50)
    assert [k + 1 for k in range(20) if thinning.keeps(k)] == [4, 8, 11, 15, 18]


@pytest.mark.parametrize(
    ("n_rounds", "thin", "cap", "n_draws"),
    [(100, 10, 50, 10), (100, 1, 50, 50), (32, 1, 5, 5), (7, 10, 5, 1), (1, 0.3, 4, 1),
     (999_983, 1, 1000, 1000), (105, 10, 9, 9)],
)  # fmt: skip
def test_thinning_keeps_evenly(n_rounds, thin, cap, n_draws):
    """Where there is no room for all, as whole numbers have it."""
    thinning = Thinning.spread(n_rounds, thin, cap)
    kept = [k for k in range(n_rounds) if thinning.keeps(k)]
    assert len(kept) == n_draws
    assert kept[-1] == n_rounds - 1
    spread = (np.arange(n_rounds + 1) * n_draws) // n_rounds
    assert kept == np.flatnonzero(np.diff(spread)).tolist()
    assert not kept[1:] or max(np.diff(kept)) - min(np.diff(kept)) <= 1


def test_auto_draws_whole_rows_of_few_factors_and_columns_of_many():
    dense = DataShape(1_000_000, 6000, 3700, 500)
    sparse = DataShape(1_000_000, 600_000, 37_000, 5)
    chosen = {d: Auto().choose(dense, d, 2).joint for d in (4, 10, 32, 128)}
    assert chosen == {4: None, 10: None, 32: 4, 128: 4}
    # Where rows have few ratings, D^3 for each of them comes in earlier.
    assert Auto().choose(sparse, 12, 2).joint == 4
    assert Auto(epochs=7, overrelax=0.5).choose(dense, 4, 2) == Gibbs(
        n_chains=2, epochs=7, overrelax=0.5
    )


@pytest.mark.parametrize(("n", "stripes"), [(1000, 8), (99_500_000, 66), (711_000_000, 256)])
def test_stripes_of_gibbs_follow_the_number_of_ratings(n, stripes):
    shape = DataShape(n, 500, 400, 10)
    assert Gibbs().resolve(shape).n_stripes == stripes
    assert Gibbs(n_stripes=3).resolve(shape).n_stripes == 3


def test_rare_draws_of_the_precisions_are_compiled_too():
    assert SGLD(precision_every=50).for_compiling(20).precision_every == 1
