"""Small data sets for tests."""

from __future__ import annotations

import functools

import numpy as np

from bayesmf import Ratings, Synthetic
from bayesmf.data.training import TrainingData


def random_data(n_users, n_items, n_ratings, seed=0):
    """Distinct random cells with N(0, 1) ratings; every row has at least one."""
    rng = np.random.default_rng(seed)
    must = {(i, i % n_items) for i in range(n_users)} | {(j % n_users, j) for j in range(n_items)}
    cells = np.array([i * n_items + j for i, j in sorted(must)])
    rest = np.setdiff1d(np.arange(n_users * n_items), cells)
    cells = np.concatenate([cells, rng.permutation(rest)[: n_ratings - len(cells)]])
    value = rng.normal(size=len(cells)).astype(np.float32)
    return TrainingData.from_triples(
        (cells // n_items).astype(np.int32),
        (cells % n_items).astype(np.int32),
        value,
        n_users,
        n_items,
    )


def planted(n_users=120, n_items=90, n_ratings=4000, d=3, noise=0.5, seed=0):
    """(user ids, item ids, ratings) with planted factors and biases, for estimators."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(n_users * n_items, n_ratings, replace=False)
    user, item = cells // n_items, cells % n_items
    U, V = rng.normal(size=(n_users, d)) * 0.7, rng.normal(size=(n_items, d)) * 0.7
    a, b = rng.normal(size=n_users) * 0.4, rng.normal(size=n_items) * 0.4
    mean = 3.5 + a[user] + b[item] + np.einsum("nd,nd->n", U[user], V[item])
    return user + 1000, item + 5, mean + noise * rng.normal(size=n_ratings)


@functools.cache
def stars() -> Ratings:
    """2,400 ratings of 80 users from 1 on; made in tests, not when they are collected."""
    return Synthetic(80, 60, 2400, stars=True, random_state=1).ratings()
