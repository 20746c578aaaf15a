"""h and h-bar: how often a mini-batch touches a row, and the correction for it.

Only rows in the mini-batch are updated, so the prior's gradient arrives on visits only; divided by
the probability of a visit it is unbiased (estimator G3, Section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block

Array = NDArray[np.float64]


def h_replacement(counts: NDArray[np.int64], n: int, m: int) -> Array:
    """The printed h = 1 - (1 - N_i/N)^m, for m ratings drawn with replacement."""
    if n == 0:
        return np.zeros(len(counts))
    with np.errstate(divide="ignore"):  # a row that has the whole block: log(0), h = 1
        return np.asarray(-np.expm1(m * np.log1p(-counts / n)))


def block_h(block: Block, batch_size: int | None) -> tuple[Array, Array]:
    """(h_user, h_item) of the block's rows.

    Of dealt mini-batches (`batch_size=None`), the share that hold the row: exact, by counting.
    """
    if batch_size is None:
        user, item = (visits / block.n_batches for visits in block.visits())
    else:
        user, item = (h_replacement(n, len(block), batch_size) for n in block.counts())
    return user, item


def h_bar(
    blocks: Sequence[Block],
    visit_rate: Array,
    n_users: int,
    n_items: int,
    batch_size: int | None,
) -> tuple[Array, Array]:
    """hbar_user, hbar_item = sum over blocks of v^(s) h^(s)."""
    hbar_user, hbar_item = np.zeros(n_users), np.zeros(n_items)
    for block, v in zip(blocks, visit_rate, strict=True):
        h_user, h_item = block_h(block, batch_size)
        hbar_user[block.user_rows] += v * h_user
        hbar_item[block.item_rows] += v * h_item
    return hbar_user, hbar_item


def inverse(hbar: Array) -> Array:
    """1/hbar; 0 for rows without ratings, which no mini-batch has."""
    return np.asarray(np.divide(1.0, hbar, out=np.zeros_like(hbar), where=hbar > 0))
