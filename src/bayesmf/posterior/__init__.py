"""From kept draws to answers: mean, spread and intervals of pairs, rankings of items.

posterior  mean, standard deviation and interval of a new rating
rows       rows of users and items under each draw, and the precisions of their ratings
pairs      mixtures of pairs, block by block
levels     probabilities of the values that ratings take
ranking    the best items of users
explain    shares of a user's ratings in a prediction; similar items and users
traces     draws by chain, and training errors, for diagnostics
"""

from typing import Literal, get_args

# What items may be ranked by: imported where nothing heavy may be.
PolicyName = Literal["mean", "ucb", "lcb", "thompson", "thompson-items"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
# Those that rank by a draw, of the items and the person or of the items alone.
DRAWN: tuple[PolicyName, ...] = ("thompson", "thompson-items")
