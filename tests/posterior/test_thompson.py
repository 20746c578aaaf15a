"""Thompson sampling: an item is chosen with the posterior probability that it is the best.

The truth is enumerated over draws; given one, the user's row is drawn 100,000 times from brute
force's mean and covariance, or taken as expected for "thompson-items". Counts of choices are
compared by chi-square, at a rate of false alarms of 1e-4 a comparison; seeds are fixed.
"""

import numpy as np
import pytest
from scipy import stats

from bayesmf.data.training import TrainingData
from bayesmf.model.draws import Draws
from bayesmf.posterior.posterior import Posterior
from bayesmf.posterior.ranking import Question, rank_users, thompson_pick
from naive import Exact
from posteriors import KEEPS

D, WIDTH, N_ITEMS, N_DRAWS, ALIKE = 2, 3, 6, 4, 3000


def alike(keep, seed=0):
    """Users whose ratings are the same: each picks for itself, so all together are a sample.

    Half of them have rated three items, the others one.
    """
    rng = np.random.default_rng(seed)

    def rows(n):
        return (0.7 * rng.normal(size=(N_DRAWS, n, WIDTH))).astype(np.float32)

    user = np.concatenate([np.repeat(np.arange(ALIKE), 3), np.arange(ALIKE, 2 * ALIKE)])
    item = np.concatenate([np.tile([0, 2, 5], ALIKE), np.full(ALIKE, 1)])
    value = np.concatenate([np.tile([1.0, -1.0, 0.5], ALIKE), np.full(ALIKE, 2.0)])
    ratings = TrainingData.from_triples(
        user.astype(np.int32), item.astype(np.int32), value.astype(np.float32), 2 * ALIKE, N_ITEMS
    )
    both = np.repeat(rows(2), ALIKE, 1)
    items, mu = rows(N_ITEMS), 0.3 * rng.normal(size=(N_DRAWS, WIDTH))
    prior = mu, np.full((N_DRAWS, WIDTH), 2.0)
    draws = Draws(
        None if keep == "items" else both, None if keep == "users" else items, *prior, *prior,
        tau=np.full(N_DRAWS, 1.5), chain=np.zeros(N_DRAWS, np.int64),
    )  # fmt: skip
    return Posterior(draws, ratings, D, 0.0, 1.0, -9.0, 9.0)


def best_probabilities(posterior, user, n=100_000, seed=1):
    """Posterior probability of each item that it is the best of all for a user."""
    exact, rng = Exact(posterior), np.random.default_rng(seed)
    share = np.zeros(N_ITEMS)
    for t in range(N_DRAWS):
        x = rng.multivariate_normal(*exact.row("user", user, t), n, method="svd")
        V = np.array([exact.row("item", item, t)[0] for item in range(N_ITEMS)])
        scores = x[:, :D] @ V[:, :D].T + V[:, D]
        share += np.bincount(scores.argmax(1), minlength=N_ITEMS) / n
    return share / N_DRAWS


def scores_by_expected_rows(posterior, user):
    """Scores of all items under each draw, by the row that is expected given the draw's items."""
    exact, scores = Exact(posterior.with_users), np.empty((N_DRAWS, N_ITEMS))
    for t in range(N_DRAWS):
        V = np.array([exact.row("item", item, t)[0] for item in range(N_ITEMS)])
        scores[t] = V[:, :D] @ exact.row("user", user, t)[0][:D] + V[:, D]
    return scores


def first_by_expected_rows(posterior, user):
    """Share of the draws under which each item is the best for the expected row."""
    best = scores_by_expected_rows(posterior, user).argmax(1)
    return np.bincount(best, minlength=N_ITEMS) / N_DRAWS


def p_value(chosen, probability):
    """Of the counts of choices; items of fewer than five expected choices count as one."""
    counts, expected = np.bincount(chosen, minlength=N_ITEMS), len(chosen) * probability
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if len(counts) > 1 and expected[-1] < 1:
        counts, expected = counts[:-1], expected[:-1] * counts[:-1].sum() / expected[:-1].sum()
    return stats.chisquare(counts, expected).pvalue


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("kind", ["three ratings", "one", "none"])
def test_items_are_chosen_as_often_as_they_are_the_best(keep, kind):
    posterior = alike(keep)
    first = {"three ratings": 0, "one": ALIKE, "none": -1}[kind]
    users = np.full(ALIKE, -1) if first < 0 else first + np.arange(ALIKE)
    truth = best_probabilities(posterior.with_items, first)
    chosen, _ = rank_users(posterior, users, Question(1, "thompson", False, None, seed=7))
    assert p_value(chosen[:, 0], truth) > 1e-4
    if keep != "both" or first < 0:
        # The test would notice if rows were not drawn: it is not all in the draws of items.
        by_means = first_by_expected_rows(posterior, first)
        assert stats.chisquare(ALIKE * by_means, ALIKE * truth).pvalue < 1e-9


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("kind", ["three ratings", "one", "none"])
def test_items_alone_are_drawn_by_thompson_items(keep, kind):
    """Each draw of the items is taken as often as any other, with the row expected given it."""
    posterior = alike(keep)
    first = {"three ratings": 0, "one": ALIKE, "none": -1}[kind]
    users = np.full(ALIKE, -1) if first < 0 else first + np.arange(ALIKE)
    lists, _ = rank_users(
        posterior, users, Question(N_ITEMS, "thompson-items", False, None, seed=7)
    )
    # Whole lists: those of the draws, and none besides.
    orders = np.argsort(-scores_by_expected_rows(posterior, first), axis=1, kind="stable")
    taken = (lists[:, None] == orders).all(2)
    assert len(np.unique(orders, axis=0)) == N_DRAWS and (taken.sum(1) == 1).all()
    assert stats.chisquare(taken.sum(0)).pvalue > 1e-4
    # So items come first by that law, which is not the one of "thompson".
    share = first_by_expected_rows(posterior, first)
    assert (share > 0).sum() > 1 and p_value(lists[:, 0], share) > 1e-4
    drawn, _ = rank_users(posterior, users, Question(1, "thompson", False, None, seed=7))
    counts = np.bincount(drawn[:, 0], minlength=N_ITEMS)
    assert counts[share == 0].sum() > 0 or p_value(drawn[:, 0], share) < 1e-9


def test_one_user_asked_with_many_seeds():
    posterior = alike("items")
    truth = best_probabilities(posterior, 4)
    chosen = np.concatenate(
        [
            rank_users(posterior, np.array([4]), Question(1, "thompson", False, None, seed=s), 1)[0]
            for s in range(600)
        ]
    )
    assert p_value(chosen[:, 0], truth) > 1e-4


def test_picks_are_uniform_and_normal():
    """4,000 users: counts of 4 draws, means and squares of 3 normals; 5 standard deviations."""
    picks = [thompson_pick(0, user, 4, 3) for user in range(4000)]
    counts = np.bincount([pick.draw for pick in picks], minlength=4)
    assert np.abs(counts - 1000).max() < 5 * 28
    noise = np.array([pick.noise for pick in picks])
    assert np.abs(noise.mean(0)).max() < 5 / 4000**0.5
    assert np.abs((noise**2).mean(0) - 1).max() < 5 * (2 / 4000) ** 0.5
    assert np.array_equal(thompson_pick(0, 17, 4, 3).noise, picks[17].noise)
    assert not np.array_equal(thompson_pick(1, 17, 4, 3).noise, picks[17].noise)
