"""MLflow: a saved model predicts the same, also in a fresh process; runs log the fit."""

import copy

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, NotFittedError, Synthetic
from forged import file_contents, flip

mlflow = pytest.importorskip("mlflow")
pandas = pytest.importorskip("pandas")

from bayesmf.integrations.mlflow import (  # noqa: E402
    MLflowCallback,
    default_pip_requirements,
    load_model,
    log_model,
    log_report,
    save_model,
)

# MLflow's own: its parts warn of one another.
pytestmark = pytest.mark.filterwarnings("ignore:::mlflow", "ignore:::opentelemetry")
TRAIN, TEST = Synthetic(60, 40, 1200, random_state=1).ratings().split(0.1, random_state=0)
PAIRS = pandas.DataFrame({"user": TEST.users[:9], "item": TEST.items[:9]})


def fitted(ratings=TRAIN, callbacks=(), validation=None, **settings):
    sampler = Gibbs(epochs=20, n_chains=2)
    model = BayesianMF(4, sampler=sampler, callbacks=callbacks, random_state=0, **settings)
    return model.fit(ratings, validation=validation)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield tmp_path
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.mark.parametrize("names", [False, True], ids=["integers", "strings"])
def test_a_saved_model_predicts_the_same(names, model, tracking):
    asked = PAIRS
    if names:
        asked = pandas.DataFrame({k: [f"{k} {x}" for x in PAIRS[k]] for k in PAIRS})
        users, items = ([f"{k} {x}" for x in v] for k, v in TRAIN.to_pandas().items() if k in PAIRS)
        model = fitted((users, items, TRAIN.rating))
    save_model(model, tracking / "saved", max_draws=10)
    model.save(tracking / "plain", max_draws=10)
    plain = BayesianMF.load(tracking / "plain")
    served = mlflow.pyfunc.load_model(str(tracking / "saved"))
    found = served.predict(asked, params={"level": 0.5})
    expected = plain.predict_table(asked, level=0.5).to_pandas()
    pandas.testing.assert_frame_equal(found, expected)
    assert list(found) == served.metadata.get_output_schema().input_names()
    kinds = {str(kind) for kind in served.metadata.get_input_schema().input_types()}
    assert kinds == {"DataType.string" if names else "DataType.long"}
    # The default level, and an example that is one.
    low, high = plain.predict_interval(asked, level=0.9)
    np.testing.assert_array_equal(served.predict(asked)[["low", "high"]], np.c_[low, high])
    assert len(served.predict(served.input_example)) == 3
    assert load_model(str(tracking / "saved")).predict(asked).tolist() == found["mean"].tolist()


def test_nothing_is_pickled_and_all_is_pinned(model, tracking):
    save_model(model, tracking / "saved", extra_pip_requirements=["rich==1.0"], users=False)
    files = [path for path in (tracking / "saved").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {
        ".bayesmf", ".json", ".yaml", ".txt", "",
    }  # fmt: skip
    (data,) = (path for path in files if path.suffix == ".bayesmf")
    assert not [name for name in file_contents(data)[0] if "user_id" in name]
    asked = (tracking / "saved" / "requirements.txt").read_text().split("\n")
    assert set(default_pip_requirements()) | {"rich==1.0"} <= set(asked)
    assert {text.split("==")[0] for text in default_pip_requirements()} == {
        "bayesmf", "numpy", "numba", "polars", "tqdm", "pandas",
    }  # fmt: skip


def test_damage_is_found(model, tracking):
    save_model(model, tracking / "saved")
    flip(tracking / "saved" / "data" / "model.bayesmf", "items")
    with pytest.raises(InputError, match="items does not have the digest"):
        mlflow.pyfunc.load_model(str(tracking / "saved"))


def test_what_cannot_be_saved_or_loaded(model, tracking):
    with pytest.raises(InputError, match="takes a BayesianMF, not a str"):
        save_model("model", tracking / "saved")
    with pytest.raises(NotFittedError):
        save_model(BayesianMF(), tracking / "saved")
    save_model(model, tracking / "saved")
    described = tracking / "saved" / "MLmodel"
    text = described.read_text()
    for forged, said in (
        (text.replace("data: data/model.bayesmf", "data: ../elsewhere"), "does not have its model"),
        ("flavors: [", "is not an MLflow model"),
        ("flavors:\n  sklearn:\n    data: model.pkl\n", "is not a model of bayesmf but of sklearn"),
    ):
        described.write_text(forged)
        with pytest.raises(InputError, match=said):
            load_model(str(tracking / "saved"))


def test_a_run_logs_the_fit(tracking):
    with mlflow.start_run() as run:
        model = fitted(callbacks=[MLflowCallback()], validation=TEST)
        log_report(model, model.evaluate(TEST))
        info = log_model(model, name="ratings")
    found = mlflow.get_run(run.info.run_id).data
    client = mlflow.MlflowClient()
    for chain in (0, 1):
        logged = client.get_metric_history(run.info.run_id, f"chain_{chain}/train_rmse")
        events = [event for event in model.history_ if event["chain"] == chain]
        assert sorted((metric.step, metric.value) for metric in logged) == [
            (event["epoch"], event["train_rmse"]) for event in events
        ]
        assert f"chain_{chain}/validation_rmse" in found.metrics
        assert f"chain_{chain}/tau" in found.metrics
    assert found.metrics["all_chains/ratings_per_second"] > 0
    assert found.metrics["validation_rmse"] == model.report_["validation_rmse"]
    assert found.metrics["test_rmse"] == model.evaluate(TEST).rmse
    assert found.metrics["test_coverage_90"] == model.evaluate(TEST).coverage["90"]
    assert found.params["factors"] == "4" and found.params["sampler.rule"] == "Gibbs"
    assert found.tags["bayesmf.verdict"] == model.report_["convergence"]["verdict"]
    again = load_model(info.model_uri)
    np.testing.assert_array_equal(again.predict(PAIRS), model.predict(PAIRS))


def test_every_fifth_epoch_of_a_run_by_its_id(tracking):
    run = mlflow.MlflowClient().create_run("0").info.run_id
    callback = MLflowCallback(run, every=5)
    for times in (1, 2):
        fitted(callbacks=[callback])
        callback.flush()
        logged = mlflow.MlflowClient().get_metric_history(run, "chain_1/tau")
        assert sorted(metric.step for metric in logged) == sorted([5, 10, 15, 20] * times)
        callback = copy.deepcopy(callback)  # as scikit-learn does for each fit
    assert mlflow.active_run() is None
    for wrong in (0, 2.5):
        with pytest.raises(InputError, match="every"):
            MLflowCallback(every=wrong)
