"""The ways in which bayesmf says no: one sentence each, saying what, where and what to do."""

import signal
import sys
import warnings

from bayesmf.wording import cut_middle


class BayesMFError(Exception):
    """Base of every error that bayesmf raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(cut_middle(arg) if isinstance(arg, str) else arg for arg in args))


class InputError(BayesMFError, ValueError):
    """What the user gave cannot be used: a file, an option, an id (exit status 2)."""


class DivergenceError(BayesMFError, ArithmeticError):
    """A chain left the finite numbers; the message says what to change."""


class EngineError(BayesMFError, RuntimeError):
    """Machines failed more often than a run can bear; it can go on from its last checkpoint."""


class Interrupted(KeyboardInterrupt):
    """A run that a signal has ended; `fit` can go on from its checkpoint.

    `stopped` tells by what and where, `signum` is the signal, the message also tells how to go on.
    """

    def __init__(self, signum: int, where: str = "", how: str = "") -> None:
        self.signum = signum
        self.stopped = " ".join(filter(None, ("stopped by", signal.Signals(signum).name, where)))
        super().__init__("; ".join(filter(None, (self.stopped, how))))


class NotFittedError(BayesMFError, AttributeError):
    """A fitted model is needed first."""


class ConvergenceWarning(UserWarning):
    """Chains have not converged, so another fit may give other answers; the message says more."""


class DataWarning(UserWarning):
    """Something about the data makes answers worth less than they look; the message says what."""


class CallbackWarning(UserWarning):
    """A callback failed; the fit went on without it."""


def warn(sentence: str, category: type[Warning]) -> None:
    """Warn whoever called into the package, however deep inside of it this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "bayesmf":
        level, frame = level + 1, frame.f_back
    warnings.warn(cut_middle(sentence), category, stacklevel=level)
