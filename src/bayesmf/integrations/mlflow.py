"""MLflow: models as a flavor of it, without pickle, and runs that log a fit."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import requires, version
from os import PathLike
from pathlib import Path
from typing import Any

from bayesmf import __version__
from bayesmf.chains.callbacks import Event, RunPlan
from bayesmf.checks import whole
from bayesmf.diagnostics.metrics import Scores
from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF

__all__ = ["MLflowCallback", "load_model", "log_model", "log_report", "save_model"]

FLAVOR_NAME = "bayesmf"
_FILE = "model.bayesmf"
DATA = f"data/{_FILE}"
_MAX_TEXT = 500  # of the value of a parameter, for older servers


def mlflow_part(part: str = "") -> Any:
    """Import MLflow, or a part of it such as ".pyfunc"."""
    try:
        return import_module(f"mlflow{part}")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed: pip install mlflow-skinny pandas"
        ) from None


def save_model(
    bayesmf_model: BayesianMF,
    path: str | PathLike[str],
    conda_env: Any = None,
    code_paths: list[str] | None = None,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    metadata: dict[str, Any] | None = None,
    *,
    users: bool = True,
    max_draws: int | None = None,
) -> None:
    """Save a fitted model as an MLflow model on the local disk.

    `mlflow.pyfunc.load_model` loads it as a predictor of tables of user and item; `load_model` of
    this module returns the `BayesianMF`. The folder has the file that `BayesianMF.save` writes.

    Parameters
    ----------
    bayesmf_model : BayesianMF
        The fitted model.
    path : path-like
        The folder, new or empty.
    conda_env : dict or path-like, optional
        A conda environment, instead of requirements.
    code_paths : list of str, optional
        Files of code to save with the model.
    mlflow_model : mlflow.models.Model, optional
        Model to add the flavor to; passed by MLflow.
    signature : mlflow.models.ModelSignature or False, optional
        By default columns user and item and the parameter `level`, and the columns of
        `predict_table` as output. False for none.
    input_example : DataFrame or False, optional
        By default the first users and items of the model. False for none.
    pip_requirements : list of str or path-like, optional
        By default bayesmf and its dependencies, with the installed versions.
    extra_pip_requirements : list of str or path-like, optional
        More requirements.
    metadata : dict, optional
        Metadata of the file MLmodel.
    users : bool
        False saves the model without its users.
    max_draws : int, optional
        Most draws to save, as in `BayesianMF.save`.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import load_model, save_model
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> save_model(model, "flavoured")
    >>> load_model("flavoured").predict(1, 9) == model.predict(1, 9)
    True
    """
    if not isinstance(bayesmf_model, BayesianMF):
        raise InputError(f"save_model takes a BayesianMF, not a {type(bayesmf_model).__name__}")
    pyfunc, models = mlflow_part(".pyfunc"), mlflow_part(".models")
    described = models.Model() if mlflow_model is None else mlflow_model
    described.add_flavor(FLAVOR_NAME, bayesmf_version=__version__, data=DATA)
    if pip_requirements is None and conda_env is None:
        pip_requirements = [*default_pip_requirements(), *_listed(extra_pip_requirements)]
        extra_pip_requirements = None
    if input_example is None:
        input_example = _example(bayesmf_model)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / _FILE
        bayesmf_model.save(data, users=users, max_draws=max_draws)
        pyfunc.save_model(
            path,
            loader_module=__name__,
            data_path=str(data),
            code_paths=code_paths,
            conda_env=conda_env,
            mlflow_model=described,
            signature=_signature(bayesmf_model) if signature is None else signature or None,
            input_example=None if input_example is False else input_example,
            pip_requirements=pip_requirements,
            extra_pip_requirements=extra_pip_requirements,
            metadata=metadata,
        )


def log_model(
    bayesmf_model: BayesianMF,
    name: str | None = None,
    registered_model_name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Log a fitted model to the active MLflow run.

    Parameters
    ----------
    bayesmf_model : BayesianMF
        The fitted model.
    name : str, optional
        Name of the model in its run.
    registered_model_name : str, optional
        Name in the registry, of which it becomes a version.
    **kwargs
        Arguments of `save_model`, and of `mlflow.models.Model.log`: `params`, `tags`, `step`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Description of the logged model; its `model_uri` is an argument of `load_model`.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import load_model, log_model
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    >>> mlflow.set_tracking_uri("file:models")
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> with mlflow.start_run():
    ...     info = log_model(model, name="ratings")
    >>> load_model(info.model_uri).predict(1, 9) == model.predict(1, 9)
    True
    """
    return mlflow_part(".models").Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        bayesmf_model=bayesmf_model,
        **kwargs,
    )


