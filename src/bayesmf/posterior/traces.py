"""Draws of predictions, precisions and tau by chain: what diagnostics look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmf.posterior.posterior import Index, Posterior


def traces(posterior: Posterior, user: Index, item: Index) -> dict[str, Any]:
    """Collect draws of predictions of pairs, of precisions and of tau, by chain.

    Raw factors are left out: they may rotate and swap without anything having changed. Arrays are
    (chains, draws, ...), cut to the shortest chain: "prediction", "tau", and precisions of factors
    ("lambda_U", "lambda_V") and biases ("lambda_a", "lambda_b").
    """
    draws = posterior.draws
    mu = np.empty((len(draws), len(user)))
    for chunk in posterior.chunks(user, item):
        mu[:, chunk.lo : chunk.hi] = chunk.mu
    by_chain = [np.flatnonzero(draws.chain == c) for c in np.unique(draws.chain)]
    shortest = min(len(rows) for rows in by_chain)
    rows = np.array([r[:shortest] for r in by_chain])
    quantities = {"prediction": mu, "tau": draws.tau / posterior.scale**2}
    for side in ("user", "item"):
        Lambda = getattr(draws, f"{side}_Lambda")
        D = posterior.n_factors
        # Eigenvalues of a matrix: its diagonal changes as the factors rotate.
        factors = Lambda[:, :D] if Lambda.ndim == 2 else np.linalg.eigvalsh(Lambda[:, :D, :D])
        # Sorted, since columns may swap: only order statistics of precisions compare.
        quantities[f"lambda_{'U' if side == 'user' else 'V'}"] = np.sort(factors, axis=1)
        if Lambda.shape[1] > D:
            bias = Lambda[:, -1] if Lambda.ndim == 2 else Lambda[:, -1, -1]
            quantities[f"lambda_{'a' if side == 'user' else 'b'}"] = bias
    return {name: values[rows] for name, values in quantities.items()}
