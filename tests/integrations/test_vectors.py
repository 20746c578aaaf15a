"""Vectors: inner products are means over draws; files have ids and vectors."""

import numpy as np
import polars as pl
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, Synthetic
from bayesmf.integrations.vectors import item_vectors, user_vectors, write_vectors

RATINGS = Synthetic(60, 40, 1200, random_state=1).ratings()


@pytest.fixture(scope="module")
def model():
    return BayesianMF(4, sampler=Gibbs(epochs=20, n_chains=2), random_state=0).fit(RATINGS)


def test_products_are_means_of_predictions(model):
    draws = len(model.posterior_.draws)
    for chosen in (1, 2, 5, draws):
        which = np.arange(1, chosen + 1) * draws // chosen - 1
        assert which[-1] == draws - 1 and len(set(which)) == chosen
        products = user_vectors(model, [1, 2], draws=chosen) @ item_vectors(model, draws=chosen).T
        items = model.item_ids_.ids
        each = [model.rows(users=[1, 2], draw=d) @ model.rows(items=items, draw=d).T for d in which]
        np.testing.assert_allclose(products, np.mean(each, axis=0), rtol=2e-6)
        assert item_vectors(model, [3], draws=chosen).shape == (1, 4 * chosen + 2)


def test_more_draws_agree_better_with_recommend(model):
    def shared(draws):
        scores = user_vectors(model, draws=draws) @ item_vectors(model, draws=draws).T
        best = model.recommend_many(model.user_ids_.ids, n=5, exclude_seen=False)
        rows = model.item_ids_.ids[np.argsort(-scores, axis=1)[:, :5]]
        return np.mean([len(set(a) & set(b)) for a, b in zip(rows, best.items, strict=True)]) / 5

    few, many = shared(1), shared(len(model.posterior_.draws))
    assert few + 0.1 < many and many > 0.9


def test_a_person_who_sends_ratings(model):
    found = (
        user_vectors(model, ratings={3: 5.0, 4: 1.0}, draws=30) @ item_vectors(model, draws=30).T
    )
    asked = model.predict(None, model.item_ids_.ids, ratings={3: 5.0, 4: 1.0})
    assert found.shape == (1, 40)
    assert np.corrcoef(found[0], asked)[0, 1] > 0.99


@pytest.mark.parametrize("ids", [[7, 8, 9], ["tea", "milk", "caf\u00e9"]], ids=["int", "str"])
def test_files_have_ids_and_vectors(ids, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    for name in ("a.parquet", "a.npz"):
        write_vectors(tmp_path / name, np.asarray(ids), np.zeros((3, 2)))
        write_vectors(tmp_path / name, ids, vectors)  # over what is there
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table.schema["vector"] == pl.Array(pl.Float32, 6) and table["id"].to_list() == ids
    np.testing.assert_array_equal(table["vector"].to_numpy(), vectors)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as kept:
        assert kept["ids"].tolist() == ids
        np.testing.assert_array_equal(kept["vectors"], vectors)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.parquet"]


def test_what_cannot_be_used(model, tmp_path):
    with pytest.raises(InputError, match="the model has 30 draws"):
        item_vectors(model, draws=31)
    with pytest.raises(InputError, match="draws"):
        user_vectors(model, draws=0)
    with pytest.raises(InputError, match="item 99 is not in the training data"):
        item_vectors(model, [99])
    for name, ids, vectors, said in (
        ("a.csv", [1], [[1.0]], r"ends in \.parquet or \.npz"),
        ("a.npz", [1, 2], [[1.0]], "a row for each of 2 ids"),
        ("a.npz", [0.5], [[1.0]], "integers or of strings"),
        ("a.npz", [{}], [[1.0]], "integers or of strings"),
        ("a.npz", [1, 2], [[1.0], [1.0, 2.0]], "rows of equal length"),
        ("a.npz", ["a"], [["x"]], "real numbers"),
        ("nowhere/a.npz", [1], [[1.0]], "nowhere"),
    ):
        with pytest.raises(InputError, match=said):
            write_vectors(tmp_path / name, ids, vectors)
    assert not list(tmp_path.iterdir())
