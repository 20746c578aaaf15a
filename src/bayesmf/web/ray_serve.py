"""The service as a Ray Serve deployment: replicas on a cluster, one address in front of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.web.environment import ONE_BLAS_THREAD

if TYPE_CHECKING:
    from fastapi import FastAPI


def deployment(
    model: str | os.PathLike[str],
    *,
    replicas: int | str = 1,
    name: str = "bayesmf",
    options: Mapping[str, Any] | None = None,
    **app: Any,
) -> Any:
    """Make a Ray Serve application of the service.

    It is run by `ray.serve.run`, or named in a configuration file of `serve deploy`. Each replica
    loads the model itself, from a folder that all nodes can read, and looks at it again as
    `bayesmf serve` does.

    Parameters
    ----------
    model : path-like
        The folder that a model was saved to.
    replicas : int or "auto"
        How many processes answer; "auto" leaves it to Ray, by the load.
    name : str
        Name of the deployment.
    options : mapping, optional
        More of what `ray.serve.deployment` takes, such as `{"ray_actor_options": {"num_cpus": 1}}`.
    **app
        What `create_app` takes, such as `item_info` and `token`.

    Returns
    -------
    ray.serve.Application
        To be given to `ray.serve.run`.

    Raises
    ------
    InputError
        If Ray Serve is not installed, or `model` is no folder of a model.

    Examples
    --------
    >>> from bayesmf import InputError
    >>> from bayesmf.web import deployment
    >>> try:
    ...     deployment("no-such-folder")
    ... except InputError:
    ...     print("save a model first")
    save a model first
    """
    if isinstance(model, BayesianMF):
        raise InputError("replicas load the model themselves: save it, and give the folder")
    BayesianMF.load(model)  # here, where it can be told in a sentence
    try:
        from ray import serve
    except ImportError as error:
        raise InputError(
            f"Ray Serve is not installed ({error.name} is missing): pip install 'ray[serve]'"
        ) from None
    path, settings = os.path.abspath(model), dict(app)

    def build() -> FastAPI:
        from bayesmf.web.app import create_app

        return create_app(path, **settings)

    @serve.ingress(build)
    class Service:
        """One replica."""

    # Set before a replica imports NumPy; what is asked for goes before it.
    given = {"ray_actor_options": {"runtime_env": {"env_vars": ONE_BLAS_THREAD}}, **(options or {})}
    made: Any = serve.deployment(name=name, num_replicas=replicas, **given)(Service)
    return made.bind()
