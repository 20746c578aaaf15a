"""BayesianMF: what it accepts, scikit-learn's habits, predictions, refusals, model folders."""

import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bayesmf import (
    SGD,
    SGLD,
    BayesianMF,
    DivergenceError,
    Gibbs,
    InputError,
    NotFittedError,
    Ratings,
)
from bayesmf.posterior.ranking import Question, rank_users
from contract import draws_digest
from forged import edit_meta
from posteriors import random_posterior
from problems import planted

QUICK = Gibbs(epochs=12, burn_in=4)


@pytest.fixture(scope="module")
def triple():
    return planted(n_users=40, n_items=30, n_ratings=600)


@pytest.fixture(scope="module")
def model(triple):
    return BayesianMF(2, sampler=QUICK, random_state=0).fit(triple)


def test_every_kind_of_input_gives_the_same_model(triple, model, tmp_path):
    user, item, rating = triple
    frame = pd.DataFrame({"user": user, "item": item, "rating": rating})
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    columns = {"user": user, "item": item, "rating": rating}
    for data in (
        frame,
        pl.DataFrame(columns),
        pa.table(columns),
        Ratings(*triple),
        tmp_path / "r.csv",
        str(tmp_path / "r.parquet"),
        np.column_stack([user, item, rating]),
        sp.coo_matrix((rating, (user, item))),
        sp.csr_array(sp.coo_array((rating, (user, item)))),
    ):
        again = BayesianMF(2, sampler=QUICK, random_state=0).fit(data)
        assert again.user_ids_.ids.tolist() == model.user_ids_.ids.tolist()
        assert np.allclose(again.predict(user, item), model.predict(user, item), atol=1e-3)


def test_scalars_and_arrays(model, triple):
    user, item = triple[0][:5], triple[1][:5]
    mean, std = model.predict(user, item, return_std=True)
    one = model.predict(user[0], item[0], return_std=True)
    assert one == (mean[0], std[0])
    low, high = model.predict_interval(user, item, level=0.5)
    assert np.all(low < high)
    assert model.predict_interval(user[0], item[0], level=0.5) == (low[0], high[0])
    assert np.all((mean >= triple[2].min()) & (mean <= triple[2].max()))


def test_one_user_with_many_items(model, triple):
    user, items = triple[0][0], triple[1][:4]
    both = model.predict([user] * 4, items)
    assert np.array_equal(model.predict(user, items), both)
    assert np.array_equal(model.predict_interval(user, items)[0].shape, (4,))
    assert np.array_equal(model.predict([user] * 3, items[0]), [both[0]] * 3)
    assert len(model.predict([], [])) == 0


def test_a_failed_fit_leaves_the_model_as_it_was(triple):
    model = BayesianMF(2, sampler=SGLD(epochs=5), random_state=0).fit(triple)
    before = model.predict(triple[0], triple[1])
    model.set_params(sampler__step_size=1e6)
    with pytest.raises(DivergenceError):
        model.fit((triple[0] + 9000, triple[1], triple[2]))
    assert np.array_equal(model.predict(triple[0], triple[1]), before)


def test_the_interval_is_the_mixtures(model, triple):
    """Quantiles against the mixture simulated: 1% of the width is allowed."""
    user, item = triple[0][:3], triple[1][:3]
    rows = model.user_ids_.lookup(user), model.item_ids_.lookup(item)
    (chunk,) = model.posterior_.chunks(*rows)
    rng = np.random.default_rng(0)
    t = rng.integers(len(chunk.mu), size=400_000)
    new = chunk.mu[t] + np.sqrt(chunk.var[t]) * rng.normal(size=(len(t), 3))
    low, high = model.predict_interval(user, item, level=0.8)
    assert np.allclose([low, high], np.quantile(new, [0.1, 0.9], 0), atol=0.01 * max(high - low))
    _, std = model.predict(user, item, return_std=True)
    assert np.allclose(std, new.std(0), rtol=0.01)


def ask_one(posterior, policy):
    rank_users(posterior, np.array([7]), Question(10, policy, True, 0.9))


