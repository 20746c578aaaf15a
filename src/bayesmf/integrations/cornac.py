"""Cornac: `BayesianMFRecommender`, a model for its experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
from cornac.models import Recommender
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF

__all__ = ["BayesianMFRecommender"]


class BayesianMFRecommender(Recommender):
    """`BayesianMF` as a recommender of Cornac; scores are expected ratings.

    Unknown users and items are predicted from the prior, as by `BayesianMF.predict`.

    Parameters
    ----------
    model : BayesianMF, optional
        Settings, of which a copy is fitted. Set its `random_state`.
    name : str
        Name in Cornac's tables.
    trainable : bool
        False keeps the fitted model, as in Cornac.
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    fitted_ : BayesianMF
        The fitted model, whose ids are Cornac's numbers of users and items (`uid_map`, `iid_map`).
    """

    def __init__(
        self,
        model: BayesianMF | None = None,
        name: str = "BayesianMF",
        trainable: bool = True,
        verbose: bool = False,
    ) -> None:
        super().__init__(name=name, trainable=trainable, verbose=verbose)
        if model is not None and not isinstance(model, BayesianMF):
            raise InputError(f"model must be a BayesianMF, not a {type(model).__name__}")
        self.model = BayesianMF() if model is None else model
        self._answers: dict[tuple[int, int], float] = {}

    def fit(self, train_set: Any, val_set: Any = None) -> BayesianMFRecommender:
        """Fit to a data set of Cornac; the RMSE of `val_set` is monitored."""
        super().fit(train_set, val_set)
        self._answers = {}
        if not self.trainable:
            if not hasattr(self, "fitted_"):
                raise InputError("trainable=False needs a fitted model: leave it out")
            return self
        copy = BayesianMF(**self.model.get_params(deep=False))
        held_out = None if val_set is None or not val_set.num_ratings else val_set.uir_tuple
        self.fitted_ = copy.fit(train_set.uir_tuple, validation=held_out, progress=self.verbose)
        return self

    def transform(self, test_set: Any) -> None:
        """Predict all pairs of a test set at once, before Cornac asks for them one by one."""
        users, items, _ = test_set.uir_tuple
        means = self._predict(users, items)
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        self._answers = dict(zip(pairs, means.tolist(), strict=True))

    def score(self, user_idx: int, item_idx: int | None = None) -> Any:
        """Expected rating of an item, or of all items, by Cornac's numbers of users and items."""
        if item_idx is None:
            return self._predict(int(user_idx), np.arange(self.num_items))
        asked = int(user_idx), int(item_idx)
        if asked in self._answers:
            return self._answers[asked]
        return float(self._predict(asked[0], np.array([asked[1]]))[0])

    def _predict(self, users: Any, items: Any) -> NDArray[np.float64]:
        return np.asarray(self.fitted_.predict(users, items, return_known=True)[0])
