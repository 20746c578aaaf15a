"""Scores of ranked lists: by their definitions, and by trec_eval."""

import json
from importlib import import_module

import numpy as np
import pytest

from bayesmf import InputError
from bayesmf.diagnostics.ranking import MEASURES, ListScorer, ListScores, RankingScores, hits
from plain_ranking import library_means, plain_means

# Liked items on and off the list, more of them than places, a short list, an empty one.
FIXED = [
    ([3, 1, 4, 5, 9, 2, 6], {1, 5, 7}),
    ([2, 7, 1, 8], {0, 6}),
    ([5, 0, 8, 3, 6, 7, 9], {0, 3, 5, 6, 7, 8, 9}),
    ([4, 2], {2}),
    ([], {2, 3}),
    ([9, 8, 7, 6, 5, 4, 3], {3, 4}),
]
# Of pytrec-eval-terrier 0.5.11, for where it is not installed; as a script, this file prints them.
GOLDEN = {
    1: {
        "ndcg": 0.16666666666666666, "recall": 0.023809523809523808,
        "precision": 0.16666666666666666, "mrr": 0.16666666666666666,
        "map": 0.023809523809523808, "hit_rate": 0.16666666666666666,
    },
    5: {
        "ndcg": 0.3548531685063117, "recall": 0.3968253968253968,
        "precision": 0.26666666666666666, "mrr": 0.3333333333333333,
        "map": 0.25793650793650796, "hit_rate": 0.5,
    },
}  # fmt: skip


def lists_at_random(n, k, n_items, seed):
    """Lists of up to k items and sets of liked ones."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.permutation(n_items)[: rng.integers(0, k + 1)].tolist(),
            set(rng.permutation(n_items)[: rng.integers(1, n_items)].tolist()),
        )
        for _ in range(n)
    ]


def scores(lists, k, n_items, parts=1):
    """What is told of lists, added in some parts."""
    scorer = ListScorer(k, n_items)
    for part in np.array_split(np.arange(len(lists)), parts):
        ranked = np.full((len(part), k), -1, np.int64)
        for row, u in zip(ranked, part, strict=True):
            row[: len(lists[u][0])] = lists[u][0][:k]
        liked = [sorted(lists[u][1]) for u in part]
        starts = np.cumsum([0, *map(len, liked)])
        scorer.add(ranked, starts, np.array([item for one in liked for item in one], np.int64))
    return scorer.result()


def as_dict(found):
    return {name: getattr(found, name) for name in MEASURES}


@pytest.mark.parametrize("k", [1, 3, 10])
def test_scores_are_those_of_the_definitions(k):
    lists = [(ranked[:k], liked) for ranked, liked in lists_at_random(200, 10, 30, seed=k)]
    assert as_dict(scores(lists, k, 30)) == pytest.approx(plain_means(lists, k), rel=1e-12)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_scores_are_those_of_trec_eval(k):
    library = pytest.importorskip("pytrec_eval")
    for lists in (FIXED, lists_at_random(200, 10, 30, seed=k)):
        lists = [(ranked[:k], liked) for ranked, liked in lists]
        theirs = library_means(library, lists, k)
        assert as_dict(scores(lists, k, 30)) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("k", [1, 5])
def test_scores_are_those_that_trec_eval_gave(k):
    lists = [(ranked[:k], liked) for ranked, liked in FIXED]
    assert as_dict(scores(lists, k, 10)) == pytest.approx(GOLDEN[k], rel=1e-9)


def test_blocks_of_users_add_up():
    lists = lists_at_random(50, 6, 20, seed=1)
    whole, parts = scores(lists, 6, 20), scores(lists, 6, 20, parts=7)
    assert as_dict(whole) == pytest.approx(as_dict(parts), rel=1e-12)
    shown = {item for ranked, _ in lists for item in ranked}
    assert whole.coverage == parts.coverage == len(shown) / 20
    each = [scores([one], 6, 20).ndcg for one in lists]
    assert whole.ndcg_se == pytest.approx(np.std(each, ddof=1) / 50**0.5)


def test_a_hit_is_an_item_of_the_same_user():
    ranked = np.array([[0, 1, -1], [1, 0, 2]])
    starts, liked = np.array([0, 1, 3]), np.array([1, 2, 1])
    assert hits(ranked, starts, liked).tolist() == [[False, True, False], [True, False, True]]


def test_what_is_told_is_json_and_a_table():
    own, common = (ListScores(0.1 * n, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7) for n in (1, 2))
    found = RankingScores(10, 3.5, "mean", 8, 40, own, common, no_relevant=3, learnt=1)
    told = found.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert found.left_out == 4
    assert "left out: 3 without a rating of 3.5 or more, 1 who liked only" in found.who
    assert repr(found).startswith(
        "RankingScores(k=10, relevant=3.5, policy='mean', users=8, "
        "ndcg=0.1000 (popularity 0.2000), recall="
    )
    assert [row.ndcg for row in found] == [0.1, 0.2]
    assert "3.5 or more" in found._repr_html_() and "popularity" in found._repr_html_()


def test_no_lists_are_no_scores():
    with pytest.raises(InputError, match="no lists"):
        ListScorer(3, 10).result()


def main():
    """Print the golden values."""
    library = import_module("pytrec_eval")
    for k in (1, 5):
        print(k, library_means(library, [(ranked[:k], liked) for ranked, liked in FIXED], k))


if __name__ == "__main__":
    main()
