"""The estimator `BayesianMF`: settings and public methods."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, Self

from bayesmf.chains.callbacks import Callback, Progress, checked_callbacks
from bayesmf.checkpoints.folder import Checkpoint, as_checkpoint
from bayesmf.checks import yes_or_no
from bayesmf.engines.base import Engine
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import DataWarning, warn
from bayesmf.estimator.evaluating import Evaluating
from bayesmf.estimator.fit import learn, training_ratings, validation_ratings
from bayesmf.estimator.fitted import SklearnMixin
from bayesmf.estimator.predicting import Predicting
from bayesmf.estimator.saving import load_model, save_model
from bayesmf.estimator.update import update_fit
from bayesmf.reading.memory import Columns
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Auto

TargetName = Literal["fast", "balanced", "accurate"]
PriorName = Literal["auto", "gamma", "wishart", "wishart-bias"]
NoiseName = Literal["auto", "user", "item", "both"] | None
KeepName = Literal["auto", "items", "users", "both"]
EngineName = Literal["threads", "serial", "ray"]


class BayesianMF(SklearnMixin, Predicting, Evaluating):
    """Bayesian matrix factorization by Markov chain Monte Carlo.

    A rating is modelled as the mean of all ratings plus a user bias, an item bias, the inner
    product of the user's and the item's factors, and Gaussian noise. `fit` draws from the
    posterior; predictions average over the kept draws and come with their uncertainty.

    Parameters
    ----------
    n_factors : int, optional
        Number of latent factors D. The default follows the number of ratings per row.
    sampler : {"auto", "gibbs", "sghmc", "sgnht", "sgld", "sgd"} or sampler object
        The update rule. Objects (`SGLD(grid=(2, 2), n_chains=2)`, `Auto(n_chains=4)`) carry its
        settings; "auto" is Gibbs, of whole rows or, beyond some 16 factors, by columns.
    target : {"fast", "balanced", "accurate"}
        Accuracy at which sampling stops, if the sampler has no number of epochs; "auto" then has 1,
        2 or 4 chains.
    max_seconds : float, optional
        Stop sampling after this many seconds, and answer from the draws kept so far. A `burn_in` of
        the sampler ends after 40% of them at the latest, with a warning, unless it is by RMSE.
    prior : {"auto", "gamma", "wishart", "wishart-bias"}
        Prior of the rows: diagonal precisions with biases (Section 3.1 of the paper), BPMF's full
        covariances without biases (Section 2.1), or full covariances of factors and bias together.
        "auto" is the last of these with Gibbs, where it costs nothing, and "gamma" elsewhere.
    tau : {"sample"} or float
        Noise precision, drawn or fixed, in units of the ratings.
    noise_by : {"auto", "user", "item", "both"} or None
        Rows with separate noise precisions, which are then drawn too. None is one precision for all
        ratings. "auto" is "both" if the sampler can draw them: not with SGD, `noise="paper"` or a
        fixed tau.
    alpha_0, beta_0 : float
        Shape and rate of the Gamma hyper-priors of prior "gamma", for ratings of variance one.
    mu_0, kappa_0, nu_0, W_0 : float
        Gaussian-Wishart hyper-prior of the other priors, for ratings of variance one: precisions
        are Wishart with scale W_0 I and nu_0 degrees of freedom (by default the number of columns
        of a row; larger than that number less one); means are normal with mean mu_0 and kappa_0
        times these precisions.
    standardize : bool
        Divide centred ratings by their standard deviation before anything else.
    keep : {"auto", "items", "users", "both"}
        Side whose draws are kept. Rows of the other side follow exactly from their ratings, for new
        users too. "auto" keeps items, unless hundreds of draws of them would not fit and users are
        far fewer; "both" takes more memory and predicts slightly less well.
    max_draws : int, optional
        Maximum number of draws over all chains, at least one of each. The default is 400, or as
        many as fit in 450 MB.
    engine : {"threads", "serial", "ray"}, Cluster or engine object
        Where tasks run: on threads of this process, on the calling thread, on Ray (`Cluster` has
        its settings), or on an engine of your own. Results do not depend on it.
    n_workers : int, optional
        Threads or workers; one for each core by default.
    callbacks : sequence of callable
        Each is called with an `Event` after every epoch of every chain.
    random_state : int, optional
        Seed of everything that is drawn: the same seed gives the same bits.
    progress : bool, optional
        Progress line of anything longer than two seconds: by default in terminals and notebooks;
        False never, True on any stderr.

    Attributes
    ----------
    posterior_ : Posterior
        The kept draws and their predictions.
    user_ids_, item_ids_ : IdMap
        Ids of users and items by row number.
    history_ : list of dict
        The `Event` of each epoch of each chain.
    report_ : dict
        Seconds, ratings per second, epochs, draws, convergence, resolved settings.
    rating_levels_ : ndarray
        Distinct values of the training ratings, if at most 256.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
    >>> model = BayesianMF(n_factors=4, sampler=Gibbs(epochs=20), random_state=0)
    >>> model.fit(train)
    BayesianMF(n_factors=4, sampler=Gibbs(epochs=20), random_state=0)
    >>> low, high = model.predict_interval(1, 2)
    >>> low < model.predict(1, 2) < high
    True
    """

    def __init__(
        self,
        n_factors: int | None = None,
        *,
        sampler: str | Sampler | Auto = "auto",
        target: TargetName = "balanced",
        max_seconds: float | None = None,
        prior: PriorName = "auto",
        tau: Literal["sample"] | float = "sample",
        noise_by: NoiseName = "auto",
        alpha_0: float = 1.0,
        beta_0: float = 1.0,
        mu_0: float = 0.0,
        kappa_0: float = 2.0,
        nu_0: float | None = None,
        W_0: float = 1.0,
        standardize: bool = True,
        keep: KeepName = "auto",
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
        self.noise_by = noise_by
        self.alpha_0 = alpha_0
        self.beta_0 = beta_0
        self.mu_0 = mu_0
        self.kappa_0 = kappa_0
        self.nu_0 = nu_0
        self.W_0 = W_0
        self.standardize = standardize
        self.keep = keep
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
        X : Ratings, path-like, table, sparse matrix or tuple of array-like
            Ratings: a `Ratings`, a path, a pandas, polars or Arrow table, a SciPy sparse matrix, or
            (users, items, ratings) arrays; `PackedRatings` or their file for data larger than
            memory. With `y`, pairs of user and item: a table or an array of two columns.
        y : array-like, optional
            The ratings of the pairs in `X`, as scikit-learn has it.
        validation : as X, or tuple (X, y), optional
            Held-out ratings whose RMSE is reported while the chains run. They do not affect the
            draws, except through `burn_in="rmse:..."` or `EarlyStop`.
        checkpoint : path-like or Checkpoint, optional
            Folder for checkpoints of the run, and whether to resume from it.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.
        progress : bool, optional
            Overrides the constructor's.

        Returns
        -------
        BayesianMF
            The model itself.

        Raises
        ------
        InputError
            For data or settings that cannot be used.
        DivergenceError
            If a chain diverges.

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
        if wanted is not None:
            wanted = yes_or_no("progress", wanted)
        if wanted is False:
            callbacks = tuple(c for c in callbacks if not isinstance(c, Progress))
        shown = next((c for c in callbacks if isinstance(c, Progress)), Progress(show=wanted))
        settings = FitSettings.of(self)
        checkpoint = None if checkpoint is None else as_checkpoint(checkpoint)
        try:
            shown.stage("reading ratings")
            train, known = training_ratings(X, y, columns), validation_ratings(validation, columns)
            found, warnings = learn(
                settings, self.standardize, train, known, checkpoint, callbacks, shown
            )
        finally:
            shown.close()
        self._found = found  # now that nothing can fail
        for sentence, category in warnings:
            warn(sentence, category)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Add ratings to those of the fit, in a fraction of its time.

        Users and items may be new; a second rating of a pair replaces the first. Users' rows follow
        from all ratings, as in a fit. For items, chains continue from their newest draws; new draws
        replace those that lack most ratings, until none lacks more than 15% of all; items with more
        than 15% new ratings are also redrawn under the other draws. The number of sweeps depends on
        the share of new ratings. The model is unchanged if an error is raised.

        Parameters
        ----------
        X : Ratings, path-like, table, sparse matrix or tuple of array-like
            The new ratings, as `fit` takes them; packed ones are for `fit` alone. With `y`, pairs
            of user and item.
        y : array-like, optional
            The ratings of the pairs in `X`, as scikit-learn has it.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.
        progress : bool, optional
            Overrides the constructor's.

        Returns
        -------
        BayesianMF
            The model itself; one that was not fitted is fitted.

        Raises
        ------
        InputError
            For ratings that cannot be used, and for a model without draws or ratings to continue
            from.

        Warns
        -----
        DataWarning
            If half of all ratings or more are new: a fit from the beginning is then better.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> ratings = Synthetic(60, 40, 1200).ratings()
        >>> model = BayesianMF(4, random_state=0).fit(ratings.take(range(1150)))
        >>> model = model.partial_fit(ratings.take(range(1150, 1200)))
        >>> model.report_["ratings"], model.report_["updates"]
        (1200, 1)
        """
        if not hasattr(self, "_found"):
            return self.fit(X, y, columns=columns, progress=progress)
        wanted = self.progress if progress is None else yes_or_no("progress", progress)
        more = training_ratings(X, y, columns)
        found, sentences = update_fit(self, self._fitted(), more, self.n_workers, wanted)
        self._found = found  # now that nothing can fail
        for sentence in sentences:
            warn(sentence, DataWarning)
        return self

    # -- saving ---------------------------------------------------------------------------------

    def save(
        self, path: str | PathLike[str], *, users: bool = True, max_draws: int | None = None
    ) -> None:
        """Save the model to one file, in the layout of safetensors.

        Parameters
        ----------
        path : path-like
            The file. An existing model is replaced atomically; any other file is refused.
        users : bool
            False saves no ids, rows or ratings of users, only their number. The loaded model
            predicts from the ratings passed with each call.
        max_draws : int, optional
            Maximum number of draws to save, spread evenly over each chain, at least one of each:
            for a smaller file and faster, less accurate predictions. All by default.

        Raises
        ------
        InputError
            If it cannot be written, or nothing would be left without users; an existing file is
            kept.
        NotFittedError
            If the model has not been fitted.

        Examples
        --------
        >>> import tempfile
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/films.bayesmf")
        ...     model.save(f"{folder}/items.bayesmf", users=False, max_draws=1)
        ...     BayesianMF.load(f"{folder}/items.bayesmf").user_ids_
        IdMap(0 int ids)
        """
        save_model(self, path, users, max_draws)

    @classmethod
    def load(cls, path: str | PathLike[str], verify: bool = True, mmap: bool = True) -> BayesianMF:
        """Load a model from its file; every byte is verified before the first answer.

        The header, the ids and small arrays are checked at once. Draws and ratings, hundreds of
        megabytes, are verified by background threads (digests and value ranges); the first answer
        waits for them. A digest is not a signature: load only models from a source you trust.

        Parameters
        ----------
        path : path-like
            A file that `save` has written.
        verify : bool
            False skips the digests of arrays: for a file that was verified before, such as by a
            parent process.
        mmap : bool
            True maps the arrays: processes share them, and only used pages are in memory. False
            reads them into memory: for a file that may be changed in place, because truncating a
            mapped file kills the process.

        Returns
        -------
        BayesianMF
            The model as it was saved, its settings resolved.

        Raises
        ------
        InputError
            If the file is not a model, or damaged; damage to draws is reported by the first answer.

        Examples
        --------
        >>> import tempfile
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/films.bayesmf")
        ...     same = BayesianMF.load(f"{folder}/films.bayesmf")
        ...     same.predict(1, 9) == model.predict(1, 9)
        True
        """
        model: BayesianMF = load_model(cls, path, verify, mmap)
        return model
