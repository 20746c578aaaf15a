"""One warm model in several threads, and in processes that were forked after it was used."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack.case import Case
from benchmarks.attack.material import answers, estimator
from benchmarks.attack.registry import attack

PATIENCE = 20.0


def in_child(case: Case, ask: Callable[[], Any]) -> Any:
    """What a forked process finds: a value, or the sentence in which it refused."""
    from bayesmf.errors import BayesMFError

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                found = ("value", ask())
            except BayesMFError as error:
                found = ("refused", str(error))
            except BaseException as error:
                found = ("error", f"{type(error).__name__}: {error}")
            with os.fdopen(write, "wb") as stream:
                pickle.dump(found, stream)
        finally:
            os._exit(0)
    os.close(write)
    raw, due = b"", time.monotonic() + PATIENCE
    while time.monotonic() < due:
        if select.select([read], [], [], 0.2)[0]:
            piece = os.read(read, 1 << 16)
            if not piece:
                break
            raw += piece
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        hung = time.monotonic() >= due
        case.find(
            "hangs" if hung else "signals",
            f"a forked process {'hung' if hung else f'ended by signal {-code}'}",
        )
        return None
    kind, value = pickle.loads(raw) if raw else ("error", "it said nothing")
    if kind == "error":
        case.find("tracebacks", f"in a forked process: {value}")
        return None
    case.refused |= kind == "refused"
    case.answered |= kind == "value"
    return value if kind == "value" else None


def warm(case: Case, name: str) -> Any:
    """A model that was used, in a process that has read and fitted."""
    from bayesmf import BayesianMF, Ratings

    model = BayesianMF.load(case.material.folder / name)
    used = case.rng.sample(("predict", "read", "fit", "nothing"), 2)
    case.say(f"{name}, used: {used}")
    if "predict" in used:
        answers(model)
    if "read" in used:
        Ratings.read(case.material.folder / "names.csv")
    if "fit" in used:
        estimator().fit(Ratings.read(case.material.folder / "plain.csv"))
    return model


@attack("forks", 2, quick=False)
def answering(case: Case) -> None:
    """A forked process answers from the parent's model."""
    name = case.rng.choice(("model", "model_str"))
    model = warm(case, name)
    for _ in range(case.rng.choice((1, 1, 2))):
        found = in_child(case, lambda: answers(model))
        if found is not None and not np.array_equal(found, case.material.answers[name]):
            case.find(
                "other answers", f"a forked process answers otherwise: {'; '.join(case.said)}"
            )


@attack("threads", 2)
def together(case: Case) -> None:
    """Threads answer from one model while its digests are still being compared."""
    from bayesmf import BayesianMF

    name = case.rng.choice(("model", "model_str"))
    model = BayesianMF.load(case.material.folder / name)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(answers(model))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(case.rng.choice((2, 4, 8)))]
    case.say(f"{len(threads)} threads, {name}")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, BaseException):
            case.find("tracebacks", f"in a thread: {type(one).__name__}: {one}")
        elif not np.array_equal(one, case.material.answers[name]):
            case.find("other answers", "a thread answers otherwise than alone")
    case.answered = True


@attack("threads")
def replaced(case: Case) -> None:
    """A model is saved over itself while others load it."""
    from bayesmf import BayesianMF

    case.copy("model")
    model = BayesianMF.load(case.material.folder / "model")
    found: list[Any] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                found.append(answers(BayesianMF.load(case.work / "model")))
            except BaseException as error:
                found.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            case.call(lambda: model.save(case.work / "model"))
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for one in found:
        if isinstance(one, BaseException):
            case.find(
                "other answers", f"a reader beside a writer fails: {type(one).__name__}: {one}"
            )
        elif not np.array_equal(one, case.material.answers["model"]):
            case.find("other answers", "a reader beside a writer has another answer")
