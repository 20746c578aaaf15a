"""Where chains begin must not decide where they end, or it must be said.

Sparse ratings, six a user: there a chain that began with precisions of 300 once stayed without
factors and biases for ever, and called it converged. Seeds are fixed.
"""

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, Ratings
from bayesmf.chains.chain import STARTS
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.model.priors import WishartPrior
from driving import start_chain
from problems import random_data


def _sparse(n_users=500, n_items=80, each=8):
    """Ratings to learn from, six a user, and two of each user held out."""
    rng = np.random.default_rng(0)
    users, items = 0.6 * rng.normal(size=(n_users, 2)), 0.6 * rng.normal(size=(n_items, 2))
    a, b = 0.5 * rng.normal(size=n_users), 0.5 * rng.normal(size=n_items)
    user = np.repeat(np.arange(n_users), each)
    item = np.concatenate([rng.choice(n_items, each, replace=False) for _ in range(n_users)])
    rating = a[user] + b[item] + (users[user] * items[item]).sum(1)
    rating += 0.7 * rng.normal(size=len(user))
    held = np.arange(len(user)) % each < 2
    return [Ratings(user[part], item[part], rating[part]) for part in (~held, held)]


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
@pytest.mark.parametrize("noise_by", [None, "both"])
@pytest.mark.parametrize("n_chains", [1, 3])
def test_a_start_without_effects_is_overcome(noise_by, n_chains):
    train, held = _sparse()
    mean = np.sqrt(np.mean((held.rating - train.rating.mean()) ** 2))
    found = []
    for precision in (2.0, 300.0):
        sampler = Gibbs(n_chains=n_chains, epochs=120, initial_precision=precision)
        model = BayesianMF(3, sampler=sampler, noise_by=noise_by, random_state=1).fit(train)
        found.append(np.sqrt(np.mean((model.predict(held.users, held.items) - held.rating) ** 2)))
    # A chain that stays where it began predicts little better than the mean of all ratings.
    assert found[1] < found[0] + 0.1 * (mean - found[0])


def test_chains_begin_apart():
    data = random_data(200, 150, 1200)
    sampler = Gibbs(n_chains=5).resolve(data_shape(data))
    settings = RunSettings(sampler, WishartPrior(bias=True), 3, None, 0, max_draws=10)
    states = [start_chain(number, settings, data_shape(data)) for number in range(5)]
    precisions = [state.precisions.users.Lambda[0, 0] for state in states]
    assert precisions == [2.0 * STARTS[number % 4] for number in range(5)]
    variances = np.array([state.whole().users.var() for state in states])
    assert variances * precisions == pytest.approx(np.full(5, 2.0 * 0.01), rel=0.2)
