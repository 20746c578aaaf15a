"""BayesianMF: what a user holds in hand. It stores settings, and asks others to do the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

import bayesmf
from bayesmf import diagnostics, storage
from bayesmf.calibration import Calibration, Calibrator
from bayesmf.callbacks import Callback, Progress, checked_callbacks
from bayesmf.checkpoints import Checkpoint
from bayesmf.checks import whole
from bayesmf.draws import Draws
from bayesmf.engines.cluster import Cluster
from bayesmf.engines.protocol import Engine
from bayesmf.errors import InputError
from bayesmf.habits import EstimatorHabits, not_fitted, r_squared
from bayesmf.history import HISTORY_COLUMNS, history_array, history_events
from bayesmf.ids import IdMap
from bayesmf.learning import learn, training_ratings, validation_ratings
from bayesmf.looking import Looking
from bayesmf.parallel import parts
from bayesmf.posterior import Posterior
from bayesmf.progress import counting
from bayesmf.questions import Asked, held_out_counts, held_out_ratings, warn_of_held_out
from bayesmf.ranking import Question, Recommendations, draw_picks, rank_users
from bayesmf.ratings import Ratings
from bayesmf.results import Predictions, Recommendation
from bayesmf.samplers import Auto, Sampler, sampler_from
from bayesmf.seen import Seen
from bayesmf.tables import Columns, pairs_of

Floats = NDArray[np.float64]
Id = int | str
SamplerName = Literal["auto", "gibbs", "rowclock", "sghmc", "sgnht", "sgld", "sgd"]
TargetName = Literal["fast", "balanced", "accurate"]
PriorName = Literal["auto", "gamma", "wishart", "wishart-bias"]
EngineName = Literal["threads", "serial", "ray", "simulated"]

# Pairs between two looks at the line.
AT_ONCE = 1 << 17
# Constructor arguments that a model folder keeps as they are; the rest is in its report.
SAVED_PARAMS = (
    "target", "max_seconds", "prior", "tau", "alpha_0", "beta_0", "standardize", "max_draws",
)  # fmt: skip


class BayesianMF(EstimatorHabits, Looking):
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
    progress : bool, optional
        By default anything that takes over two seconds shows how far it is, at a terminal and in a
        notebook. False shows nothing.

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
        sampler: SamplerName | Sampler | Auto = "auto",
        target: TargetName = "balanced",
        max_seconds: float | None = None,
        prior: PriorName = "auto",
        tau: Literal["sample"] | float = "sample",
        alpha_0: float = 1.0,
        beta_0: float = 1.0,
        standardize: bool = True,
        max_draws: int | None = None,
        engine: EngineName | Engine | Cluster = "threads",
        n_workers: int | None = None,
        callbacks: Sequence[Callback] = (),
        random_state: int | None = None,
        progress: bool | None = None,
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
        self.progress = progress

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        checkpoint: str | PathLike[str] | Checkpoint | None = None,
        columns: Columns | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Draw from the posterior given ratings.

        Parameters
        ----------
        X
            Ratings: a `Ratings`, a path, a pandas, polars or Arrow table, a SciPy sparse matrix, or
            (users, items, ratings) arrays; PackedRatings or their folder where all that is too
            much for memory. With `y`, pairs of user and item: a table or an array of two columns.
        y : array-like, optional
            The ratings of the pairs in `X`, as scikit-learn has it.
        validation
            Ratings as in `X`, or a tuple (X, y). Their RMSE is followed while the chains run;
            nothing is learnt from them, unless `burn_in="rmse:..."` or `EarlyStop` ask for that.
        checkpoint : path-like or Checkpoint, optional
            Where the run is written down while it lasts, and whether to go on from there.
        columns : mapping, optional
            Which column is which, where names do not tell: `{"user": "customer", ...}`.
        progress : bool, optional
            In place of the constructor's, for this fit.

        Returns
        -------
        BayesianMF
            The model itself.

        Raises
        ------
        InputError
            For data or settings that cannot be used.
        DivergenceError
            If a chain leaves the finite numbers.

        Warns
        -----
        ConvergenceWarning
            If chains have not converged; `report_["convergence"]` says more.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> model = BayesianMF(4, random_state=0).fit(Synthetic(60, 40, 1200).ratings())
        >>> model.report_["convergence"]["converged"]
        True
        """
        callbacks = checked_callbacks(self.callbacks, validation is not None)
        wanted = self.progress if progress is None else progress
        shown = next((c for c in callbacks if isinstance(c, Progress)), Progress(show=wanted))
        params = self.get_params(deep=False)
        checkpoint = None if checkpoint is None else Checkpoint.of(checkpoint)
        try:
            shown.stage("reading ratings")
            train, known = training_ratings(X, y, columns), validation_ratings(validation, columns)
            found = learn(params, train, known, checkpoint, callbacks, shown)
        finally:
            shown.close()
        # All at once, now that nothing can fail: a model is never half of one fit, half of another.
        self.user_ids_, self.item_ids_ = found.user_ids, found.item_ids
        self.history_, self.report_ = found.history, found.report
        self._seen, self.posterior_ = found.seen, found.posterior
        found.warn()
        return self

    # -- answering ------------------------------------------------------------------------------

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise not_fitted()
        return self.posterior_

    def _pairs(self, users: Any, items: Any, columns: Columns | None = None) -> Asked:
        """The pairs that are asked for; one user goes with many items, and one item with many."""
        self._fitted()
        if items is None:
            users, items = pairs_of(users, columns)
        return Asked.of(users, items, self.user_ids_, self.item_ids_)

    @overload
    def predict(
        self, users: Id, items: Id, return_std: Literal[False] = False, *,
        return_known: Literal[False] = False, columns: Columns | None = None,
    ) -> float: ...  # fmt: skip
    @overload
    def predict(
        self, users: Id, items: Id, return_std: Literal[True], *,
        return_known: Literal[False] = False, columns: Columns | None = None,
    ) -> tuple[float, float]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, return_std: Literal[False] = False, *,
        return_known: Literal[False] = False, columns: Columns | None = None,
    ) -> Floats: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, *, return_std: Literal[True],
        return_known: Literal[False] = False, columns: Columns | None = None,
    ) -> tuple[Floats, Floats]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any, return_std: Literal[True], *,
        return_known: Literal[False] = False, columns: Columns | None = None,
    ) -> tuple[Floats, Floats]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, return_std: bool = False, *,
        return_known: bool, columns: Columns | None = None,
    ) -> tuple[Any, ...]: ...  # fmt: skip
    def predict(
        self,
        users: Any,
        items: Any = None,
        return_std: bool = False,
        *,
        return_known: bool = False,
        columns: Columns | None = None,
    ) -> Any:
        """Expected ratings of pairs of user and item.

        Parameters
        ----------
        users, items
            Ids, equally many, or one of them a single id. Without `items`, the first argument is a
            table or an array of pairs, as scikit-learn's X.
        return_std : bool
            Also give the standard deviation of a new rating, noise included.
        return_known : bool
            Also give which pairs have a user and an item that were learnt from. The others get the
            prior's mean and spread, and a warning unless this is asked for.
        columns : mapping, optional
            Which column of a table is the user and which the item, where names do not tell.

        Returns
        -------
        ndarray, or tuple of ndarray
            Means; with `return_std` and `return_known` a tuple of means, standard deviations and
            flags. Plain numbers where a single pair was asked for.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InputError
            For ids that are none, or not equally many.

        Warns
        -----
        DataWarning
            If ids were not learnt from.

        Examples
        --------
        >>> from bayesmf import BayesianMF
        >>> model = BayesianMF(2, random_state=0)
        >>> cups = [("ann", "tea", 5), ("ann", "milk", 2), ("bob", "tea", 4), ("eve", "tea", 3)]
        >>> _ = model.fit(cups)
        >>> 1 <= model.predict("bob", "milk") <= 5
        True
        >>> mean, std = model.predict([("bob", "milk"), ("eve", "milk")], return_std=True)
        >>> mean.shape
        (2,)
        """
        asked = self._pairs(users, items, columns)
        if not return_known:
            asked.warn_of_unknown()
        mean, std = self._fitted().mean_std(asked.user, asked.item, self.n_workers)
        answers = [mean, *([std] if return_std else []), *([asked.known] if return_known else [])]
        if asked.single:
            answers = [answer[0].item() for answer in answers]
        return tuple(answers) if len(answers) > 1 else answers[0]

    def predict_interval(
        self, users: Any, items: Any = None, level: float = 0.9, *, columns: Columns | None = None
    ) -> tuple[Any, Any]:
        """Bounds between which a new rating falls with probability `level`.

        Parameters
        ----------
        users, items, columns
            As for `predict`.
        level : float
            Between 0 and 1.

        Returns
        -------
        low, high : ndarray, or float for a single pair
            The central interval.

        Raises
        ------
        InputError
            For a level that is no probability, or pairs that cannot be used.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> model = BayesianMF(4, random_state=0).fit(Synthetic(60, 40, 1200).ratings())
        >>> low, high = model.predict_interval(1, 2, level=0.8)
        >>> low < model.predict(1, 2) < high
        True
        """
        asked = self._pairs(users, items, columns)
        asked.warn_of_unknown()
        low, high = self._fitted().interval(asked.user, asked.item, level, self.n_workers)
        return (float(low[0]), float(high[0])) if asked.single else (low, high)

    def predict_table(
        self, users: Any, items: Any = None, level: float = 0.9, *, columns: Columns | None = None
    ) -> Predictions:
        """Mean, standard deviation and interval of pairs, as a table.

        Parameters
        ----------
        users, items, level, columns
            As for `predict_interval`.

        Returns
        -------
        Predictions
            With `to_pandas()`, `to_polars()` and `to_arrow()`; `known` tells which ids were learnt.

        Raises
        ------
        InputError
            As `predict_interval`.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> model = BayesianMF(4, random_state=0).fit(Synthetic(60, 40, 1200).ratings())
        >>> model.predict_table([1, 2], [3, 4]).to_polars().columns
        ['user', 'item', 'mean', 'std', 'low', 'high', 'known']
        """
        asked, posterior = self._pairs(users, items, columns), self._fitted()
        total = len(asked.user)
        mean, std, low, high = (np.empty(total) for _ in range(4))
        with self._counting("predicting", total, "pairs") as done:
            for part in parts(total, AT_ONCE):
                user, item = asked.user[part], asked.item[part]
                mean[part], std[part] = posterior.mean_std(user, item, self.n_workers)
                low[part], high[part] = posterior.interval(user, item, level, self.n_workers)
                done(len(user))
        ids = asked.user_ids, asked.item_ids
        return Predictions(*ids, mean, std, low, high, asked.known, level)

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

    def score(self, X: Any, y: Any = None, *, columns: Columns | None = None) -> float:
        """The coefficient of determination R^2, which scikit-learn's regressors score by.

        For RMSE use `evaluate`, or `scoring="neg_root_mean_squared_error"` in scikit-learn's tools.

        Parameters
        ----------
        X, y
            Pairs and their ratings, or ratings alone, as for `fit`.
        columns : mapping, optional
            Which column is which, where names do not tell.

        Returns
        -------
        float
            1 for perfect predictions, 0 for those no better than the mean.

        Raises
        ------
        InputError
            For ratings that cannot be used.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> BayesianMF(4, random_state=0).fit(train).score(test) < 1
        True
        """
        test, user, item = self._held_out(X, y, columns)
        mean, _ = self.posterior_.mean_std(user, item, self.n_workers)
        return r_squared(test.rating, mean)

    def evaluate(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> diagnostics.Scores:
        """RMSE, MAE, NLL, CRPS and coverage on ratings that were held out.

        Parameters
        ----------
        ratings, y
            Ratings, or pairs and their ratings, as for `fit`.
        columns : mapping, optional
            Which column is which, where names do not tell.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Scores
            It also counts ratings with unknown ids, and those that the model has learnt from.

        Raises
        ------
        InputError
            For ratings that cannot be used.

        Warns
        -----
        DataWarning
            If ids were not learnt from, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> BayesianMF(4, random_state=0).fit(train).evaluate(test).n
        120
        """
        scorer = diagnostics.Scorer()
        test, user, item = self._held_out(ratings, y, columns)
        self._show(scorer, test, user, item, progress)
        return replace(scorer.result(), **held_out_counts(self._seen, user, item))

    def calibration(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Calibration:
        """How well intervals hold held-out ratings, overall and by how much was known of each.

        Parameters
        ----------
        ratings, y, columns, progress
            As for `evaluate`.

        Returns
        -------
        Calibration
            Its `verdict` says it in a sentence.

        Raises
        ------
        InputError
            For ratings that cannot be used.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> len(BayesianMF(4, random_state=0).fit(train).calibration(test).groups)
        6
        """
        test, user, item = self._held_out(ratings, y, columns)
        calibrator = Calibrator(self._seen.of_users(user), self._seen.of_items(item))
        self._show(calibrator, test, user, item, progress)
        found = calibrator.result()
        counts = held_out_counts(self._seen, user, item)
        return replace(found, overall=replace(found.overall, **counts))

    def _held_out(
        self, ratings: Any, y: Any, columns: Columns | None
    ) -> tuple[Ratings, NDArray[np.int64], NDArray[np.int64]]:
        """Ratings with their rows' numbers, -1 for unseen ones."""
        self._fitted()
        test = held_out_ratings(ratings, y, columns)
        user = self.user_ids_.lookup(test.user_ids.ids)[test.user]
        item = self.item_ids_.lookup(test.item_ids.ids)[test.item]
        warn_of_held_out(test, (user, item), (self.user_ids_, self.item_ids_), self._seen)
        return test, user, item

    def _show(self, scorer: Any, test: Ratings, user: Any, item: Any, progress: Any) -> None:
        """Show a scorer all predictions, in chunks."""
        with self._counting("scoring", len(test), "ratings", progress) as done:
            for chunk, mean in self.posterior_.expected(user, item):
                scorer.add(test.rating[chunk.lo : chunk.hi], mean, chunk.mu, chunk.var)
                done(chunk.hi - chunk.lo)

    def _counting(
        self, what: str, total: int, unit: str, progress: Callable[[int], Any] | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        """Who is told how many are done: the caller, or a line where there is one to look at."""
        return nullcontext(progress) if progress else counting(what, total, unit, self.progress)

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
