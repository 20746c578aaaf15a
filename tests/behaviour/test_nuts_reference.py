"""Gibbs against what NUTS has found of the same posterior, once: a small part of benchmarks.nuts.

`nuts_reference.npz` has means and variances of 50 pairs, and of the logarithms of all precisions of
noise, their shapes and rates, with Monte Carlo errors; `--save` of the benchmark wrote it. Chains
are few and short here, and their own errors are by their spread over 20 chains: t of 19 degrees of
freedom, so |z| > 6.5 for one of 250 numbers has a rate of 8e-4. Means of z^2 are held as well.
"""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.nuts import NAMES, NOISE, by_gibbs, of_chains, planted

FILE = Path(__file__).with_name("nuts_reference.npz")


def _z_scores(noise, how, keep, data, sweeps=160):
    model = by_gibbs(data, ("gamma", NOISE[noise]), how, keep, sweeps, 0)
    ours, out = of_chains(model.posterior_), {}
    with np.load(FILE) as file:
        pairs = file["pairs"]
        for name in NAMES:
            value, error = (file[f"gamma {noise} {name}{end}"] for end in ("", " error"))
            which = slice(None) if name.startswith("noise") else pairs
            spread = np.sqrt(ours.error[name][which] + error.astype(float) ** 2)
            out[name] = (ours.value[name][which] - value) / spread
    return out


@pytest.mark.parametrize(
    ("noise", "how", "keep"),
    [("none", "rows", "items"), ("user", "columns", "users"), ("both", "rows", "items")],
)
def test_the_posterior_is_that_of_nuts(noise, how, keep):
    for name, z in _z_scores(noise, how, keep, planted(0)).items():
        assert np.abs(z).max() < 6.5, name
        assert len(z) < 20 or np.mean(z**2) < 2.5, name


def test_other_ratings_are_caught():
    """A tenth of the ratings' spread more on every third of them."""
    user, item, value = planted(0)
    value[::3] += 0.15 * value.std()
    found = _z_scores("none", "rows", "items", (user, item, value))
    assert max(np.abs(z).max() for z in found.values()) > 6.5
