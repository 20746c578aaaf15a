"""Draws that stand for all draws."""

import numpy as np
import pytest

from bayesmf.model.draws import spread_evenly


@pytest.mark.parametrize("counts", [[7], [100], [10, 10], [3, 50, 2], [1, 1, 1, 1], [98, 1, 1]])
def test_draws_are_spread_evenly_over_every_chain(counts):
    chain, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
    for most in range(1, 2 + len(chain)):
        chosen = spread_evenly(chain, most)
        assert len(chosen) == min(max(most, len(counts)), len(chain))
        assert (np.diff(chosen) > 0).all() and chosen[0] >= 0 and chosen[-1] == len(chain) - 1
        taken = np.bincount(chain[chosen], minlength=len(counts))
        assert (taken >= 1).all()
        for k, n in enumerate(taken):
            own = chosen[chain[chosen] == k]
            gaps = np.diff([ends[k] - counts[k] - 1, *own])
            assert gaps.max() - gaps.min() <= 1  # the last of every stretch, all equally long
            if most >= len(chain) / min(counts):  # else a chain has one that it has no share in
                assert abs(n - most * counts[k] / len(chain)) < 1 or n == counts[k]
