"""Times other libraries' epochs for `benchmarks scale`: answers each line of stdin with a line.

The first line names the system and the data; each later one is a number of epochs, and the answer
the seconds that they took. The interpreter is that of the peers' environment, so nothing of bayesmf
is imported here. The process stays, so that its runs may take turns with ours.
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

from benchmarks.speed.peers import Clock, Job, one_hot, smurff_session, smurff_steps

ENDLESS = 1_000_000  # sweeps that nobody will ask for


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
        # The first sweep is done on the way to the first question, and told to nobody.
        job.emit({"ready": True} if i == 0 else {"seconds": seconds})
        return next_question(), None

    model = MyFMRegressor(rank=job.factors, random_seed=job.seed)
    model.fit(
        one_hot(job.shape, *job.train), job.data["train_rating"].astype(np.float64),
        n_iter=ENDLESS, n_kept_samples=1, group_shapes=list(job.shape), callback=callback,
    )  # fmt: skip


SYSTEMS: dict[str, Callable[[Job], None]] = {"libmf": libmf, "smurff": smurff, "myfm": myfm}


def main() -> None:
    """Answer until stdin ends; a line with `missing` where the library cannot be had."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the libraries print goes to stderr

    asked = json.loads(sys.stdin.readline())
    system = asked["system"]

    def emit(line: dict[str, Any]) -> None:
        if "ready" in line:
            try:
                line["version"] = version(system)
            except PackageNotFoundError:
                line["version"] = "?"
        print(json.dumps(line), file=lines, flush=True)

    with np.load(asked["data"]) as file:
        data = dict(file)
    try:
        SYSTEMS[system](Job(data, asked["factors"], 1, 0, 0.0, False, None, emit))
    except ImportError as error:
        emit({"missing": str(error)})


if __name__ == "__main__":
    main()
