"""What requests and answers of version 1 look like: the source of the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from bayesmf.posterior.policies import PolicyName

# Longest lists and texts that a request may have: enough for a person, little for a machine.
MOST_RATINGS, MOST_ITEMS, MOST_PAIRS, MOST_N = 2_000, 10_000, 1_000, 1_000
MOST_ID, MOST_QUERY = 512, 200
# Names in one object of a request: more than any has, so that few errors are all there can be.
MOST_NAMES = 50
# Ids are 64 bits at the most; JavaScript has 53.
LARGEST_ID, LARGEST_SEED = 2**63 - 1, 2**53 - 1

Id = (
    Annotated[StrictInt, Field(ge=-LARGEST_ID - 1, le=LARGEST_ID)]
    | Annotated[StrictStr, Field(min_length=1, max_length=MOST_ID)]
)
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Level = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]
Count = Annotated[StrictInt, Field(ge=1, le=MOST_N)]

POLICIES = (
    "What to rank by: `mean`, the expected rating; `ucb`, a bonus for what is not known yet; "
    "`lcb`, what is surely good; `thompson`, one joint draw, so that an item comes first as often "
    "as it is the best; `thompson-items`, a draw of the items alone, for people who come once."
)
LEVEL = "Probability that a new rating falls between `low` and `high`."
RATINGS = (
    "Ratings of this person, new or known, that count beside what was learnt from. They are used "
    "for this answer alone, and neither stored nor logged."
)


class Asked(BaseModel):
    """Base of requests: a name that is not known is an error, not ignored."""

    model_config = ConfigDict(extra="forbid")


class SentRating(Asked):
    """A rating that comes with a question."""

    item: Id = Field(description="Id of the item.", examples=[50])
    rating: Number = Field(description="The rating, on the model's scale.", examples=[5])


Sent = Annotated[list[SentRating], Field(max_length=MOST_RATINGS, fail_fast=True)]


class RecommendRequest(Asked):
    """For whom, from what, and how to choose."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"user": 17, "n": 5},
                {"ratings": [{"item": 50, "rating": 5}, {"item": 181, "rating": 4}], "n": 5},
            ]
        },
    )
    user: Id | None = Field(default=None, description="Id of a user that was learnt from.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    n: Count = Field(
        default=10, description="How many items; fewer come back where no more are left."
    )
    items: Annotated[list[Id], Field(max_length=MOST_ITEMS, fail_fast=True)] | None = Field(
        default=None, description="Candidates: ids of the items to choose from. All by default."
    )
    exclude: Annotated[list[Id], Field(max_length=MOST_ITEMS, fail_fast=True)] | None = Field(
        default=None, description="Ids of items that are not to be recommended."
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
    info: StrictBool = Field(default=False, description="Also give the items' other columns.")


class PredictRequest(Asked):
    """Pairs of user and item, or items for one person who sends ratings."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"pairs": [{"user": 17, "item": 50}, {"user": 42, "item": 50}]},
                {"items": [50, 181], "ratings": [{"item": 7, "rating": 4}]},
            ]
        },
    )
    pairs: (
        Annotated[list[Pair], Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True)] | None
    ) = Field(default=None, description="Pairs of a user and an item that were learnt from.")
    user: Id | None = Field(default=None, description="Id of the one person whom `items` are for.")
    items: (
        Annotated[list[Id], Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True)] | None
    ) = Field(default=None, description="Items for `user`, or for somebody who sends `ratings`.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    level: Level = Field(default=0.9, description=LEVEL)
    probabilities: StrictBool = Field(
        default=True,
        description="Give the probability of each star, where ratings take few values.",
    )
    parts: StrictBool = Field(
        default=False, description="Also split `std` into `unknown` and `noise`."
    )


class Pair(Asked):
    """A user and an item."""

    user: Id = Field(description="Id of the user.", examples=[17])
    item: Id = Field(description="Id of the item.", examples=[50])


class ExplainRequest(Asked):
    """Which prediction to explain."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"user": 17, "item": 50},
                {"item": 50, "ratings": [{"item": 181, "rating": 4}]},
            ]
        },
    )
    item: Id = Field(description="Id of the item.")
    user: Id | None = Field(default=None, description="Id of a user that was learnt from.")
    ratings: Sent | None = Field(default=None, description=RATINGS)
    n: Count = Field(default=10, description="How many ratings to list, the largest share first.")


# -- answers --------------------------------------------------------------------------------------


class Answer(BaseModel):
    """Base of answers."""

    model: str = Field(description="Version of the model that answered.", examples=["3f9c2a71d04e"])
    notes: list[str] = Field(description="What makes this answer worth less than it looks.")


class Named(BaseModel):
    """An item with what the table of items has of it."""

    item: Id = Field(description="Id of the item.", examples=[50])
    title: str | None = Field(description="Its title, where a table of items was given.")
    info: dict[str, Any] | None = Field(
        default=None, description="Its other columns, where asked for."
    )


class Predicted(BaseModel):
    """A new rating as it is predicted."""

    mean: float = Field(description="Expected rating.", examples=[4.21])
    std: float = Field(description="Standard deviation of a new rating, noise included.")
    low: float = Field(description="Lower bound of the interval of a new rating.")
    high: float = Field(description="Upper bound.")
    unknown: float | None = Field(
        default=None, description="The part of `std` that more ratings would take away."
    )
    noise: float | None = Field(default=None, description="The part of `std` that no rating would.")


