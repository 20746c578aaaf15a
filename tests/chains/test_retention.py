"""Retention policies: what they decide, round by round, without a chain."""

import numpy as np
import pytest

from bayesmf.chains.monitor import RunClock
from bayesmf.chains.retention import Decision, Fixed, Growing, RunLength
from bayesmf.samplers.schedules import FixedBurnIn, Stationary, Trace, UntilRMSE


def kept_by(policy, n_rounds, again=lambda policy: policy):
    """Rounds whose states a store would hold in the end, and the room that was asked for."""
    draws, rooms = [], []
    for t in range(n_rounds):
        policy.before(t, Trace())
        decision = policy.after(t)
        rooms += [] if decision.reserve is None else [decision.reserve]
        if decision.select is not None:
            draws = [draws[k] for k in decision.select]
        draws += [t] if decision.keep else []
        policy = again(policy)
    final = policy.finish()
    return draws if final is None else [draws[k] for k in final], rooms


def clock(*seconds):
    given = iter(seconds)
    return RunClock(lambda: next(given))


@pytest.mark.parametrize("room", [1, 4, 7, 100])
def test_a_run_of_known_length_spreads_its_draws(room):
    """One in two of 17 rounds after burn-in: exactly these, or fewer that end with the last."""
    policy = Fixed(FixedBurnIn(2.0), RunLength(21, 2.0, 2.0), room, None, clock())
    draws, rooms = kept_by(policy, 21)
    assert rooms == [len(draws)] == [min(8, room)]
    if room >= 8:
        assert draws == [5, 7, 9, 11, 13, 15, 17, 19]
    else:
        assert draws[-1] == 20 and min(draws) >= 4
        assert np.ptp(np.diff(draws)) <= 1 if len(draws) > 1 else True


@pytest.mark.parametrize("room", [1, 2, 5, 16, 100])
def test_a_growing_run_forgets_every_other_draw_when_its_room_is_full(room):
    held = 0
    policy = Growing(RunLength(400, 1.0, 1.0), room, 3.0)
    for t in range(60):
        policy.before(t, Trace())
        assert policy.burning == (t < 3)
        decision = policy.after(t)
        held = held if decision.select is None else len(decision.select)
        held += decision.keep
        assert held <= room
    draws, _ = kept_by(Growing(RunLength(400, 1.0, 1.0), room, 3.0), 60)
    assert len(set(np.diff(draws))) <= 1 and all(t >= 15 for t in draws)


def test_policies_go_on_from_a_checkpoint():
    length = RunLength(40, 2.0, 1.0)
    for make in (
        lambda: Growing(length, 6, 6.0),
        lambda: Fixed(FixedBurnIn(3.0), length, 9, None, clock()),
    ):

        def again(policy, make=make):
            other = make()
            other.restore(*policy.export())
            return other

        assert kept_by(make(), 40, again) == kept_by(make(), 40)


@pytest.mark.parametrize("rule", [FixedBurnIn(4.0), Stationary()])
def test_burn_in_ends_when_much_of_the_time_is_over(rule):
    length = RunLength(20, 2.0, 1.0)
    policy = Fixed(rule, length, 19, 100.0, clock(39.0, 41.0))
    policy.before(0, Trace())
    assert policy.burning and policy.after(0) == Decision() and policy.cut is None
    policy.before(1, Trace())
    assert not policy.burning and policy.after(1) == Decision(reserve=19, keep=True, average=True)
    assert policy.cut == 0.5
    again = Fixed(rule, length, 19, 100.0, clock())
    again.restore(*policy.export())
    assert (again.burning, again.cut) == (False, 0.5)


@pytest.mark.parametrize("mean", [False, True])
def test_burn_in_by_rmse_is_never_ended_by_time(mean):
    policy = Fixed(UntilRMSE(0.5, mean), RunLength(10, 1.0, 1.0), 9, 100.0, clock())
    for t in range(10):
        policy.before(t, Trace([1.0], [0.6], [0.6]))
        assert policy.burning and policy.after(t) == Decision()
    policy.before(10, Trace([1.0], [0.6], [0.5]))
    assert policy.burning == (not mean)
    policy.before(10, Trace([1.0], [0.5], [0.6]))
    assert not policy.burning and policy.cut is None


def test_burn_in_over_by_itself_is_not_cut():
    policy = Fixed(FixedBurnIn(2.0), RunLength(10, 1.0, 1.0), 9, 100.0, clock(10.0, 20.0, 50.0))
    for t in range(3):
        policy.before(t, Trace())
    assert not policy.burning and policy.cut is None


@pytest.mark.parametrize(
    ("n_rounds", "epochs", "per_epoch", "kept"),
    [
        (105 + 33, 32.5 / 32.16, 32.16, range(33 + 9, 138, 10)),
        (25, 0.0, 3.6, [9, 19]),
        (60, 2.0, 10.72, [31, 41, 51]),  # burn-in of 21.44 rounds, so of 22
        (9, 0.0, 3.6, [8]),  # too few rounds: one draw, the last
    ],
)
def test_exactly_every_tenth_round_is_kept(n_rounds, epochs, per_epoch, kept):
    length = RunLength(n_rounds, per_epoch, (10 / per_epoch) * per_epoch)
    draws, rooms = kept_by(Fixed(FixedBurnIn(epochs), length, 99, None, clock()), n_rounds)
    assert draws == list(kept) and rooms == [len(draws)]