@pytest.mark.parametrize("keep", ["items", "both"])
def test_no_users_x_items_array_is_formed(keep):
    """30,000 x 30,000 cells would be 3.6 GB; some pairs and one user take megabytes."""
    n, rng = 30_000, np.random.default_rng(0)
    posterior = random_posterior(n, n, 3, 1, 1000, keep=keep)
    pairs = rng.integers(0, n, (2, 5000))
    ask_one(posterior, "mean")  # compiled before memory is watched
    tracemalloc.start()
    posterior.mean_std(*pairs)
    posterior.interval(*pairs, 0.9)
    for policy in ("mean", "ucb", "thompson"):
        ask_one(posterior, policy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_other_scales(triple):
    """Points of 0-100 give the model of 0-1 times a hundred: all is standardised inside."""
    user, item, rating = triple
    small = BayesianMF(2, sampler=QUICK, random_state=0).fit((user, item, rating))
    large = BayesianMF(2, sampler=QUICK, random_state=0).fit((user, item, 100 * rating - 7))
    mean, std = small.predict(user, item, return_std=True)
    mean2, std2 = large.predict(user, item, return_std=True)
    assert np.allclose(100 * mean - 7, mean2, atol=0.2)
    assert np.allclose(100 * std, std2, rtol=0.01)


def test_large_ratings_that_are_not_standardised(triple):
    """Errors are judged against the ratings, not against one."""
    user, item, rating = triple
    sampler = SGLD(epochs=3, step_size=1e-7)
    model = BayesianMF(2, sampler=sampler, standardize=False, tau=1e-6, random_state=0)
    assert np.isfinite(model.fit((user, item, 1e4 * rating)).predict(user[0], item[0]))


def test_the_default_step_is_stable(triple):
    """Also off unit variance, and on grids where a visit stands for many rounds."""
    user, item, rating = triple
    heavy = item.copy()
    heavy[:300] = 5  # one item has half of all ratings
    _, unique = np.unique(user * 1000 + heavy, return_index=True)
    for grid in ((1, 1), (1, 8), (8, 1), (1, 4), (4, 4)):
        for sampler in (SGD(grid=grid, epochs=20), SGLD(grid=grid, epochs=20)):
            model = BayesianMF(2, sampler=sampler, random_state=0)
            model.fit((user[unique], heavy[unique], rating[unique]))
            assert model.report_["repairs"] == 0
            model.set_params(standardize=False)
            assert model.fit((user, item, 20 * rating)).report_["repairs"] == 0


def test_equal_ratings_are_refused_and_two_are_enough():
    for data, message in (
        (([1, 1, 2], [1, 2, 1], [3.0, 3.0, 3.0]), "all 3 ratings are 3: .*implicit"),
        (([1], [1], [0.1]), "the only rating is 0.1: "),
    ):
        with pytest.raises(InputError, match=message):
            BayesianMF(2, sampler=QUICK).fit(data)
    for sampler in (QUICK, SGLD(epochs=5), SGD(epochs=5)):
        model = BayesianMF(2, sampler=sampler, random_state=0).fit(([1, 1], [1, 2], [3.0, 4.0]))
        assert 3 <= model.predict(1, 1) <= 4
        assert np.isfinite(model.predict(1, 1, return_std=True)[1])


def test_ratings_beyond_single_precision(triple):
    for factor in (1e25, 1e-25):
        with pytest.raises(InputError, match="rescale"):
            BayesianMF(2, sampler=QUICK).fit((*triple[:2], factor * triple[2]))


def test_tau_fixed_is_in_the_users_units(triple):
    model = BayesianMF(2, sampler=QUICK, tau=2.0, random_state=0).fit(triple)
    assert model.report_["tau"] == pytest.approx(2.0)
    assert model.evaluate(triple).n == 600


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_factors": -3}, "n_factors must be a whole number of at least 1, not -3"),
        ({"n_factors": 2.5}, "n_factors"),
        ({"n_factors": "many"}, "n_factors"),
        ({"sampler": "nuts"}, "sampler 'nuts'"),
        ({"prior": "flat"}, "prior 'flat'"),
        ({"tau": -1}, "tau must be 'sample' or a positive number"),
        ({"tau": "big"}, "tau"),
        ({"alpha_0": 0}, "alpha_0"),
        ({"max_draws": 0}, "max_draws"),
        ({"engine": "gpu"}, "engine 'gpu'"),
        ({"n_workers": 0}, "n_workers"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_parameters(params, words, triple):
    with pytest.raises(InputError, match=words):
        BayesianMF(**params).fit(triple)


def test_asking_too_early_or_too_oddly(model):
    with pytest.raises(NotFittedError, match="fit"):
        BayesianMF().predict(1, 2)
    with pytest.raises(InputError, match="equally many"):
        model.predict([1001, 1002], [5])
    with pytest.raises(InputError, match="validation rating"):
        BayesianMF(2).fit(([1, 2], [1, 2], [3, 4]), validation=([9], [9], [1]))
    for level in (90, "a", 0, float("nan")):
        with pytest.raises(InputError, match="level"):
            model.predict_interval(1001, 5, level=level)
    with pytest.raises(InputError, match="use fewer"):
        BayesianMF(10**9).fit(([1, 2], [1, 2], [3, 4]))
    with pytest.raises(InputError, match="n must be"):
        model.recommend(1001, n=0)


def test_diagnose_and_arviz(triple):
    model = BayesianMF(2, sampler=Gibbs(epochs=60, n_chains=2), random_state=0).fit(triple)
    found = model.diagnose(n_pairs=20)
    assert set(found) == {"prediction", "tau", "lambda_U", "lambda_V", "lambda_a", "lambda_b"}
    assert 0.99 < found["tau"]["rhat"] < 1.3
    assert found["prediction"]["ess_min"] > 5
    data = model.to_arviz(n_pairs=20)
    assert data.posterior["prediction"].shape == (2, 45, 20)


def test_a_saved_model_predicts_the_same_bits_in_a_fresh_process(model, triple, tmp_path):
    model.save(tmp_path / "model")
    user, item = triple[0][:50], triple[1][:50]
    np.savez(tmp_path / "pairs.npz", user=user, item=item)
    code = (
        "import sys, numpy as np; from bayesmf import BayesianMF\n"
        "m = BayesianMF.load(sys.argv[1]); p = np.load(sys.argv[2])\n"
        "out = (*m.predict(p['user'], p['item'], return_std=True),"
        " *m.predict_interval(p['user'], p['item']))\n"
        "sys.stdout.buffer.write(np.array(out).tobytes())"
    )
    command = [sys.executable, "-c", code, tmp_path / "model", tmp_path / "pairs.npz"]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    expected = np.array(
        (*model.predict(user, item, return_std=True), *model.predict_interval(user, item))
    )
    assert found == expected.tobytes()


def test_a_loaded_model_can_repeat_its_fit(model, triple, tmp_path):
    model.save(tmp_path / "model")
    loaded = BayesianMF.load(tmp_path / "model")
    assert loaded.sampler.epochs == QUICK.epochs
    assert draws_digest(loaded.fit(triple)) == draws_digest(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.pop("report"), "meta.report is missing"),
        (lambda m: m["units"].pop("scale"), "scale is missing"),
        (lambda m: m["units"].update(n_factors=99), "does not fit the arrays"),
    ],
)
def test_metadata_of_another_kind_are_refused(model, tmp_path, change, words):
    model.save(tmp_path / "model")
    edit_meta(tmp_path / "model", change)
    with pytest.raises(InputError, match=words):
        BayesianMF.load(tmp_path / "model")


def test_no_pickle_anywhere():
    from pathlib import Path

    import bayesmf

    paths = list(Path(bayesmf.__file__).parent.rglob("*.py"))
    assert len(paths) > 100  # they were found
    for path in paths:
        text = path.read_text()
        assert not re.search(r"(import|from) (pickle|cloudpickle|dill|joblib|shelve)\b", text), path
        assert "allow_pickle=True" not in text
