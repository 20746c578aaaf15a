"""What a fit tells while it runs, and who listens."""

from __future__ import annotations

import math
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Event:
    """The end of an epoch of one chain.

    `rmse` is that of the chain's averaged predictions on the validation set once it keeps draws, of
    its current state before; None without a validation set. `rmse_all_chains` averages the
    draws that all chains have so far: it alone depends on how fast the others were. RMSEs are
    in the user's units.
    """

    chain: int
    epoch: int
    epochs: int
    seconds: float
    burning: bool
    draws: int
    rmse: float | None
    rmse_all_chains: float | None
    train_rmse: float
    tau: float
    step_size: float | None
    ratings_per_second: float


class Callback(Protocol):
    """Called after every epoch of every chain; returning True ends that chain.

    One that remembers something may have two more methods, so that a run that goes on from a
    checkpoint finds it as it was: `state(chain)`, what it knows of a chain, in plain JSON; and
    `restore(chain, state)`, which puts that in the place of what it knows now.
    """

    def __call__(self, event: Event) -> bool | None: ...


class History:
    """Keeps every event, as dictionaries."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        self.events.append(asdict(event))

    def state(self, chain: int) -> list[dict[str, Any]]:
        """The events of a chain."""
        return [event for event in self.events if event["chain"] == chain]

    def restore(self, chain: int, state: list[dict[str, Any]]) -> None:
        """All events, in the order of time, those of a chain replaced."""
        others = [event for event in self.events if event["chain"] != chain]
        self.events[:] = sorted(others + state, key=lambda event: float(event["seconds"]))


class Progress:
    """A bar on stderr: epochs, RMSE, ratings/s, time left. Silent unless stderr is a terminal."""

    def __init__(self, after_seconds: float = 2.0, every_seconds: float = 0.1) -> None:
        self._after, self._every = after_seconds, every_seconds
        self._bar: Any = None
        self._restart()

    def _restart(self) -> None:
        self._begin = time.monotonic()
        self._epochs: dict[int, int] = {}

    def __call__(self, event: Event) -> None:
        if event.epoch <= self._epochs.get(event.chain, 0):  # another fit
            self.close()
            self._restart()
        self._epochs[event.chain] = event.epoch
        if self._bar is None:
            if not sys.stderr.isatty() or time.monotonic() - self._begin < self._after:
                return
            self._bar = _bar(event.epochs, self._every)
            # Its clock begins when it is shown, the epochs began before.
            self._bar.start_t -= event.seconds
        bar: Any = self._bar
        name = "RMSE" if event.rmse is not None else "train RMSE"
        value = event.train_rmse if event.rmse is None else event.rmse_all_chains
        speed = f"{event.ratings_per_second / 1e6:.1f}M ratings/s"
        bar.set_description_str(f"{name} {value:.4f}, {speed}", refresh=False)
        bar.update(sum(self._epochs.values()) / len(self._epochs) - bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _bar(epochs: int, every: float) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=epochs,
        bar_format="epoch {n:.0f}/{total:.0f} |{bar}| {remaining} left, {desc}",
        file=sys.stderr,
        leave=False,
        ncols=shutil.get_terminal_size().columns,
        mininterval=every,
        miniters=0,
        smoothing=0,
        delay=1e-9,  # not before it has something to say
    )


class EarlyStop:
    """Ends a chain whose validation RMSE has not improved by `least` for `patience` epochs.

    It is of use for SGD, which may overfit. A sampler's average is looked at after burn-in only.
    """

    def __init__(self, patience: int = 10, least: float = 1e-4) -> None:
        self.patience, self.least = patience, least
        self._best: dict[int, tuple[float, int]] = {}

    def __call__(self, event: Event) -> bool:
        if event.rmse is None or event.burning:
            return False
        best, since = self._best.get(event.chain, (math.inf, 0))
        if event.epoch <= since or event.rmse < best - self.least:  # another fit, or better
            self._best[event.chain] = (event.rmse, event.epoch)
            return False
        return event.epoch - since >= self.patience

    def state(self, chain: int) -> tuple[float, int] | None:
        """The best of a chain, and when that was."""
        return self._best.get(chain)

    def restore(self, chain: int, state: tuple[float, int] | None) -> None:
        """Compare with an earlier best from now on."""
        self._best.pop(chain, None)
        if state is not None:
            self._best[chain] = (state[0], state[1])
