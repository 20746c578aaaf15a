"""A posterior of random draws, without a fit."""

import numpy as np

from bayesmf.data.training import TrainingData
from bayesmf.model.draws import Draws
from bayesmf.posterior.posterior import Posterior

KEEPS = ("items", "users", "both")


def random_posterior(
    n_users=50,
    n_items=70,
    n_draws=6,
    D=5,
    n_seen=400,
    means=True,
    keep="both",
    full=False,
    bias=True,
    coded=True,
    seed=0,
):
    """Arrays that no chain made: every part is told from every other."""
    rng, width = np.random.default_rng(seed), D + bias

    def rows(n):
        return rng.normal(size=(n_draws, n, width)).astype(np.float32)

    def prior():
        root = rng.normal(size=(n_draws, width, width)) / width**0.5
        matrices = root @ root.transpose(0, 2, 1) + np.eye(width)
        Lambda = matrices if full else rng.uniform(1, 2, (n_draws, width))
        return rng.normal(size=(n_draws, width)), Lambda

    parts = {}
    for side, n in (("user", n_users), ("item", n_items)):
        parts[f"{side}_mu"], parts[f"{side}_Lambda"] = prior()
        drawn, conditional = rows(n), rows(n)
        stored = keep in (f"{side}s", "both")
        parts[f"{side}s"] = drawn if stored else None
        parts[f"{side}_means"] = conditional if stored and means else None
    tau, chain = rng.uniform(1, 2, n_draws), np.arange(n_draws) // max(1, n_draws // 2)
    cells = rng.choice(n_users * n_items, n_seen, replace=False)
    user, item = (part.astype(np.int32) for part in np.divmod(cells, n_items))
    value = rng.integers(-3, 4, n_seen) if coded else rng.normal(size=n_seen)
    ratings = TrainingData.from_triples(user, item, value.astype(np.float32), n_users, n_items)
    return Posterior(Draws(**parts, tau=tau, chain=chain), ratings, D, 3.0, 1.5, -np.inf, np.inf)
