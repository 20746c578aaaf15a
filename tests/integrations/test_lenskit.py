"""LensKit: a pipeline with our scorer, for known users and for ratings in the query."""

import numpy as np
import pytest

from bayesmf import InputError, Synthetic

pytest.importorskip("lenskit")

from lenskit import predict, recommend, score
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.pipeline import topn_pipeline
from lenskit.training import TrainingOptions

from bayesmf.integrations.lenskit import BayesianMFConfig, BayesianMFScorer

TRAIN, TEST = Synthetic(60, 40, 1200, random_state=1).ratings().split(0.1, random_state=0)
SETTINGS = BayesianMFConfig(n_factors=4, target="fast", prefer_stored=True)


def interactions(ratings):
    return ratings.to_pandas().rename(columns={"user": "user_id", "item": "item_id"})


DATA = from_interactions_df(interactions(TRAIN))
ITEMS = ItemList(item_ids=[3, 4, 5])


def trained(settings=SETTINGS):
    pipeline = topn_pipeline(BayesianMFScorer, settings, predicts_ratings="raw", n=5)
    pipeline.train(DATA, TrainingOptions(rng=7))
    return pipeline, pipeline.node("scorer").component


@pytest.fixture(scope="module")
def made():
    return trained()


def test_scores_are_those_of_predict(made):
    pipeline, scorer = made
    found = predict(pipeline, 1, ITEMS)
    mean, std = scorer.model_.predict(1, ITEMS.ids(), return_std=True)
    np.testing.assert_allclose(found.scores(), mean, rtol=1e-6)
    np.testing.assert_allclose(found.field("std"), std, rtol=1e-6)
    best = recommend(pipeline, 1)
    assert list(best.ids()) == [one.item for one in scorer.model_.recommend(1, n=5)]
    assert len(scorer(1, ItemList(item_ids=[]))) == 0


def test_ratings_in_a_query(made):
    pipeline, scorer = made
    liked = ItemList(item_ids=[7, 8, 99_999], rating=[5.0, 1.0, 3.0])
    for query in (RecQuery(history_items=liked), RecQuery(10**6, history_items=liked)):
        found = score(pipeline, query, ITEMS).scores()
        expected = scorer.model_.predict(None, ITEMS.ids(), ratings={7: 5.0, 8: 1.0})
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Nothing known of the person, or of the item: the prior.
    prior = score(pipeline, RecQuery(10**6), ItemList(item_ids=[3, 99_999])).scores()
    assert np.isfinite(prior).all()


def test_history_is_used_unless_stored_rows_are_preferred(made):
    by_history = trained(SETTINGS.model_copy(update={"prefer_stored": False}))[1]
    row = DATA.user_row(1)
    same = by_history(RecQuery(1, history_items=row), ITEMS).scores()
    stored = made[1](RecQuery(1, history_items=row), ITEMS).scores()
    # The same ratings and the same draws of items; the user's own noise is drawn again.
    np.testing.assert_allclose(same, stored, atol=0.05)
    turned = ItemList(item_ids=row.ids(), rating=6 - row.field("rating"))
    assert (
        np.abs(by_history(RecQuery(1, history_items=turned), ITEMS).scores() - stored).max() > 0.1
    )
    np.testing.assert_array_equal(
        made[1](RecQuery(1, history_items=turned), ITEMS).scores(), stored
    )


def test_ratings_are_needed():
    only_pairs = from_interactions_df(interactions(TRAIN)[["user_id", "item_id"]])
    with pytest.raises(InputError, match="needs ratings"):
        BayesianMFScorer().train(only_pairs)
