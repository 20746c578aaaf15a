"""Version 1 of the API: which address asks which question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json
from starlette.responses import FileResponse

import bayesmf.web.answers as answers
import bayesmf.web.schemas as schemas
from bayesmf.errors import BayesMFError, InputError
from bayesmf.posterior.policies import PolicyName
from bayesmf.web.card import card
from bayesmf.web.metrics import CONTENT_TYPE
from bayesmf.web.problems import MEDIA_TYPE, ProblemError
from bayesmf.web.served import ModelHolder, Served

STATIC = Path(__file__).parent / "static"
# What an operation may answer beside what it is asked for.
_PROBLEM: dict[str, Any] = {
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is no JSON.", **_PROBLEM},
    401: {"description": "A token is missing or wrong.", **_PROBLEM},
    404: {"description": "A user or an item is not known.", **_PROBLEM},
    413: {"description": "The body is too large.", **_PROBLEM},
    422: {"description": "The request cannot be used.", **_PROBLEM},
    503: {"description": "Too many requests, or no answer in time.", **_PROBLEM},
}

QueryId = Annotated[str, Query(min_length=1, max_length=schemas.MOST_ID, examples=["50"])]
QueryN = Annotated[int, Query(ge=1, le=schemas.MOST_N)]
QueryLevel = Annotated[float, Query(gt=0, lt=1, allow_inf_nan=False, description=schemas.LEVEL)]


class StrictRequest(Request):
    """A request whose body is JSON as it is written down: no NaN, not too deep, no double names."""

    async def json(self) -> Any:
        """The body, or a sentence."""
        try:
            found = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            # Of a kind that FastAPI passes on as it is.
            raise HTTPException(400, f"the body is no JSON that can be used: {error}") from None
        if _names(found) > schemas.MOST_NAMES:
            raise HTTPException(422, "the body has names that no request has: see /openapi.json")
        return found


def _names(body: Any) -> int:
    """The most names in one of its objects, as deep as requests go.

    pydantic would make an error of each name that is not known, a second's work for a megabyte.
    """
    if not isinstance(body, dict):
        return 0
    inner = (one for value in body.values() if isinstance(value, list) for one in value)
    return max([len(body), *(len(one) for one in inner if isinstance(one, dict))])


class StrictRoute(APIRoute):
    """A route that reads requests so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


class Desk:
    """Where questions are answered: on a few threads, each in its turn, within a time."""

    def __init__(self, holder: ModelHolder, threads: int, seconds: float) -> None:
        self.holder, self.seconds = holder, seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="bayesmf-answer")

    async def ask(self, question: Callable[..., dict[str, Any]], *args: Any) -> Response:
        """The answer of the model that is served now."""
        body = await self.run(_answer, question, self.holder.current, *args)
        return Response(body, media_type="application/json")

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on a thread."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.seconds):
                return await loop.run_in_executor(self.pool, function, *args)
        except TimeoutError:
            raise ProblemError(
                503, f"there was no answer within {self.seconds:g} seconds: ask for less at a time",
                headers={"retry-after": "1"},
            ) from None  # fmt: skip


def _answer(question: Callable[..., dict[str, Any]], served: Served, *args: Any) -> bytes:
    try:
        return to_json(question(served, *args), inf_nan_mode="null")
    except InputError as error:
        raise ProblemError(422, str(error)) from None
    except BayesMFError as error:
        raise ProblemError(500, str(error)) from None


def v1(desk: Desk, tested: bool) -> APIRouter:
    """The questions of version 1."""
    made = APIRouter(prefix="/v1", route_class=StrictRoute, responses=PROBLEMS)

    @made.post("/recommend", response_model=schemas.Recommended, tags=["recommend"])
    async def recommend(asked: schemas.RecommendRequest) -> Response:
        """Recommend the best items to a user, or to somebody who sends ratings."""
        return await desk.ask(answers.recommend, asked)

    @made.get("/recommend", response_model=schemas.Recommended, tags=["recommend"])
    async def recommend_known(
        user: Annotated[str, Query(min_length=1, max_length=schemas.MOST_ID, examples=["17"])],
        n: QueryN = 10,
        policy: Annotated[PolicyName, Query(description=schemas.POLICIES)] = "mean",
        level: QueryLevel = 0.9,
    ) -> Response:
        """Recommend the best items to a user that was learnt from."""
        asked = schemas.RecommendRequest(user=user, n=n, policy=policy, level=level)
        return await desk.ask(answers.recommend, asked)

    @made.post("/predict", response_model=schemas.PredictionList, tags=["predict"])
    async def predict(asked: schemas.PredictRequest) -> Response:
        """Predict ratings: mean, standard deviation, interval and star probabilities."""
        return await desk.ask(answers.predict, asked)

    @made.post("/explain", response_model=schemas.Explained, tags=["explain"])
    async def explain(asked: schemas.ExplainRequest) -> Response:
        """Tell what each rating of a person adds to a prediction; the shares are exact."""
        return await desk.ask(answers.explain, asked)

    @made.get("/similar", response_model=schemas.Similar, tags=["items"])
    async def similar(item: QueryId, n: QueryN = 10) -> Response:
        """Find the items that the same people like."""
        return await desk.ask(answers.similar, item, n)

    @made.get("/items", response_model=schemas.ItemList, tags=["items"])
    async def items(
        q: Annotated[
            str,
            Query(max_length=schemas.MOST_QUERY, description="Words of a title; the most rated "
                  "items where it is empty."),
        ] = "",
        n: QueryN = 10,
    ) -> Response:  # fmt: skip
        """Search items by name."""
        return await desk.ask(answers.search, q, n)

    @made.get("/item", response_model=schemas.ItemFacts, tags=["items"])
    async def item(id: QueryId, level: QueryLevel = 0.9) -> Response:
        """Tell what is known of an item, and what somebody new would rate it."""
        return await desk.ask(answers.item_facts, id, level)

    @made.get("/user", response_model=schemas.UserFacts, tags=["users"])
    async def user(id: QueryId, n: QueryN = 20) -> Response:
        """Tell what is known of a user that was learnt from."""
        return await desk.ask(answers.user_facts, id, n)

    @made.get("/model", response_model=schemas.ModelCard, tags=["model"])
    async def model() -> Response:
        """Tell what the model is, and how far it can be trusted."""
        return await desk.ask(card, tested)

    return made


def around(holder: ModelHolder, metrics: Any) -> APIRouter:
    """Health, metrics and the page."""
    made = APIRouter()

    @made.get("/healthz", response_model=schemas.Health, tags=["service"])
    async def healthz() -> Response:
        """Tell that the process is alive."""
        return Response(
            to_json({"status": "ok", "model": holder.current.version}), 200, None, _JSON
        )

    @made.get(
        "/readyz",
        response_model=schemas.Health,
        tags=["service"],
        responses={503: {"description": "Not ready yet.", "model": schemas.Health}},
    )
    async def readyz() -> Response:
        """Tell whether questions are answered without delay."""
        told = {"status": "ok" if holder.ready else "not ready", "model": holder.current.version}
        return Response(to_json(told), 200 if holder.ready else 503, None, _JSON)

    @made.get("/metrics", tags=["service"], response_class=Response)
    async def metrics_text() -> Response:
        """Give counts and times in the format of Prometheus."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    @made.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    return made


_JSON = "application/json"
