"""MLflow: models as a flavour of it, without pickle; mlflow_runs.py has runs, named here too."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import requires, version
from os import PathLike
from pathlib import Path
from typing import Any

from bayesmf import __version__
from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.integrations.mlflow_runs import MLflowCallback, log_report
from bayesmf.integrations.needed import mlflow_part, needed

__all__ = ["MLflowCallback", "load_model", "log_model", "log_report", "save_model"]

FLAVOR_NAME = "bayesmf"
_FOLDER = "model.bmf"
DATA = f"data/{_FOLDER}"


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

    `mlflow.pyfunc.load_model` reads it and predicts tables of user and item; `load_model` of this
    module gives the `BayesianMF` back. The folder holds what `BayesianMF.save` writes: arrays under
    checksums, no pickle.

    Parameters
    ----------
    bayesmf_model : BayesianMF
        The fitted model.
    path : path-like
        The folder, which must not be there or be empty.
    conda_env : dict or path-like, optional
        A conda environment, instead of requirements.
    code_paths : list of str, optional
        Files of code that are to go with the model.
    mlflow_model : mlflow.models.Model, optional
        To which the flavour is added; MLflow passes it.
    signature : mlflow.models.ModelSignature or False, optional
        By default: columns user and item with the ids' type and the parameter `level` in, columns
        user, item, mean, std, low, high and known out. False for none.
    input_example : DataFrame or False, optional
        By default the first users and items of the model. False for none.
    pip_requirements : list of str or path-like, optional
        By default bayesmf and all that it needs, with the versions at hand.
    extra_pip_requirements : list of str or path-like, optional
        What is added to those.
    metadata : dict, optional
        Kept in the file MLmodel.
    users : bool
        False leaves people out, as `BayesianMF.save(users=False)` does.
    max_draws : int, optional
        Most draws to save, as in `BayesianMF.save`.

    Raises
    ------
    InputError
        If MLflow is not installed, or the model cannot be saved.
    NotFittedError
        If the model has not been fitted.

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
        data = Path(folder) / _FOLDER
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
        Also make it a version of this model of the registry.
    **kwargs
        Arguments of `save_model`, and of `mlflow.models.Model.log`: `params`, `tags`, `step`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        What MLflow knows of the model; its `model_uri` is what `load_model` takes.

    Raises
    ------
    InputError
        If MLflow is not installed, or the model cannot be saved.
    NotFittedError
        If the model has not been fitted.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import load_model, log_model
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # runs go to a folder here, not to a server
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
    """Load the `BayesianMF` of an MLflow model that `save_model` or `log_model` has written.

    Parameters
    ----------
    model_uri : str
        Where it is: a folder, "runs:/...", "models:/..." or another URI that MLflow knows.
    dst_path : str, optional
        Folder to download to; one of MLflow's by default.

    Returns
    -------
    BayesianMF
        The model, with every byte verified.

    Raises
    ------
    InputError
        If MLflow is not installed, or what is there is no model of bayesmf or is damaged.

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
    except Exception as error:  # whatever YAML, MLflow or the disk say of a damaged file
        raise InputError(f"{model_uri} is no model that MLflow can read: {error}") from None
    if FLAVOR_NAME not in flavours:
        raise InputError(f"{model_uri} is no model of bayesmf but of {', '.join(flavours)}")
    if flavours[FLAVOR_NAME].get("data") != DATA:
        raise InputError(f"{model_uri} does not keep its model in {DATA}, as bayesmf does")
    return _loaded(Path(local) / DATA)


def _loaded(path: str | PathLike[str]) -> BayesianMF:
    # Not mapped: artifacts lie in folders that others may clear, or on mounted stores.
    return BayesianMF.load(path, mmap=False)


class _Predictor:
    """What `mlflow.pyfunc.load_model` wraps: tables of pairs in, tables of predictions out."""

    def __init__(self, model: BayesianMF) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        level = 0.9 if params is None else params.get("level", 0.9)
        return self.model.predict_table(model_input, level=level).to_pandas()


def _load_pyfunc(path: str) -> _Predictor:
    """Called by MLflow with the folder that `BayesianMF.save` has written."""
    return _Predictor(_loaded(path))


def default_pip_requirements() -> list[str]:
    """Name bayesmf and what it needs, with the versions that are at hand.

    Returns
    -------
    list of str
        Requirements as pip has them.
    """
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
    told = dict.fromkeys(("mean", "std", "low", "high"), types.DataType.double)
    out = kinds | told | {"known": types.DataType.boolean}
    return models.ModelSignature(
        inputs=types.Schema([types.ColSpec(kind, name) for name, kind in kinds.items()]),
        outputs=types.Schema([types.ColSpec(kind, name) for name, kind in out.items()]),
        params=types.ParamSchema([types.ParamSpec("level", types.DataType.double, 0.9)]),
    )


def _type_of(types: Any, ids: Any) -> Any:
    return types.DataType.long if ids.dtype.kind == "i" else types.DataType.string


def _example(model: BayesianMF) -> Any:
    pandas = needed("pandas", "pandas")
    users, items = model.user_ids_.ids[:3], model.item_ids_.ids[:3]
    n = min(len(users), len(items))
    return pandas.DataFrame({"user": users[:n], "item": items[:n]}) if n else False
