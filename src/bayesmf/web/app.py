"""The ASGI application: routes, error shape, and the thread that watches for a new model."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

import bayesmf.web.schemas as schemas
from bayesmf import __version__
from bayesmf.data.ratings import Ratings
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.process import cores
from bayesmf.web.card import compute_diagnostics
from bayesmf.web.guard import Guard, Limits, Metrics, check_token, where
from bayesmf.web.problems import ProblemError, of_validation
from bayesmf.web.routes import STATIC, Executor, service, v1
from bayesmf.web.served import LOG, ModelHolder, release_memory, try_out

# Seconds between two checks of the model's path.
LOOK_EVERY = 1.0


def create_app(
    model: BayesianMF | str | os.PathLike[str],
    *,
    item_info: str | os.PathLike[str] | None = None,
    test: Any = None,
    mmap: bool = False,
    token: str | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    threads: int | None = None,
) -> FastAPI:
    """Make the ASGI application that serves a model over HTTP.

    Any ASGI server runs it; `bayesmf serve` does so with uvicorn. `/` is a page,
    `/openapi.json` describes the API. A model from a path is loaded again when it is replaced, as
    `save` does.

    Parameters
    ----------
    model : BayesianMF or path-like
        A fitted model, or the path of a saved one.
    item_info : path-like, optional
        Table of items, whose titles and other columns are part of answers.
    test : Ratings or path-like, optional
        Held-out ratings, on which the model card shows calibration.
    mmap : bool
        Map the model instead of reading it, so that processes share memory. It must then only
        be replaced as a whole, as `save` does, and never be written to.
    token : str, optional
        Bearer token that requests must send, except for the page's files and health checks.
    hosts : sequence of str
        Accepted names in the header `Host`; any by default.
    origins : sequence of str
        Other sites whose pages may send requests (CORS); none by default.
    limits : Limits, optional
        Limits of bytes, seconds and requests at once.
    threads : int, optional
        Threads that compute answers; one for each core by default.

    Returns
    -------
    FastAPI
        The application.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.web import create_app
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> app = create_app(model)
    >>> "/v1/recommend" in app.openapi()["paths"]
    True
    """
    if token is not None:
        check_token(token)
    limits = limits or Limits()
    holder, metrics = ModelHolder(model, item_info, mmap), Metrics()
    held_out = test if test is None or isinstance(test, Ratings) else Ratings.read(test)
    executor = Executor(holder, threads or cores(), limits.seconds)
    app = FastAPI(
        title="bayesmf",
        version=__version__,
        summary="Recommendations that say how sure they are.",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan(holder, metrics, executor, held_out),
    )
    app.include_router(v1(executor, held_out is not None))
    app.include_router(service(holder, metrics))
    app.mount("/static", StaticFiles(directory=STATIC), "static")
    app.state.holder, app.state.metrics = holder, metrics
    _one_error_shape(app)
    app.openapi = lambda: _described(app, token is not None)  # type: ignore[method-assign]
    app.add_middleware(Guard, limits=limits, metrics=metrics, hosts=hosts, token=token)
    if origins:  # around the guard: preflight requests have no token, and refusals need headers
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return app


def _one_error_shape(app: FastAPI) -> None:
    """Return all errors in the same shape."""

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return of_validation(error.errors()).response()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = (error.headers or {}).get("Allow", "another method")
        known = {404: "unknown address: see /openapi.json",
                 405: f"this address accepts {allowed}: see /openapi.json"}  # fmt: skip
        detail = known.get(error.status_code, str(error.detail))
        return ProblemError(error.status_code, detail, headers=error.headers).response()

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return error.response()

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(ProblemError, problem)


def _described(app: FastAPI, with_token: bool) -> dict[str, Any]:
    """The OpenAPI description, with the shape of errors, and the token if there is one."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        parts = made.setdefault("components", {})
        models = parts.setdefault("schemas", {})
        models["Problem"] = schemas.Problem.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            models.pop(unused, None)
        if with_token:
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _lifespan(
    holder: ModelHolder, metrics: Metrics, executor: Executor, test: Ratings | None
) -> Any:
    """Watch the model's path on a thread while the application runs."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        stop = threading.Event()
        # A daemon, so that a service that ends does not wait for it.
        threading.Thread(
            target=_watch, args=(holder, metrics, test, stop), name="bayesmf-watch", daemon=True
        ).start()
        try:
            yield
        finally:
            holder.ready = False
            stop.set()
            executor.pool.shutdown(wait=False, cancel_futures=True)

    return lifespan


def _watch(
    holder: ModelHolder, metrics: Metrics, test: Ratings | None, stop: threading.Event
) -> None:
    """Try out the model and compute its diagnostics, and do so with each that replaces it."""
    _attempt(try_out, holder.current)
    holder.ready = True
    metrics.loaded(True)
    _attempt(compute_diagnostics, holder.current, test)
    while not stop.wait(LOOK_EVERY):
        if not holder.changed():
            continue
        failures = holder.failures
        if holder.refresh():
            metrics.loaded(True)
            _attempt(compute_diagnostics, holder.current, test)
            release_memory()
        elif holder.failures > failures:
            metrics.loaded(False)


def _attempt(function: Callable[..., object], *args: Any) -> None:
    """Call a function; log its exception instead of raising it."""
    try:
        function(*args)
    except Exception as error:
        LOG.warning("%s failed: %s in %s", function.__name__, type(error).__name__, where(error))
