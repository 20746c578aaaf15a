"""Routes of version 1 of the API, of health checks, metrics and the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json
from starlette.responses import FileResponse, JSONResponse

import bayesmf.web.answers as answers
import bayesmf.web.schemas as schemas
from bayesmf.errors import BayesMFError, InputError
from bayesmf.web.card import card
from bayesmf.web.guard import CONTENT_TYPE, Metrics
from bayesmf.web.problems import MEDIA_TYPE, ProblemError
from bayesmf.web.served import ModelHolder, Served

# Longest name of a part of a request, with room to spare.
_LONGEST_NAME = 100
STATIC = Path(__file__).parent / "static"
# Errors that an operation may answer.
_PROBLEM: dict[str, Any] = {
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON.", **_PROBLEM},
    401: {"description": "A token is missing or wrong.", **_PROBLEM},
    404: {"description": "Unknown user or item.", **_PROBLEM},
    408: {"description": "The request did not arrive in time.", **_PROBLEM},
    413: {"description": "The body is too large.", **_PROBLEM},
    415: {"description": "The body is not declared as JSON.", **_PROBLEM},
    421: {"description": "The service does not answer to this host name.", **_PROBLEM},
    422: {"description": "The request cannot be used.", **_PROBLEM},
    503: {"description": "Too many requests, or no answer in time.", **_PROBLEM},
}


class StrictRequest(Request):
    """A request whose body is strict JSON: no NaN, no infinity, not too deep."""

    async def json(self) -> Any:
        """The parsed body."""
        try:
            found = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            # HTTPException passes through FastAPI unchanged.
            raise HTTPException(400, f"the body is not valid JSON: {error}") from None
        _refuse_many(found)
        return found


def _refuse_many(body: Any) -> None:
    """Refuse long lists and unknown names early: pydantic would make an error of each."""
    if not isinstance(body, dict):
        return
    lists = [value for value in body.values() if isinstance(value, list)]
    if any(len(one) > schemas.MOST_ITEMS for one in lists):
        raise HTTPException(422, f"a list has more than {schemas.MOST_ITEMS:,} entries")
    objects = [body, *(one for entries in lists for one in entries if isinstance(one, dict))]
    for one in objects:
        if len(one) > schemas.MOST_NAMES or any(len(name) > _LONGEST_NAME for name in one):
            raise HTTPException(422, "the body has names that are in no request: see /openapi.json")


class StrictRoute(APIRoute):
    """A route that reads requests as `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind != "application/json":
                # A page of another site cannot send this type without CORS permission.
                raise ProblemError(415, "send the header `Content-Type: application/json`")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


class Executor:
    """A few threads that compute answers within a time limit."""

    def __init__(self, holder: ModelHolder, threads: int, seconds: float) -> None:
        self.holder, self.seconds = holder, seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="bayesmf-answer")

    async def ask(self, question: Callable[..., dict[str, Any]], *args: Any) -> Response:
        """Answer a question with the model that is served now, on one of the threads."""
        loop, served = asyncio.get_running_loop(), self.holder.current
        try:
            async with asyncio.timeout(self.seconds):
                body = await loop.run_in_executor(self.pool, _answer, question, served, *args)
        except TimeoutError:
            raise ProblemError(
                503, f"no answer within {self.seconds:g} seconds: ask for less at a time",
                headers={"retry-after": "1"},
            ) from None  # fmt: skip
        return Response(body, media_type="application/json")


def _answer(question: Callable[..., dict[str, Any]], served: Served, *args: Any) -> bytes:
    try:
        return to_json(question(served, *args), inf_nan_mode="null")
    except InputError as error:
        raise ProblemError(422, str(error)) from None
    except BayesMFError as error:
        raise ProblemError(500, str(error)) from None


def v1(executor: Executor, tested: bool) -> APIRouter:
    """The questions of version 1."""
    made = APIRouter(prefix="/v1", route_class=StrictRoute, responses=PROBLEMS)

    @made.post("/recommend", response_model=schemas.RecommendResponse, tags=["recommend"])
    async def recommend(asked: schemas.RecommendRequest) -> Response:
        """Recommend the best items to a user, or to a person who sends ratings."""
        return await executor.ask(answers.recommend, asked)

    @made.get("/recommend", response_model=schemas.RecommendResponse, tags=["recommend"])
    async def recommend_known(asked: Annotated[schemas.RecommendQuery, Query()]) -> Response:
        """Recommend the best items to a user in the training data."""
        return await executor.ask(answers.recommend, schemas.RecommendRequest(**asked.model_dump()))

    @made.post("/predict", response_model=schemas.PredictResponse, tags=["predict"])
    async def predict(asked: schemas.PredictRequest) -> Response:
        """Predict ratings: mean, standard deviation, interval and star probabilities."""
        return await executor.ask(answers.predict, asked)

    @made.post("/explain", response_model=schemas.ExplainResponse, tags=["explain"])
    async def explain(asked: schemas.ExplainRequest) -> Response:
        """Explain a prediction by the share of each rating of the person."""
        return await executor.ask(answers.explain, asked)

    @made.get("/similar", response_model=schemas.SimilarItems, tags=["items"])
    async def similar(asked: Annotated[schemas.SimilarQuery, Query()]) -> Response:
        """Find similar items: those that the same people like."""
        return await executor.ask(answers.similar, asked.item, asked.n)

    @made.get("/items", response_model=schemas.SearchResponse, tags=["items"])
    async def items(asked: Annotated[schemas.SearchQuery, Query()]) -> Response:
        """Search items by name."""
        return await executor.ask(answers.search, asked.q, asked.n)

    @made.get("/item", response_model=schemas.ItemResponse, tags=["items"])
    async def item(asked: Annotated[schemas.ItemQuery, Query()]) -> Response:
        """Return facts about an item, and its prediction for a new person."""
        return await executor.ask(answers.item_facts, asked.item, asked.level)

    @made.get("/user", response_model=schemas.UserResponse, tags=["users"])
    async def user(asked: Annotated[schemas.UserQuery, Query()]) -> Response:
        """Return facts about a user in the training data."""
        return await executor.ask(answers.user_facts, asked.user, asked.n)

    @made.get("/model", response_model=schemas.ModelCard, tags=["model"])
    async def model() -> Response:
        """Return the model card: data, settings, convergence and calibration."""
        return await executor.ask(card, tested)

    return made


def service(holder: ModelHolder, metrics: Metrics) -> APIRouter:
    """Routes of health checks, metrics and the page."""
    made = APIRouter()
    not_ready: dict[str, Any] = {"description": "Not ready yet.", "model": schemas.Health}

    def health(ok: bool) -> Response:
        content = {"status": "ok" if ok else "not ready", "model_version": holder.current.version}
        return JSONResponse(content, 200 if ok else 503)

    @made.head("/healthz", include_in_schema=False)
    @made.get("/healthz", response_model=schemas.Health, tags=["service"])
    async def healthz() -> Response:
        """Report that the process is alive."""
        return health(True)

    @made.head("/readyz", include_in_schema=False)
    @made.get(
        "/readyz", response_model=schemas.Health, tags=["service"], responses={503: not_ready}
    )
    async def readyz() -> Response:
        """Report whether requests are answered without delay."""
        return health(holder.ready)

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @made.get("/metrics", tags=["service"], response_class=Response, responses={200: text})
    async def metrics_page() -> Response:
        """Return counts and times in the format of Prometheus."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    @made.head("/", include_in_schema=False)
    @made.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    return made
