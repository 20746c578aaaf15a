"""What every sampler must do. test_contract.py runs it on each of the paper's algorithms."""

from __future__ import annotations

import numpy as np

from bayesmf import SGD, SGHMC, SGLD, SGNHT, Gibbs

# name: (sampler, prior). SGD needs its regularisation set by hand, samplers find it.
ALGORITHMS = {
    "SGD": (SGD(epochs=60, regularization=1.0), "gamma"),
    "DSGD 2x2": (SGD(grid=(2, 2), epochs=60, regularization=1.0), "gamma"),
    "SGLD": (SGLD(epochs=300), "gamma"),
    "SGLD paper": (SGLD(epochs=300, noise="paper"), "gamma"),
    "SGLD replacement": (SGLD(epochs=300, minibatch="replacement", grid=(1, 2)), "gamma"),
    "SGLD wishart": (SGLD(epochs=300), "wishart"),
    "DSGLD-S 2x2": (SGLD(grid=(2, 2), n_chains=2, epochs=200), "gamma"),
    "DSGLD-C 4x1": (SGLD(grid=(4, 1), n_chains=4, epochs=150), "gamma"),
    "hybrid 3x2": (SGLD(grid=(3, 2), n_chains=3, epochs=150), "gamma"),
    "SGHMC wishart 2x2": (SGHMC(epochs=150, grid=(2, 2)), "wishart"),
    # With replacement gradient noise never sums to zero: steps are short, and a larger rho pays.
    "SGHMC replacement 2x1": (
        SGHMC(epochs=300, grid=(2, 1), n_chains=2, minibatch="replacement", rho=0.1),
        "gamma",
    ),
    "SGHMC 3x2": (SGHMC(epochs=150, grid=(3, 2), n_chains=3), "gamma"),
    "SGNHT": (SGNHT(epochs=150), "gamma"),
    "Gibbs gamma": (Gibbs(epochs=80), "gamma"),
    "Gibbs wishart": (Gibbs(epochs=80, n_chains=2), "wishart"),
}


def draws_digest(model) -> bytes:
    """All bits of all draws of all chains."""
    arrays = model.posterior_.draws.arrays()
    return b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays))
