"""Bayesian matrix factorization that is as fast as SGD and says how sure it is."""

__version__ = "0.1.0"

from bayesmf.callbacks import EarlyStop, Event, History, Progress
from bayesmf.errors import BayesMFError, DivergenceError, InputError, NotFittedError
from bayesmf.estimator import BayesianMF, Recommendation
from bayesmf.ratings import Ratings
from bayesmf.samplers import DSGD, DSGLD, SGD, SGLD, Gibbs
from bayesmf.synthetic import Synthetic

__all__ = [
    "DSGD",
    "DSGLD",
    "SGD",
    "SGLD",
    "BayesMFError",
    "BayesianMF",
    "DivergenceError",
    "EarlyStop",
    "Event",
    "Gibbs",
    "History",
    "InputError",
    "NotFittedError",
    "Progress",
    "Ratings",
    "Recommendation",
    "Synthetic",
]
