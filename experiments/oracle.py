"""Lower bounds of the error on synthetic ratings.

Three errors on the same test ratings, each with more information than a model has:

- The truth itself: E[rating | planted numbers]. What remains is the noise, as changed by rounding
  and clipping.
- The items' true rows, the priors and the noise. A user's row is estimated from the user's own
  ratings; its posterior mean is the best estimate of a prediction that is linear in it.
- The users' true rows likewise, with an estimated row of each item.

A model has the ratings alone. An estimator that also knows the items' rows can ignore them and do
what the model does; so in expectation over planted numbers and ratings no model is below the second
error, nor, for the same reason, below the third. The larger of the two is the tighter bound. On one
set of ratings errors differ from their expectations by chance, about noise / sqrt(2 n) over n test
ratings, though alike for a model and for the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.kernels.csr import RowLists, group_rows, row_starts, transpose_some
from bayesmf.synthetic.truth import Truth
from experiments.oracle_kernels import predict_rows, score_truth

_BLOCK = 16_000_000  # ratings at a time: 64 MB as numbers, and as many as row numbers

Progress = Callable[[int], Any]


def oracle_rmse(
    starts: NDArray[np.int64],
    other: NDArray[np.int32],
    value: NDArray[Any],
    levels: NDArray[np.float32] | None,
    truth: Truth,
    test_user: NDArray[np.int32],
    test_item: NDArray[np.int32],
    test_rating: NDArray[np.float32],
    progress: Progress | None = None,
) -> dict[str, float]:
    """Return the errors (RMSE) on test ratings of estimators that know part of the truth.

    With whole stars the posterior of a row is not Gaussian; it is taken as the Gaussian of the
    same peak and curvature. So the bound is a little too high:
    by 0.01% at the usual noise of 0.85, by 2% at 0.1, which is small beside a star.

    Parameters
    ----------
    starts, other, value : numpy.ndarray
        Training ratings by user: those of user i are at starts[i] to starts[i + 1], of the
        items `other`. Users and items are rows of the truth.
    levels : numpy.ndarray or None
        Where `value` are codes, the rating of each code.
    truth : Truth
        What was planted, with noise above zero.
    test_user, test_item, test_rating : numpy.ndarray
        The ratings to predict.
    progress : callable
        Called with the number of ratings done since the last call, twice the training ratings
        in all.

    Returns
    -------
    dict
        ``floor``: the noise, as an expectation over the test pairs, needing no ratings.
        ``truth``: the error of E[rating | truth].
        ``given_items``, ``given_users``: the errors of an estimator that knows that side.
        ``bound``: the largest of the last three, a lower bound of a model's expected error.
        ``both``: the error if the costs of estimating either side add up, as they do if both are
        small. It is not a bound, but nearer to the error of a good model.
    """
    lists, test = (starts, other, value), (test_user, test_item, test_rating)
    _check(lists, levels, truth, test)
    done = progress or (lambda n: None)
    scalars = float(truth.mean), float(truth.noise), bool(truth.stars)
    variance, errors = score_truth((truth.U, truth.V, truth.a, truth.b), test, *scalars)
    users, items = _side(truth, "user"), _side(truth, "item")
    given_items = _predict(_by_user(lists, levels), items, test_user, test_item, truth, done)
    given_users = _predict(_by_item(lists, levels, truth), users, test_item, test_user, truth, done)
    found = {
        "floor": math.sqrt(variance / len(test_user)),
        "truth": math.sqrt(errors / len(test_user)),
        "given_items": _rmse(given_items, test_rating),
        "given_users": _rmse(given_users, test_rating),
    }
    found["bound"] = max(found["truth"], found["given_items"], found["given_users"])
    squares = found["given_items"] ** 2 + found["given_users"] ** 2 - found["truth"] ** 2
    found["both"] = math.sqrt(squares)
    return found


def lists_by_user(
    user: NDArray[np.int32], item: NDArray[np.int32], value: NDArray[Any], n_users: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """Sort ratings in any order into the lists that `oracle_rmse` takes.

    Parameters
    ----------
    user, item, value : numpy.ndarray
        The ratings; users and items as row numbers.
    n_users : int
        Number of users, of those without a rating too.
    """
    lists = group_rows(user, item, value, n_users)
    return lists.starts, lists.other, lists.value


Block = tuple[int, NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def _by_user(
    lists: tuple[NDArray[Any], ...], levels: NDArray[np.float32] | None
) -> Iterator[Block]:
    """Blocks of users: the first, and their lists."""
    starts, other, value = lists
    for first, last in _blocks(starts):
        at = slice(int(starts[first]), int(starts[last]))
        yield first, starts[first : last + 1] - at.start, other[at], _plain(value[at], levels)


def _by_item(
    lists: tuple[NDArray[Any], ...], levels: NDArray[np.float32] | None, truth: Truth
) -> Iterator[Block]:
    """Blocks of items: the first, and their lists, each time picked out of the users' lists."""
    by_user = RowLists(*lists)
    starts = row_starts(by_user.other, len(truth.b))
    for first, last in _blocks(starts):
        mine = transpose_some(by_user, starts, first, last)
        yield first, mine.starts, mine.other, _plain(mine.value, levels)


