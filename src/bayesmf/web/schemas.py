"""Requests and responses of version 1 of the API, from which /openapi.json is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from bayesmf.posterior import PolicyName

# Longest lists and texts in a request: enough for a person, and cheap for the service.
MOST_RATINGS, MOST_ITEMS, MOST_PAIRS, MOST_N = 2_000, 10_000, 1_000, 1_000
MOST_ID, MOST_QUERY = 512, 200
# Most names in one object of a request; bounds the number of errors.
MOST_NAMES = 50
# Ids have at most 64 bits; numbers of JavaScript have 53.
LARGEST_ID, LARGEST_SEED = 2**63 - 1, 2**53 - 1

Id = (
    Annotated[StrictInt, Field(ge=-LARGEST_ID - 1, le=LARGEST_ID)]
    | Annotated[StrictStr, Field(min_length=1, max_length=MOST_ID)]
)
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Level = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]
Count = Annotated[StrictInt, Field(ge=1, le=MOST_N)]

POLICIES = (
    "What to rank by: `mean`, the expected rating; `ucb`, with a bonus for uncertainty; "
    "`lcb`, with a malus for it; `thompson`, one joint draw, so that an item comes first as often "
    "as it is the best; `thompson-items`, a draw of the items alone, for people who come once."
)
LEVEL = "Probability that a new rating falls between `low` and `high`."
RATINGS = (
    "Ratings of this person, new or known, in addition to the training data. They are used for "
    "this answer alone, and neither stored nor logged."
)


class StrictModel(BaseModel):
    """Base of requests: unknown names are refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


class SentRating(StrictModel):
    """A rating that is sent with a request."""

    item: Id = Field(description="Id of the item.", examples=[50])
    rating: Number = Field(description="The rating, on the model's scale.", examples=[5])


Sent = Annotated[list[SentRating], Field(max_length=MOST_RATINGS, fail_fast=True)]


