"""LensKit: a scorer for its pipelines, `BayesianMFScorer`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel

from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF

__all__ = ["BayesianMFConfig", "BayesianMFScorer"]


class BayesianMFConfig(BaseModel, extra="forbid"):
    """Settings of `BayesianMFScorer`: those of `BayesianMF` that studies vary.

    Parameters
    ----------
    n_factors : int, optional
        Number of latent factors; by default from the data.
    target : {"fast", "balanced", "accurate"}
        How far to sample.
    prior : {"auto", "gamma", "wishart", "wishart-bias"}
        Prior of the rows.
    noise_by : {"auto", "user", "item", "both"} or None
        Sides whose rows have their own noise.
    max_seconds : float, optional
        Stop sampling after this many seconds.
    max_draws : int, optional
        Most draws to keep.
    prefer_stored : bool
        Answer known users from the training data, even if a query has their history.
    """

    n_factors: int | None = None
    target: Literal["fast", "balanced", "accurate"] = "balanced"
    prior: Literal["auto", "gamma", "wishart", "wishart-bias"] = "auto"
    noise_by: Literal["auto", "user", "item", "both"] | None = "auto"
    max_seconds: float | None = None
    max_draws: int | None = None
    prefer_stored: bool = False


class BayesianMFScorer(Component[ItemList], Trainable):
    """Score items by the expected rating, with the field `std` for its uncertainty.

    A query with rated history items is answered from these ratings, exactly and without a refit,
    for users in the training data and others. A query with an id alone is answered from the
    training data. Unknown users and items get the prior's mean.

    Attributes
    ----------
    config : BayesianMFConfig
        The settings.
    model_ : BayesianMF
        The fitted model.
    """

    config: BayesianMFConfig
    model_: BayesianMF

    def train(self, data: Dataset, options: TrainingOptions | None = None) -> None:
        """Fit the model to the attribute "rating" of a data set; `options.rng` gives the seed."""
        options = TrainingOptions() if options is None else options
        if hasattr(self, "model_") and not options.retrain:
            return
        if "rating" not in data.interactions().attribute_names:
            raise InputError("BayesianMFScorer needs ratings: the data set has none")
        cells = data.interaction_matrix(format="scipy", layout="coo", field="rating")
        ids = np.asarray(data.users.ids())[cells.row], np.asarray(data.items.ids())[cells.col]
        settings = self.config.model_dump(exclude={"prefer_stored"})
        seed = int(options.random_generator().integers(2**31))
        model = BayesianMF(**settings, random_state=seed, progress=False)
        self.model_ = model.fit((*ids, np.asarray(cells.data, np.float64)))

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Score items for a user id, for rated items, or for both.

        Returns the items with scores and the field `std`, the standard deviation of a new rating.
        """
        asked = RecQuery.create(query)
        if not len(items):
            return ItemList(items, scores=np.empty(0), std=np.empty(0))
        known = asked.user_id is not None and asked.user_id in self.model_.user_ids_
        history = None if known and self.config.prefer_stored else asked.history_items
        ratings = _ratings(self.model_, history)
        if ratings is None and not known:
            ratings = {}  # an unknown person: predict from the prior
        user = asked.user_id if ratings is None else None
        mean, std, _ = self.model_.predict(
            user, items.ids(), ratings=ratings, return_std=True, return_known=True
        )
        return ItemList(items, scores=mean, std=std)


def _ratings(model: BayesianMF, history: ItemList | None) -> dict[Any, float] | None:
    """Ratings of a query for known items; None if it has no ratings."""
    given = None if history is None else history.field("rating")
    if history is None or given is None:
        return None
    known = model.item_ids_.lookup(history.ids()) >= 0
    ids, values = np.asarray(history.ids())[known], np.asarray(given)[known]
    return dict(zip(ids.tolist(), values.tolist(), strict=True))
