"""What answers of version 1 look like; with schemas.py the source of /openapi.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bayesmf.posterior import PolicyName
from bayesmf.web.schemas import LEVEL, Id


class Answer(BaseModel):
    """Base of answers."""

    model_version: str = Field(
        description="Version of the model that answered.", examples=["3f9c2a71d04e"]
    )
    notes: list[str] = Field(description="What makes this answer worth less than it looks.")


class Named(BaseModel):
    """An item with what the table of items has of it."""

    item: Id = Field(description="Id of the item.", examples=[50])
    title: str | None = Field(description="Its title, where a table of items was given.")
    info: dict[str, Any] | None = Field(
        default=None, description="Its other columns, where asked for."
    )


class Likely(BaseModel):
    """The shortest run of levels, such as stars, that holds a new rating with at least `level`.

    Ratings in whole stars do not fall between them, so this is what to tell people of one item;
    `low` and `high` of the interval are right on average over many.
    """

    low: float = Field(description="Its lowest level.", examples=[3])
    high: float = Field(description="Its highest level.", examples=[5])
    probability: float = Field(description="The probability that it holds.", examples=[0.94])


class Predicted(BaseModel):
    """A new rating as it is predicted."""

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
        default=None, description="Which stars are likely, where asked for and ratings are stars."
    )


class RecommendedItem(Named, Predicted):
    """An item that is recommended."""


class RecommendResponse(Answer):
    """The best items, best first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "model_version": "3f9c2a71d04e", "notes": [], "user": 17, "known": True, "policy": "mean",
        "level": 0.9, "items": [{"item": 50, "title": "The Harbour", "mean": 4.61, "std": 0.79,
                                 "low": 3.31, "high": 5.0}],
    }]})  # fmt: skip
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


class PredictResponse(Answer):
    """Predictions, in the order of the request."""

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
    """What one rating adds to a prediction."""

    rating: float = Field(description="The rating that was given.")
    share: float = Field(description="What it adds to the prediction.")
    share_std: float = Field(description="Standard deviation of that over draws.")
    effect: float = Field(description="By how much the prediction would change without it.")


class Explanation(Answer, Named):
    """A prediction as a sum: `rest`, the listed shares, and `others`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "model_version": "3f9c2a71d04e", "notes": [], "item": 50, "title": "The Harbour",
        "prediction": 4.61, "rest": 4.2, "others": 0.0, "n_ratings": 1,
        "shares": [{"item": 181, "title": "Night Train", "rating": 5, "share": 0.41,
                    "share_std": 0.05, "effect": -0.41}],
    }]})  # fmt: skip
    prediction: float = Field(description="Expected rating, not cut to the range of ratings.")
    rest: float = Field(description="What is predicted for somebody nobody knows.")
    others: float = Field(description="Sum of the shares that are not listed.")
    n_ratings: int = Field(description="How many ratings of the person count.")
    shares: list[Share]


class SimilarItem(Named):
    """An item that the same people like."""

    similarity: float = Field(description="Correlation over people, on average over draws.")
    std: float = Field(description="Its standard deviation over draws.")


class SimilarItems(Answer, Named):
    """The items that are most alike an item."""

    items: list[SimilarItem]


class FoundItem(Named):
    """An item that a search has found."""

    n_ratings: int = Field(description="How many ratings it was learnt from.")


class SearchResponse(Answer):
    """What a search has found, the best match first."""

    query: str
    items: list[FoundItem]


class ItemResponse(Answer, FoundItem, Predicted):
    """What is known of an item, and what a new person would rate it."""

    level: float = Field(description=LEVEL)
    levels: list[float] | None = Field(description="Values that ratings take, such as stars.")
    probabilities: list[float] | None = Field(description="Probability of each of `levels`.")


class RatedItem(Named):
    """An item that a user has rated."""

    rating: float


class UserResponse(Answer):
    """What is known of a user."""

    user: Id
    n_ratings: int = Field(description="How many ratings the user was learnt from.")
    mean_rating: float | None = Field(description="Their mean.")
    noise: float = Field(
        description="Standard deviation of the user's ratings around predictions, of such items."
    )
    usual_noise: float = Field(description="That of other people, of the same items.")
    ratings: list[RatedItem] = Field(description="Some of them, the highest first.")


class Curve(BaseModel):
    """What one chain noted of each epoch."""

    chain: int
    epoch: list[float]
    seconds: list[float]
    train_rmse: list[float | None]
    validation_rmse: list[float | None]
    tau: list[float | None]
    burn_in: list[bool] = Field(description="Epochs whose draws are not kept.")


class Convergence(BaseModel):
    """Whether chains have converged: in a sentence, and the numbers behind it."""

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
    """How many ratings intervals held, by level: of all test ratings, or of a group."""

    group: str = Field(description="Empty for all test ratings.")
    range: str
    n: int
    observed: list[float]


class Calibration(BaseModel):
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
    some_users: list[Id] = Field(description="A few ids of users, to show what they look like.")


class ModelCard(Answer):
    """What the model is, and how far it can be trusted."""

    name: str
    has_titles: bool = Field(description="Whether a table of items gives them titles.")
    columns: list[str] = Field(description="Other columns of the table of items.")
    loaded_at: str
    bayesmf: str = Field(description="Version of the service.")
    data: ModelData
    settings: list[tuple[str, str]] = Field(description="How it was fitted, in words.")
    draws: int
    factors: int
    noise: float = Field(description="Standard deviation of ratings around predictions.")
    convergence: Convergence
    calibration: Calibration | None = Field(description="None without held-out ratings.")
    calibration_state: Literal["none", "pending", "failed", "done"] = Field(
        description="`none` without held-out ratings; `pending` while it is worked out."
    )


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
    model_version: str | None = Field(default=None, description="Version of the model.")