class RecommendRequest(StrictModel):
    """Request for recommendations: the user, the candidates and the policy."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"user": 17, "n": 5},
        {"ratings": [{"item": 50, "rating": 5}, {"item": 181, "rating": 4}], "n": 5},
    ]})  # fmt: skip
    user: Id | None = Field(default=None, description="Id of a user in the training data.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    n: Count = Field(
        default=10, description="Number of items; fewer are returned if fewer are left."
    )
    items: Annotated[list[Id], Field(max_length=MOST_ITEMS, fail_fast=True)] | None = Field(
        default=None, description="Candidates: ids of the items to choose from. All by default."
    )
    exclude: Annotated[list[Id], Field(max_length=MOST_ITEMS, fail_fast=True)] | None = Field(
        default=None, description="Ids of items to leave out."
    )
    policy: PolicyName = Field(default="mean", description=POLICIES)
    level: Level = Field(default=0.9, description=LEVEL)
    exclude_seen: StrictBool = Field(
        default=True, description="Leave out what the person has rated."
    )
    seed: Annotated[StrictInt, Field(ge=0, le=LARGEST_SEED)] | None = Field(
        default=None, description="Seed of policies that draw; a new draw each time by default."
    )
    parts: StrictBool = Field(
        default=False, description="Also split `std` into `unknown` and `noise` for each item."
    )
    likely: StrictBool = Field(
        default=False,
        description="Also return the likely stars, if ratings take few values.",
    )
    info: StrictBool = Field(default=False, description="Also return the items' other columns.")


class PredictRequest(StrictModel):
    """Pairs of user and item, or items for one person who sends ratings."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"pairs": [{"user": 17, "item": 50}, {"user": 42, "item": 50}]},
        {"items": [50, 181], "ratings": [{"item": 7, "rating": 4}]},
    ]})  # fmt: skip
    pairs: (
        Annotated[list[Pair], Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True)] | None
    ) = Field(default=None, description="Pairs of a user and an item.")
    user: Id | None = Field(default=None, description="Id of the one person whom `items` are for.")
    items: (
        Annotated[list[Id], Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True)] | None
    ) = Field(default=None, description="Items for `user`, or for a person who sends `ratings`.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    level: Level = Field(default=0.9, description=LEVEL)
    probabilities: StrictBool = Field(
        default=True,
        description="Return the probability of each star and the likely stars, if ratings take few "
        "values.",
    )
    parts: StrictBool = Field(
        default=False, description="Also split `std` into `unknown` and `noise`."
    )


class Pair(StrictModel):
    """A user and an item."""

    user: Id = Field(description="Id of the user.", examples=[17])
    item: Id = Field(description="Id of the item.", examples=[50])


class ExplainRequest(StrictModel):
    """Request for an explanation of one prediction."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"user": 17, "item": 50}, {"item": 50, "ratings": [{"item": 181, "rating": 4}]},
    ]})  # fmt: skip
    item: Id = Field(description="Id of the item.")
    user: Id | None = Field(default=None, description="Id of a user in the training data.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    n: Count = Field(default=10, description="How many ratings to list, the largest share first.")


# -- requests in an address, where all is text ---------------------------------------------------

TextId = Annotated[str, Field(min_length=1, max_length=MOST_ID)]
TextCount = Annotated[int, Field(ge=1, le=MOST_N)]
TextLevel = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, description=LEVEL)]


class RecommendQuery(StrictModel):
    """Query for recommendations to a user in the training data."""

    user: TextId = Field(description="Id of the user.", examples=["17"])
    n: TextCount = 10
    policy: PolicyName = Field(default="mean", description=POLICIES)
    level: TextLevel = 0.9


class SimilarQuery(StrictModel):
    """Query for similar items."""

    item: TextId = Field(description="Id of the item.", examples=["50"])
    n: TextCount = 10


class SearchQuery(StrictModel):
    """Words of a title."""

    q: str = Field(
        default="",
        max_length=MOST_QUERY,
        description="Words of a title; the most rated items where it is empty.",
        examples=["harbour"],
    )
    n: TextCount = 10


class ItemQuery(StrictModel):
    """An item."""

    item: TextId = Field(description="Id of the item.", examples=["50"])
    level: TextLevel = 0.9


class UserQuery(StrictModel):
    """A user in the training data, and how many ratings to list."""

    user: TextId = Field(description="Id of the user.", examples=["17"])
    n: TextCount = 20


# -- responses ------------------------------------------------------------------------------------


class Answer(BaseModel):
    """Base of answers."""

    model_version: str = Field(
        description="Version of the model that answered.", examples=["3f9c2a71d04e"]
    )
    notes: list[str] = Field(description="Warnings about this answer.")


class Named(BaseModel):
    """An item with its columns of the table of items."""

    item: Id = Field(description="Id of the item.", examples=[50])
    title: str | None = Field(description="Its title, if there is a table of items.")
    info: dict[str, Any] | None = Field(
        default=None, description="Its other columns, if requested."
    )


class Likely(BaseModel):
    """The shortest run of levels, such as stars, that holds a new rating with at least `level`.

    Show this for one item; `low` and `high` of the interval are right on average over many items.
    """

    low: float = Field(description="Its lowest level.", examples=[3])
    high: float = Field(description="Its highest level.", examples=[5])
    probability: float = Field(description="Probability of the run.", examples=[0.94])


class Predicted(BaseModel):
    """The prediction of a new rating."""

    mean: float = Field(description="Expected rating.", examples=[4.21])
    std: float = Field(description="Standard deviation of a new rating, noise included.")
    low: float = Field(description="Lower bound of the interval of a new rating.")
    high: float = Field(description="Upper bound.")
    unknown: float | None = Field(
        default=None, description="The part of `std` that more ratings would reduce."
    )
    noise: float | None = Field(
        default=None, description="The part of `std` that more ratings cannot reduce."
    )
    likely: Likely | None = Field(
        default=None, description="Likely stars, if requested and ratings take few values."
    )


class RecommendedItem(Named, Predicted):
    """A recommended item."""


class RecommendResponse(Answer):
    """The best items, best first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "model_version": "3f9c2a71d04e", "notes": [], "user": 17, "known": True, "policy": "mean",
        "level": 0.9, "items": [{"item": 50, "title": "The Harbour", "mean": 4.61, "std": 0.79,
                                 "low": 3.31, "high": 5.0}],
    }]})  # fmt: skip
    user: Id | None = Field(description="The user of the request.")
    known: bool = Field(description="Whether there are ratings of this person.")
    policy: PolicyName
    level: float = Field(description=LEVEL)
    items: list[RecommendedItem]


class PredictedPair(Named, Predicted):
    """A pair with its prediction."""

    user: Id | None = Field(description="The user; null if ratings were sent without one.")
    known: bool = Field(description="False for an unknown id, which is predicted from the prior.")
    probabilities: list[float] | None = Field(
        description="Probability of each of `levels`, if ratings take few values."
    )


class PredictResponse(Answer):
    """Predictions in the order of the request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "model_version": "3f9c2a71d04e", "notes": [], "level": 0.9, "levels": [1, 2, 3, 4, 5],
        "predictions": [{"user": 17, "item": 50, "title": "The Harbour", "mean": 4.61, "std": 0.79,
                         "low": 3.31, "high": 5.0, "known": True,
                         "probabilities": [0.01, 0.02, 0.08, 0.31, 0.58]}],
    }]})  # fmt: skip
    level: float = Field(description=LEVEL)
    levels: list[float] | None = Field(description="Values that ratings take, such as stars.")
    predictions: list[PredictedPair]


class Share(Named):
    """The share of one rating in a prediction."""

    rating: float = Field(description="The rating.")
    share: float = Field(description="Its share of the prediction.")
    share_std: float = Field(description="Standard deviation of that over draws.")
    effect: float = Field(description="Change of the prediction without this rating.")


class ExplainResponse(Answer, Named):
    """A prediction as a sum: `rest`, the listed shares, and `others`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "model_version": "3f9c2a71d04e", "notes": [], "item": 50, "title": "The Harbour",
        "prediction": 4.61, "rest": 4.2, "others": 0.0, "n_ratings": 1,
        "shares": [{"item": 181, "title": "Night Train", "rating": 5, "share": 0.41,
                    "share_std": 0.05, "effect": -0.41}],
    }]})  # fmt: skip
    prediction: float = Field(description="Expected rating, not clipped to the range of ratings.")
    rest: float = Field(description="Prediction for an unknown person.")
    others: float = Field(description="Sum of the shares that are not listed.")
    n_ratings: int = Field(description="Number of ratings of the person.")
    shares: list[Share]


