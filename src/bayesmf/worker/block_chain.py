"""A chain of Gibbs sweeps inside one block, from start to end, and what it leaves of each row.

Rows whose posterior in an earlier block is known have it as their prior: a Gaussian each, and for
their noise a Gamma distribution. Rows of a side that is met for the first time have the prior of
the model, which is drawn with them. Where no side is known the model cannot tell one rotation of
the factors from another, nor one size: the chain then settles with all that can be drawn, and its
priors stand still while its rows are followed, which hold the factors in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.blocks.two_way import TwoWayBlock
from bayesmf.kernels.evidence import LEAST_TAU
from bayesmf.kernels.exact import exact_sums, total
from bayesmf.kernels.gamma import draw_gammas
from bayesmf.kernels.gather import N_SUMS, SSE, HalfSweep, RowRatings, regressors
from bayesmf.kernels.gaussians import (
    MomentSums,
    draw_gaussians,
    make_gaussian_scratch,
    match_moments,
    triangle,
)
from bayesmf.kernels.keys import (
    STREAM_AMPLITUDES,
    STREAM_ITEMS,
    STREAM_NOISE,
    STREAM_SCALES,
    STREAM_SERVER,
    STREAM_USERS,
    StreamCounter,
    generator,
    stream_word,
)
from bayesmf.kernels.row_posterior import make_row_scratch
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.amplitude import draw_amplitudes
from bayesmf.model.noise import Noise, RowNoise, evidence_of, half_errors
from bayesmf.model.noise_law import LawSlice
from bayesmf.model.params import RowPrior, initial_rows
from bayesmf.model.priors import Prior, draw_tau
from bayesmf.model.rescale import draw_scales

Floats = NDArray[np.float64]

# Plain sweeps at the start, as in chains/rounds/gibbs.py; sweeps between conditional covariances,
# which change little from one to the next and cost as much as the sweep.
SETTLE, COVARIANCE_EVERY = 4, 4
NO_SUMS = MomentSums(np.zeros((0, 1)), np.zeros((0, 1)))


@dataclass(frozen=True)
class BlockSettings:
    """What the chains of all blocks have in common."""

    n_factors: int
    prior: Prior
    tau: float | None
    noise_by: str | None
    burn_in: int
    sweeps: int
    overrelax: float


@dataclass(frozen=True)
class Above:
    """What stands above the rows of a side that is met for the first time, to begin with."""

    prior: RowPrior
    law: tuple[float, float]  # shape and rate of the precisions of its rows' ratings


class KnownRows(NamedTuple):
    """What is known of rows: Gaussians, and shapes and rates of their noise's precisions."""

    mean: Rows
    precision: Rows  # triangles
    noise: NDArray[np.float32]  # (rows, 2), or no rows


@dataclass
class Side:
    """One side of the block while its chain runs; `value` are precisions of ratings by row."""

    stripe: Stripe
    rows: Rows
    known: KnownRows | None
    prior: RowPrior
    noise: RowNoise | None
    told: Floats = field(default_factory=lambda: np.zeros((0, 1)))
    sums: MomentSums = NO_SUMS
    precisions: Floats = field(default_factory=lambda: np.zeros(0))  # sums of conditional means

    @property
    def weights(self) -> Any:
        """Precisions of the rows' ratings, None where they have none of their own."""
        return None if self.noise is None else np.asarray(self.noise.value, np.float32)

    def gaussians(self) -> tuple[Any, Any]:
        """Means and triangles of the rows' priors, one of each for all or one a row."""
        if self.known is not None:
            return self.known.mean, self.known.precision
        Lambda = self.prior.Lambda
        matrix = np.diag(Lambda) if Lambda.ndim == 1 else Lambda
        packed = matrix[np.tril_indices(len(matrix))]
        own = self.prior.mu[None].astype(np.float32), packed[None].astype(np.float32)
        return readonly(own[0]), readonly(own[1])


