"""No draw is trusted beyond its worth: which draws go on when ratings are added."""

import numpy as np
import pytest

from bayesmf.server.carried_rows import MOST_MISSED, make_plan


def test_the_oldest_of_those_that_missed_most_go():
    chain = np.repeat([0, 1], 56)
    plan = make_plan(chain, None, 9_000, 900_000)
    fresh = np.flatnonzero(plan.source < 0)
    assert len(fresh) == round(np.ceil(112 * 0.01 / MOST_MISSED))
    assert set(chain[fresh]) == {0} and list(plan.start.items()) == [(0, 55)]
    n = len(fresh)
    assert plan.source[: 56 - n].tolist() == list(range(n, 56))  # the first of the chain are gone
    assert plan.source[56:].tolist() == list(range(56, 112))
    assert plan.missed[fresh].tolist() == [0] * n and plan.missed[0] == 9_000
    assert plan.settling == 0


@pytest.mark.parametrize("n_chains", [1, 2, 4])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.03, 0.2])
def test_none_has_missed_more_than_is_stated(n_chains, share):
    """However often ratings are added; and chains go on in turn."""
    chain, missed, total = np.repeat(np.arange(n_chains), 96 // n_chains), None, 100_000
    ran = set()
    for _ in range(150):
        new = round(share * total)
        total += new
        plan = make_plan(chain, missed, new, total)
        assert plan.missed.max() <= MOST_MISSED * total
        assert np.array_equal(plan.chain, chain)
        for number, start in plan.start.items():
            assert start == np.flatnonzero(chain == number)[-1]
        missed, ran = plan.missed, ran | set(plan.start)
    assert ran == set(range(n_chains))


def test_much_that_is_new_takes_all_draws_and_sweeps_before():
    chain = np.repeat([0, 1], 10)
    plan = make_plan(chain, None, 60, 100)
    assert (plan.source < 0).all() and plan.settling > 10 and (plan.missed == 0).all()
    assert plan.sweeps == 20 + 2 * plan.settling
    assert make_plan(chain, None, 1, 10_000).sweeps == 1
