"""From kept draws to answers: mean, spread and intervals of pairs, rankings of items."""
