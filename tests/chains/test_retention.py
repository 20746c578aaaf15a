"""Retention policies: what they decide, round by round, without a chain."""

import numpy as np
import pytest

from bayesmf.chains.monitor import RunClock
from bayesmf.chains.retention import Decision, Fixed, Growing, RunLength
from bayesmf.samplers.schedules import FixedBurnIn, Trace, UntilRMSE


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
    policy = Fixed(FixedBurnIn(2.0), RunLength(20, 2.0, 2.0), room, None, clock())
    draws, rooms = kept_by(policy, 20)
    assert rooms == [len(draws)] == [min(8, room)]
    assert draws[-1] == 19 and min(draws) >= 4
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


def test_burn_in_ends_when_much_of_the_time_is_over():
    policy = Fixed(UntilRMSE(0.1), RunLength(10, 1.0, 1.0), 9, 100.0, clock(39.0, 41.0))
    policy.before(0, Trace())
    assert policy.burning and policy.after(0) == Decision()
    policy.before(1, Trace())
    assert not policy.burning and policy.after(1) == Decision(reserve=9, keep=True, average=True)
