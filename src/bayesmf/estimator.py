"""BayesianMF: what a user holds in hand. It stores settings, and asks others to do the work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import bayesmf
from bayesmf import diagnostics, storage
from bayesmf.calibration import Calibration, Calibrator
from bayesmf.callbacks import Callback, History
from bayesmf.checkpoints import Checkpoint, noted_run
from bayesmf.checks import whole
from bayesmf.draws import Draws
from bayesmf.engines.choice import make_engine
from bayesmf.engines.cluster import Cluster
from bayesmf.engines.protocol import Engine
from bayesmf.errors import InputError, NotFittedError
from bayesmf.history import HISTORY_COLUMNS, history_array, history_events
from bayesmf.ids import IdMap
from bayesmf.posterior import Posterior
from bayesmf.preparing import make_report, prepare, prepare_validation
from bayesmf.ranking import Question, Recommendations, draw_picks, rank_users
from bayesmf.ratings import Ratings
from bayesmf.samplers import Auto, Sampler, sampler_from
from bayesmf.seen import Seen
from bayesmf.server import run
from bayesmf.settings import compile_kernels, make_settings

# Constructor arguments that a model folder keeps as they are; the rest is in its report.
SAVED_PARAMS = (
    "target", "max_seconds", "prior", "tau", "alpha_0", "beta_0", "standardize", "max_draws",
)  # fmt: skip


class Recommendation(NamedTuple):
    """An item for a user, with the expected rating and where a new rating would fall."""

    item: Any
    mean: float
    std: float
    low: float
    high: float


class BayesianMF:
    """Bayesian matrix factorization by MCMC.

    Parameters
    ----------
    n_factors : int, optional
        Latent features D. The default follows the number of ratings per row.
    sampler : "auto", "gibbs", "rowclock", "sghmc", "sgnht", "sgld", "sgd" or a sampler object
        The update rule. Objects (`SGLD(grid=(2, 2), n_chains=2)`, `Auto(n_chains=4)`) carry its
        settings; "auto" is Gibbs, of whole rows or, beyond some 16 factors, by columns.
    target : {"fast", "balanced", "accurate"}
        When samplers whose length was not said have sampled enough (bayesmf.tuning), and how many
        chains "auto" runs: 1, 2 or 4.
    max_seconds : float, optional
        Stop sampling after this long, and keep what there is.
    prior : {"auto", "gamma", "wishart", "wishart-bias"}
        Diagonal precisions with biases (Section 3.1), BPMF's full covariances without biases
        (Section 2.1), or full covariances of features and bias together. "auto" is the last of
        these with Gibbs, where it costs nothing, and "gamma" elsewhere.
    tau : "sample" or float
        Noise precision, drawn or fixed, in units of the ratings.
    alpha_0, beta_0 : float
        Shape and rate of the Gamma hyper-priors, for ratings of variance one.
    standardize : bool
        Divide centred ratings by their standard deviation before anything else.
    max_draws : int, optional
        Draws kept, over all chains. The default is 400, fewer where they would pass 1 GB.
    engine : "threads", "serial", "ray", "simulated", a `Cluster` or an engine object
        Where tasks run: threads of this process, its own thread, Ray (`Cluster` has its settings),
        or workers that are imagined, with clocks (`Simulated`). Results do not depend on it.
    n_workers : int, optional
        Threads or workers; one for each core by default.
    callbacks : sequence of callables
        Called with an `Event` after every epoch of every chain.
    random_state : int, optional
        Seed. The same seed gives the same bits.

    Attributes
    ----------
    posterior_ : Posterior
    user_ids_, item_ids_ : IdMap
    history_ : list of dict
        One entry for each epoch of each chain.
    report_ : dict
        Seconds, ratings per second, epochs, draws, resolved settings.
    """

    def __init__(
        self,
        n_factors: int | None = None,
        *,
        sampler: str | Sampler | Auto = "auto",
        target: str = "balanced",
        max_seconds: float | None = None,
        prior: str = "auto",
        tau: str | float = "sample",
        alpha_0: float = 1.0,
        beta_0: float = 1.0,
        standardize: bool = True,
        max_draws: int | None = None,
        engine: str | Engine | Cluster = "threads",
        n_workers: int | None = None,
        callbacks: Sequence[Callback] = (),
        random_state: int | None = None,
    ) -> None:
        self.n_factors = n_factors
        self.sampler = sampler
        self.target = target
        self.max_seconds = max_seconds
        self.prior = prior
        self.tau = tau
        self.alpha_0 = alpha_0
        self.beta_0 = beta_0
        self.standardize = standardize
        self.max_draws = max_draws
        self.engine = engine
        self.n_workers = n_workers
        self.callbacks = callbacks
        self.random_state = random_state

    # -- scikit-learn's habits ------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments; with `deep` also `sampler__<field>` of a sampler object."""
        names = [p for p in inspect.signature(type(self).__init__).parameters if p != "self"]
        out = {name: getattr(self, name) for name in names}
        if deep and not isinstance(self.sampler, str):
            out |= {f"sampler__{k}": v for k, v in vars(self.sampler).items()}
        return out

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, or `sampler__<field>` of a sampler object."""
        known = self.get_params()
        # The sampler first: its own settings may come with it.
        for name in sorted(params, key=lambda name: name.startswith("sampler__")):
            if name not in known:
                raise InputError(
                    f"{name!r} is no parameter of BayesianMF: choose from {', '.join(known)}"
                )
            if name.startswith("sampler__"):
                self.sampler = replace(self.sampler, **{name[9:]: params[name]})  # type: ignore
            else:
                setattr(self, name, params[name])
                known = self.get_params()
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        ]
        return f"BayesianMF({', '.join(changed)})"

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        ratings: Any,
        validation: Any = None,
        checkpoint: str | PathLike[str] | Checkpoint | None = None,
    ) -> Self:
        """Draw from the posterior given ratings.

        Parameters
        ----------
        ratings
            Ratings, a path, a pandas, polars or Arrow table, a SciPy sparse matrix, or
            (users, items, ratings) arrays; PackedRatings or their folder where all that is too
            much for memory.
        validation
            The same, optional. Its RMSE is followed while the chains run; nothing is learnt from
            it, unless `burn_in="rmse:..."` or `EarlyStop` ask for that.
        checkpoint : path-like or Checkpoint, optional
            Where the run is written down while it lasts, and whether to go on from there.
        """
        params = self.get_params(deep=False)
        if checkpoint is not None:
            checkpoint = Checkpoint.of(checkpoint)
            begun = noted_run(checkpoint)
            if begun is not None and self.random_state is None:
                params["random_state"] = begun["seed"]
        made = prepare(ratings, self.standardize)
        known = None if validation is None else Ratings.of(validation)
        data = made.data
        settings = make_settings(params, data, made.scale)
        engine = make_engine(self.engine, self.n_workers)
        pairs = None if known is None else prepare_validation(known, made)
        compile_seconds, rehearsal = compile_kernels(settings, data)
        history = History()
        listeners = (history, *(self.callbacks or ()))
        run_report = run(data, settings, engine, pairs, listeners, rehearsal.tasks, checkpoint)
        # All at once, now that nothing can fail: a model is never half of one fit, half of another.
        self.user_ids_, self.item_ids_ = made.user_ids, made.item_ids
        self.history_ = history.events
        self._seen = Seen.of_data(data)
        units = (made.center, made.scale, made.low, made.high)
        self.posterior_ = Posterior(run_report.draws, self._seen, settings.n_factors, *units)
        self.report_ = make_report(data, settings, run_report, compile_seconds)
        self.report_["step_size"] = self.history_[-1]["step_size"] if self.history_ else None
        return self

    # -- answering ------------------------------------------------------------------------------

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise NotFittedError(
                "this model has not been fitted: call fit or BayesianMF.load first"
            )
        return self.posterior_

    def _pairs(self, users: Any, items: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row numbers of pairs; one user goes with many items, and one item with many users."""
        self._fitted()
        user = self.user_ids_.lookup([users] if np.ndim(users) == 0 else users)
        item = self.item_ids_.lookup([items] if np.ndim(items) == 0 else items)
        if len(user) != len(item) and np.ndim(users) != 0 and np.ndim(items) != 0:
            raise InputError(
                "users and items must be equally many, or one of them a single id: got "
                f"{len(user)} users and {len(item)} items"
            )
        n = max(len(user), len(item)) if len(user) and len(item) else 0
        return np.resize(user, n), np.resize(item, n)

    def predict(self, users: Any, items: Any, return_std: bool = False) -> Any:
        """Expected ratings of pairs; with `return_std` also the spread of a new rating.

        Ids that were not in the training ratings get the prior's mean and spread.
        """
        mean, std = self._fitted().mean_std(*self._pairs(users, items), self.n_workers)
        if np.ndim(users) == 0 and np.ndim(items) == 0:
            return (float(mean[0]), float(std[0])) if return_std else float(mean[0])
        return (mean, std) if return_std else mean

    def predict_interval(self, users: Any, items: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Bounds between which a new rating falls with probability `level`."""
        low, high = self._fitted().interval(*self._pairs(users, items), level, self.n_workers)
        one = np.ndim(users) == 0 and np.ndim(items) == 0
        return (float(low[0]), float(high[0])) if one else (low, high)

    def recommend(
        self,
        user: Any,
        n: int = 10,
        *,
        policy: str = "mean",
        exclude_seen: bool = True,
        level: float = 0.9,
        random_state: int | None = None,
    ) -> list[Recommendation]:
        """The n best items for a user, those already rated left out.

        Parameters
        ----------
        policy : {"mean", "ucb", "thompson"}
            By expected rating; with a bonus for what is not known yet; by one random draw.
        level : float
            Of the interval that is given with each item.
        """
        posterior = self._fitted()
        n = whole("n", n)
        if random_state is not None:
            random_state = whole("random_state", random_state, 0)
        row = self.user_ids_.index(user)
        exclude = self._seen.of(row) if exclude_seen else np.empty(0, np.int64)
        rng = np.random.default_rng(random_state)
        best = posterior.top(row, n, exclude=exclude, policy=policy, level=level, rng=rng)
        ids = self.item_ids_
        return [Recommendation(ids[r.item], r.mean, r.std, r.low, r.high) for r in best]

    def recommend_many(
        self,
        users: Any = None,
        n: int = 10,
        *,
        policy: str = "mean",
        exclude_seen: bool = True,
        level: float | None = None,
        random_state: int | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Recommendations:
        """What `recommend` says, for many users (all by default) at once, as arrays.

        Intervals are given for a `level` only. With "thompson" each user has a random draw of its
        own, which depends on `random_state` and the user, not on who else is asked for. (It is
        another than that of `recommend`.) `progress` is called with the number of users done.
        """
        posterior, ids = self._fitted(), self.user_ids_
        question = Question(whole("n", n), policy, exclude_seen, level)
        if random_state is not None:
            random_state = whole("random_state", random_state, 0)
        users = ids.ids if users is None else np.atleast_1d(users)
        rows = ids.lookup(users)
        picks = draw_picks(len(posterior.draws), len(ids), rows, random_state)
        found = rank_users(posterior, rows, question, picks, self.n_workers, progress)
        return Recommendations.of(users, self.item_ids_.ids, *found)

    def evaluate(
        self, ratings: Any, progress: Callable[[int], Any] | None = None
    ) -> diagnostics.Scores:
        """RMSE, MAE, NLL, CRPS and coverage on ratings that were held out.

        `progress` is called with the number of ratings scored since the last call.
        """
        test, user, item = self._held_out(ratings)
        scorer = diagnostics.Scorer()
        self._show(scorer, test, user, item, progress)
        return scorer.result()

    def calibration(
        self, ratings: Any, progress: Callable[[int], Any] | None = None
    ) -> Calibration:
        """How well intervals hold held-out ratings, overall and by how much was known of each.

        `progress` is called with the number of ratings scored since the last call.
        """
        test, user, item = self._held_out(ratings)
        calibrator = Calibrator(self._seen.of_users(user), self._seen.of_items(item))
        self._show(calibrator, test, user, item, progress)
        return calibrator.result()

    def _held_out(self, ratings: Any) -> tuple[Ratings, NDArray[np.int64], NDArray[np.int64]]:
        """Ratings with their rows' numbers, -1 for unseen ones."""
        self._fitted()
        test = Ratings.of(ratings)
        user = self.user_ids_.lookup(test.user_ids.ids)[test.user]
        return test, user, self.item_ids_.lookup(test.item_ids.ids)[test.item]

    def _show(self, scorer: Any, test: Ratings, user: Any, item: Any, progress: Any) -> None:
        """Show a scorer all predictions, in chunks."""
        posterior = self.posterior_
        for chunk in posterior.chunks(user, item):
            mean = posterior.clip(chunk.mu.mean(0, dtype=np.float64))
            scorer.add(test.rating[chunk.lo : chunk.hi], mean, chunk.mu, chunk.var)
            if progress is not None:
                progress(chunk.hi - chunk.lo)

    def _traces(self, n_pairs: int, seed: int) -> dict[str, NDArray[np.float64]]:
        posterior = self._fitted()
        rng = np.random.default_rng(seed)
        user = rng.integers(0, len(self.user_ids_), n_pairs)
        item = rng.integers(0, len(self.item_ids_), n_pairs)
        return posterior.traces(user, item)

    def diagnose(self, n_pairs: int = 200, seed: int = 0) -> dict[str, dict[str, float]]:
        """Split R-hat and effective sample size of predictions, precisions and tau.

        Of quantities with many values, the worst are given, and the R-hat that 95% of them stay
        below. `n_pairs` random pairs are looked at.
        """
        return {
            name: diagnostics.mixing(trace) for name, trace in self._traces(n_pairs, seed).items()
        }

    def to_arviz(self, n_pairs: int = 200, seed: int = 0) -> Any:
        """Traces of predictions, precisions and tau as an ArviZ object."""
        return diagnostics.to_arviz(self._traces(n_pairs, seed))

    # -- keeping --------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder: arrays and a manifest, never a pickle."""
        posterior = self._fitted()
        arrays = posterior.draws.arrays()
        arrays |= {"seen_starts": self._seen.starts, "seen_items": self._seen.items}
        arrays["history"] = history_array(self.history_)
        for side, ids in (("user", self.user_ids_), ("item", self.item_ids_)):
            arrays |= {f"{side}_id_{k}": v for k, v in ids.to_arrays().items()}
        units = {k: getattr(posterior, k) for k in ("n_factors", "center", "scale", "low", "high")}
        made = self.get_params(deep=False)
        meta = {
            "bayesmf": bayesmf.__version__,
            "units": units,
            "report": self.report_,
            "history": HISTORY_COLUMNS,
            "params": {name: _plain(made[name]) for name in SAVED_PARAMS},
        }
        storage.write_folder(path, arrays, meta)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> BayesianMF:
        """Read a model folder, having verified every byte of it."""
        arrays, meta = storage.read_folder(path)
        try:
            report = meta["report"]
            # As it was resolved: a fit of the loaded model repeats the fit that was saved.
            model = cls(
                n_factors=report["factors"],
                sampler=sampler_from(report["sampler"]),
                random_state=report["seed"],
                **meta["params"],
            )
            model._seen = Seen(arrays["seen_starts"], arrays["seen_items"])
            draws = Draws.from_arrays(arrays)
            model.posterior_ = Posterior(draws, model._seen, **meta["units"])
            for side in ("user", "item"):
                prefix = f"{side}_id_"
                parts = {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
                setattr(model, f"{side}_ids_", IdMap.from_arrays(parts))
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} lacks a part of a model ({error}): fit again") from None
        model.report_ = report
        # Folders of earlier versions have none.
        columns = meta.get("history", ())
        model.history_ = history_events(columns, arrays["history"]) if columns else []
        model.posterior_.check(len(model.user_ids_), len(model.item_ids_), str(path))
        return model


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
