# The public names, and where they live: read by type checkers, and by __init__.py at run time.

from bayesmf.chains.callbacks import EarlyStop as EarlyStop
from bayesmf.chains.callbacks import Event as Event
from bayesmf.chains.callbacks import History as History
from bayesmf.chains.callbacks import Progress as Progress
from bayesmf.checkpoints.folder import Checkpoint as Checkpoint
from bayesmf.data.ratings import Ratings as Ratings
from bayesmf.diagnostics.calibration import Calibration as Calibration
from bayesmf.diagnostics.coverage import Gap as Gap
from bayesmf.diagnostics.coverage import Group as Group
from bayesmf.diagnostics.scores import Scores as Scores
from bayesmf.engines.ray.cluster import Cluster as Cluster
from bayesmf.engines.simulated import Network as Network
from bayesmf.engines.simulated import Simulated as Simulated
from bayesmf.errors import BayesMFError as BayesMFError
from bayesmf.errors import CallbackWarning as CallbackWarning
from bayesmf.errors import ConvergenceWarning as ConvergenceWarning
from bayesmf.errors import DataWarning as DataWarning
from bayesmf.errors import DivergenceError as DivergenceError
from bayesmf.errors import EngineError as EngineError
from bayesmf.errors import InputError as InputError
from bayesmf.errors import Interrupted as Interrupted
from bayesmf.errors import NotFittedError as NotFittedError
from bayesmf.estimator.bayesian_mf import BayesianMF as BayesianMF
from bayesmf.estimator.results import Predictions as Predictions
from bayesmf.estimator.results import Recommendation as Recommendation
from bayesmf.estimator.results import RecommendationList as RecommendationList
from bayesmf.estimator.results import Recommendations as Recommendations
from bayesmf.ids.id_map import IdMap as IdMap
from bayesmf.kernels.jit import CacheWarning as CacheWarning
from bayesmf.packed.pack import pack as pack
from bayesmf.packed.ratings import PackedRatings as PackedRatings
from bayesmf.posterior.posterior import Posterior as Posterior
from bayesmf.samplers.clocks import SGHMC as SGHMC
from bayesmf.samplers.clocks import SGNHT as SGNHT
from bayesmf.samplers.clocks import RowClock as RowClock
from bayesmf.samplers.registry import DSGD as DSGD
from bayesmf.samplers.registry import DSGLD as DSGLD
from bayesmf.samplers.registry import SGD as SGD
from bayesmf.samplers.registry import SGLD as SGLD
from bayesmf.samplers.registry import Auto as Auto
from bayesmf.samplers.registry import Gibbs as Gibbs
from bayesmf.synthetic.synthetic import Synthetic as Synthetic
from bayesmf.synthetic.truth import Truth as Truth

__version__: str
