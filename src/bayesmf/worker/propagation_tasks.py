"""Tasks of posterior propagation: a chain in a block, Gaussians put together, draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.grid import Grid
from bayesmf.blocks.two_way import TwoWayBlock, cut_two_ways, make_two_way
from bayesmf.data.training import TrainingData
from bayesmf.kernels.csr import Origin
from bayesmf.kernels.exact import Whole, packed_moments
from bayesmf.kernels.gamma import draw_gammas
from bayesmf.kernels.gaussians import (
    combine_gaussians,
    draw_products,
    make_gaussian_scratch,
)
from bayesmf.kernels.keys import (
    STREAM_ITEMS,
    STREAM_NOISE,
    STREAM_USERS,
    StreamCounter,
    stream_word,
)
from bayesmf.kernels.types import readonly
from bayesmf.model.noise import noise_sums
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.block_chain import Above, BlockChain, BlockSettings, KnownRows
from bayesmf.worker.recipes import open_origin
from bayesmf.worker.tasks import Kept, Shared

# Means, triangles of precisions, and (shape, rate) of the noise, of some rows.
Gaussians = tuple[Any, Any, Any]
# A product of Gaussians is no wider than by so much than the first of them.
LEAST = 0.3
LEAST_RATE = 0.1
# The number of draws' random streams: no block has it.
DRAWS = (1 << 24) - 1


@dataclass(frozen=True)
class TwoWayRecipe:
    """A block of the grid, cut from packed ratings again by the worker."""

    origin: Origin
    grid: Grid
    first: float
    seed: int
    number: int
    levels: NDArray[np.float32]

    def load(self) -> TwoWayBlock:
        """Cut as the driver cuts it."""
        packed = open_origin(self.origin)
        data = TrainingData(packed.by_user, packed.n_items, self.levels, packed.by_item)
        cut = cut_two_ways(data, self.grid, self.first, self.seed)
        return make_two_way(data, self.grid, cut, self.number)


@dataclass(frozen=True, eq=False)
class ChainGiven(Shared):
    """What the chains of a stage have in common."""

    settings: BlockSettings
    key: NDArray[np.uint32]


@dataclass(frozen=True)
class ChainResult(Kept):
    """What a chain leaves of a block's rows, of what stands above them, and of its errors.

    `sse` are the squared errors of its ratings, on average over its sweeps; `count` is the number
    of ratings that it has read.
    """

    goes = ("users", "items")
    users: Any
    items: Any
    above: tuple[Above, Above]
    tau: float
    sse: float
    size: int
    finite: bool
    count: int


@dataclass(frozen=True)
class ChainTask:
    """A whole chain in one block; `users` and `items` are what is known of its rows, or None."""

    chain: int
    partition: int
    users: tuple[Part, Part, Part] | None
    items: tuple[Part, Part, Part] | None
    above: tuple[Above, Above]
    tau: float
    shared: ChainGiven

    def execute(self, held: TwoWayBlock) -> ChainResult:
        """All sweeps."""
        settings, key = self.shared.settings, self.shared.key
        known = _known(self.users), _known(self.items)
        chain = BlockChain(held, settings, known, self.above, self.tau, key)
        chain.run()
        users, items = chain.found(0), chain.found(1)
        finite = all(bool(np.isfinite(x).all()) for x in (*users, *items))
        return ChainResult(
            tuple(users), tuple(items), (chain.above(0), chain.above(1)), chain.tau, chain.sse,
            len(held), finite, len(held) * (settings.burn_in + settings.sweeps),
        )  # fmt: skip


def _known(parts: tuple[Part, Part, Part] | None) -> KnownRows | None:
    return None if parts is None else KnownRows(*(readonly(value_of(part)) for part in parts))


@dataclass(frozen=True)
class CombineResult(Kept):
    """Products of Gaussians: means, and factors of precisions; noise as (shape, rate).

    `less` rows had Gaussians that do not agree, which count in part.
    """

    goes = ("mean",)
    stays = ("factor", "noise")
    mean: Any
    factor: Any
    noise: Any
    less: int
    count: int = 0


@dataclass(frozen=True)
class CombineTask:
    """Multiply what several blocks tell of the rows of a stripe; `first` was the others' prior."""

    chain: int
    partition: int
    first: tuple[Part, Part, Part]
    others: tuple[tuple[Part, Part, Part], ...]

    def execute(self, held: Any) -> CombineResult:
        mean0, packed0, noise0 = (readonly(value_of(part)) for part in self.first)
        others = [[value_of(part) for part in own] for own in self.others]
        means, triangles = (
            np.array([own[k] for own in others], np.float32).reshape(len(others), *like.shape)
            for k, like in enumerate((mean0, packed0))
        )
        mean, factor = np.empty_like(mean0), np.empty_like(packed0)
        room = make_gaussian_scratch(mean.shape[1])
        less = combine_gaussians(mean, factor, (mean0, packed0), (means, triangles), LEAST, room)
        noise = noise0.astype(np.float64)
        for own in others:
            noise = noise + (own[2] - noise0.astype(np.float64))
        noise = np.maximum(noise, LEAST_RATE * noise0)
        return CombineResult(mean, factor, noise.astype(np.float32), int(less))


@dataclass(frozen=True)
class DrawResult(Kept):
    """Rows and precisions of ratings, drawn; their moments and sums as whole numbers."""

    goes = ("rows", "value")
    rows: Any
    value: Any
    moments: Whole
    sums: Whole | None
    count: int = 0


@dataclass(frozen=True)
class DrawTask:
    """A draw of the rows of a stripe from their Gaussians."""

    chain: int
    partition: int
    side: int
    product: tuple[Part, Part, Part]  # of a `CombineResult`
    full: bool
    round: int
    key: NDArray[np.uint32]

    def execute(self, held: TwoWayBlock) -> DrawResult:
        mean, factor, noise = (value_of(part) for part in self.product)
        rows, numbers = np.empty(mean.shape, np.float32), held.numbers(self.side)
        word = stream_word((STREAM_USERS, STREAM_ITEMS)[self.side], DRAWS)
        counter = StreamCounter(self.round, word, self.key)
        room = make_gaussian_scratch(mean.shape[1])
        draw_products(rows, readonly(mean), readonly(factor), readonly(numbers), counter, room)
        moments = packed_moments(rows, self.full)
        if not len(noise):
            return DrawResult(rows, None, moments, None)
        found, shape = np.empty(len(noise)), noise[:, 0].astype(np.float64)
        word = stream_word(STREAM_NOISE, DRAWS)
        draw_gammas(found, shape, numbers, 2 * self.round + self.side, word, *self.key)
        value = (found / noise[:, 1]).astype(np.float32)
        return DrawResult(rows, value, moments, noise_sums(value, held.row_counts(self.side)))
