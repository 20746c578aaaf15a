"""Ratings with few values, such as stars: probabilities of levels, and intervals of levels.

Ratings are modelled as real numbers. Edges between levels divide them into one bin for each level;
the outer bins are open. Edges are initially halfway between levels and are moved so that each level
is predicted, on average over training ratings, as often as it occurs. Training ratings suffice for
this: unlike a likelihood, an average over many ratings hardly depends on whether they are training
ratings (figures: docs/answers.md).

The model's noise includes the variance of rounding to levels. Bins round again, so this variance is
subtracted first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.kernels.keys import STREAM_FOLD, generator, make_key
from bayesmf.kernels.mixture import LEAST_SHARE, mixture_bins, mixture_quantile, shortest_runs
from bayesmf.model.draws import RatingLevels, spread_evenly
from bayesmf.posterior.pairs import PairBlock, Progress, Tables
from bayesmf.posterior.posterior import Floats, Index, Posterior, check_level
from bayesmf.posterior.rows import Solved
from bayesmf.process import Pool

# Training ratings and draws by which edges are fitted.
RATINGS, DRAWS = 8_000, 8
# Pseudo-ratings, distributed by the halfway edges, added to the training ratings: few ratings do
# not move edges.
PRIOR = 20.0


class Runs(NamedTuple):
    """Shortest runs of levels with enough probability: inclusive bounds, and probability."""

    low: Floats
    high: Floats
    held: Floats


def levels_of(posterior: Posterior) -> RatingLevels | None:
    """Levels of the training ratings and edges between them; None if there are too many values.

    Computed once for a posterior.
    """
    if posterior.levels is not None:
        return posterior.levels
    if not posterior.ratings.has_users or posterior.ratings.by_user.value.dtype != np.uint8:
        return None
    found = posterior.__dict__.get("_levels")
    if found is None:  # two threads compute the same
        found = posterior.__dict__["_levels"] = _fit_edges(posterior)
    return found


def needed_levels(posterior: Posterior, what: str) -> RatingLevels:
    """Levels and edges; InputError if there are none. `what` needs them."""
    if (found := levels_of(posterior)) is not None:
        return found
    posterior.need_ratings(what)
    raise InputError(
        f"{what} is for ratings that take few values, such as stars, and these take more than "
        f"{MOST_LEVELS}: use predict_interval, or round the ratings before the fit"
    )


def level_probabilities(
    posterior: Posterior,
    user: Index,
    item: Index,
    levels: RatingLevels,
    threads: Pool | int | None = None,
    progress: Progress | None = None,
) -> Floats:
    """Probability of each level for pairs by row number, (pairs, levels); -1 is an unseen row."""
    edges = (np.array(levels.edges) - posterior.center) / posterior.scale
    rounding = levels.rounding / posterior.scale**2
    out = np.empty((len(user), len(edges) + 1))

    def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
        found = posterior.sides.components(block, solved, tables)
        out[at] = mixture_bins(edges, found.moved(), found.var, rounding)

    posterior._each(user, item, work, threads, progress=progress)
    return out


def runs_of(levels: RatingLevels, proba: Floats, level: float) -> Runs:
    """The shortest runs of levels that hold at least `level`, of equally short the likeliest."""
    check_level(level)
    first, last, held = shortest_runs(proba, level)
    values = np.array(levels.levels)
    return Runs(values[first], values[last], held)


def _fit_edges(posterior: Posterior) -> RatingLevels:
    """Levels in units of the ratings, and edges that give each its share of training ratings."""
    code, center, scale = posterior.ratings.by_user.value, posterior.center, posterior.scale
    counts = np.zeros(len(posterior.ratings.levels), np.int64)
    for lo in range(0, len(code), 1 << 22):
        counts += np.bincount(code[lo : lo + (1 << 22)], minlength=len(counts))
    given = counts > 0  # replaced ratings may leave unused levels
    raw = center + scale * posterior.ratings.levels[given].astype(np.float64)
    levels = _short(raw)
    halfway = (levels[1:] + levels[:-1]) / 2
    found = RatingLevels(tuple(levels.tolist()), tuple(halfway.tolist()))
    rounding = found.rounding / scale**2
    mu, var = _some_components(posterior)
    begin = mixture_bins((halfway - center) / scale, mu, var, rounding)[0]
    if not np.isfinite(begin).all():
        raise InputError("the model holds numbers too large to be computed with: fit again")
    share = counts[given] + PRIOR * begin
    below = np.cumsum(share)[:-1] / share.sum()
    # All components together are one mixture, whose quantiles the edges are.
    var = np.maximum(var - np.float32(rounding), np.float32(LEAST_SHARE) * var)
    edges = [center + scale * float(mixture_quantile(p, mu, var)[0]) for p in below.tolist()]
    return found._replace(edges=tuple(np.maximum.accumulate(edges).tolist()))


def _short(values: Floats) -> Floats:
    """The shortest decimal numbers near values, which ascend: 3.5, not 3.4999998.

    Values have the digits of float32.
    """
    close = 2e-6 * float(np.abs(values).max())
    if len(values) > 1:
        close = min(close, 0.01 * float(np.diff(values).min()))
    tried = np.array([np.round(values, decimals) for decimals in range(16)])
    near = np.abs(tried - values) <= close
    return np.asarray(tried[near.argmax(0), np.arange(len(values))]) + 0.0  # 0, never -0


def _some_components(posterior: Posterior) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Components of some training ratings under some draws, in the chain's units: one mixture."""
    lists, draws = posterior.ratings.by_user, posterior.draws
    n = len(lists.other)
    which = np.arange(n)
    if n > RATINGS:
        which = np.unique(generator(make_key(0), 2, STREAM_FOLD).integers(0, n, RATINGS))
    user = np.searchsorted(lists.starts, which, side="right") - 1
    item = np.asarray(lists.other[which], np.int64)
    some = posterior
    if len(draws) > DRAWS:
        some = posterior.with_draws(spread_evenly(draws.chain, DRAWS))
    mu = np.empty((len(some.draws), len(which)), np.float32)
    var = np.empty_like(mu)

    def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
        found = some.sides.components(block, solved, tables)
        mu[:, at], var[:, at] = found.moved(), found.var

    some._each(np.asarray(user, np.int64), item, work)
    return mu.reshape(-1, 1), var.reshape(-1, 1)
