"""What requests of version 1 look like; with responses.py the source of /openapi.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from bayesmf.posterior import PolicyName

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
    likely: StrictBool = Field(
        default=False,
        description="Also give the stars that are likely, where ratings are stars.",
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
        description="Give the probability of each star, and those that are likely, where ratings "
        "take few values.",
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


# -- requests in an address, where all is text ---------------------------------------------------

TextId = Annotated[str, Field(min_length=1, max_length=MOST_ID)]
TextCount = Annotated[int, Field(ge=1, le=MOST_N)]
TextLevel = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, description=LEVEL)]


class RecommendQuery(Asked):
    """A user that was learnt from, and how to choose."""

    user: TextId = Field(description="Id of the user.", examples=["17"])
    n: TextCount = 10
    policy: PolicyName = Field(default="mean", description=POLICIES)
    level: TextLevel = 0.9


class SimilarQuery(Asked):
    """An item, and how many others."""

    item: TextId = Field(description="Id of the item.", examples=["50"])
    n: TextCount = 10


class SearchQuery(Asked):
    """Words of a title."""

    q: str = Field(
        default="",
        max_length=MOST_QUERY,
        description="Words of a title; the most rated items where it is empty.",
        examples=["harbour"],
    )
    n: TextCount = 10


class ItemQuery(Asked):
    """An item."""

    item: TextId = Field(description="Id of the item.", examples=["50"])
    level: TextLevel = 0.9


class UserQuery(Asked):
    """A user that was learnt from, and how many ratings to list."""

    user: TextId = Field(description="Id of the user.", examples=["17"])
    n: TextCount = 20
