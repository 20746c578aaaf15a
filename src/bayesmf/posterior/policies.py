"""What items may be ranked by."""

from typing import Literal, get_args

PolicyName = Literal["mean", "ucb", "lcb", "thompson", "thompson-items"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
# Those that rank by a draw, of the items and the person or of the items alone.
DRAWN: tuple[PolicyName, ...] = ("thompson", "thompson-items")