def load_model(model_uri: str, dst_path: str | None = None) -> BayesianMF:
    """Load the `BayesianMF` of an MLflow model written by `save_model` or `log_model`.

    Parameters
    ----------
    model_uri : str
        A folder, "runs:/...", "models:/..." or another URI of MLflow.
    dst_path : str, optional
        Folder to download to.

    Returns
    -------
    BayesianMF
        The verified model.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import load_model, save_model
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> save_model(model, "flavoured")
    >>> load_model("flavoured").predict(1, 9) == model.predict(1, 9)
    True
    """
    artifacts, models = mlflow_part(".artifacts"), mlflow_part(".models")
    local = artifacts.download_artifacts(artifact_uri=str(model_uri), dst_path=dst_path)
    try:
        flavours = dict(models.Model.load(local).flavors)
    except Exception as error:  # of YAML, MLflow or the disk
        raise InputError(f"{model_uri} is not an MLflow model: {error}") from None
    if FLAVOR_NAME not in flavours:
        raise InputError(f"{model_uri} is not a model of bayesmf but of {', '.join(flavours)}")
    if flavours[FLAVOR_NAME].get("data") != DATA:
        raise InputError(f"{model_uri} does not have its model in {DATA}")
    return _loaded(Path(local) / DATA)


def _loaded(path: str | PathLike[str]) -> BayesianMF:
    # Not mapped: the file may be removed by others, or be on a mounted store.
    return BayesianMF.load(path, mmap=False)


class _Predictor:
    """Predictor for `mlflow.pyfunc.load_model`: from tables of pairs to tables of predictions."""

    def __init__(self, model: BayesianMF) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        level = 0.9 if params is None else params.get("level", 0.9)
        return self.model.predict_table(model_input, level=level).to_pandas()


def _load_pyfunc(path: str) -> _Predictor:
    """Load a predictor; called by MLflow."""
    return _Predictor(_loaded(path))


def default_pip_requirements() -> list[str]:
    """Requirements of bayesmf and its dependencies, with the installed versions."""
    own = [text for text in requires("bayesmf") or () if "extra ==" not in text]
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in own]
    return [f"bayesmf=={__version__}", *(f"{name}=={version(name)}" for name in (*names, "pandas"))]


def _listed(extra: Any) -> list[str]:
    """Extra requirements as a list; a file of them as pip names it."""
    if extra is None:
        return []
    return [f"-r {extra}"] if isinstance(extra, str | PathLike) else list(extra)


def _signature(model: BayesianMF) -> Any:
    types, models = mlflow_part(".types"), mlflow_part(".models")
    kinds = {
        "user": _type_of(types, model.user_ids_.ids),
        "item": _type_of(types, model.item_ids_.ids),
    }
    numbers = dict.fromkeys(("mean", "std", "low", "high"), types.DataType.double)
    out = kinds | numbers | {"known": types.DataType.boolean}
    return models.ModelSignature(
        inputs=types.Schema([types.ColSpec(kind, name) for name, kind in kinds.items()]),
        outputs=types.Schema([types.ColSpec(kind, name) for name, kind in out.items()]),
        params=types.ParamSchema([types.ParamSpec("level", types.DataType.double, 0.9)]),
    )


def _type_of(types: Any, ids: Any) -> Any:
    return types.DataType.long if ids.dtype.kind == "i" else types.DataType.string


def _example(model: BayesianMF) -> Any:
    import pandas

    users, items = model.user_ids_.ids[:3], model.item_ids_.ids[:3]
    n = min(len(users), len(items))
    return pandas.DataFrame({"user": users[:n], "item": items[:n]}) if n else False


# -- runs -----------------------------------------------------------------------------------------