class SimilarItem(Named):
    """A similar item: one that the same people like."""

    similarity: float = Field(description="Correlation over people, on average over draws.")
    std: float = Field(description="Its standard deviation over draws.")


class SimilarItems(Answer, Named):
    """The items most similar to an item."""

    items: list[SimilarItem]


class FoundItem(Named):
    """An item found by a search."""

    n_ratings: int = Field(description="Number of its ratings in the training data.")


class SearchResponse(Answer):
    """Items found by a search, best match first."""

    query: str
    items: list[FoundItem]


class ItemResponse(Answer, FoundItem, Predicted):
    """Facts about an item, and its prediction for a new person."""

    level: float = Field(description=LEVEL)
    levels: list[float] | None = Field(description="Values that ratings take, such as stars.")
    probabilities: list[float] | None = Field(description="Probability of each of `levels`.")


class RatedItem(Named):
    """An item rated by a user."""

    rating: float


class UserResponse(Answer):
    """Facts about a user."""

    user: Id
    n_ratings: int = Field(description="Number of the user's ratings in the training data.")
    mean_rating: float | None = Field(description="Their mean.")
    noise: float = Field(
        description="Standard deviation of the user's ratings around predictions of these items."
    )
    usual_noise: float = Field(description="The same for other users.")
    ratings: list[RatedItem] = Field(description="Some of them, the highest first.")


class Curve(BaseModel):
    """The history of one chain, by epoch."""

    chain: int
    epoch: list[float]
    seconds: list[float]
    train_rmse: list[float | None]
    validation_rmse: list[float | None]
    tau: list[float | None]
    burn_in: list[bool] = Field(description="Epochs whose draws are not kept.")


class ConvergenceSummary(BaseModel):
    """Whether chains have converged: a verdict and its numbers."""

    converged: bool | None
    verdict: str
    advice: str
    rhat: float | None
    rhat_noise: float | None
    limit: float | None
    chains: list[Curve]
    diagnostics: list[Diagnostic] = Field(
        description="The worst R-hat and ESS of each kind of quantity."
    )


class Diagnostic(BaseModel):
    """R-hat and effective sample size of a kind of quantity."""

    name: str
    rhat: float | None
    ess: float | None


class Coverage(BaseModel):
    """Coverage of intervals by level: of all test ratings, or of a group."""

    group: str = Field(description="Empty for all test ratings.")
    range: str
    n: int
    observed: list[float]


class CalibrationSummary(BaseModel):
    """Whether intervals are calibrated: a verdict and its numbers."""

    calibrated: bool | None
    verdict: str
    n: int
    rmse: float
    levels: list[int]
    curves: list[Coverage]
    pit: list[int]


class ModelData(BaseModel):
    """The training data."""

    ratings: int
    users: int
    items: int
    low: float
    high: float
    mean: float
    levels: list[float] | None
    holds_users: bool = Field(description="False if the model was saved without its users.")
    some_users: list[Id] = Field(description="A few ids of users, as examples.")


class ModelCard(Answer):
    """The model card: data, settings, convergence and calibration."""

    name: str
    has_titles: bool = Field(description="Whether the table of items has titles.")
    columns: list[str] = Field(description="Other columns of the table of items.")
    loaded_at: str
    bayesmf: str = Field(description="Version of the service.")
    data: ModelData
    settings: list[tuple[str, str]] = Field(description="Settings of the fit, in words.")
    draws: int
    factors: int
    noise: float = Field(description="Standard deviation of ratings around predictions.")
    convergence: ConvergenceSummary
    calibration: CalibrationSummary | None = Field(description="Null without held-out ratings.")
    calibration_state: Literal["none", "pending", "failed", "done"] = Field(
        description="`none` without held-out ratings; `pending` while it is computed."
    )


class Problem(BaseModel):
    """An error, in one shape for all (RFC 9457)."""

    type: Literal["about:blank"] = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["user 99999 is not in the training data: send ratings instead"])
    field: str | None = Field(
        default=None, description="Part of the request that is wrong, if it is one."
    )


class Health(BaseModel):
    """Whether the service is up."""

    status: Literal["ok", "not ready"]
    model_version: str | None = Field(default=None, description="Version of the model.")
