"""Stars from the predictive mixtures: bins, edges, and answers that depend on nobody else."""

import numpy as np
import pytest
from scipy import stats

from bayesmf import BayesianMF, Gibbs, Synthetic
from bayesmf.kernels.mixture import mixture_bins
from bayesmf.model.draws import RatingLevels
from bayesmf.posterior import levels as levels_module
from bayesmf.posterior.levels import level_probabilities, levels_of

pytestmark = pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")


@pytest.fixture(scope="module")
def posterior():
    ratings = Synthetic(80, 50, 1900, stars=True, random_state=3).ratings()
    sampler = Gibbs(epochs=12, burn_in=5, n_chains=1)
    return BayesianMF(3, sampler=sampler, random_state=0, n_workers=1).fit(ratings).posterior_


def pairs(n=400):
    """Pairs of known rows, with some that nobody has seen."""
    rng = np.random.default_rng(1)
    return rng.integers(-1, 80, n), rng.integers(-1, 50, n)


def test_probabilities_are_those_of_the_mixtures(posterior):
    user, item = pairs()
    levels = levels_of(posterior)
    found = level_probabilities(posterior, user, item, levels)
    (chunk,) = posterior.chunks(user, item)
    sd = np.sqrt(np.maximum(chunk.var.astype(float) - 1 / 12, chunk.var / 4))
    below = [stats.norm.cdf(edge, chunk.mu, sd).mean(0) for edge in levels.edges]
    want = np.diff([np.zeros(len(user)), *below, np.ones(len(user))], axis=0).T
    assert (user < 0).any() and (item < 0).any()
    np.testing.assert_allclose(found, want, atol=1e-5)  # components are float32 in two units


def test_bits_depend_on_no_other_pair_and_no_thread(posterior):
    user, item = pairs()
    levels = levels_of(posterior)
    whole = level_probabilities(posterior, user, item, levels, threads=1)
    np.testing.assert_array_equal(
        level_probabilities(posterior, user, item, levels, threads=3), whole
    )
    for k in (0, 7, 399):
        one = level_probabilities(posterior, user[k : k + 1], item[k : k + 1], levels)
        np.testing.assert_array_equal(one[0], whole[k])


def test_edges_give_each_level_its_share_of_the_training_ratings(posterior, monkeypatch):
    """All training ratings and draws are looked at here, so shares are right but for the prior."""
    monkeypatch.setattr(levels_module, "DRAWS", 100)
    monkeypatch.setattr(levels_module, "PRIOR", 1e-9)
    levels = levels_module._fit_edges(posterior)
    user, item, value = posterior.ratings.triples()
    found = level_probabilities(
        posterior, user.astype(np.int64), item.astype(np.int64), levels
    ).mean(0)
    rating = posterior.center + posterior.scale * value
    want = [np.mean(np.isclose(rating, level)) for level in levels.levels]
    assert levels.levels == (1.0, 2.0, 3.0, 4.0, 5.0)
    np.testing.assert_allclose(found, want, atol=2e-5)


def test_few_draws_and_ratings_tell_edges_nearly_as_well(posterior, monkeypatch):
    """The default looks at 8 draws; here also at a fifth of the ratings."""
    monkeypatch.setattr(levels_module, "DRAWS", 100)
    all_of_them = levels_module._fit_edges(posterior).edges
    monkeypatch.setattr(levels_module, "DRAWS", 2)
    monkeypatch.setattr(levels_module, "RATINGS", 500)
    some = levels_module._fit_edges(posterior).edges
    assert some != all_of_them
    np.testing.assert_allclose(some, all_of_them, atol=0.1)


def test_few_ratings_leave_edges_about_halfway():
    ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    sampler = Gibbs(epochs=6, burn_in=2)
    model = BayesianMF(1, sampler=sampler, random_state=0).fit(ratings)
    np.testing.assert_allclose(levels_of(model.posterior_).edges, [1.5, 2.5, 3.5, 4.5], atol=0.35)


def test_edges_are_found_once(posterior, monkeypatch):
    first = levels_of(posterior)
    monkeypatch.setattr(levels_module, "_fit_edges", lambda *_: pytest.fail("learnt again"))
    assert levels_of(posterior) is first


@pytest.mark.parametrize(
    "values", [[0.5, 1, 1.5, 4.5], [0.1, 0.2, 0.7], [-10, 0, 1234], [1000, 1001]]
)
def test_levels_are_the_numbers_that_were_given(values):
    n = 40
    rating = np.resize(np.array(values, float), n)
    triple = np.arange(n) % 8, np.arange(n) // 8, rating
    model = BayesianMF(1, sampler=Gibbs(epochs=4, burn_in=1), random_state=0).fit(triple)
    assert model.rating_levels_.tolist() == [float(x) for x in values]
    proba = model.predict_proba(0, [0, 1])
    assert proba.shape == (2, len(values))
    np.testing.assert_allclose(proba.sum(1), 1.0)


def test_numbers_of_levels():
    levels = RatingLevels((0.5, 1.0, 2.0), (0.8, 1.4))
    np.testing.assert_array_equal(levels.numbers(np.array([2.0, 0.5, 1.0000001])), [2, 0, 1])
    assert levels.numbers(np.array([1.0, 1.2])) is None
    assert levels.numbers(np.array([7.0])) is None


def test_edges_that_meet_leave_a_level_without_probability():
    edges = np.array([2.0, 2.0, 3.0])
    assert mixture_bins(edges, np.array([[2.5]]), np.array([[1.0]]), 0.0)[0, 1] == 0
