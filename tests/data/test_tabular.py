"""Results go back into pandas, polars and Arrow, show themselves in notebooks, and are short."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bayesmf import BayesianMF, Gibbs, InputError
from problems import planted


@pytest.fixture(scope="module", params=["numbers", "names"])
def model(request):
    user, item, rating = planted(30, 20, 400)
    if request.param == "names":
        user, item = [f"<{u}>" for u in user], [f"film & {i}" for i in item]
    return BayesianMF(2, sampler=Gibbs(epochs=8), random_state=0).fit((user, item, rating))


@pytest.fixture(scope="module")
def results(model):
    users, items = model.user_ids_.ids[:15], model.item_ids_.ids[:15]
    return {
        "predictions": model.predict_table(users, items, level=0.8),
        "one": model.recommend(users[0], 3),
        "many": model.recommend_many(users, 3, level=0.9),
        "without intervals": model.recommend_many(users, 3),
        "scores": model.evaluate((users, items, np.linspace(1, 5, 15))),
    }


COLUMNS = {
    "predictions": ["user", "item", "mean", "std", "low", "high", "known"],
    "one": ["item", "mean", "std", "low", "high"],
    "many": ["user", "rank", "item", "mean", "std", "low", "high"],
    "without intervals": ["user", "rank", "item", "mean", "std"],
}
ROWS = {"predictions": 15, "one": 3, "many": 45, "without intervals": 45, "scores": 1}


@pytest.mark.parametrize("name", ROWS)
def test_every_table_says_the_same(results, name):
    result = results[name]
    frames = [
        result.to_pandas(),
        result.to_polars().to_pandas(),
        result.to_arrow().to_pandas(),
        pd.DataFrame(result),
    ]
    if not isinstance(result, list):  # a list is a list to them
        frames += [pl.DataFrame(result).to_pandas(), pa.table(result).to_pandas()]
    for frame in frames:
        assert len(frame) == ROWS[name]
        assert list(frame.columns) == COLUMNS.get(name, list(frames[0].columns))
        for column in frame.columns:
            assert frame[column].tolist() == frames[0][column].tolist()


def test_tables_hold_what_the_arrays_hold(model, results):
    many, frame = results["many"], results["many"].to_pandas()
    assert len(many) == 45
    assert frame["item"].tolist() == many.items.ravel().tolist()
    assert frame["user"].tolist() == np.repeat(many.users, 3).tolist()
    assert frame["high"].tolist() == many.high.ravel().tolist()
    predictions = results["predictions"]
    mean, std = model.predict(predictions.users, predictions.items, return_std=True)
    assert np.array_equal(predictions.mean, mean) and np.array_equal(predictions.std, std)
    low, _ = model.predict_interval(predictions.users, predictions.items, 0.8)
    assert np.array_equal(predictions.low, low) and predictions.known.all()


def test_users_with_nothing_left_have_no_rows():
    everything = [(u, i, float(1 + (u + i) % 5)) for u in range(4) for i in range(5)]
    model = BayesianMF(1, sampler=Gibbs(epochs=4), random_state=0).fit(everything[:-1])
    found = model.recommend_many(n=2)
    assert found.to_polars().rows() == [(3, 1, 4, *found.to_polars().rows()[0][3:])]
    assert len(model.recommend(0)) == 0 and len(model.recommend(0).to_pandas()) == 0


@pytest.mark.parametrize("name", ROWS)
def test_notebooks_show_a_small_table(results, name):
    text = results[name]._repr_html_()
    assert text.count("<tr>") == 1 + min(ROWS[name], 10)
    assert ("more rows" in text) == (ROWS[name] > 10)
    assert "<0>" not in text and "film & " not in text  # escaped


def test_reprs_are_of_four_digits(results):
    scores = repr(results["scores"])
    assert scores.startswith("Scores(n=15, rmse=") and len(scores) < 220
    numbers = [part.split("=")[1] for part in repr(results["one"][0]).rstrip(")").split(", ")[-4:]]
    assert all(len(number.split(".")[1]) == 4 for number in numbers)
    assert repr(results["many"]) == "Recommendations(45 items for 15 users)"
    assert repr(results["predictions"]) == "Predictions(15 pairs, intervals of 80%)"


def test_libraries_that_are_missing_are_named(results, monkeypatch):
    import sys

    for library, method in (("pandas", "to_pandas"), ("pyarrow", "to_arrow")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InputError, match=f"{library} is not installed.*to_polars"):
            getattr(results["many"], method)()
