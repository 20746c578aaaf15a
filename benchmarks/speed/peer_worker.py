"""Other libraries, in processes that their own environment runs; nothing of bayesmf is imported.

The first line of stdin is a job. Its `task` says what is done:

    race     one fit; a line of JSON for each checkpoint (`benchmarks time_to_rmse`)
    fit      one fit of myFM; a line with its RMSE and seconds (`benchmarks defaults`)
    epochs   each further line is a number of epochs, answered by a line with the seconds that they
             took (`benchmarks scale`)
    lists    implicit's ten best items; each further line is a question (`benchmarks answers`)

A process that answers stays, so that its runs may take turns with ours. What the libraries print
goes to stderr. Where one cannot be imported, the line has `missing`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks.speed.peers import PEERS, Clock, Job, one_hot, smurff_session, smurff_steps

ENDLESS = 1_000_000  # sweeps: more than anyone asks for
Asked = dict[str, Any]
Arrays = dict[str, np.ndarray]
Emit = Callable[[dict[str, Any]], None]


def race(asked: Asked, data: Arrays, emit: Emit) -> None:
    """One fit, followed."""
    PEERS[asked.pop("system")](Job(data, emit=emit, **asked))


def fit(asked: Asked, data: Arrays, emit: Emit) -> None:
    """As myFM's documentation does it; predictions are clipped to the range of the ratings."""
    from myfm import MyFMRegressor

    shape = int(data["n_users"]), int(data["n_items"])
    X = one_hot(shape, data["train_user"], data["train_item"])
    X_test = one_hot(shape, data["test_user"], data["test_item"])
    value = data["train_rating"].astype(np.float64)
    model = MyFMRegressor(rank=asked["factors"], random_seed=asked["seed"])
    begin = time.perf_counter()
    model.fit(X, value, n_iter=asked["sweeps"], group_shapes=list(shape))
    seconds = time.perf_counter() - begin
    errors = np.clip(model.predict(X_test), value.min(), value.max()) - data["test_rating"]
    emit({"rmse": float(np.sqrt(np.mean(errors**2))), "seconds": seconds})


# -- epochs ---------------------------------------------------------------------------------------


def questions() -> Iterator[int]:
    """Numbers of epochs, until nothing more is asked."""
    for line in sys.stdin:
        yield int(json.loads(line)["epochs"])


def libmf(job: Job) -> None:
    """SGD, a fit for each question: the caller takes the difference of a long and a short one."""
    from libmf import mf

    ratings = np.stack([*job.train, job.centred], axis=1).astype(np.float32)
    job.emit({"ready": True})
    for epochs in questions():
        model = mf.MF(
            k=job.factors, nr_threads=job.threads, nr_bins=20, nr_iters=epochs, eta=0.05,
            lambda_p1=0.0, lambda_q1=0.0, lambda_p2=0.05, lambda_q2=0.05, quiet=True,
        )  # fmt: skip
        begin = time.perf_counter()
        model.fit(ratings)
        job.emit({"seconds": time.perf_counter() - begin})


def smurff(job: Job) -> None:
    """BPMF, sweep by sweep. Its own count of seconds leaves out what it computes for its status."""

    def sweeps() -> Iterator[float]:
        while True:  # a session has an end: then comes the next
            session = smurff_session(job, "noise drawn")
            session.init()
            for status, _, _ in smurff_steps(session):
                yield status.elapsed_iter

    seconds = sweeps()
    next(seconds)
    job.emit({"ready": True})
    for epochs in questions():
        job.emit({"seconds": sum(next(seconds) for _ in range(epochs))})


def myfm(job: Job) -> None:
    """Coordinate Gibbs. It calls back after every sweep: there it waits to be asked."""
    from myfm import MyFMRegressor

    asked, clock, left = questions(), Clock(), 0

    def next_question() -> bool:
        nonlocal left
        left = next(asked, 0)
        clock.seconds = 0.0
        clock.go_on()
        return left == 0

    def callback(i: int, fm: Any, hyper: Any, history: Any) -> tuple[bool, None]:
        nonlocal left
        left -= 1
        if left > 0:
            return False, None
        seconds = clock.stop()["seconds"]
        # The first sweep is done on the way to the first question, and not reported.
        job.emit({"ready": True} if i == 0 else {"seconds": seconds})
        return next_question(), None

    model = MyFMRegressor(rank=job.factors, random_seed=job.seed)
    model.fit(
        one_hot(job.shape, *job.train), job.data["train_rating"].astype(np.float64),
        n_iter=ENDLESS, n_kept_samples=1, group_shapes=list(job.shape), callback=callback,
    )  # fmt: skip


SYSTEMS: dict[str, Callable[[Job], None]] = {"libmf": libmf, "smurff": smurff, "myfm": myfm}


def epochs(asked: Asked, data: Arrays, emit: Emit) -> None:
    """Answer until stdin ends."""
    system = asked["system"]

    def emit_line(line: dict[str, Any]) -> None:
        if "ready" in line:
            try:
                line["version"] = version(system)
            except PackageNotFoundError:
                line["version"] = "?"
        emit(line)

    SYSTEMS[system](Job(data, asked["factors"], 1, 0, 0.0, False, None, emit_line))


# -- lists ----------------------------------------------------------------------------------------


def lists(asked: Asked, data: Arrays, emit: Emit) -> None:
    """Ten best items of every user, by threads and with or without rated ones."""
    import implicit
    from implicit.cpu.matrix_factorization_base import MatrixFactorizationBase
    from scipy.sparse import csr_matrix

    class FixedFactors(MatrixFactorizationBase):  # type: ignore[misc]
        def fit(self, *_: Any, **__: Any) -> None: ...
        def save(self, *_: Any) -> None: ...

    model = FixedFactors()
    model.user_factors, model.item_factors = data["users"], data["items"]
    shape = len(data["users"]), len(data["items"])
    ones = np.ones(len(data["seen_items"]), np.float32)
    rated = csr_matrix((ones, data["seen_items"], data["seen_starts"]), shape)
    emit({"version": implicit.__version__})
    everyone = np.arange(len(data["users"]))
    for line in sys.stdin:
        question = json.loads(line)
        model.num_threads, leave_out = question["threads"], question["exclude_seen"]
        begin, busy = time.perf_counter(), time.process_time()
        ids, _ = model.recommend(
            everyone, rated if leave_out else None, N=10, filter_already_liked_items=leave_out
        )
        taken = time.perf_counter() - begin, time.process_time() - busy
        np.save(asked["out"], ids)
        emit({"seconds": taken[0], "cpu_seconds": taken[1]})


TASKS = {"race": race, "fit": fit, "epochs": epochs, "lists": lists}


def main() -> None:
    """Do the task of the first line."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=lines, flush=True)

    asked = json.loads(sys.stdin.readline())
    with np.load(asked.pop("data")) as file:
        data = dict(file)
    try:
        TASKS[asked.pop("task")](asked, data, emit)
    except ImportError as error:
        emit({"missing": str(error)})


if __name__ == "__main__":
    main()