class BlockChain:
    """Sweeps over the ratings of one block; all random numbers are those of (key, block, sweep)."""

    def __init__(
        self,
        held: TwoWayBlock,
        settings: BlockSettings,
        known: tuple[KnownRows | None, KnownRows | None],
        above: tuple[Above, Above],
        tau: float,
        key: NDArray[np.uint32],
    ) -> None:
        self._held, self._settings, self._key = held, settings, key
        self.tau, self.sse = tau, 0.0
        self.sides = [self._begin(side, known[side], above[side]) for side in range(2)]
        self._free = known[0] is None and known[1] is None
        width = self.sides[0].rows.shape[1]
        self._scratch = make_row_scratch(width, settings.n_factors), make_gaussian_scratch(width)

    def _begin(self, side: int, known: KnownRows | None, above: Above) -> Side:
        settings, stripe = self._settings, self._held.side(side)
        noise, own = None, ("user", "item")[side]
        if settings.noise_by in (own, "both"):
            shape, rate = above.law
            mean_one = settings.noise_by == "both" and side == 1
            mean = 1.0 if mean_one else shape / rate
            value = np.full(len(stripe.rows), mean, np.float32)
            if known is not None:
                value = known.noise[:, 0] / known.noise[:, 1]
            noise = RowNoise(value, shape, rate, mean_one)
        if known is not None:
            return Side(stripe, np.array(known.mean), known, above.prior, noise)
        D, bias = settings.n_factors, settings.prior.bias
        rows = initial_rows(stripe.rows, D, bias, side, self._key)
        return Side(stripe, rows, known, above.prior, noise)

    def run(self) -> None:
        """All sweeps: the side that is met for the first time is drawn first."""
        settings = self._settings
        order = (1, 0) if self.sides[1].known is None and not self._free else (0, 1)
        self._last = order[-1]
        for sweep in range(settings.burn_in + settings.sweeps):
            late = sweep - settings.burn_in
            if late == 0:
                self._follow()
            for side in order:
                self._draw_rows(side, sweep, late)
                if side == 0 and late >= 0:
                    self.sse += self._errors() / settings.sweeps
                self._draw_noise(side, sweep, late)
            self._draw_above(sweep, late >= 0)

    def _errors(self) -> float:
        """Squared errors of all ratings, from those that users' rows have left.

        Items weigh them; their mean weight is taken off (chains/rounds/row_noise.py).
        """
        sse = float(total([exact_sums(self.sides[0].told[:, SSE])])[0])
        weights = self.sides[1].weights
        if weights is None or not len(self._held):
            return sse
        return sse * len(self._held) / float(self._held.row_counts(1) @ weights.astype(np.float64))

    def _follow(self) -> None:
        for side in self.sides:
            n, width = side.rows.shape
            side.sums = MomentSums(np.zeros((n, width)), np.zeros((n, triangle(width))))
            side.precisions = np.zeros(n)

    def _draw_rows(self, side: int, sweep: int, late: int) -> None:
        settings, own, other = self._settings, self.sides[side], self.sides[1 - side]
        stripe = own.stripe
        given = regressors(other.rows, settings.n_factors, other.weights)
        ratings = RowRatings(
            stripe.rows, stripe.starts, stripe.other, stripe.value, stripe.levels, *given
        )
        tau = np.full(len(own.rows), 1.0 if self._noisy else self.tau)
        if own.noise is not None:
            tau = np.asarray(own.noise.value, np.float64)
        word = stream_word((STREAM_USERS, STREAM_ITEMS)[side], self._held.number)
        relax = settings.overrelax if sweep >= SETTLE else 0.0
        half = HalfSweep(settings.n_factors, tau, relax, StreamCounter(sweep, word, self._key))
        every = min(COVARIANCE_EVERY, settings.sweeps)
        # What stands for `every` sweeps comes with the first of them; the last may be fewer.
        weight = min(every, settings.sweeps - late) if late >= 0 and late % every == 0 else 0
        own.told = np.zeros((len(own.rows), N_SUMS))
        draw_gaussians(
            own.rows, own.told, ratings, own.gaussians(), half, *self._scratch, own.sums,
            float(weight),
        )  # fmt: skip

    @property
    def _noisy(self) -> bool:
        return self._settings.noise_by is not None

    def _draw_noise(self, side: int, sweep: int, late: int) -> None:
        """Precisions of the rows' ratings, given the errors that their draws have left."""
        own, counts = self.sides[side], self._held.row_counts(side)
        noise = own.noise
        if noise is None:
            return
        errors = half_errors(counts, own.told[:, SSE], noise.mean_one)
        if own.known is None:
            if not (self._free and late >= 0):
                noise = self._draw_law(side, sweep, noise, counts, errors)
            shape, rate = noise.shape + 0.5 * counts, noise.rate + errors
        else:
            shape = own.known.noise[:, 0] + 0.5 * counts
            rate = own.known.noise[:, 1] + errors
        found = np.empty(len(counts))
        word = stream_word(STREAM_NOISE, self._held.number)
        draw_gammas(found, shape, own.stripe.rows, 2 * sweep + side, word, *self._key)
        value = np.maximum(found / rate, LEAST_TAU).astype(np.float32)
        own.noise = RowNoise(value, noise.shape, noise.rate, noise.mean_one)
        if late >= 0:
            own.precisions += shape / rate

    def _draw_law(
        self, side: int, sweep: int, noise: RowNoise, counts: NDArray[np.int64], errors: Floats
    ) -> RowNoise:
        rng = generator(self._key, 2 * sweep + side, STREAM_NOISE, self._held.number)
        slice_ = LawSlice(noise.shape, noise.rate, noise.mean_one, len(counts), rng)
        while not slice_.choose(total([evidence_of(slice_.laws, counts, errors)])):
            pass
        return RowNoise(noise.value, *slice_.found, noise.mean_one)

    def _draw_above(self, sweep: int, late: bool) -> None:
        """Priors of the sides that are met for the first time, and tau where it is one number."""
        settings, block = self._settings, self._held.number
        users, items = self.sides
        rng = generator(self._key, sweep, STREAM_SERVER, block)
        if not self._noisy and settings.tau is None:
            # Those of the rows drawn last: of the others the errors are of rows that are gone.
            sse = float(total([exact_sums(self.sides[self._last].told[:, SSE])])[0])
            self.tau = draw_tau(sse, len(self._held), rng)
        if self._free and late:
            return
        if self._free:
            # Before users and items exchange the sizes of their precisions: these go together.
            sums = self._amplitude_sums()
            if users.noise is not None or items.noise is not None:
                noise = Noise(users.noise, items.noise).draw_hyper(rng)
                users.noise, items.noise = noise.users, noise.items
            self._rescale(sweep, sums)
        for side in self.sides:
            if side.known is None:
                if side.noise is not None and not self._free:
                    side.noise = side.noise.draw_hyper(rng)
                side.prior = settings.prior.draw(side.rows, rng)

    def _amplitude_sums(self) -> NDArray[np.float64]:
        """What items' rows explain of their ratings, by the precisions of these."""
        items = self.sides[1]
        precision: Any = self.tau if not self._noisy else 1.0
        if items.noise is not None:
            precision = np.asarray(items.noise.value, np.float64)[:, None]
        return total([exact_sums(precision * items.told)])

    def _rescale(self, sweep: int, sums: NDArray[np.float64]) -> None:
        """The moves of scales, as chains/chain.py has them."""
        settings, block = self._settings, self._held.number
        users, items = self.sides
        prior, D = settings.prior, settings.n_factors
        rng = generator(self._key, sweep, STREAM_AMPLITUDES, block)
        items.rows *= draw_amplitudes(items.rows, D, prior, sums, rng).astype(np.float32)
        rng = generator(self._key, sweep, STREAM_SCALES, block)
        factors = draw_scales(users.rows, items.rows, D, prior, rng).astype(np.float32)
        users.rows *= factors
        items.rows /= factors

    def found(self, side: int) -> KnownRows:
        """What the chain leaves of the rows of one side."""
        own, sweeps = self.sides[side], self._settings.sweeps
        n, width = own.rows.shape
        mean, packed = np.empty((n, width), np.float32), np.zeros((n, triangle(width)), np.float32)
        match_moments(mean, packed, own.sums, sweeps, self._scratch[1])
        noise = np.zeros((0, 2), np.float32)
        if own.noise is not None:
            shape = own.noise.shape if own.known is None else own.known.noise[:, 0]
            shape = shape + 0.5 * self._held.row_counts(side)
            # The Gamma distribution whose mean is that of the conditional ones.
            noise = np.stack([shape, shape * sweeps / own.precisions], axis=1).astype(np.float32)
        return KnownRows(mean, packed, noise)

    def above(self, side: int) -> Above:
        """What stands above the rows of one side in the end."""
        own = self.sides[side]
        law = (1.0, 1.0) if own.noise is None else (own.noise.shape, own.noise.rate)
        return Above(own.prior, law)
