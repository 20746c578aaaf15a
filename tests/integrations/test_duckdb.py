"""DuckDB: relations are tables of ratings and of pairs, and results are tables of its queries."""

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, Ratings, Synthetic

duckdb = pytest.importorskip("duckdb")

RATINGS = Synthetic(60, 40, 1200, random_state=1).ratings()


@pytest.fixture
def database():
    found = RATINGS.to_polars()  # found by its name in the query
    with duckdb.connect() as made:
        made.execute("create table ratings as select * from found")
        assert len(found) == 1200
        yield made


@pytest.fixture(scope="module")
def model():
    return BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(RATINGS)


def test_a_relation_is_a_table_of_ratings(database, model):
    relation = database.sql("select * from ratings order by item")
    again = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(relation)
    pairs = database.sql("select user, item from ratings limit 9")
    np.testing.assert_array_equal(again.predict(pairs), model.predict(pairs))
    assert len(Ratings.from_data(database.table("ratings"))) == 1200
    named = database.sql(
        "select 'u' || user as customer, item, cast(round(rating) as decimal(4, 1)) as rating"
        " from ratings where item <= 20"
    )
    kept = Ratings.from_data(named, columns={"user": "customer"})
    assert kept.users[0].startswith("u") and kept.items.max() == 20
    assert (kept.rating == np.round(kept.rating)).all()


def test_results_are_tables_of_queries(database, model):
    best = model.recommend_many([1, 2, 3], n=4)
    arrow = best.to_arrow()
    ((count, least),) = database.sql("select count(*), min(rank) from best").fetchall()
    assert (count, least) == (12, 1)
    top = database.sql("select item from arrow where user = 2 order by rank").fetchall()
    assert [item for (item,) in top] == best.items[1].tolist() == arrow["item"].to_pylist()[4:8]
    predictions = model.predict_table(database.sql("select user, item from ratings"))
    joined = "select avg(abs(rating - mean)) from ratings join predictions using (user, item)"
    error = np.abs(RATINGS.rating - model.predict(RATINGS)).mean()
    assert database.sql(joined).fetchall()[0][0] == pytest.approx(error)
    assert len(predictions) == 1200


@pytest.mark.parametrize(("query", "told"), [
    ("select user, item, error('on purpose') as rating from ratings", "on purpose"),
    ("select user, item, null::double as rating from ratings", "rating is missing"),
    ("select user, item from ratings", "known name of rating"),
    ("select user::hugeint as user, item, rating from ratings", "ids are integers or strings"),
])  # fmt: skip
def test_queries_that_cannot_be_used(query, told, database):
    with pytest.raises(InputError, match=told):
        Ratings.from_data(database.sql(query))
