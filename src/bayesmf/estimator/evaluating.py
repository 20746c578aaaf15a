"""Scores, calibration, convergence diagnostics and figures of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.monitor import BURN_SHARE
from bayesmf.checks import finite, whole
from bayesmf.data.training import RatedItems
from bayesmf.diagnostics import mixing
from bayesmf.diagnostics.calibration import Calibration, Calibrator
from bayesmf.diagnostics.convergence import headline
from bayesmf.diagnostics.metrics import Scorer, Scores
from bayesmf.diagnostics.ranking import ListScorer, RankingScores, why_left_out
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fitted import FitResult
from bayesmf.estimator.questions import HeldOut, held_out_ratings
from bayesmf.estimator.recommending import Recommending
from bayesmf.plots import panels
from bayesmf.plots import style as canvas
from bayesmf.plots.panels import RowSpread
from bayesmf.posterior import PolicyName
from bayesmf.posterior.levels import levels_of
from bayesmf.posterior.posterior import Posterior
from bayesmf.posterior.traces import traces, training_errors
from bayesmf.process import Line, parts
from bayesmf.reading.memory import Columns

Index = NDArray[np.int64]

# Users whose lists are in memory at a time.
TOGETHER = 4096


class Evaluating(Recommending):
    """Methods of `BayesianMF` that evaluate predictions and diagnose chains."""

    def score(self, X: Any, y: Any = None, *, columns: Columns | None = None) -> float:
        """Return the coefficient of determination R^2, as scikit-learn's regressors do.

        For RMSE use `evaluate`, or `scoring="neg_root_mean_squared_error"` in scikit-learn's tools.

        Parameters
        ----------
        X : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `X`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        float
            1 for perfect predictions, 0 for those no better than the mean.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> model.score(test) < 1
        True
        """
        fitted, test = self._held_out(X, y, columns)
        (mean,) = self._answers(test.user, test.item, fitted.posterior.mean)
        return r_squared(test.ratings.rating, mean)

    def evaluate(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Scores:
        """Score predictions on held-out ratings: RMSE, MAE, NLL, CRPS and coverage.

        For ratings with few values, such as stars, also the log loss and the ranked probability
        score of `predict_proba`, and the coverage of `predict_levels`.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Scores
            Scores, and counts of ratings with unknown ids and of training ratings among them.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.evaluate(test)
        >>> found.n
        120
        >>> found.rmse < 1.5
        True
        """
        fitted, test = self._held_out(ratings, y, columns)
        scorer = Scorer(levels_of(fitted.posterior))
        self._score(scorer, fitted, test, progress)
        return replace(scorer.result(), **test.counts)

    def calibration(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Calibration:
        """Compare the observed with the nominal coverage of intervals on held-out ratings.

        Coverage is computed overall and for groups of ratings: by number of training ratings of the
        user and of the item, by the user's training error, and by predicted standard deviation.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Calibration
            Its `verdict` is a sentence.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.calibration(test)
        >>> len(found.groups)
        16
        """
        fitted, test = self._held_out(ratings, y, columns)
        calibrator = Calibrator(
            fitted.seen.user_counts(test.user),
            fitted.seen.item_counts(test.item),
            training_errors(fitted.posterior, test.user, self.n_workers),
            levels_of(fitted.posterior),
        )
        self._score(calibrator, fitted, test, progress)
        found = calibrator.result()
        return replace(found, overall=replace(found.overall, **test.counts))

    def _held_out(self, ratings: Any, y: Any, columns: Columns | None) -> tuple[FitResult, HeldOut]:
        """Result of the fit, and ratings with row numbers; warns about what biases scores."""
        fitted = self._fitted()
        maps = fitted.user_ids, fitted.item_ids
        found = held_out_ratings(ratings, y, columns)
        if not len(found):
            raise InputError("there are no ratings to score: give at least one")
        test = HeldOut.from_ratings(found, maps, fitted.seen)
        test.warn()
        return fitted, test

    def _score(self, scorer: Any, fitted: FitResult, test: HeldOut, progress: Any) -> None:
        """Add all ratings and their predictions to a scorer, in chunks."""
        rating = test.ratings.rating
        with self._counting("scoring", len(rating), "ratings", progress) as done:
            for chunk in fitted.posterior.chunks(test.user, test.item):
                scorer.add(rating[chunk.lo : chunk.hi], chunk.mean, chunk.mu, chunk.var)
                done(chunk.hi - chunk.lo)

    def _traces(self, n_pairs: int, random_state: int) -> dict[str, NDArray[np.float64]]:
        """Draws of predictions of pairs at random, precisions and tau, by (chain, draw, ...)."""
        fitted = self._fitted()
        if hasattr(n_pairs, "__len__"):
            raise InputError(
                "diagnose looks at the chains alone: give held-out ratings to evaluate or "
                "calibration"
            )
        n_pairs = whole("n_pairs", n_pairs)
        rng = np.random.default_rng(whole("random_state", random_state, 0))
        n_users = len(fitted.user_ids)  # none if saved without users: then unseen ones
        user = rng.integers(0, n_users, n_pairs) if n_users else np.full(n_pairs, -1)
        item = rng.integers(0, len(fitted.item_ids), n_pairs)
        with Line(show=self.progress) as line:
            line.say("looking at draws")
            return traces(fitted.posterior, user, item)

    def diagnose(self, n_pairs: int = 200, random_state: int = 0) -> dict[str, dict[str, float]]:
        """Compute split R-hat and effective sample size of predictions, precisions and tau.

        `report_["convergence"]` has the verdict; this returns details.

        Parameters
        ----------
        n_pairs : int
            Number of random pairs of user and item whose predictions are traced.
        random_state : int
            Seed of that choice.

        Returns
        -------
        dict of str to dict
            For each quantity the largest R-hat ("rhat"), its 95% quantile ("rhat_95"), and the
            smallest and the median effective sample size ("ess_min", "ess_median").

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> sorted(model.diagnose()["tau"])
        ['ess_median', 'ess_min', 'rhat', 'rhat_95']
        """
        traces = self._traces(n_pairs, random_state)
        return {name: mixing.summarize(trace) for name, trace in traces.items()}

    def to_arviz(self, n_pairs: int = 200, random_state: int = 0) -> Any:
        """Return draws of predictions, precisions and tau as an ArviZ object.

        Parameters
        ----------
        n_pairs : int
            Number of random pairs of user and item whose predictions are included.
        random_state : int
            Seed of that choice.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ before 1.0, the latter since; it has a `posterior` group.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> "tau" in model.to_arviz()["posterior"]
        True
        """
        return mixing.to_arviz(self._traces(n_pairs, random_state))

    def evaluate_ranking(
        self,
        ratings: Any,
        y: Any = None,
        *,
        k: int = 10,
        relevant: float = 4.0,
        policy: PolicyName = "mean",
        random_state: int | None = None,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> RankingScores:
        """Score lists of recommendations on held-out ratings: NDCG, recall, precision and others.

        For each user, all known items except those rated in training are ranked. Items with a
        held-out rating of at least `relevant` count as liked, all others as not liked. Popularity,
        the items with most training ratings, is scored likewise; see docs/ranking.md.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        k : int
            Number of items of a list.
        relevant : float
            Smallest rating that counts as liked.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            Score to rank by, as for `recommend`.
        random_state : int, optional
            Seed of policies that draw; new draws each time by default.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.
        progress : callable, optional
            Called with the number of users ranked since the last call.

        Returns
        -------
        RankingScores
            Scores of the model and of popularity, and numbers of users left out, by reason.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200, stars=True).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.evaluate_ranking(test, k=5)
        >>> found.k, found.policy, found.model.hit_rate >= found.model.precision
        (5, 'mean', True)
        """
        fitted = self._fitted()
        k, relevant = whole("k", k), finite("relevant", relevant)
        maps = fitted.user_ids, fitted.item_ids
        held = HeldOut.from_ratings(held_out_ratings(ratings, y, columns), maps, fitted.seen)
        liked = Liked.from_held_out(held, relevant)
        liked.warn(held)
        n_items = len(fitted.item_ids)
        own, common = ListScorer(k, n_items), ListScorer(k, n_items)
        popularity = Popularity(fitted.seen, n_items)
        with self._counting("ranking", len(liked.user), "users", progress) as done:
            for part in liked.parts():
                users = held.ratings.user_ids.ids[liked.test_user[part]]
                best = self.recommend_many(
                    users, k, policy=policy, random_state=random_state, progress=done
                )
                ranked = np.full(best.items.shape, -1, np.int64)
                ranked[best.filled] = fitted.item_ids.lookup(best.items[best.filled])
                own.add(ranked, *liked.of(part))
                common.add(popularity.top(liked.user[part], k), *liked.of(part))
        return RankingScores(
            k, relevant, policy, len(liked.user), n_items, own.result(), common.result(),
            int((liked.user < 0).sum()), **liked.left_out,
        )  # fmt: skip

    def plot_convergence(self, ax: Any = None) -> Any:
        """Draw the error over epochs, with the verdict on convergence as the title.

        Thin lines are the training RMSE of each chain, the thick line is the validation RMSE. Draws
        to the left of the line "burn-in ends" were discarded.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. A new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1_000).ratings().split(0.2)
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(train, validation=test)
        >>> ax = model.plot_convergence()
        >>> ax.get_xlabel()
        'passes over the ratings (log scale)'
        """
        self._fitted()
        if not self.history_:
            raise InputError("the model has no history of its passes: fit again")
        title = headline(self.report_["convergence"])
        with canvas.given_or_new(ax, WIDTH, HEIGHT) as ax:
            panels.convergence(ax, self.history_, burn_in_end(self.report_, self.history_), title)
        return ax

    def plot_calibration(self, ratings: Any, ax: Any = None) -> Any:
        """Draw observed minus nominal coverage of intervals, with the verdict as the title.

        Curves are the share of held-out ratings inside intervals of 50% to 95%, minus the nominal
        share: of all ratings (thick), by training ratings of their user (lines) and of their
        item (dashes), and of the lowest and the highest fifth by training error of their user
        (dots) and by predicted standard deviation (dots and dashes). The grey band is allowed; the
        ring marks the largest gap, which decides the verdict.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix, tuple of array-like or Calibration
            Held-out ratings, in any form that `fit` takes, or the result of `calibration`.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. A new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1_000).ratings().split(0.2)
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(train)
        >>> ax = model.plot_calibration(test)
        >>> ax.get_xlabel()
        'nominal coverage of the interval (%)'
        """
        self._fitted()
        canvas.check_matplotlib()  # before the work
        found = ratings if isinstance(ratings, Calibration) else self.calibration(ratings)
        with canvas.given_or_new(ax, WIDTH, HEIGHT + 1.0) as ax:
            panels.calibration(ax, found)
        return ax

    def plot_uncertainty(self, ax: Any = None) -> Any:
        """Draw the uncertainty of predictions against the number of ratings.

        Each point is an item or a user: the standard deviation of its predictions without the noise
        of a rating, averaged over random partners (the same each time).

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. A new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1_000).ratings())
        >>> ax = model.plot_uncertainty()
        >>> ax.get_ylabel()
        'std of the prediction without noise (points)'
        """
        posterior = self._fitted().posterior
        canvas.check_matplotlib()  # before the work
        with self._counting("measuring uncertainty", 2, "sides") as done:
            items = spread_by_row(posterior, "item", self.n_workers)
            done(1)
            users = spread_by_row(posterior, "user", self.n_workers)
        with canvas.given_or_new(ax, WIDTH, HEIGHT) as ax:
            panels.uncertainty(ax, items, users, len(posterior.draws))
        return ax


@dataclass(frozen=True)
class Liked:
    """Held-out items that users liked and that can be recommended; by user, known ones first.

    `test_user` are the users' rows in the held-out ratings, `user` those in the model, -1 for an
    unseen one. User n likes the rows `item[starts[n] : starts[n + 1]]`.
    """

    test_user: Index
    user: Index
    starts: Index
    item: Index
    left_out: dict[str, int]

    @classmethod
    def from_held_out(cls, held: HeldOut, relevant: float) -> Self:
        """Select them; InputError with the reason if there are none."""
        rating, who = held.ratings.rating, held.ratings.user_rows
        if not len(rating):
            raise InputError("there are no ratings to score: give at least one")
        high = rating >= np.float32(relevant)  # ratings are of single precision, too
        if not high.any():
            raise InputError(
                f"no held-out rating is {relevant:g} or more, the highest is {rating.max():g}: "
                "give a lower relevant"
            )
        known = high & (held.item >= 0)
        new = known & ~held.seen.rated(held.user, held.item)
        n = [len(np.unique(who[some])) for some in (slice(None), high, known, new)]
        names = ("no_relevant", "unknown_items", "learnt")
        left_out = dict(zip(names, (-np.diff(n)).tolist(), strict=True))
        if not new.any():
            why = why_left_out(relevant, **left_out)
            raise InputError(
                f"no user of the held-out ratings is left to rank for ({why}): give ratings that "
                "were held out, of items that are in the training data"
            )
        # Unseen users come last, in one query, which warns once.
        order = np.flatnonzero(new)
        order = order[np.lexsort((who[order], held.user[order] < 0))]
        first = np.flatnonzero(np.diff(who[order], prepend=-1))
        starts = np.append(first, len(order))
        at = order[first]
        return cls(who[at].astype(np.int64), held.user[at], starts, held.item[order], left_out)

    def parts(self) -> Iterator[slice]:
        """Blocks of users; all unseen users, whose lists are equal, are one block."""
        known = int((self.user >= 0).sum())
        yield from parts(known, TOGETHER)
        if known < len(self.user):
            yield slice(known, len(self.user))

    def of(self, part: slice) -> tuple[Index, Index]:
        """Starts and items of a block of users."""
        starts = self.starts[part.start : part.stop + 1]
        return starts - starts[0], self.item[starts[0] : starts[-1]]

    def warn(self, held: HeldOut) -> None:
        """Warn about held-out ratings that are in the training data."""
        if held.counts["learnt"]:
            warn(
                f"{held.counts['learnt']:,} of {len(held.ratings):,} ratings are in the training "
                "data, so their items are on no list: score on ratings that were held out",
                DataWarning,
            )


class Popularity:
    """The items with most training ratings; of equal ones the lower row number first."""

    def __init__(self, seen: RatedItems, n_items: int) -> None:
        self._seen = seen
        counts = seen.item_counts(np.arange(n_items))
        self.order = np.argsort(-counts, kind="stable")
        self._rated = np.zeros(n_items, np.bool_)

    def top(self, users: Index, k: int) -> Index:
        """The first k items that each user has not rated; -1 where none is left.

        An unseen user (-1) has rated none.
        """
        out = np.full((len(users), min(k, len(self.order))), -1, np.int64)
        for row, user in zip(out, users.tolist(), strict=True):
            rated = self._seen.for_user(user)
            first = self.order[: k + len(rated)]
            self._rated[rated] = True
            best = first[~self._rated[first]][:k]
            self._rated[rated] = False
            row[: len(best)] = best
        return out


# Maximum number of rows drawn, and of partners averaged over: seconds for any model.
ROWS, PARTNERS = 1500, 40
WIDTH, HEIGHT = 6.4, 4.6  # inches


def burn_in_end(report: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> float | None:
    """Epoch with which the longest burn-in of a chain ended; None where there was none."""
    if not any(event["draws"] for event in history):
        return None  # SGD keeps its last state
    if report.get("sampler", {}).get("burn_in") is None:
        # Without a given burn-in, a share of the whole run is left out.
        return BURN_SHARE * max(event["epoch"] for event in history) or None
    return max((event["epoch"] for event in history if event["burning"]), default=None)


def spread_by_row(posterior: Posterior, side: str, threads: int | None = None) -> RowSpread:
    """Standard deviation of predictions without noise, by row of one side."""
    draws, seen = posterior.draws, posterior.seen
    n_users, n_items = posterior.n_users, posterior.n_items
    n_rows, n_partners = (n_items, n_users) if side == "item" else (n_users, n_items)
    rng = np.random.default_rng(0)  # the same rows and partners each time
    rows = _some(rng, n_rows, ROWS)
    # Without users, items are paired with an unseen user.
    partners = _some(rng, n_partners, PARTNERS) if n_partners else np.full(1, -1)
    here, there = np.repeat(rows, len(partners)), np.tile(partners, len(rows))
    user, item = (there, here) if side == "item" else (here, there)
    _, std = posterior.mean_std(user, item, threads)
    spread = np.sqrt(np.maximum(std**2 - posterior.noise_of(user, item), 0.0))
    if len(draws) == 1:
        spread[:] = 0.0  # exactly, without rounding errors
    counts = seen.item_counts(rows) if side == "item" else seen.user_counts(rows)
    # A log axis has no zero.
    return RowSpread(np.maximum(counts, 1), spread.reshape(len(rows), len(partners)).mean(1))


def _some(rng: np.random.Generator, n: int, most: int) -> NDArray[np.int64]:
    """All of n rows, or `most` of them at random, ascending."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def r_squared(rating: Any, mean: Any) -> float:
    """Coefficient of determination, as scikit-learn's regressors define it."""
    rating = np.asarray(rating, np.float64)
    rest = float(((rating - mean) ** 2).sum())
    total = float(((rating - rating.mean()) ** 2).sum())
    if total == 0.0:
        return 1.0 if rest == 0.0 else 0.0
    return 1.0 - rest / total
