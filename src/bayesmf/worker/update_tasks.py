"""A round of a rule whose update is written in NumPy, in a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.batch_gradient import add_gradients, draw_with_replacement, fill_noise
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.kernels.minibatch import Batches
from bayesmf.kernels.types import Rows
from bayesmf.model.priors import RowPrior
from bayesmf.model.refs import own_copy
from bayesmf.samplers.base import Array, GradientRule
from bayesmf.worker.block_tasks import RoundResult, Weights, all_finite
from bayesmf.worker.gradient_tasks import GradientBlock, GradientGiven, GradientTask


@dataclass(frozen=True, eq=False)
class UpdateGiven(GradientGiven):
    """A round of a rule with an update of its own."""

    rule: GradientRule


@dataclass(frozen=True)
class UpdateTask(GradientTask):
    """A round of mini-batch updates by `rule.update`, in double precision."""

    shared: UpdateGiven

    def execute(self, held: GradientBlock) -> RoundResult:
        """`length` mini-batch updates of the block's rows."""
        users, items = own_copy(self.users), own_copy(self.items)
        sse, count = 0.0, 0
        if len(held):
            sse, count = self.over_batches(held, self._dealt, self._drawn, held, users, items)
        finite = all_finite(users, items)
        return RoundResult(users, items, self.shared.fixed, sse, count, finite)

    def _dealt(self, batches: Batches, order: NDArray[np.int64], *state: Any) -> tuple[float, int]:
        sse, count = 0.0, 0
        for iteration, b in enumerate(order, self.shared.first_iteration):
            lo, hi = batches.starts[b], batches.starts[b + 1]
            sse += self._update(batches, lo, hi, iteration, *state)
            count += int(batches.segment_starts[hi] - batches.segment_starts[lo])
        return sse, count

    def _drawn(
        self, batches: Batches, room: Any, length: int, block: int, *state: Any
    ) -> tuple[float, int]:
        (index, drawn), sse, given = room, 0.0, self.shared
        for iteration in range(given.first_iteration, given.first_iteration + length):
            end = draw_with_replacement(index, drawn, batches, iteration, block, given.key)
            sse += self._update(drawn, 0, end, iteration, *state)
        return sse, length * len(index)

    def _update(
        self,
        batches: Batches,
        lo: int,
        hi: int,
        iteration: int,
        held: GradientBlock,
        users: Rows,
        items: Rows,
    ) -> float:
        """One mini-batch, the segments from lo to hi: gradients at the old state, then updates."""
        block, given = held.block, self.shared
        prior = given.precisions
        gradients = np.zeros(users.shape), np.zeros(items.shape)
        weights = self.weights(users, items)
        sse = add_gradients(batches, lo, hi, users, items, weights, given.n_factors, *gradients)
        rated = batches.item[batches.segment_starts[lo] : batches.segment_starts[hi]]
        for touched, rows, likelihood, numbers, weight, noise, above, step, stream in (
            (np.unique(batches.segment_user[lo:hi]), users, gradients[0], block.user_rows,
             held.prior_weight_user, self.noise(held.noise_user), prior.users, given.step_users,
             STREAM_USERS),
            (np.unique(rated), items, gradients[1], block.item_rows,
             held.prior_weight_item, self.noise(held.noise_item), prior.items, given.step_items,
             STREAM_ITEMS),
        ):  # fmt: skip
            if step > 0:  # 0 holds a side
                old = rows[touched].astype(np.float64)
                gradient = held.scale * prior.tau * likelihood[touched]
                gradient -= _column(weight[touched]) * _pull(above, old)
                z = self._normals(numbers[touched], old.shape[1], iteration, stream, block.number)
                z *= np.sqrt(_column(noise[touched]))
                rows[touched] = given.rule.update(old, gradient, z, step)
        return float(sse)

    def _normals(
        self, numbers: NDArray[np.int32], width: int, iteration: int, stream: int, block: int
    ) -> Array:
        """Standard normals that belong to these rows in this iteration, and to no others."""
        z = np.empty((len(numbers), -(-width // 4) * 4), np.float32)
        fill_noise(z, numbers, iteration, stream_word(stream, block), self.shared.key)
        return z[:, :width].astype(np.float64)


def _column(weights: Weights) -> Array:
    return weights.astype(np.float64)[:, None]


def _pull(prior: RowPrior, rows: Array) -> Array:
    """Lambda (x - mu), for a diagonal or a matrix; not by @, which would wake BLAS's threads."""
    away = rows - prior.mu
    if prior.Lambda.ndim == 1:
        return np.asarray(away * prior.Lambda)
    return np.asarray(np.einsum("id,de->ie", away, prior.Lambda))
