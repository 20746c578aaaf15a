"""Exceptions and warnings of bayesmf, and texts for errors of other libraries."""

import contextlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

from bayesmf.wording import cut, cut_middle


class BayesMFError(Exception):
    """Base class of the errors of bayesmf.

    Examples
    --------
    >>> from bayesmf import BayesMFError, BayesianMF
    >>> try:
    ...     BayesianMF(4).predict(1, 2)
    ... except BayesMFError as error:
    ...     print(type(error).__name__)
    NotFittedError
    """

    def __str__(self) -> str:
        return cut_middle(super().__str__())


class InputError(BayesMFError, ValueError):
    """Bad input: a file, an option or an id that cannot be used (exit status 2).

    Examples
    --------
    >>> from bayesmf import InputError, Ratings
    >>> try:
    ...     Ratings([1], [7], ["five"])
    ... except InputError as error:
    ...     print(error)
    row 0 (counting from 0): rating 'five' is not a number: correct
    or remove it
    """


class DivergenceError(BayesMFError, ArithmeticError):
    """A chain diverged to numbers that are not finite; the message says what to change.

    Examples
    --------
    >>> from bayesmf import SGLD, BayesianMF, DivergenceError
    >>> model = BayesianMF(2, sampler=SGLD(epochs=20, step_size=1e6))
    >>> try:
    ...     model.fit(([1, 1, 2, 2], [7, 8, 7, 9], [4.0, 1.0, 5.0, 3.0]))
    ... except DivergenceError:
    ...     print("try a smaller step size")
    try a smaller step size
    """


class EngineError(BayesMFError, RuntimeError):
    """Too many machines failed; the run can be resumed from its last checkpoint.

    Examples
    --------
    >>> from bayesmf import EngineError
    >>> issubclass(EngineError, RuntimeError)
    True
    """


class Interrupted(KeyboardInterrupt):
    """A run that was ended by a signal; `fit` can resume from its checkpoint.

    Parameters
    ----------
    signum : int
        The signal.
    where : str
        Position at which the run ended.
    how : str
        How to resume.

    Attributes
    ----------
    signum : int
        The signal.
    stopped : str
        Signal and position; the message also says how to resume.

    Examples
    --------
    >>> import signal
    >>> from bayesmf import Interrupted
    >>> error = Interrupted(signal.SIGTERM, "after round 7", "fit again with resume=True")
    >>> print(error)
    stopped by SIGTERM after round 7; fit again with resume=True
    >>> error.stopped
    'stopped by SIGTERM after round 7'
    """

    def __init__(self, signum: int, where: str = "", how: str = "") -> None:
        self.signum = signum
        self.stopped = " ".join(filter(None, ("stopped by", signal.Signals(signum).name, where)))
        super().__init__("; ".join(filter(None, (self.stopped, how))))


class NotFittedError(BayesMFError, AttributeError):
    """The model is not fitted yet.

    Examples
    --------
    >>> from bayesmf import BayesianMF, NotFittedError
    >>> try:
    ...     BayesianMF(4).recommend(1)
    ... except NotFittedError as error:
    ...     print("fit" in str(error))
    True
    """


class ConvergenceWarning(UserWarning):
    """Chains have not converged, so another fit may give other answers.

    Examples
    --------
    >>> import warnings
    >>> from bayesmf import ConvergenceWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConvergenceWarning)  # a fit that warns raises instead
    """


class DataWarning(UserWarning):
    """A property of the data makes answers less reliable; the message says which.

    Examples
    --------
    >>> import warnings
    >>> from bayesmf import DataWarning
    >>> warnings.simplefilter("always", DataWarning)  # not only the first time
    """


class CallbackWarning(UserWarning):
    """A callback raised an exception; the fit continued without it.

    Examples
    --------
    >>> import warnings
    >>> from bayesmf import CallbackWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CallbackWarning)  # a fit raises it at its end
    """


# List that collects sentences instead of warnings: Python's filters are shared by all threads.
_CAPTURED: ContextVar[list[str] | None] = ContextVar("captured", default=None)


@contextlib.contextmanager
def captured_warnings() -> Iterator[list[str]]:
    """Collect warnings of bayesmf in a list, in this thread or task alone."""
    captured: list[str] = []
    token = _CAPTURED.set(captured)
    try:
        yield captured
    finally:
        _CAPTURED.reset(token)


def warn(sentence: str, category: type[Warning]) -> None:
    """Issue a warning that names the line of the caller outside of the package."""
    if (captured := _CAPTURED.get()) is not None:
        captured.append(cut_middle(sentence))
        return
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "bayesmf":
        level, frame = level + 1, frame.f_back
    warnings.warn(cut_middle(sentence), category, stacklevel=level)


# -- errors of other libraries --------------------------------------------------------------------

_LONGEST_REASON = 300


def polars_errors(*more: type[BaseException]) -> tuple[type[BaseException], ...]:
    """Exceptions of polars for an `except`, its panic (no Exception) included; and more."""
    polars = sys.modules.get("polars")  # if it is not imported, it has raised nothing
    if polars is None:
        return more
    return polars.exceptions.PolarsError, polars.exceptions.PanicException, *more


def reason_of(error: BaseException) -> str:
    """First line of another library's message, shortened."""
    # Of an OSError without the file name, which the sentence has already.
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    reason = text.strip().partition("\n")[0].rstrip(".: ")
    return cut(reason, _LONGEST_REASON) or "no reason given"


def as_os_error(error: BaseException) -> OSError | None:
    """The OSError behind an error of a library; None if it is of another kind."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None