def _blocks(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    first, n = 0, len(starts) - 1
    while first < n:
        last = int(np.searchsorted(starts, starts[first] + _BLOCK, side="right")) - 1
        last = min(max(first + 1, last), n)
        yield first, last
        first = last


def _side(truth: Truth, known: str) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Regressors for the other side and the part of a rating that is known, by row.

    Regressors are multiplied by the deviations of what they meet, whose prior is then N(0, I),
    even where a deviation is zero.
    """
    rows, bias = (truth.U, truth.a) if known == "user" else (truth.V, truth.b)
    other = truth.bias_item if known == "user" else truth.bias_user
    table = np.empty((rows.shape[0], rows.shape[1] + 1), np.float32)
    np.multiply(rows, np.float32(truth.factor), out=table[:, :-1])
    table[:, -1] = other
    return table, truth.mean + bias.astype(np.float64)


def _predict(
    blocks: Iterator[Block],
    side: tuple[NDArray[np.float32], NDArray[np.float64]],
    rows: NDArray[np.int32],
    others: NDArray[np.int32],
    truth: Truth,
    done: Progress,
) -> NDArray[np.float64]:
    """Predict the pairs (rows, others), in their order, with `side` known of the others."""
    order = np.argsort(rows, kind="stable")
    test, ordered = others[order], rows[order]
    out, scalars = np.empty(len(rows)), (float(truth.noise), bool(truth.stars))
    for first, starts, index, value in blocks:
        spans = np.searchsorted(ordered, np.arange(first, first + len(starts)))
        if predict_rows(out, starts, (index, value), side, spans, test, *scalars):
            raise InputError(f"Noise of {truth.noise:g} is too little beside whole stars")
        done(len(index))
    back = np.empty_like(out)
    back[order] = out
    return back


def _plain(value: NDArray[Any], levels: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return np.asarray(value if levels is None else levels[value], dtype=np.float32)


def _rmse(predicted: NDArray[np.float64], rating: NDArray[np.float32]) -> float:
    return math.sqrt(float(np.mean((predicted - rating) ** 2)))


def _check(
    lists: tuple[NDArray[Any], ...],
    levels: NDArray[np.float32] | None,
    truth: Truth,
    test: tuple[NDArray[Any], ...],
) -> None:
    starts, other, value = lists
    users, items = len(truth.a), len(truth.b)
    if not truth.noise > 0:
        raise InputError("Without noise the bound is 0: it is computed for a noise above 0")
    if len(starts) != users + 1 or starts[0] != 0 or np.any(np.diff(starts) < 0):
        raise InputError(f"starts must be {users + 1} ascending numbers from 0 on")
    if not len(other) == len(value) == starts[-1]:
        raise InputError(f"other and value must have {starts[-1]} entries, as starts says")
    if not len(test[0]) == len(test[1]) == len(test[2]) > 0:
        raise InputError("The test ratings must be columns of one length, not empty")
    for name, rows, n in (("other", other, items), ("users", test[0], users),
                          ("items", test[1], items)):  # fmt: skip
        if len(rows) and not 0 <= rows.min() <= rows.max() < n:
            raise InputError(f"{name} must be rows of the truth, from 0 to {n - 1}")
    if levels is None and value.dtype.kind != "f":
        raise InputError("value must be float32, or codes with their levels")
    if levels is not None and (
        value.dtype.kind != "u" or (len(value) and value.max() >= len(levels))
    ):
        raise InputError(f"value must be codes below {len(levels)}, the number of levels")
