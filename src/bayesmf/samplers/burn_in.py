"""When burn-in is over: after some epochs, at a validation RMSE, or once errors stand still."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayesmf.errors import InputError


@dataclass(frozen=True)
class Trace:
    """What a chain knows of itself at the end of each epoch, oldest first, in the user's units."""

    train_rmse: list[float] = field(default_factory=list)
    validation_rmse: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class FixedBurnIn:
    """Burn-in of a given number of epochs."""

    epochs: float
    needs_validation = False

    def __str__(self) -> str:
        return f"{self.epochs:g}"

    def over(self, epoch: float, epochs: float, trace: Trace) -> bool:
        return epoch >= self.epochs


@dataclass(frozen=True)
class UntilRMSE:
    """Burn-in until the chain's RMSE on the validation set falls to `rmse`, as in the paper.

    The paper looks at the mean over chains; here each chain looks at its own, because chains do
    not wait for each other.
    """

    rmse: float
    needs_validation = True

    def __str__(self) -> str:
        return f"rmse:{self.rmse:g}"

    def over(self, epoch: float, epochs: float, trace: Trace) -> bool:
        return bool(trace.validation_rmse) and trace.validation_rmse[-1] <= self.rmse


@dataclass(frozen=True)
class Stationary:
    """Burn-in until the training RMSE has no trend left.

    The third quarter of the trace is compared with the last: over when their means differ by less
    than the spread inside the last one. At least `least` epochs are looked at; half of the run is
    burnt at the most, so that draws are left.
    """

    least: int = 20
    needs_validation = False

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
    """From a number of epochs, "rmse:0.85" or "stationary"."""
    if isinstance(value, FixedBurnIn | UntilRMSE | Stationary):
        return value
    text = str(value).strip().lower()
    try:
        if text == "stationary":
            return Stationary()
        if text.startswith("rmse:"):
            return UntilRMSE(float(text[5:]))
        epochs = float(text)
    except ValueError:
        epochs = -1.0
    if not epochs >= 0 or not np.isfinite(epochs):
        raise InputError(
            f"burn_in {value!r} is none of: a number of epochs, 'rmse:0.85' (until the "
            "validation RMSE falls to that), 'stationary'"
        )
    return FixedBurnIn(epochs)
