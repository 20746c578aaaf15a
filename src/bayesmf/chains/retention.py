"""Which states of a chain are kept: after a known burn-in, or of a run that may end any time.

Both are asked before and after every round; they see the chain, and nothing of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.monitor import BURN_SHARE
from bayesmf.samplers.base import DataShape
from bayesmf.samplers.schedules import Thinning

if TYPE_CHECKING:
    from bayesmf.chains.chain import Chain

Traces = tuple[NDArray[np.float32], NDArray[np.float32]]

# Of the time allowed, if that ends before burn-in does.
LONGEST_BURN_IN = 0.4
# Rounds of a growing run that are surely burn-in.
FIRST_KEPT = 3


class Probe:
    """Predictions of the probe pairs at some rounds of a chain: what convergence is judged by."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._expected: list[NDArray[np.float32]] = []
        self._drawn: list[NDArray[np.float32]] = []

    def add(self, chain: Chain, t: int) -> None:
        """Look at the pairs after round t."""
        self._at.append(t)
        self._expected.append(chain.probe.predict(chain.state))
        self._drawn.append(chain.probe.draw(chain.state))

    def after_burn_in(self) -> Traces:
        """What a run that ends here would not drop."""
        return self.since(_after_burn_in(self._at))

    def since(self, first: int) -> Traces:
        """Expected and drawn predictions, (draws, pairs), from the `first` on."""
        return np.array(self._expected[first:]), np.array(self._drawn[first:])

    def export(self) -> dict[str, NDArray[Any]]:
        """As arrays."""
        arrays: dict[str, NDArray[Any]] = {"probed_at": np.array(self._at, np.int64)}
        if self._at:
            arrays |= {"expected": np.array(self._expected), "drawn": np.array(self._drawn)}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """From what `export` gave."""
        # Checkpoints of earlier versions may have none.
        self._at = [int(t) for t in arrays.get("probed_at", ())]
        self._expected = [np.array(one) for one in arrays.get("expected", ())]
        self._drawn = [np.array(one) for one in arrays.get("drawn", ())]


class Keeping(Protocol):
    """When states are kept."""

    burning: bool
    needs_validation: bool

    def traces(self) -> Traces:
        """Expected and drawn predictions of the probe pairs, (draws, pairs), burn-in left out."""

    def before(self, chain: Chain, t: int) -> None:
        """Look at the chain before round t."""

    def after(self, chain: Chain, t: int) -> None:
        """Keep the state after round t, or not."""

    def finish(self, chain: Chain) -> None:
        """The run is over."""

    def export(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Where it is: arrays, and plain values."""

    def restore(self, arrays: Mapping[str, NDArray[Any]], plain: Mapping[str, Any]) -> None:
        """Be where that was."""


class Fixed:
    """After the sampler's burn-in, evenly spread to the end of a run of known length."""

    def __init__(self, chain: Chain, shape: DataShape) -> None:
        self.burning, self._first = True, 0
        self._rule = chain.sampler.burn_in_rule(shape)
        self.needs_validation = self._rule.needs_validation
        self._thinning, self._probe = Thinning(1, 1), Probe()

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
        if self.burning:
            return
        if _ends_pass(chain, t):
            self._probe.add(chain, t)  # whatever is kept
        if not self._thinning.keeps(t - self._first):
            return
        if not chain.kept:
            state, n_draws = chain.state, self._thinning.n_draws
            chain.store.reserve(chain.number, n_draws, state.params, state.means)
        chain.keep()

    def traces(self) -> Traces:
        return self._probe.since(0)

    def finish(self, chain: Chain) -> None:
        pass

    def export(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        plain = {"burning": self.burning, "first": self._first, **vars(self._thinning)}
        return self._probe.export(), plain

    def restore(self, arrays: Mapping[str, NDArray[Any]], plain: Mapping[str, Any]) -> None:
        self._probe.restore(arrays)
        self.burning, self._first = plain["burning"], plain["first"]
        self._thinning = Thinning(plain["n_rounds"], plain["n_draws"])


class Growing:
    """All states from the third on, as long as there is room; in the end the first quarter goes.

    When the room is full, every other draw is forgotten, and from then on half as many are kept.
    The probe pairs are followed at every pass, whatever is kept.
    """

    needs_validation = False

    def __init__(self) -> None:
        self.burning = True
        self._every = 1
        self._at: list[int] = []
        self._probe = Probe()

    def before(self, chain: Chain, t: int) -> None:
        self.burning = t < FIRST_KEPT * chain.per_epoch * chain.sampler.passes_for_a_sweep

    def after(self, chain: Chain, t: int) -> None:
        if self.burning:
            return
        if _ends_pass(chain, t):
            self._probe.add(chain, t)  # whatever is kept
        if not _due(chain, t, 1):
            return
        if not self._at:
            state, room = chain.state, chain.store.per_chain
            chain.store.reserve(chain.number, room, state.params, state.means)
        while chain.store.full(chain.number) and _due(chain, t, self._every):
            self._forget(chain)
        if _due(chain, t, self._every):
            chain.keep()
            self._at.append(t)
            chain.kept = len(self._at)  # others may have been forgotten

    def _forget(self, chain: Chain) -> None:
        """Keep the draws that would have been kept at half the rate."""
        self._every *= 2
        kept = [k for k, t in enumerate(self._at) if _due(chain, t, self._every)]
        chain.store.select(chain.number, kept)
        self._at = [self._at[k] for k in kept]

    def traces(self) -> Traces:
        return self._probe.after_burn_in()

    def finish(self, chain: Chain) -> None:
        first = _after_burn_in(self._at)
        chain.store.select(chain.number, range(first, len(self._at)))
        chain.kept = len(self._at) - first

    def export(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays = {"at": np.array(self._at, np.int64), **self._probe.export()}
        return arrays, {"burning": self.burning, "every": self._every}

    def restore(self, arrays: Mapping[str, NDArray[Any]], plain: Mapping[str, Any]) -> None:
        self.burning, self._every = plain["burning"], plain["every"]
        self._at = arrays["at"].tolist()
        self._probe.restore(arrays)


def _due(chain: Chain, t: int, every: int) -> bool:
    """Whether round t ends one of `every` thinned passes."""
    return _ends(t, (chain.sampler.thin or 1.0) * chain.per_epoch * every)


def _ends_pass(chain: Chain, t: int) -> bool:
    return _ends(t, chain.per_epoch)


def _ends(t: int, rounds: float) -> bool:
    """Whether round t ends a stretch of so many rounds."""
    return int((t + 1) / rounds + 1e-9) > int(t / rounds + 1e-9)


def _after_burn_in(rounds: list[int]) -> int:
    """The first of some rounds that is no burn-in of a run that ends with the last of them."""
    return int(np.searchsorted(rounds, BURN_SHARE * (rounds[-1] + 1))) if rounds else 0
