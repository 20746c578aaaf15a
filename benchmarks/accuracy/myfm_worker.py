"""One fit of myFM for `benchmarks defaults`: reads a job from stdin, prints its RMSE and seconds.

The interpreter is that of the peers' environment, so nothing of bayesmf is imported here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np


def one_hot(user: np.ndarray, item: np.ndarray, shape: tuple[int, int]) -> Any:
    """A one for the user and one for the item; none for what the training ratings lack (-1)."""
    from scipy import sparse

    rows = np.tile(np.arange(len(user)), 2)
    columns = np.concatenate([user, np.where(item < 0, -1, item + shape[0])])
    known = columns >= 0
    ones = np.ones(int(known.sum()))
    return sparse.csr_matrix((ones, (rows[known], columns[known])), (len(user), sum(shape)))


def fit(data: dict[str, np.ndarray], job: dict[str, Any]) -> dict[str, float]:
    """Fit as myFM's documentation does; predictions are clipped to the range of the ratings."""
    from myfm import MyFMRegressor

    shape = int(data["n_users"]), int(data["n_items"])
    X = one_hot(data["train_user"], data["train_item"], shape)
    X_test = one_hot(data["test_user"], data["test_item"], shape)
    value = data["train_rating"].astype(np.float64)
    model = MyFMRegressor(rank=job["factors"], random_seed=job["seed"])
    begin = time.perf_counter()
    model.fit(X, value, n_iter=job["sweeps"], group_shapes=list(shape))
    seconds = time.perf_counter() - begin
    errors = np.clip(model.predict(X_test), value.min(), value.max()) - data["test_rating"]
    return {"rmse": float(np.sqrt(np.mean(errors**2))), "seconds": seconds}


def main() -> None:
    """Print one JSON line; it has `missing` where myFM cannot be had."""
    job = json.load(sys.stdin)
    # What myFM prints goes to stderr.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(job["data"]) as file:
        data = dict(file)
    try:
        line: dict[str, Any] = fit(data, job)
    except ImportError as error:
        line = {"missing": str(error)}
    print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
