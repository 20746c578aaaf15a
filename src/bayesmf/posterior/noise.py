"""Precisions of ratings under each draw: one number, or those of single users and items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.keys import STREAM_FOLD, generator, make_key
from bayesmf.kernels.row_posterior import GAMMA_TRIES, UnknownNoise, all_known
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Candidates among which the quantile of a precision that nothing is known of is found.
CANDIDATES = 255
# Quantiles of users and of items go up in steps of these, modulo one: where neither is known both
# are spread evenly, and one tells nothing of the other.
QUANTILE_STEPS = 0.6180339887498949, 0.5698402909980532
# Steps of Gibbs by which an unknown precision is drawn.
STEPS = 8


@dataclass(frozen=True)
class RowPrecisions:
    """Precisions of the ratings of one side's rows, but for the weights of the other side's.

    Attributes
    ----------
    plain : ndarray of float64, shape (draws,)
        What they are where rows have none of their own.
    value : ndarray of float32, shape (draws, rows), or None
        Those of single rows; None where they have none, or where they are not known and have to be
        drawn given the rows' ratings.
    prior : ndarray of float64, shape (draws, 2), or None
        Shape and rate of the Gamma distribution of a row's own precision.
    side : int
        Whose rows they are: those of users (0) or of items (1).
    """

    plain: Floats
    value: Rows | None = None
    prior: Floats | None = None
    side: int = 0

    def unseen(self) -> Floats:
        """Precision of a row without ratings under each draw: evenly spread quantiles."""
        if self.prior is None:
            return self.plain
        n = len(self.prior)
        rng = generator(make_key(0), (0, 3)[self.side], STREAM_FOLD)
        some = np.sort(rng.gamma(self.prior[:, :1], size=(n, CANDIDATES)), axis=1)
        quantile = (np.arange(n) + 0.5) * QUANTILE_STEPS[self.side] % 1.0
        at = (CANDIDATES * quantile).astype(np.int64)
        return np.asarray(some[np.arange(n), at] / self.prior[:, 1])

    def of(self, rows: Index) -> Floats:
        """Precisions of rows by number, (rows, draws); NaN where they have to be drawn."""
        if self.prior is None:
            return np.broadcast_to(self.plain, (len(rows), len(self.plain))).copy()
        out = np.full((len(rows), len(self.plain)), np.nan)
        if self.value is not None:
            known = rows >= 0
            out[known] = self.value[:, rows[known]].T
        if (rows < 0).any():
            out[rows < 0] = self.unseen()
        return out


def precisions_of(draws: Draws, side: int) -> RowPrecisions:
    """Precisions of the ratings of users (0) or items (1), given weights of the other side's."""
    found = weights_of(draws, side)
    # Where the other side's rows have precisions, these are the ratings' weights.
    return found if draws.noise_by else replace(found, plain=draws.tau)


def weights_of(draws: Draws, side: int) -> RowPrecisions:
    """Weights that ratings have by their row of users (0) or items (1): one where it has none."""
    value, prior = (
        (draws.user_tau, draws.user_tau_prior),
        (draws.item_tau, draws.item_tau_prior),
    )[side]
    return RowPrecisions(np.ones(len(draws)), value, prior, side)


def unknown_noise(prior: Floats | None, n_draws: int, width: int) -> UnknownNoise:
    """What kernels draw unknown precisions from; nothing where rows have none of their own."""
    if prior is None:
        return all_known(n_draws)
    return UnknownNoise(prior[:, 0].copy(), prior[:, 1].copy(), *_fold_numbers(n_draws, width))


@lru_cache(maxsize=4)
def _fold_numbers(n_draws: int, width: int) -> tuple[NDArray[np.float32], Floats]:
    """Normals and uniforms by which unknown precisions are drawn: the same for every question.

    What they have by chance is therefore the same for all people. So of the normals that Gamma
    variates are made of one comes from each of as many equal parts of their distribution as there
    are draws, in a random order: a person's noise, averaged over draws, hardly depends on them.
    """
    rng = generator(make_key(0), 1, STREAM_FOLD)
    normals = rng.standard_normal((n_draws, STEPS, width + GAMMA_TRIES), dtype=np.float32)
    uniforms = rng.random((n_draws, STEPS, GAMMA_TRIES + 1))
    normal, parts = NormalDist(), np.arange(n_draws)
    for step in range(STEPS):
        quantiles = np.maximum(rng.permutation(parts) + rng.random(n_draws), 1e-9) / n_draws
        normals[:, step, width] = [normal.inv_cdf(quantile) for quantile in quantiles.tolist()]
    return normals, uniforms
