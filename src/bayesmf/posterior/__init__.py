"""From kept draws to answers: mean, spread and intervals of pairs, rankings of items.

posterior  mean, standard deviation and interval of a new rating
moments    mean and variance of many pairs, streamed over draws
ranking    the best items of many users, by matrix products
levels     probabilities of the values that ratings take
one_user   the scores of one user's items, which decide ties
"""
