"""Bayesian matrix factorization that is as fast as SGD and says how sure it is."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bayesmf.chains.callbacks import EarlyStop, Event, History, Progress
    from bayesmf.checkpoints.folder import Checkpoint
    from bayesmf.data.ratings import Ratings
    from bayesmf.diagnostics.calibration import Calibration
    from bayesmf.diagnostics.scores import Scores
    from bayesmf.engines.ray.cluster import Cluster
    from bayesmf.engines.simulated import Network, Simulated
    from bayesmf.errors import (
        BayesMFError,
        CallbackWarning,
        ConvergenceWarning,
        DataWarning,
        DivergenceError,
        EngineError,
        InputError,
        Interrupted,
        NotFittedError,
    )
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.estimator.results import Predictions, Recommendation
    from bayesmf.kernels.jit import CacheWarning
    from bayesmf.packed.pack import pack
    from bayesmf.packed.ratings import PackedRatings
    from bayesmf.posterior.ranking import Recommendations
    from bayesmf.samplers.auto import Auto
    from bayesmf.samplers.gibbs import Gibbs
    from bayesmf.samplers.row_clock import RowClock
    from bayesmf.samplers.sgd import DSGD, SGD
    from bayesmf.samplers.sghmc import SGHMC
    from bayesmf.samplers.sgld import DSGLD, SGLD
    from bayesmf.samplers.sgnht import SGNHT
    from bayesmf.synthetic.synthetic import Synthetic

# Where public names live. They are imported when first used: `bayesmf --help` need not wait for
# the compiler.
_HOMES = {
    "Auto": "samplers.auto",
    "BayesMFError": "errors",
    "BayesianMF": "estimator.bayesian_mf",
    "CacheWarning": "kernels.jit",
    "Calibration": "diagnostics.calibration",
    "CallbackWarning": "errors",
    "Checkpoint": "checkpoints.folder",
    "Cluster": "engines.ray.cluster",
    "ConvergenceWarning": "errors",
    "DSGD": "samplers.sgd",
    "DSGLD": "samplers.sgld",
    "DataWarning": "errors",
    "DivergenceError": "errors",
    "EarlyStop": "chains.callbacks",
    "EngineError": "errors",
    "Event": "chains.callbacks",
    "Gibbs": "samplers.gibbs",
    "History": "chains.callbacks",
    "InputError": "errors",
    "Interrupted": "errors",
    "Network": "engines.simulated",
    "NotFittedError": "errors",
    "PackedRatings": "packed.ratings",
    "Progress": "chains.callbacks",
    "Ratings": "data.ratings",
    "Predictions": "estimator.results",
    "Recommendation": "estimator.results",
    "Recommendations": "posterior.ranking",
    "RowClock": "samplers.row_clock",
    "SGD": "samplers.sgd",
    "SGHMC": "samplers.sghmc",
    "SGLD": "samplers.sgld",
    "SGNHT": "samplers.sgnht",
    "Scores": "diagnostics.scores",
    "Simulated": "engines.simulated",
    "Synthetic": "synthetic.synthetic",
    "pack": "packed.pack",
}

__all__ = [
    "DSGD",
    "DSGLD",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Auto",
    "BayesMFError",
    "BayesianMF",
    "CacheWarning",
    "Calibration",
    "CallbackWarning",
    "Checkpoint",
    "Cluster",
    "ConvergenceWarning",
    "DataWarning",
    "DivergenceError",
    "EarlyStop",
    "EngineError",
    "Event",
    "Gibbs",
    "History",
    "InputError",
    "Interrupted",
    "Network",
    "NotFittedError",
    "PackedRatings",
    "Predictions",
    "Progress",
    "Ratings",
    "Recommendation",
    "Recommendations",
    "RowClock",
    "Scores",
    "Simulated",
    "Synthetic",
    "pack",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        if name[:1].isupper():  # a sampler, perhaps
            rules: Any = import_module("bayesmf.samplers.registry").REGISTRY
            for rule in rules.values():
                if rule.__name__ == name:
                    return rule
        raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")
    return getattr(import_module(f"bayesmf.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
