"""scikit-learn's own tools on the estimator: clone, pipelines, cross-validation, grid search."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError as TheirNotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from bayesmf import SGD, SGLD, BayesianMF, Cluster, Gibbs, InputError, NotFittedError, Ratings
from problems import planted

FAST = Gibbs(epochs=8)


@pytest.fixture(scope="module")
def data():
    user, item, rating = planted(40, 30, 700)
    return np.column_stack([user, item]), rating


def test_pairs_and_ratings_are_what_triples_are(data):
    X, y = data
    triple = BayesianMF(3, sampler=FAST, random_state=0).fit((X[:, 0], X[:, 1], y))
    for pairs in (X, X.tolist(), pd.DataFrame(X, columns=["user", "item"])):
        model = BayesianMF(3, sampler=FAST, random_state=0).fit(pairs, y)
        assert np.array_equal(model.predict(pairs), triple.predict(X[:, 0], X[:, 1]))
    # Columns go by their names where they have any.
    turned = pd.DataFrame(X[:, ::-1], columns=["item", "user"])
    assert np.array_equal(model.predict(turned), triple.predict(X))
    named = pd.DataFrame(X, columns=["who", "what"])
    given = {"user": "who", "item": "what"}
    assert np.array_equal(model.predict(named, columns=given), triple.predict(X))
    with pytest.raises(InputError, match="columns="):
        model.predict(named)


def test_a_validation_set_is_no_y(data):
    X, y = data
    triple = (X[:, 0], X[:, 1], y)
    for other in (triple, Ratings(*triple), pd.DataFrame(X), "held-out.csv"):
        with pytest.raises(InputError, match="pass a validation set as validation="):
            BayesianMF(3).fit(triple, other)
    model = BayesianMF(3, sampler=FAST, random_state=0).fit(X[100:], y[100:], validation=(X, y))
    assert model.report_["validation_rmse"] > 0
    with pytest.raises(InputError, match="y was given too"):
        BayesianMF(3).fit(np.column_stack([X, y]), y)


def test_the_score_is_the_coefficient_of_determination(data):
    X, y = data
    model = BayesianMF(3, sampler=FAST, random_state=0).fit(X[100:], y[100:])
    assert model.score(X[:100], y[:100]) == pytest.approx(r2_score(y[:100], model.predict(X[:100])))
    assert model.score(X[:1], y[:1]) in (0.0, 1.0)


def test_clone_tags_and_fittedness(data):
    X, y = data
    model = BayesianMF(3, sampler=SGD(epochs=3), random_state=0)
    assert repr(clone(model)) == repr(model)
    assert is_regressor(model) and get_tags(model).estimator_type == "regressor"
    with pytest.raises(TheirNotFittedError):
        check_is_fitted(model)
    for error in (TheirNotFittedError, NotFittedError):
        with pytest.raises(error, match="call fit"):
            model.predict(X)
    check_is_fitted(model.fit(X, y))


def test_pipeline_and_cross_validation(data):
    X, y = data
    model = BayesianMF(3, sampler=FAST, random_state=0)
    pipeline = Pipeline([("same", FunctionTransformer()), ("model", model)])
    assert np.array_equal(pipeline.fit(X, y).predict(X), clone(model).fit(X, y).predict(X))
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(model, X, y, cv=folds)
    errors = cross_val_score(model, X, y, cv=folds, scoring="neg_root_mean_squared_error")
    assert scores.shape == (3,) and (scores < 1).all() and (errors < 0).all()


def test_grid_search_over_factors_and_settings_of_the_sampler(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["user", "item"])
    grid = {"n_factors": [2, 4], "sampler__epochs": [4, 6]}
    search = GridSearchCV(
        BayesianMF(sampler="gibbs", random_state=0), grid, cv=2, error_score="raise"
    ).fit(frame, y)
    assert set(search.best_params_) == set(grid)
    best = search.best_estimator_
    assert best.sampler == Gibbs(epochs=search.best_params_["sampler__epochs"])
    assert best.report_["factors"] == search.best_params_["n_factors"]
    samplers = {"sampler": [SGD(epochs=3), SGLD(epochs=3)]}
    search = GridSearchCV(BayesianMF(2, random_state=0), samplers, cv=2, error_score="raise")
    assert type(search.fit(X, y).best_estimator_.sampler) in (SGD, SGLD)


def test_names_that_are_none_are_answered_with_the_nearest():
    cases = {
        "n_factor": "'n_factors'",
        "sampler__n_chain": "'sampler__n_chains'",
    }
    for name, near in cases.items():
        with pytest.raises(InputError, match=f"did you mean {near}"):
            BayesianMF(sampler="gibbs").set_params(**{name: 3})
    ratings = planted(20, 15, 100)
    for params, near in (
        ({"sampler": "gibs"}, "gibbs"),
        ({"target": "acurate"}, "accurate"),
        ({"prior": "wishart_bias"}, "wishart-bias"),
        ({"engine": "thread"}, "threads"),
    ):
        with pytest.raises(InputError, match=f"did you mean '{near}'"):
            BayesianMF(2, **params).fit(ratings)
    model = BayesianMF(2, sampler=FAST, random_state=0).fit(ratings)
    with pytest.raises(InputError, match="did you mean 'thompson'"):
        model.recommend(1, policy="tompson")


def test_a_target_that_would_be_passed_over_is_refused():
    for sampler in (Gibbs(epochs=5), SGLD(), "sgd"):
        with pytest.raises(InputError, match="target='accurate' does nothing here"):
            BayesianMF(2, sampler=sampler, target="accurate").fit(planted(20, 15, 100))


def test_repr_has_what_differs_from_the_defaults():
    model = BayesianMF(8, sampler=Gibbs(epochs=20), engine=Cluster(retries=1), random_state=1)
    said = "n_factors=8, sampler=Gibbs(epochs=20), engine=Cluster(retries=1), random_state=1"
    assert repr(model) == f"BayesianMF({said})"


def test_a_model_is_a_small_table_in_a_notebook():
    model = BayesianMF(2, sampler=Gibbs(epochs=4), max_draws=3, random_state=0)
    assert "not fitted" in model._repr_html_()
    model.fit(([1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]))
    html = model._repr_html_()
    assert "<td>5 by 3 users of 3 items</td>" in html and "<td>converged</td>" in html
    odd = BayesianMF(prior="<b>&")
    assert "&lt;b&gt;&amp;" in odd._repr_html_()
