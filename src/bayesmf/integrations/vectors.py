"""Vectors for FAISS, pgvector and similar stores: inner products are predictions."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.errors import InputError
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.storage.atomic import replacing

__all__ = ["item_vectors", "user_vectors", "write_vectors"]

Vectors = NDArray[np.float32]


def item_vectors(model: BayesianMF, items: Any = None, *, draws: int = 1) -> Vectors:
    """Return vectors of items, whose inner product with a user's vector is a predicted rating.

    Vectors of several draws are concatenated, since their axes differ; the inner product is then
    the mean of the draws' predictions. With one draw vectors are shortest, and lists differ most
    from those of `recommend` (docs/recipes/vectors.md has figures).

    Parameters
    ----------
    model : BayesianMF
        The fitted model.
    items : array-like, optional
        Ids; all items of the model by default, in the order of `model.item_ids_.ids`.
    draws : int
        Number of draws, spread evenly over those of the model; 1 is the last one.

    Returns
    -------
    ndarray of float32, shape (n_items, draws * n_factors + 2)
        A vector for each id.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> from bayesmf.integrations.vectors import item_vectors, user_vectors
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
    >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
    >>> scores = user_vectors(model, [1, 2], draws=3) @ item_vectors(model, draws=3).T
    >>> scores.shape
    (2, 40)
    """
    ids = model.item_ids_.ids if items is None else items
    found = [model.rows(items=ids, draw=draw) for draw in _chosen(model, draws)]
    return _side_by_side(found, 1.0)


def user_vectors(
    model: BayesianMF, users: Any = None, *, ratings: Any = None, draws: int = 1
) -> Vectors:
    """Return vectors of users, or of a person who sends ratings.

    Parameters
    ----------
    model : BayesianMF
        The fitted model.
    users : array-like, optional
        Ids; all users of the model by default, in the order of `model.user_ids_.ids`.
    ratings : mapping or as X of `fit`, optional
        Ratings of these users in addition to the training data; `{item: rating}` for one person,
        who may be unknown to the model.
    draws : int
        As for `item_vectors`, with the same number.

    Returns
    -------
    ndarray of float32, shape (n_users, draws * n_factors + 2)
        A vector for each user.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> from bayesmf.integrations.vectors import user_vectors
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
    >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
    >>> user_vectors(model, ratings={3: 5, 4: 1}, draws=2).shape
    (1, 10)
    """
    ids = model.user_ids_.ids if users is None and ratings is None else users
    chosen = _chosen(model, draws)
    found = [model.rows(users=ids, ratings=ratings, draw=draw) for draw in chosen]
    return _side_by_side(found, 1.0 / len(chosen))


def _chosen(model: BayesianMF, draws: int) -> list[int]:
    """Indices of draws, evenly spread, the last one included."""
    kept, asked = len(model.posterior_.draws), whole("draws", draws)
    if asked > kept:
        raise InputError(f"the model has {kept} draws: draws must be at most that, not {asked}")
    return (np.arange(1, asked + 1) * kept // asked - 1).tolist()


def _side_by_side(found: list[Vectors], share: float) -> Vectors:
    """Concatenated factors of all draws, and the mean of the last two columns, biases."""
    factors = np.concatenate([rows[:, :-2] for rows in found], axis=1) * np.float32(share)
    biases = np.mean([rows[:, -2:] for rows in found], axis=0, dtype=np.float64)
    return np.concatenate([factors, biases.astype(np.float32)], axis=1)


def write_vectors(path: str | PathLike[str], ids: Any, vectors: Any) -> None:
    """Write ids and vectors to one file, in one step.

    Parameters
    ----------
    path : path-like
        A name that ends in .parquet (columns id and vector, arrays of float32) or in .npz (arrays
        ids and vectors, which `numpy.load` reads without pickle).
    ids : array-like
        Integers or strings.
    vectors : array-like, shape (n_ids, length)
        A vector for each id.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmf.integrations.vectors import write_vectors
    >>> write_vectors("items.npz", [7, 8], [[0.5, 1.0], [0.25, 1.0]])
    >>> np.load("items.npz")["vectors"].shape
    (2, 2)
    """
    try:
        numbers = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError("vectors must be real numbers in rows of equal length") from None
    names = np.asarray(ids)
    if names.dtype == object and all(isinstance(one, str) for one in names.ravel()):
        names = names.astype(np.str_)
    if names.dtype.kind not in "iuU" or names.ndim != 1:
        raise InputError("ids must be a column of integers or of strings")
    if numbers.ndim != 2 or len(numbers) != len(names):
        raise InputError(
            f"vectors must be a table with a row for each of {len(names)} ids, not of shape"
            f" {numbers.shape}"
        )
    ending = Path(path).suffix
    if ending not in (".parquet", ".npz"):
        raise InputError(f"{path}: the name of a file of vectors ends in .parquet or .npz")
    with replacing(path) as file:
        if ending == ".npz":
            np.savez(file, allow_pickle=False, ids=names, vectors=numbers)
        else:
            import polars as pl

            shaped = pl.Array(pl.Float32, numbers.shape[1])
            column = pl.Series("vector", numbers, dtype=shaped)
            pl.DataFrame({"id": names.tolist(), "vector": column}).write_parquet(file)
