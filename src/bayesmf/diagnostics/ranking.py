"""Scores of ranked lists on held-out liked items: NDCG, recall, precision and others.

The definitions are those of trec_eval, with binary gains, over items known to the model (unknown
liked items are left out):

- precision: hits among the first k, over k, even where a list is shorter;
- recall: hits among the first k, over the user's relevant items;
- hit rate: one where there is a hit among the first k;
- MRR: one over the place of the first hit;
- MAP: at each hit the share of hits up to there, summed, over the user's relevant items;
- NDCG: the sum of 1 / log2(1 + place) over hits, over that of the best possible list of k.

All are means over users. `coverage` is the share of all items that lists show.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.tabular import Columns, Tabular
from bayesmf.errors import InputError
from bayesmf.wording import count, short

MEASURES = ("ndcg", "recall", "precision", "mrr", "map", "hit_rate")
"""Scores that are means over users, by the name of their attribute."""

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class ListScores:
    """Scores of ranked lists, means over users.

    Attributes
    ----------
    ndcg : float
        Discounted gain of the items that were liked, over that of the best possible list.
    recall : float
        Share of the liked items that lists have.
    precision : float
        Share of the lists' places that have a liked item.
    mrr : float
        One over the place of the first liked item, nothing where there is none.
    map : float
        Average precision: share of liked items down to each of them, over all of them.
    hit_rate : float
        Share of users whose list has a liked item.
    coverage : float
        Share of all items that are on at least one list.
    ndcg_se : float or None
        Standard error of `ndcg` over users; None with fewer than two.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(60, 40, 1200, stars=True).ratings().split(0.2)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
    >>> found = model.evaluate_ranking(test, k=5)
    >>> 0 <= found.model.ndcg <= 1, 0 <= found.popularity.ndcg <= 1
    (True, True)
    """

    ndcg: float
    recall: float
    precision: float
    mrr: float
    map: float
    hit_rate: float
    coverage: float
    ndcg_se: float | None = None

    def __repr__(self) -> str:
        names = (*MEASURES, "coverage")
        return f"ListScores({', '.join(f'{n}={short(getattr(self, n))}' for n in names)})"


@dataclass(frozen=True, repr=False)
class RankingScores(Tabular):
    """Scores of a model's lists of recommendations, beside those of popularity.

    As a table it has two rows: the model's and popularity's.

    Attributes
    ----------
    k : int
        Places of a list.
    relevant : float
        The least rating of a held-out item that counts as liked.
    policy : str
        What the model ranked by.
    users : int
        Users whose lists were scored: those with a liked item that could be on their list.
    items : int
        Items that were ranked: all that the model knows.
    model : ListScores
        Scores of the model's lists.
    popularity : ListScores
        Scores of the items with most training ratings, without those that the user has rated.
    unseen_users : int
        Of `users`, those without training ratings: the prior ranks for them.
    no_relevant : int
        Users left out because they have no held-out rating of `relevant` or more.
    unknown_items : int
        Users left out because all items they liked are unknown to the model.
    learnt : int
        Users left out because all known items they liked are among their training ratings.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(60, 40, 1200, stars=True).ratings().split(0.2)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
    >>> found = model.evaluate_ranking(test, k=5)
    >>> found.users + found.left_out == test.compact().n_users
    True
    >>> found.to_polars()["lists"].to_list()
    ['mean', 'popularity']
    """

    k: int
    relevant: float
    policy: str
    users: int
    items: int
    model: ListScores
    popularity: ListScores
    unseen_users: int = 0
    no_relevant: int = 0
    unknown_items: int = 0
    learnt: int = 0

    @property
    def left_out(self) -> int:
        """How many users of the held-out ratings could not be scored."""
        return self.no_relevant + self.unknown_items + self.learnt

    @property
    def who(self) -> str:
        """Numbers of users scored and left out, in a sentence."""
        unseen = f", {self.unseen_users:,} of them unseen" if self.unseen_users else ""
        left = why_left_out(self.relevant, self.no_relevant, self.unknown_items, self.learnt)
        return f"{count(self.users, 'user')}{unseen}; left out: {left or 'none'}"

    def as_dict(self) -> dict[str, Any]:
        """Return the scores as plain numbers, for JSON.

        Returns
        -------
        dict
            Numbers by name; "model" and "popularity" are dicts of their own.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200, stars=True).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> sorted(model.evaluate_ranking(test, k=5).as_dict()["popularity"])[:3]
        ['coverage', 'hit_rate', 'map']
        """
        return asdict(self)

    def __repr__(self) -> str:
        pairs = ((n, getattr(self.model, n), getattr(self.popularity, n)) for n in MEASURES[:3])
        scores = ", ".join(f"{n}={short(own)} (popularity {short(all_)})" for n, own, all_ in pairs)
        return (
            f"RankingScores(k={self.k}, relevant={self.relevant:g}, policy={self.policy!r}, "
            f"users={self.users:,}, {scores})"
        )

    def _title(self) -> str:
        return f"The {self.k} best items; liked is {self.relevant:g} or more; {self.who}"

    def _columns(self) -> Columns:
        both = self.model, self.popularity
        names = (*MEASURES, "coverage", "ndcg_se")
        scores = {name: [getattr(one, name) for one in both] for name in names}
        return {"lists": [self.policy, "popularity"], **scores}


def why_left_out(relevant: float, no_relevant: int, unknown_items: int, learnt: int) -> str:
    """Numbers of users left out, by reason; empty if none."""
    reasons = (
        (no_relevant, f"without a rating of {relevant:g} or more"),
        (unknown_items, "who liked only items that are not in the training data"),
        (learnt, "who liked only what they had rated in training"),
    )
    return ", ".join(f"{n:,} {why}" for n, why in reasons if n)


class ListScorer:
    """Accumulate scores of lists of k places over blocks of users."""

    def __init__(self, k: int, n_items: int) -> None:
        self._k, self._n, self._squares = k, 0, 0.0
        self._sums = dict.fromkeys(MEASURES, 0.0)
        self._shown = np.zeros(n_items, np.bool_)

    def add(self, ranked: Index, starts: Index, liked: Index) -> None:
        """Add a block of users with lists and liked items as in `hits`; each likes at least one."""
        self._shown[ranked[ranked >= 0]] = True
        found = measure(hits(ranked, starts, liked), np.diff(starts), self._k)
        self._n += len(ranked)
        self._squares += float(found["ndcg"] @ found["ndcg"])
        for name, values in found.items():
            self._sums[name] += float(values.sum())

    def result(self) -> ListScores:
        """Return the scores of all users added so far."""
        n = self._n
        if n == 0:
            raise InputError("there are no lists to score: give at least one")
        means = {name: total / n for name, total in self._sums.items()}
        se = None
        if n > 1:
            variance = max(self._squares / n - means["ndcg"] ** 2, 0.0) * n / (n - 1)
            se = float(np.sqrt(variance / n))
        return ListScores(**means, coverage=float(self._shown.mean()), ndcg_se=se)


def hits(ranked: Index, starts: Index, liked: Index) -> Bools:
    """Which places of lists `ranked`, (n, k), have an item that its user likes.

    User u likes `liked[starts[u] : starts[u + 1]]`; -1 is a place without an item.
    """
    # One number for each pair; -1 is an item liked by no user.
    width = max(int(ranked.max(initial=-1)), int(liked.max(initial=-1))) + 2
    users = np.arange(len(ranked))
    pairs = users[:, None] * width + (ranked + 1)
    wanted = np.repeat(users, np.diff(starts)) * width + (liked + 1)
    return np.isin(pairs, wanted)


def measure(hit: Bools, n_liked: Index, k: int) -> dict[str, Floats]:
    """Scores of every user from the hits on lists of k places, and the number of liked items."""
    places = np.arange(1, hit.shape[1] + 1)
    found = hit.sum(1).astype(np.float64)
    most = np.minimum(n_liked, k)
    best = np.cumsum(1 / np.log2(1 + np.arange(1, int(most.max(initial=1)) + 1)))
    any_hit = hit.any(1)
    first = hit.argmax(1) + 1 if hit.shape[1] else np.ones(len(hit))
    return {
        "ndcg": hit @ (1 / np.log2(1 + places)) / best[most - 1],
        "recall": found / n_liked,
        "precision": found / k,
        "mrr": any_hit / first,
        "map": (hit * hit.cumsum(1) / places).sum(1) / n_liked,
        "hit_rate": any_hit.astype(np.float64),
    }
