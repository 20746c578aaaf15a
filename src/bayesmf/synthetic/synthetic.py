"""Synthetic ratings with a planted truth, at the shape of the known data sets or of your own.

Every number is a function of the seed and of what it is used for (see `kernels.keys`),
so a user's ratings are the same bits whether they are made alone, in a chunk or with all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesmf.checks import whole
from bayesmf.errors import InputError
from bayesmf.synthetic.chunks import Arrays, empty, make_parts
from bayesmf.synthetic.plan import SyntheticPlan

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings

_CHUNK = 1_000_000  # ratings made at a time


@dataclass(frozen=True)
class Synthetic(SyntheticPlan):
    """A plan of synthetic ratings; nothing is made before it is asked for.

    Parameters
    ----------
    n_users, n_items, n_ratings : int
        The shape. Every user has at least one rating; a rare item may have none.
    n_factors : int
        Length of the planted factors.
    noise : float
        Standard deviation of the noise.
    bias_user, bias_item : float
        Standard deviations of the planted biases.
    factor_strength : float
        Standard deviation of U . V over pairs of a user and an item.
    mean : float
        Centre of the ratings.
    stars : bool
        Round to whole stars and clip to 1..5.
    random_state : int
        The same number gives the same bits.

    Raises
    ------
    InputError
        If a value is not what it must be, or so many ratings do not fit.

    Examples
    --------
    >>> from bayesmf import Synthetic
    >>> plan = Synthetic(n_users=60, n_items=40, n_ratings=900, stars=True, random_state=1)
    >>> plan.ratings()
    Ratings(900 ratings of 40 items by 60 users, 1 to 5, mean 3.424)
    """

    def chunks(self, max_ratings: int = _CHUNK) -> Iterator[Arrays]:
        """Make the ratings in user order, whole users at a time.

        Parameters
        ----------
        max_ratings : int
            Largest chunk; only a user with more than this comes in a larger one.

        Returns
        -------
        iterator of tuple of numpy.ndarray
            Users and items (``int32``, rows of `truth()` from 0 on), and ratings (``float32``).

        Raises
        ------
        InputError
            If `max_ratings` is not at least 1.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> plan = Synthetic(60, 40, 900)
        >>> sum(len(rating) for user, item, rating in plan.chunks(200))
        900
        """
        whole("max_ratings", max_ratings)
        return (train for train, _ in make_parts(self, max_ratings))

    def parts(
        self, holdout: float, max_ratings: int = _CHUNK, shuffle: bool = False
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Make the ratings in two parts, to learn from and to test on, chunk by chunk.

        Which ratings are held out depends on `random_state` and their number alone. Everybody keeps
        one to learn from; of the others the same share is held out of everybody's, within one.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings that is held out, below 1, or their number.
        max_ratings : int
            Largest chunk, as for `chunks`.
        shuffle : bool
            Give ratings of users from all over, in random order; otherwise in user order.

        Returns
        -------
        iterator of tuple
            Train and test of each chunk, each as from `chunks`.

        Raises
        ------
        InputError
            If so many cannot be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> parts = list(Synthetic(60, 40, 900).parts(0.1, 200))
        >>> sum(len(test[0]) for train, test in parts)
        90
        """
        whole("max_ratings", max_ratings)
        return make_parts(self, max_ratings, self.held_out(holdout), shuffle)

    def held_out(self, holdout: float) -> int:
        """Count the ratings that `holdout`, a share or a number, holds out.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings, below 1, or their number.

        Returns
        -------
        int
            Their number.

        Raises
        ------
        InputError
            If so many cannot be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> Synthetic(60, 40, 900).held_out(0.1)
        90
        """
        most = self.n_ratings - self.n_users
        number = isinstance(holdout, int | np.integer) and not isinstance(holdout, bool)
        if not (number or (isinstance(holdout, float | np.floating) and 0 < holdout < 1)):
            raise InputError(
                f"holdout must be a share between 0 and 1 or a number of ratings, not {holdout!r}"
            )
        count = int(holdout) if number else max(1, round(float(holdout) * self.n_ratings))
        if not 1 <= count <= most:
            raise InputError(
                f"{count} ratings cannot be held out: from 1 to {most}, as every user keeps one"
            )
        return count

    def ratings(self) -> Ratings:
        """Make all ratings in memory.

        Returns
        -------
        Ratings
            Their ids are the rows of `truth()` counted from 1, those without a rating too.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> Synthetic(60, 40, 900).ratings().n_items
        40
        """
        return self._ratings(0)[0]

    def split(self, holdout: float = 0.01) -> tuple[Ratings, Ratings]:
        """Make all ratings in memory, to learn from and to test on: those of `parts`.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings that is held out, below 1, or their number.

        Returns
        -------
        tuple of Ratings
            Train and test.

        Raises
        ------
        InputError
            If so many cannot be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> train, test = Synthetic(60, 40, 900).split(100)
        >>> len(train), len(test)
        (800, 100)
        """
        return self._ratings(self.held_out(holdout))

    def write(
        self,
        path: str | os.PathLike[str],
        progress: Callable[[int], Any] | None = None,
        *,
        test: str | os.PathLike[str] | None = None,
        holdout: float = 0.01,
        shuffle: bool = False,
    ) -> None:
        """Stream the ratings to a .csv, .tsv or .parquet file, with columns user, item, rating.

        Ids are counted from 1. A file appears under its name only when all is complete. Memory
        does not grow with the number of ratings.

        Parameters
        ----------
        path : str or path-like
            The file.
        progress : callable, optional
            Called with the number of ratings made since the last call.
        test : str or path-like, optional
            File for the ratings that are held out; None holds none out.
        holdout : float or int
            Share of the ratings that is held out, or their number, as for `parts`.
        shuffle : bool
            Whether to write them in random order, as for `parts`.

        Raises
        ------
        InputError
            If a file cannot be written, or so many cannot be held out.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Ratings, Synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "ratings.csv"
        ...     Synthetic(60, 40, 900).write(path)
        ...     len(Ratings.read(path))
        900
        """
        from bayesmf.synthetic.files import check_paths, write_files

        path, second = Path(path), None if test is None else Path(test)
        check_paths(path, second)
        held = 0 if second is None else self.held_out(holdout)
        parts = make_parts(self, _CHUNK, held, shuffle)
        write_files(parts, path, second, progress or (lambda n: None))

    def _ratings(self, held: int) -> tuple[Ratings, Ratings]:
        from bayesmf.data.ratings import Ratings
        from bayesmf.ids.id_map import IdMap

        sizes = self.n_ratings - held, held
        columns, ends = [empty(n) for n in sizes], [0, 0]
        # By chunks, because the user rows of a chunk are made for it alone.
        for parts in make_parts(self, _CHUNK, held):
            for k, part in enumerate(parts):
                begin, ends[k] = ends[k], ends[k] + len(part[0])
                for out, column in zip(columns[k], part, strict=True):
                    out[begin : ends[k]] = column
        ids = [IdMap(np.arange(1, n + 1)) for n in (self.n_users, self.n_items)]
        train, test = (Ratings.from_arrays(*made, None, *ids) for made in columns)
        return train, test
