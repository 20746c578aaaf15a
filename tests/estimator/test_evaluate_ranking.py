"""`evaluate_ranking`: whose lists are scored, on what, and beside what."""

import warnings

import pytest

from bayesmf import BayesianMF, DataWarning, Gibbs, InputError, Synthetic
from bayesmf.diagnostics.ranking import MEASURES
from bayesmf.estimator import evaluating
from plain_ranking import library_means, plain_means

K, RELEVANT = 5, 3.5


@pytest.fixture(scope="module")
def split():
    return Synthetic(60, 40, 900, stars=True, random_state=1).ratings().split(0.3)


@pytest.fixture(scope="module")
def model(split):
    return BayesianMF(3, sampler=Gibbs(epochs=12), random_state=0).fit(split[0])


def lists(model, split, ranked_by):
    """Lists and liked items of all users who like something, by ids and plain loops."""
    train, test = split
    known, rated, liked = set(train.items.tolist()), {}, {}
    for row in train:
        rated.setdefault(row.user, set()).add(row.item)
    for row in test:
        if row.rating >= RELEVANT and row.item in known:
            liked.setdefault(row.user, set()).add(row.item)
    return [(ranked_by(user, rated.get(user, set())), items) for user, items in liked.items()]


def as_dict(found):
    return {name: getattr(found, name) for name in MEASURES}


def by_model(model):
    return lambda user, rated: [found.item for found in model.recommend(user, K)]


def by_popularity(train):
    def ranked(user, rated):
        counts = {}
        for item in train.items.tolist():
            counts[item] = counts.get(item, 0) + 1
        ids = train.compact().item_ids
        left = sorted(set(counts) - rated, key=lambda item: (-counts[item], ids.index(item)))
        return left[:K]

    return ranked


def test_scores_are_those_of_the_lists_that_are_recommended(model, split):
    found = model.evaluate_ranking(split[1], k=K, relevant=RELEVANT)
    made = lists(model, split, by_model(model)), lists(model, split, by_popularity(split[0]))
    assert found.users == len(made[0]) > 40
    for scores, listed in zip((found.model, found.popularity), made, strict=True):
        assert as_dict(scores) == pytest.approx(plain_means(listed, K), rel=1e-9)
        shown = {item for ranked, _ in listed for item in ranked}
        assert scores.coverage == pytest.approx(len(shown) / len(model.item_ids_))
    assert as_dict(found.model) != as_dict(found.popularity)


def test_scores_are_those_of_a_library_made_for_it(model, split):
    library = pytest.importorskip("pytrec_eval")
    found = model.evaluate_ranking(split[1], k=K, relevant=RELEVANT)
    for scores, ranked_by in (
        (found.model, by_model(model)),
        (found.popularity, by_popularity(split[0])),
    ):
        theirs = library_means(library, lists(model, split, ranked_by), K)
        assert as_dict(scores) == pytest.approx(theirs, rel=1e-9)


def test_blocks_change_nothing_and_are_counted(model, split, monkeypatch):
    whole = model.evaluate_ranking(split[1], k=K)
    monkeypatch.setattr(evaluating, "TOGETHER", 7)
    done = []
    parts = model.evaluate_ranking(split[1], k=K, progress=done.append)
    assert as_dict(parts.model) == pytest.approx(as_dict(whole.model), rel=1e-12)
    assert as_dict(parts.popularity) == pytest.approx(as_dict(whole.popularity), rel=1e-12)
    assert sum(done) == whole.users and max(done) == 7


def test_the_policy_is_passed_on(model, split):
    by = {
        seed: model.evaluate_ranking(split[1], k=K, policy="thompson", random_state=seed)
        for seed in (1, 2)
    }
    again = model.evaluate_ranking(split[1], k=K, policy="thompson", random_state=1)
    assert again == by[1] and by[1].model != by[2].model
    assert by[1].policy == "thompson" and by[1].popularity == by[2].popularity
    with pytest.raises(InputError, match="policy 'best' is none of"):
        model.evaluate_ranking(split[1], policy="best")


@pytest.fixture(scope="module")
def small():
    """Item 7 has most ratings, then 8; user 1 has rated both, user 3 one."""
    train = [1, 1, 2, 2, 3, 4, 4], [7, 8, 7, 9, 7, 8, 10], [4.0, 1.0, 5.0, 3.0, 2.0, 5.0, 4.0]
    return BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(train)


def test_who_is_left_out_and_why(small):
    users = [1, 1, 2, 3, 4, 5, 5]
    items = [9, 10, 10, 99, 8, 7, 99]
    values = [4.0, 3.0, 3.0, 5.0, 5.0, 5.0, 5.0]
    with pytest.warns(DataWarning) as told:
        found = small.evaluate_ranking((users, items, values), k=2)
    # User 1 likes 9; user 5, unseen, likes 7 of the items that are known.
    assert (found.users, found.unseen_users, found.items) == (2, 1, 4)
    assert (found.no_relevant, found.unknown_items, found.learnt) == (1, 1, 1)
    assert found.left_out == 3
    # Popularity has 9 then 10 left for user 1, and begins with 7 for a stranger.
    assert found.popularity.ndcg == found.popularity.mrr == found.popularity.recall == 1.0
    assert found.popularity.precision == 0.5
    sentences = [str(one.message) for one in told]
    assert any("1 of 7 ratings are in the training data" in one for one in sentences)
    assert any("the user is not in the training data" in one for one in sentences)


def test_longer_lists_than_there_are_items(small):
    found = small.evaluate_ranking(([1, 3], [9, 10], [5.0, 5.0]), k=1_000_000_000_000)
    assert (found.model.recall, found.model.coverage) == (1.0, 0.75)  # both have rated 7
    assert found.model.precision == pytest.approx(1e-12)


def test_ratings_are_compared_in_their_precision(small):
    found = small.evaluate_ranking(([1, 2], [9, 8], [4.1, 4.0]), relevant=4.1)
    assert (found.users, found.no_relevant) == (1, 1)


def test_unseen_users_have_the_lists_that_recommend_gives_them(small):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        first = small.recommend("stranger", 1)[0].item
        found = small.evaluate_ranking((["a", "b"], [first, first], [5.0, 5.0]), k=1)
    assert found.users == found.unseen_users == 2
    assert found.model.hit_rate == 1.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, not 0"),
        ({"k": 2.5}, "k must be a whole number"),
        ({"relevant": 6}, "no held-out rating is 6 or more, the highest is 5: give a lower"),
        ({"relevant": float("nan")}, "relevant must be a number, not nan"),
        ({"relevant": "high"}, "relevant must be a number, not 'high'"),
    ],
)
def test_bad_arguments(small, options, says):
    with pytest.raises(InputError, match=says):
        small.evaluate_ranking(([1, 2], [9, 8], [5.0, 4.0]), **options)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (99, "1 who liked only items that are not in the training data"),
        (8, "1 who liked only what they"),
    ],
)
def test_nobody_left(small, item, says):
    with pytest.raises(InputError, match=f"no user of the held-out ratings is left .*{says}"):
        small.evaluate_ranking(([4], [item], [5.0]))
