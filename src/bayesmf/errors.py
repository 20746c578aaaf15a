"""The ways in which bayesmf says no: one sentence each, saying what, where and what to do."""


class BayesMFError(Exception):
    """Base of every error that bayesmf raises on purpose."""


class InputError(BayesMFError, ValueError):
    """What the user gave cannot be used: a file, an option, an id (exit status 2)."""


class DivergenceError(BayesMFError, ArithmeticError):
    """A chain left the finite numbers; the message says what to change."""


class EngineError(BayesMFError, RuntimeError):
    """Machines failed more often than a run could bear; what was checkpointed can be gone on from."""


class NotFittedError(BayesMFError, AttributeError):
    """A fitted model is needed first."""
