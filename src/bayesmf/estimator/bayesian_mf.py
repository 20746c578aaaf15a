"""BayesianMF, the estimator: it stores settings, and asks other modules to do the work."""

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
from bayesmf.estimator.update import learn_more
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

    A rating of item j by user i is modelled as the mean of all ratings, plus a bias of the user and
    one of the item, plus the product of their rows of factors, plus Gaussian noise. `fit` draws
    from the posterior of all of these; every answer is an average over the draws that were kept,
    so it comes with its uncertainty.

    Parameters
    ----------
    n_factors : int, optional
        Number of latent factors D. The default follows the number of ratings per row.
    sampler : {"auto", "gibbs", "sghmc", "sgnht", "sgld", "sgd"} or sampler object
        The update rule. Objects (`SGLD(grid=(2, 2), n_chains=2)`, `Auto(n_chains=4)`) carry its
        settings; "auto" is Gibbs, of whole rows or, beyond some 16 factors, by columns.
    target : {"fast", "balanced", "accurate"}
        How far to sample where the sampler has no number of epochs, and how many chains "auto"
        has: 1, 2 or 4.
    max_seconds : float, optional
        Stop sampling after this many seconds, and answer from the draws kept so far.
    prior : {"auto", "gamma", "wishart", "wishart-bias"}
        Prior of the rows: diagonal precisions with biases (Section 3.1 of the paper), BPMF's full
        covariances without biases (Section 2.1), or full covariances of factors and bias together.
        "auto" is the last of these with Gibbs, where it costs nothing, and "gamma" elsewhere.
    tau : {"sample"} or float
        Noise precision, drawn or fixed, in units of the ratings.
    noise_by : {"auto", "user", "item", "both"} or None
        Whose ratings have a noise of their own, drawn with the rest: some people rate more evenly
        than others, and some items divide them. None is one number for all. "auto" is "both" where
        the sampler can draw it: not for SGD, the rules as the paper prints them, and a fixed tau.
    alpha_0, beta_0 : float
        Shape and rate of the Gamma hyper-priors of prior "gamma", for ratings of variance one.
    standardize : bool
        Divide centred ratings by their standard deviation before anything else.
    keep : {"auto", "items", "users", "both"}
        The side whose draws are kept. Rows of the other follow exactly from their ratings, those of
        new users as well. "auto" keeps items, unless users are so much fewer that hundreds of draws
        of items would not fit; "both" takes more memory, and predicts a little less well.
    max_draws : int, optional
        Most draws to keep, over all chains, at least one of each. The default is 400, fewer where
        they would pass 450 MB.
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
        By default anything that takes over two seconds shows how far it is, at a terminal and in a
        notebook. False shows nothing, True shows it wherever stderr goes.

    Attributes
    ----------
    posterior_ : Posterior
        The draws that were kept, and what they predict.
    user_ids_, item_ids_ : IdMap
        Ids of users and items by row number.
    history_ : list of dict
        The `Event` of each epoch of each chain.
    report_ : dict
        Seconds, ratings per second, epochs, draws, convergence, resolved settings.
    rating_levels_ : ndarray
        The values that training ratings take, where these are at most 256.

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
            (users, items, ratings) arrays; `PackedRatings` or their file where all that is too
            much for memory. With `y`, pairs of user and item: a table or an array of two columns.
        y : array-like, optional
            The ratings of the pairs in `X`, as scikit-learn has it.
        validation : as X, or tuple (X, y), optional
            Held-out ratings, whose RMSE is followed while the chains run;
            nothing is learnt from them, unless `burn_in="rmse:..."` or `EarlyStop` ask for that.
        checkpoint : path-like or Checkpoint, optional
            Folder in which the run is written down while it lasts, and whether to resume it.
        columns : mapping, optional
            Which column is which, where names do not tell, such as `{"user": "customer"}`.
        progress : bool, optional
            Replaces the constructor's for this fit.

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
        """Add ratings to those the model was fitted on, in a fraction of the time of a fit.

        New users and items may be among them, and a rating of a user and an item that had one
        replaces it. What users have rated counts at once, as in a fit. Items learn as chains go on
        from their newest draws: new draws take the place of those that have missed most, so that
        none has missed more than 15% of all ratings; items of whose ratings more than 15% are new
        learn under the other draws, too. How many sweeps it takes follows from how much is new.
        The model stays as it was if anything fails.

        Parameters
        ----------
        X : Ratings, path-like, table, sparse matrix or tuple of array-like
            The new ratings, as `fit` takes them; packed ones are for `fit` alone. With `y`, pairs
            of user and item.
        y : array-like, optional
            The ratings of the pairs in `X`, as scikit-learn has it.
        columns : mapping, optional
            Which column is which, where names do not tell, such as `{"user": "customer"}`.
        progress : bool, optional
            Replaces the constructor's for this call.

        Returns
        -------
        BayesianMF
            The model itself; one that was not fitted is fitted.

        Raises
        ------
        InputError
            For ratings that cannot be used, and for a model without draws or ratings to go on from.

        Warns
        -----
        DataWarning
            If half of all ratings or more are new: then a fit from the beginning is better.

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
        found, told = learn_more(self, self._fitted(), more, self.n_workers, wanted)
        self._found = found  # now that nothing can fail
        for sentence in told:
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
            The file. A model that is there is replaced in one step; anything else is refused.
        users : bool
            False leaves people out: the file has no ids, rows or ratings of users, only their
            number. The loaded model answers for people by the ratings that are given with the
            question.
        max_draws : int, optional
            Number of draws to save at most, spread evenly over those of each chain, at least one of
            each: for a smaller file and faster, less certain answers. All by default.

        Raises
        ------
        InputError
            If it cannot be written, or nothing would be left without users; what was there stays.
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

        The header, the ids and all else but the draws and ratings are checked at once. Threads
        verify draws and ratings, hundreds of megabytes, while the program goes on: their digests,
        and that their numbers can be computed with; the first answer waits for them. A digest is
        not a signature: load models from people you trust.

        Parameters
        ----------
        path : path-like
            A file that `save` has written.
        verify : bool
            False does not compare the digests of arrays: for a file that was verified before, such
            as by the process that starts others.
        mmap : bool
            True maps the arrays: processes share them, and only what is used is in memory. False
            reads them into memory: for a file that may be changed in place, because a mapped file
            that is cut short ends the process by a signal.

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
