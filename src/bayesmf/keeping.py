"""Which states of a chain are kept: after a known burn-in, or of a run that may end any time.

Both are asked before and after every round; they see the chain, and nothing of the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.monitor import BURN_SHARE
from bayesmf.rules import DataShape
from bayesmf.schedules import Thinning

if TYPE_CHECKING:
    from bayesmf.chain import Chain

# Of the time allowed, if that ends before burn-in does.
LONGEST_BURN_IN = 0.4
# Rounds of a growing run that are surely burn-in.
FIRST_KEPT = 3


class Keeping(Protocol):
    """When states are kept."""

    burning: bool
    needs_validation: bool

    def before(self, chain: Chain, t: int) -> None:
        """Look at the chain before round t."""

    def after(self, chain: Chain, t: int) -> None:
        """Keep the state after round t, or not."""

    def finish(self, chain: Chain) -> None:
        """The run is over."""


class Fixed:
    """After the sampler's burn-in, evenly spread to the end of a run of known length."""

    def __init__(self, chain: Chain, shape: DataShape) -> None:
        self.burning, self._first = True, 0
        self._rule = chain.sampler.burn_in_rule(shape)
        self.needs_validation = self._rule.needs_validation
        self._thinning = Thinning(1, 1)

    def before(self, chain: Chain, t: int) -> None:
        """End burn-in before round t if it is over; then the number of draws is known."""
        if not self.burning:
            return
        per_epoch, limit = chain.per_epoch, chain.settings.max_seconds
        late = limit is not None and chain.monitor.seconds() > LONGEST_BURN_IN * limit
        over = self._rule.over(t / per_epoch, chain.n_rounds / per_epoch, chain.trace)
        if over or (late and chain.sampler.keeps_draws):
            self.burning, self._first = False, t
            thin = (chain.sampler.thin or 1.0) * per_epoch
            self._thinning = Thinning.of(chain.n_rounds - t, thin, chain.store.per_chain)

    def after(self, chain: Chain, t: int) -> None:
        if self.burning or not self._thinning.keeps(t - self._first):
            return
        if not chain.kept:
            state, n_draws = chain.state, self._thinning.n_draws
            chain.store.reserve(chain.number, n_draws, state.params, state.means)
        chain.keep()

    def finish(self, chain: Chain) -> None:
        pass


class Growing:
    """All states from the third on, as long as there is room; in the end the first quarter goes.

    When the room is full, every other draw is forgotten, and from then on half as many are kept.
    """

    needs_validation = False

    def __init__(self) -> None:
        self.burning = True
        self._every = 1
        self._at: list[int] = []
        self._probed: list[NDArray[np.float32]] = []
        self._drawn: list[NDArray[np.float32]] = []

    def before(self, chain: Chain, t: int) -> None:
        self.burning = t < FIRST_KEPT * chain.per_epoch

    def after(self, chain: Chain, t: int) -> None:
        if self.burning:
            return
        thin = (chain.sampler.thin or 1.0) * chain.per_epoch * self._every
        if int((t + 1) / thin + 1e-9) == int(t / thin + 1e-9):
            return
        if not self._at:
            state, room = chain.state, chain.store.per_chain
            chain.store.reserve(chain.number, room, state.params, state.means)
        if chain.store.full(chain.number):
            self._forget(chain)
        chain.keep()
        self._at.append(t)
        self._probed.append(chain.probe.predict(chain.state))
        self._drawn.append(chain.probe.draw(chain.state))

    def _forget(self, chain: Chain) -> None:
        if len(self._at) == 1:  # a single place: the last one stays
            chain.store.select(chain.number, slice(0, 0))
        else:
            chain.store.select(chain.number, slice(1, None, 2))
        self._at = self._at[1::2]
        self._probed, self._drawn = self._probed[1::2], self._drawn[1::2]
        self._every *= 2

    def _first(self) -> int:
        """The first of the kept draws that is no burn-in."""
        return int(np.searchsorted(self._at, BURN_SHARE * (self._at[-1] + 1)))

    def traces(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Expected and drawn predictions of the probe pairs, (draws, pairs), burn-in left out."""
        first = self._first() if self._at else 0
        return np.array(self._probed[first:]), np.array(self._drawn[first:])

    def finish(self, chain: Chain) -> None:
        if self._at:
            first = self._first()
            chain.store.select(chain.number, slice(first, None))
            chain.kept = len(self._at) - first
