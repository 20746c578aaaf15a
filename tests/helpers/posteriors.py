"""A posterior of random draws, without a fit."""

import numpy as np

from bayesmf.data.rated import RatedItems
from bayesmf.model.draws import Draws
from bayesmf.posterior.posterior import Posterior


def random_posterior(n_users=50, n_items=70, n_draws=6, D=5, n_seen=400, means=True, seed=0):
    rng = np.random.default_rng(seed)

    def rows(n):
        return rng.normal(size=(n_draws, n, D + 1)).astype(np.float32)

    mu, Lambda = rng.normal(size=(n_draws, D + 1)), rng.uniform(1, 2, (n_draws, D + 1))
    cells = np.sort(rng.choice(n_users * n_items, n_seen, replace=False))
    starts = np.searchsorted(cells, n_items * np.arange(n_users + 1))
    seen = RatedItems(starts, (cells % n_items).astype(np.int32))
    kept = [rows(n_users), rows(n_items), mu, Lambda, mu, Lambda]
    more = [rows(n_users), rows(n_items)] if means else []
    tau, chain = rng.uniform(1, 2, n_draws), np.zeros(n_draws, np.int64)
    return Posterior(Draws(*kept, tau, chain, *more), seen, D, 3.0, 1.5, -50.0, 50.0)
