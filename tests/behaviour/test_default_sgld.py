"""SGLD as it is by default draws from the posterior that Gibbs draws from, spread included."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs
from problems import planted


@pytest.mark.parametrize("noise_by", [None, "both"])
def test_default_sgld_has_the_spread_and_the_noise_of_gibbs(noise_by):
    """On planted ratings: standard deviations and noise within 3% on average.

    Steps as long as those that a chain sets out with would make both 6% too large. Seeds are fixed;
    three of them gave ratios from .993 to .996 and from .999 to 1.002.
    """
    data = planted(300, 200, 10_000, d=4)
    seen, rng = set(zip(*data[:2], strict=True)), np.random.default_rng(0)
    pairs = [(u + 1000, i + 5) for u, i in rng.integers(0, (300, 200), (1200, 2))]
    pairs = [pair for pair in pairs if pair not in seen]
    # Row numbers: all of the users and items have ratings.
    at = np.array(pairs).T - [[1000], [5]]
    assert [len(set(ids)) for ids in data[:2]] == [300, 200]
    found = []
    for sampler in (Gibbs(epochs=150, n_chains=2), SGLD(epochs=300, n_chains=2)):
        model = BayesianMF(
            4, prior="gamma", sampler=sampler, noise_by=noise_by, random_state=1
        ).fit(data)
        _, std = model.predict(pairs, return_std=True)
        noise = model.posterior_.noise_of(*at)
        found.append((np.sqrt(std**2 - noise).mean(), noise.mean()))
    spread, noise = np.divide(found[1], found[0])
    assert abs(spread - 1) < 0.03
    assert abs(noise - 1) < 0.03