class MLflowCallback:
    """A callback that logs the progress of a fit to an MLflow run.

    Metrics of each epoch (MLflow's step) of each chain: `chain_0/train_rmse`, `chain_0/tau`,
    `chain_0/validation_rmse` if there is a validation set, and for all chains together
    `all_chains/validation_rmse` and `all_chains/ratings_per_second`. A thread writes, so that
    sampling does not wait for a server; an error of it becomes a warning of the fit, or is raised
    by `flush`.

    Parameters
    ----------
    run_id : str, optional
        The run; by default the active one, or a new one.
    every : int
        Number of epochs between two logged ones.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import MLflowCallback
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    >>> mlflow.set_tracking_uri("file:fits")
    >>> callback = MLflowCallback()
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0, callbacks=[callback])
    >>> with mlflow.start_run() as run:
    ...     _ = model.fit(ratings)
    ...     callback.flush()
    >>> "chain_0/train_rmse" in mlflow.get_run(run.info.run_id).data.metrics
    True
    """

    def __init__(self, run_id: str | None = None, every: int = 1) -> None:
        mlflow_part()
        self.run_id, self.every = run_id, whole("every", every)
        self._forget()

    def _forget(self) -> None:
        self._client: Any = None
        self._run = ""
        self._waiting: deque[Any] = deque()
        self._written: Future[None] | None = None
        self._failure: Exception | None = None
        self._thread: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the thread out of copies, as scikit-learn makes for each fit."""
        return {"run_id": self.run_id, "every": self.every}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def begin(self, plan: RunPlan) -> None:
        """Find the run, before the chains begin.

        Parameters
        ----------
        plan : RunPlan
            Number of chains, most epochs, and most seconds.
        """
        mlflow = mlflow_part()
        self._run = self.run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
        self._client, self._failure = mlflow.MlflowClient(), None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mlflow")

    def __call__(self, event: Event) -> None:
        """Log an event.

        Parameters
        ----------
        event : Event
            The end of an epoch.
        """
        if event.epoch % self.every:
            return
        if self._failure is not None:
            raise self._failure  # becomes a warning of the fit
        own = {
            "train_rmse": event.train_rmse,
            "tau": event.tau,
            "validation_rmse": event.rmse,
            "step_size": event.step_size,
        }
        found = {f"chain_{event.chain}/{name}": value for name, value in own.items()}
        found["all_chains/validation_rmse"] = event.rmse_all_chains
        found["all_chains/ratings_per_second"] = event.ratings_per_second
        entity, now = mlflow_part(".entities").Metric, int(1000 * time.time())
        self._waiting.extend(
            entity(key, float(value), now, event.epoch)
            for key, value in found.items()
            if value is not None
        )
        assert self._thread is not None, "begin was called"
        self._written = self._thread.submit(self._write)

    def _write(self) -> None:
        """Write all waiting metrics in few requests."""
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(900, len(self._waiting)))]
                self._client.log_batch(self._run, metrics=batch)
        except Exception as error:
            self._failure = error

    def flush(self) -> None:
        """Wait until all is written; raises the error of MLflow, if any."""
        if self._written is not None:
            self._written.result()
        if self._failure is not None:
            raise self._failure


def log_report(
    model: BayesianMF, scores: Scores | None = None, *, run_id: str | None = None
) -> None:
    """Log the results of a fit to an MLflow run.

    Resolved settings become parameters, numbers of the report metrics, and the verdict on
    convergence the tag `bayesmf.verdict`.

    Parameters
    ----------
    model : BayesianMF
        The fitted model.
    scores : Scores, optional
        Result of `model.evaluate(test)`, logged as `test_rmse`, `test_coverage_90` etc.
    run_id : str, optional
        The run; by default the active one, or a new one.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import log_report
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    >>> mlflow.set_tracking_uri("file:reports")
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> with mlflow.start_run() as run:
    ...     log_report(model)
    >>> mlflow.get_run(run.info.run_id).data.params["factors"]
    '2'
    """
    mlflow = mlflow_part()
    report = model.report_
    run = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    for callback in model.callbacks:
        if isinstance(callback, MLflowCallback):
            callback.flush()
    entities, now = mlflow_part(".entities"), int(1000 * time.time())
    numbers = _numbers(report, scores)
    converged = report["convergence"]
    tags = {
        "bayesmf.version": __version__,
        "bayesmf.verdict": converged["verdict"],
        "bayesmf.advice": converged.get("advice", ""),
        "bayesmf.converged": {True: "yes", False: "no"}.get(converged["converged"], "unknown"),
    }
    mlflow.MlflowClient().log_batch(
        run,
        metrics=[entities.Metric(key, float(x), now, 0) for key, x in numbers.items()],
        params=[entities.Param(key, text) for key, text in _settings(report).items()],
        tags=[entities.RunTag(key, text) for key, text in tags.items() if text],
    )


def _settings(report: Mapping[str, Any]) -> dict[str, str]:
    """Resolved settings as text."""
    names = ("factors", "prior", "noise_by", "target", "max_seconds", "seed")
    values = {name: report.get(name) for name in names}
    values |= {f"sampler.{name}": value for name, value in report["sampler"].items()}
    values |= {name: report[name] for name in ("ratings", "users", "items")}
    values["engine"] = report["engine"]["name"]
    return {name: str(value)[:_MAX_TEXT] for name, value in values.items()}


def _numbers(report: Mapping[str, Any], scores: Scores | None) -> dict[str, float]:
    names: Sequence[str] = (
        "seconds", "compile_seconds", "epochs", "draws", "ratings_per_second", "tau", "noise_std",
        "validation_rmse",
    )  # fmt: skip
    found = {name: report.get(name) for name in names}
    found |= {name: report["convergence"].get(name) for name in ("rhat", "rhat_noise", "loss")}
    if scores is not None:
        tests = ("n", "rmse", "mae", "nll", "crps", "log_loss", "rps")
        found |= {f"test_{name}": getattr(scores, name) for name in tests}
        found |= {f"test_coverage_{level}": share for level, share in scores.coverage.items()}
    return {name: float(value) for name, value in found.items() if value is not None}
