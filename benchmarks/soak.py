"""Answers from one warm model by threads and forked processes, at the same time, for a while.

`python -m benchmarks.soak --seconds 60 [--threads 8] [--forks 4] [--replace 1000]`

Every answer is compared with what the model said before, to the bit. A forked process lives for a
few seconds and is followed by another, so that there are many forks while threads are busy. With
`--replace`, a process saves two models in turn over one folder, so many times, and this one loads
the folder and asks it meanwhile. One line of JSON; the exit status is 1 where an answer was another
one, failed, or did not come.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Gibbs, Ratings, Synthetic
from benchmarks.arguments import Parser

USERS, ITEMS, RATINGS = 400, 300, 12_000
# How long a forked process lives, and how long past its end it may take to be done.
LIFE, PATIENCE = 3.0, 30.0

Question = Callable[[BayesianMF], Any]


def make_model(seed: int) -> BayesianMF:
    """A small model whose ids are text."""
    found = Synthetic(USERS, ITEMS, RATINGS, random_state=seed).ratings()
    users, items = ([f"{name} {k}" for k in ids] for name, ids in (
        ("user", found.users), ("film", found.items),
    ))  # fmt: skip
    ratings = Ratings(users, items, found.rating)
    return BayesianMF(6, sampler=Gibbs(epochs=6), random_state=seed).fit(ratings)


def questions(model: BayesianMF) -> list[Question]:
    """Questions of all kinds: one pair, many, unknown ones, one user, many, and scores."""
    users, items = list(model.user_ids_), list(model.item_ids_)
    pairs = [(u, i) for u in users[::5] for i in items[::25]]
    rows = [(u, i, float(k % 5)) for k, (u, i) in enumerate(pairs)]
    array = np.array(users[:200], object), np.array(items[:200], object)
    asked: list[Question] = [
        lambda m: m.predict(users[3], items[4]),
        lambda m: m.predict(pairs, return_std=True),
        lambda m: m.predict(*array),
        lambda m: m.predict([*users[:99], "nobody"], items[:100]),
        lambda m: m.predict_interval(users[0], items),
        lambda m: m.predict_table(pairs).low,
        lambda m: [tuple(one) for one in m.recommend(users[7], 5)],
        lambda m: [tuple(one) for one in m.recommend("nobody", 5, policy="ucb")],
        lambda m: m.recommend_many(n=4).items,
        lambda m: m.recommend_many(users[:150], 3, level=0.9).low,
        lambda m: m.recommend_many(users[::3], 3, policy="thompson", random_state=1).mean,
        lambda m: m.evaluate(rows).crps,
        lambda m: m.score(pairs, [row[2] for row in rows]),
    ]
    return asked


def told(answer: Any) -> str:
    """An answer as text that has all of its bits."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    return repr([p.tolist() if isinstance(p, np.ndarray) else p for p in parts])


class Asking:
    """Ask a model until a time, at random, and count what comes."""

    def __init__(self, model: BayesianMF) -> None:
        self.model, self.asked = model, questions(model)
        self.right = [told(ask(model)) for ask in self.asked]

    def until(self, end: float, seed: int, counts: Counter[str]) -> None:
        rng = random.Random(seed)
        while time.monotonic() < end:
            k = rng.randrange(len(self.asked))
            try:
                same = told(self.asked[k](self.model)) == self.right[k]
            except Exception as error:
                print(f"question {k}: {error!r}", file=sys.stderr, flush=True)
                counts["failed"] += 1
            else:
                counts["answers" if same else "different"] += 1


class Child:
    """A forked process that asks for a while, and tells what it counted."""

    def __init__(self, work: Callable[[], Counter[str]], end: float) -> None:
        self.end, (self.pipe, write) = end, os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.write(write, json.dumps(work()).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)

    def over(self) -> bool:
        """Whether it has ended; one that does not is ended here."""
        if time.monotonic() > self.end + PATIENCE:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.counts = Counter(hung=1)
        else:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return False
            with open(self.pipe, "rb", closefd=False) as stream:
                said = stream.read()
            self.counts = Counter(json.loads(said) if status == 0 else {"failed": 1})
        os.close(self.pipe)
        return True


def soak(model: BayesianMF, seconds: float, threads: int, forks: int) -> Counter[str]:
    """Threads and forked processes that ask the same model."""
    asking, end = Asking(model), time.monotonic() + seconds
    own = [Counter[str]() for _ in range(threads)]
    running = [
        threading.Thread(target=asking.until, args=(end, k, own[k]), daemon=True)
        for k in range(threads)
    ]
    for thread in running:
        thread.start()
    total, children, seed = Counter[str](), list[Child](), threads
    while children or time.monotonic() < end:
        while len(children) < forks and time.monotonic() < end:
            seed += 1
            stop = min(end, time.monotonic() + LIFE)
            children.append(Child(lambda s=seed, t=stop: _one(asking, t, s), stop))
            total["forked"] += 1
        time.sleep(0.02)
        for child in [child for child in children if child.over()]:
            children.remove(child)
            total += child.counts
    total["answers of forked processes"] = total["answers"]
    for thread in running:
        thread.join(max(0.0, end + PATIENCE - time.monotonic()))
        total["hung"] += thread.is_alive()
    return sum(own, total)


def _one(asking: Asking, end: float, seed: int) -> Counter[str]:
    counts = Counter[str]()
    asking.until(end, seed, counts)
    return counts


def replace(models: Sequence[BayesianMF], times: int, folder: Path) -> Counter[str]:
    """One process saves models in turn to one path; this one loads and asks meanwhile."""
    path, ask = folder / "model", questions(models[0])[1]
    right = [told(ask(model)) for model in models]
    models[0].save(path)

    def save() -> Counter[str]:
        for k in range(times):
            models[(k + 1) % len(models)].save(path)
        return Counter(replaced=times)

    # A save takes as long as the disk does.
    writer, counts = Child(save, time.monotonic() + times), Counter[str]()
    while not writer.over():
        try:
            same = told(ask(BayesianMF.load(path))) in right
        except Exception as error:
            print(f"load: {error!r}", file=sys.stderr, flush=True)
            counts["loads failed"] += 1
        else:
            counts["loads" if same else "different"] += 1
    return counts + writer.counts


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, and say how it went in one line."""
    parser = Parser("soak", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--forks", type=int, default=4, help="processes at a time")
    parser.add_argument("--replace", type=int, default=0, metavar="TIMES")
    args = parser.parse_args(argv)
    if args.seconds < 0 or min(args.threads, args.forks, args.replace) < 0:
        parser.error("numbers are not negative")
    if not hasattr(os, "fork"):
        parser.error("there is no fork on this system")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [make_model(seed) for seed in range(2 if args.replace else 1)]
        found = soak(models[0], args.seconds, args.threads, args.forks)
        if args.replace:
            with tempfile.TemporaryDirectory() as folder:
                found += replace(models, args.replace, Path(folder))
    wrong = {name: found[name] for name in ("different", "failed", "hung", "loads failed")}
    print(json.dumps({**vars(args), **{n: c for n, c in found.items() if n not in wrong}, **wrong}))
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
