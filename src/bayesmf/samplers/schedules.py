"""Schedules of a chain: start without noise, burn-in, step sizes, and thinning.

A chain starts without noise if its first passes are burn-in in any case. At first the noise is as
large as the rows, and precisions would adapt to the small initial rows. So for two passes a
chain runs like SGD, with its initial precisions; then noise is added in three steps. With the other
side integrated out (chains/pairs.py), its average is below SGD's errors from the first pass on.

Noise by row starts last: badly fitted rows would count as noisy, get less weight, and stay so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bayesmf.errors import InputError

QUIET = 2  # passes without noise; it increases over as many more
FACTOR = 2.0  # on steps at the start, without a given step size
ONE_NOISE, ONE_NOISE_PASSES = 1 / 6, 10  # of the run, or passes where its length is not given
INITIAL_PRECISION = 8.0  # precisions at the start, for ratings of variance one


@dataclass(frozen=True)
class Trace:
    """Errors of a chain, oldest first, in the user's units.

    `train_rmse` has one error per epoch, `validation_rmse` one per check during burn-in: at the end
    of each epoch, or of every `thin` epochs if that is less and burn-in ends by RMSE. `mean_rmse`
    are means of `validation_rmse` over all chains, only for a rule that needs them.
    """

    train_rmse: list[float] = field(default_factory=list)
    validation_rmse: list[float] = field(default_factory=list)
    mean_rmse: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class FixedBurnIn:
    """Burn-in of a given number of epochs."""

    epochs: float

    def __str__(self) -> str:
        return f"{self.epochs:g}"

    def over(self, epoch: float, epochs: float, trace: Trace) -> bool:
        return epoch >= self.epochs


@dataclass(frozen=True)
class UntilRMSE:
    """Burn-in of each chain until its RMSE on the validation set is at most `rmse`.

    With `mean`, by the mean over all chains, as in the paper: burn-in ends after the same round in
    all of them, and until then they wait for each other whenever it is measured: at the end of each
    epoch, or of every `thin` epochs if that is less.
    """

    rmse: float
    mean: bool = False

    def __str__(self) -> str:
        return f"{'mean-' if self.mean else ''}rmse:{self.rmse:g}"

    def errors(self, trace: Trace) -> list[float]:
        """The errors that decide."""
        return trace.mean_rmse if self.mean else trace.validation_rmse

    def over(self, epoch: float, epochs: float, trace: Trace) -> bool:
        return any(rmse <= self.rmse for rmse in self.errors(trace)[-1:])

    def lowest(self, traces: Iterable[Trace]) -> str:
        """A clause on the lowest of the errors that decide."""
        errors = [x for trace in traces for x in self.errors(trace)]
        of = f"{'mean ' if self.mean else ''}validation RMSE was"
        return f"the lowest {of} {min(errors):.4f}" if errors else f"no {of} measured"


@dataclass(frozen=True)
class Stationary:
    """Burn-in until the training RMSE has no trend left.

    Over when the means of the third and the last quarter of the trace differ by less than the
    spread within the last. At least `least` epochs are used, and at most half of the run is
    burn-in.
    """

    least: int = 20

    def __str__(self) -> str:
        return "stationary"

    def over(self, epoch: float, epochs: float, trace: Trace) -> bool:
        n = len(trace.train_rmse)
        if epoch >= epochs / 2:
            return True
        if n < self.least:
            return False
        third = np.asarray(trace.train_rmse[n // 2 : 3 * n // 4])
        last = np.asarray(trace.train_rmse[3 * n // 4 :])
        return bool(abs(third.mean() - last.mean()) <= last.std())


BurnIn = FixedBurnIn | UntilRMSE | Stationary


def burn_in_rule(value: float | str | BurnIn) -> BurnIn:
    """From a number of epochs, "rmse:0.85", "mean-rmse:0.85" or "stationary"."""
    if isinstance(value, FixedBurnIn | UntilRMSE | Stationary):
        return value
    text = str(value).strip().lower()
    try:
        if text == "stationary":
            return Stationary()
        by_rmse = text.startswith(("rmse:", "mean-rmse:"))
        found = float(text.partition(":")[2] if by_rmse else text)
    except ValueError:
        found = -1.0
    if not 0 <= found < np.inf or (by_rmse and not found):
        raise InputError(
            f"burn_in {value!r} is none of: a number of epochs, 'rmse:0.85' (until the "
            "validation RMSE falls to that), 'mean-rmse:0.85' (its mean over chains), 'stationary'"
        )
    return UntilRMSE(found, mean=text[0] == "m") if by_rmse else FixedBurnIn(found)


def noise_share(epoch: float, epochs: float | None) -> float:
    """Factor of the noise variance in an epoch of a run of `epochs`.

    1 after four passes, or a quarter of the run if that is sooner.
    """
    quiet = QUIET if epochs is None else min(QUIET, int(epochs / 8))
    since = int(epoch + 1e-9) - quiet
    return 0.0 if since < 0 else min(1.0, (since + 1) / (quiet + 1))


def row_noise_from(epochs: float | None, burn_in: BurnIn | None) -> float:
    """First epoch with noise by row; `burn_in` is None if it grows with the run.

    Before the end of burn-in, so that chains adapt before draws are kept.
    """
    passes = ONE_NOISE_PASSES if epochs is None else ONE_NOISE * epochs
    return min(passes, 2 / 3 * burn_in.epochs) if isinstance(burn_in, FixedBurnIn) else passes


@dataclass(frozen=True)
class StepSize:
    """epsilon_t = epsilon_0 (1 + t/kappa)^-gamma, t counting rounds (Section 4.2)."""

    step_size: float
    kappa: float
    decay: float

    def __call__(self, round_: int) -> float:
        return float(self.step_size * (1.0 + round_ / self.kappa) ** -self.decay)


@dataclass(frozen=True)
class Thinning:
    """Which of the `n_rounds` rounds after burn-in are kept: the last of every `every` rounds."""

    n_rounds: int
    every: float

    @classmethod
    def spread(cls, n_rounds: int, thin: float, cap: int) -> Thinning:
        """One draw per `thin` rounds, but at least 1 and at most `cap`, at equal distances."""
        every = max(thin, 1.0)
        n = parts_before(n_rounds, every)
        return cls(n_rounds, every if 1 <= n <= cap else n_rounds / max(1, min(n, cap)))

    def draws(self, k: int) -> int:
        """Number of draws of the first k rounds."""
        return parts_before(k, self.every)

    def keeps(self, k: int) -> bool:
        """Whether round k (from 0) after burn-in is kept."""
        return self.draws(k + 1) > self.draws(k)


def parts_before(t: int, rounds: float) -> int:
    """Number of stretches of `rounds` rounds that have ended before round t.

    The tolerance is for lengths that were computed, such as 10 / 32.16 epochs of 32.16 rounds.
    """
    return int(t / rounds + 1e-9)
