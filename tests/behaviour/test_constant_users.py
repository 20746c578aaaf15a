"""People who give one rating to all: their errors can be zero, what is found must stay finite."""

import numpy as np
import pytest

from bayesmf import SGHMC, BayesianMF, Gibbs

# Such runs may be too short to have converged.
pytestmark = pytest.mark.filterwarnings("ignore::bayesmf.errors.ConvergenceWarning")


def shop(share, n=200, m=60, per=12):
    """Stars of n people, some of whom always give five."""
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(n), per)
    item = np.concatenate([rng.choice(m, per, replace=False) for _ in range(n)])
    taste = 3.7 + 0.5 * rng.normal(size=n)[user] + 0.4 * rng.normal(size=m)[item]
    stars = np.clip(np.round(taste + rng.normal(size=n * per)), 1, 5)
    stars[user < share * n] = 5
    return user, item, stars


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("by", ["user", "item", "both"])
def test_the_noise_of_the_others_is_found(share, by):
    """Precisions end at 1 / EXACT, give or take chance; the others' noise is about one star."""
    user, item, stars = shop(share)
    model = BayesianMF(2, sampler=Gibbs(epochs=80), noise_by=by, random_state=0)
    model.fit((user, item, stars))
    draws = model.posterior_.draws
    for tau in (draws.user_tau, draws.item_tau):
        assert tau is None or (np.isfinite(tau).all() and tau.max() < 1e6)
    mean, std = model.predict(user, item, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()
    if by != "item":
        constant = user < share * 200
        assert std[constant].mean() < 0.2 < 0.6 < std[~constant].mean() < 1.6


def test_new_people_who_are_constant():
    user, item, stars = shop(0.0)
    model = BayesianMF(2, sampler=Gibbs(epochs=40), random_state=0).fit((user, item, stars))
    sent = {int(j): 5.0 for j in range(30)}
    mean, std = model.predict(None, [31, 32], ratings=sent, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()
    more = np.repeat(np.arange(200, 260), 12), np.tile(np.arange(12), 60), np.full(720, 5.0)
    model.partial_fit(more)
    assert np.isfinite(model.predict(user, item, return_std=True)).all()


def test_mini_batches():
    user, item, stars = shop(0.3)
    model = BayesianMF(2, sampler=SGHMC(epochs=40), random_state=0)
    model.fit((user, item, stars))
    assert model.posterior_.draws.user_tau.max() < 1e6