class RecommendedItem(Named, Predicted):
    """An item that is recommended."""


class Recommended(Answer):
    """The best items, best first."""

    user: Id | None = Field(description="The user asked for.")
    known: bool = Field(description="Whether anything is known of this person.")
    policy: PolicyName
    level: float = Field(description=LEVEL)
    items: list[RecommendedItem]


class PredictedPair(Named, Predicted):
    """A pair with its prediction."""

    user: Id | None = Field(description="The user, none where ratings were sent without one.")
    known: bool = Field(description="False where the prior answers, for an id that is not known.")
    probabilities: list[float] | None = Field(
        description="Probability of each of `levels`, where ratings take few values."
    )


class PredictionList(Answer):
    """Predictions, in the order of the request."""

    level: float = Field(description=LEVEL)
    levels: list[float] | None = Field(description="Values that ratings take, such as stars.")
    predictions: list[PredictedPair]


class Share(Named):
    """What one rating adds to a prediction."""

    rating: float = Field(description="The rating that was given.")
    share: float = Field(description="What it adds to the prediction.")
    share_std: float = Field(description="Standard deviation of that over draws.")
    effect: float = Field(description="By how much the prediction would change without it.")


class Explained(Answer, Named):
    """A prediction as a sum: `rest`, the listed shares, and `others`."""

    prediction: float = Field(description="Expected rating, not cut to the range of ratings.")
    rest: float = Field(description="What people in general think of the item.")
    others: float = Field(description="Sum of the shares that are not listed.")
    n_ratings: int = Field(description="How many ratings of the person count.")
    shares: list[Share]


class SimilarItem(Named):
    """An item that the same people like."""

    similarity: float = Field(description="Correlation over people, on average over draws.")
    std: float = Field(description="Its standard deviation over draws.")


class Similar(Answer, Named):
    """The items that are most alike an item."""

    items: list[SimilarItem]


class FoundItem(Named):
    """An item that a search has found."""

    n_ratings: int = Field(description="How many ratings it was learnt from.")


class ItemList(Answer):
    """What a search has found, the best match first."""

    query: str
    items: list[FoundItem]


class ItemFacts(Answer, FoundItem, Predicted):
    """What is known of an item, and what somebody nobody knows would rate it."""

    level: float = Field(description=LEVEL)
    levels: list[float] | None = Field(description="Values that ratings take, such as stars.")
    probabilities: list[float] | None = Field(description="Probability of each of `levels`.")


class RatedItem(Named):
    """An item that a user has rated."""

    rating: float


class UserFacts(Answer):
    """What is known of a user."""

    user: Id
    n_ratings: int = Field(description="How many ratings the user was learnt from.")
    mean_rating: float | None = Field(description="Their mean.")
    noise: float = Field(description="Standard deviation of the user's ratings, an average item's.")
    ratings: list[RatedItem] = Field(description="Some of them, the highest first.")


class Curve(BaseModel):
    """What one chain noted of each epoch."""

    chain: int
    epoch: list[float]
    seconds: list[float]
    train_rmse: list[float | None]
    validation_rmse: list[float | None]
    tau: list[float | None]
    burning: list[bool] = Field(description="Epochs whose draws are not kept.")


class Convergence(BaseModel):
    """Whether chains have converged: in a sentence, and the numbers behind it."""

    converged: bool | None
    verdict: str
    advice: str
    rhat: float | None
    rhat_noise: float | None
    limit: float | None
    chains: list[Curve]
    worst: list[Quantity] = Field(description="The worst R-hat and ESS of each kind of quantity.")


class Quantity(BaseModel):
    """R-hat and effective sample size of a kind of quantity."""

    name: str
    rhat: float | None
    ess: float | None


class Coverage(BaseModel):
    """How many ratings intervals held, by level: of all test ratings, or of a group."""

    group: str = Field(description="Empty for all test ratings.")
    range: str
    n: int
    observed: list[float]


class Calibrated(BaseModel):
    """Whether intervals hold what they promise: in a sentence, and the numbers behind it."""

    calibrated: bool | None
    verdict: str
    n: int
    rmse: float
    levels: list[int]
    curves: list[Coverage]
    pit: list[int]


class ModelData(BaseModel):
    """What the model was learnt from."""

    ratings: int
    users: int
    items: int
    low: float
    high: float
    mean: float
    levels: list[float] | None
    holds_users: bool = Field(description="False where the model was saved without its users.")


class ModelCard(Answer):
    """What the model is, and how far it can be trusted."""

    name: str
    title: str | None = Field(description="Column of the table of items that titles come from.")
    columns: list[str] = Field(description="Other columns of the table of items.")
    loaded_at: str
    bayesmf: str = Field(description="Version of the service.")
    data: ModelData
    settings: list[tuple[str, str]] = Field(description="How it was fitted, in words.")
    draws: int
    factors: int
    noise: float = Field(description="Standard deviation of ratings around predictions.")
    convergence: Convergence
    calibration: Calibrated | None = Field(description="None without held-out ratings.")


class Problem(BaseModel):
    """What is wrong, in one shape for all errors (RFC 9457)."""

    type: Literal["about:blank"] = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["user 99999 was not learnt from: send ratings instead"])
    field: str | None = Field(
        default=None, description="Which part of the request, where it is one."
    )


class Health(BaseModel):
    """Whether the service is up."""

    status: Literal["ok", "not ready"]
    model: str | None = Field(default=None, description="Version of the model.")
