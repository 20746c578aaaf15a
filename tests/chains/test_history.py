"""The history of a fit, in model folders: it comes back as it was, and old folders are read."""

import numpy as np
import pytest

from bayesmf import SGD, BayesianMF, Gibbs, InputError
from bayesmf.chains.callbacks import HISTORY_COLUMNS, history_array, history_events
from forged import file_contents
from problems import planted


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(
    "sampler", [Gibbs(n_chains=2, epochs=6, burn_in=2), SGD(epochs=3)], ids=["gibbs", "sgd"]
)
def test_it_comes_back_as_it_was(tmp_path, sampler, followed):
    triple = planted(n_users=20, n_items=15, n_ratings=200)
    model = BayesianMF(2, sampler=sampler, random_state=0)
    model.fit(triple, validation=triple if followed else None)
    model.save(tmp_path / "m")
    again = BayesianMF.load(tmp_path / "m").history_
    assert model.history_
    assert again == model.history_
    for old, new in zip(model.history_, again, strict=True):
        assert {k: type(v) for k, v in old.items()} == {k: type(v) for k, v in new.items()}


def test_it_is_an_array_and_not_in_the_header(tmp_path):
    triple = planted(n_users=20, n_items=15, n_ratings=200)
    BayesianMF(2, sampler=SGD(epochs=40), random_state=0).fit(triple).save(tmp_path / "m")
    arrays, meta = file_contents(tmp_path / "m")
    assert arrays["history"].shape == (40, len(HISTORY_COLUMNS))
    assert meta["history"] == list(HISTORY_COLUMNS)


def test_another_version_may_have_other_columns():
    assert history_events(["epoch", "speed"], np.array([[2.0, np.nan]])) == [
        {"epoch": 2, "speed": None}
    ]
    assert history_array([]).shape == (0, len(HISTORY_COLUMNS))


def test_a_history_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        history_events(["epoch"], np.ones((3, 2)))
