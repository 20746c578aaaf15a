"""Gibbs against what NUTS has found of the same posterior, once: a small part of benchmarks nuts.

`nuts_reference.npz` has means and variances of 50 pairs, and of the logarithms of all precisions of
noise, their shapes and rates, with Monte Carlo errors: parts of files of `--references`. Chains
are few and short here. |z| > 5 for one of 250 numbers has a rate of 1.4e-4, once in 2,000 runs of
this file. Means of z^2 are held as well.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.nuts import NAMES, Found, NutsCase, fitted, of_chains, planted, z_scores

FILE = Path(__file__).with_name("nuts_reference.npz")


def _z_scores(noise, how, keep, data, sweeps=160):
    ours = of_chains(fitted(data, NutsCase(0, "gamma", noise), how, keep, sweeps, 0))
    own, theirs = Found({}, {}), Found({}, {})
    with np.load(FILE) as file:
        for name in NAMES:
            which = slice(None) if name.startswith("noise") else file["pairs"]
            own.value[name], own.error[name] = ours.value[name][which], ours.error[name][which]
            theirs.value[name] = file[f"gamma {noise} {name}"].astype(float)
            theirs.error[name] = file[f"gamma {noise} {name} error"].astype(float) ** 2
    return z_scores(own, theirs)


@pytest.mark.parametrize(
    ("noise", "how", "keep"),
    [("none", "rows", "items"), ("user", "columns", "users"), ("both", "rows", "items")],
)
def test_the_posterior_is_that_of_nuts(noise, how, keep):
    for name, z in _z_scores(noise, how, keep, planted(0)).items():
        assert np.abs(z).max() < 5, name
        assert len(z) < 20 or np.mean(z**2) < 2.5, name


def test_other_ratings_are_caught():
    """0.15 of the ratings' spread more on every third of them."""
    user, item, value = planted(0)
    value[::3] += 0.15 * value.std()
    found = _z_scores("none", "rows", "items", (user, item, value))
    assert max(np.abs(z).max() for z in found.values()) > 7
