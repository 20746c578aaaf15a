"""One measurement for `benchmarks against`: `against_worker.py TASK WORK`, with a checkout's src on
PYTHONPATH. Imports nothing of benchmarks, and uses only what every checkout has.

Prints a line of JSON: wall and processor seconds of the task (the best of some passes), the peak
memory of the process in MB, and a digest of the answers.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Ratings, pack

MODEL, PACKED = "model.bayesmf", "packed.bayesmf"
BLOCK = 1 << 18  # pairs of one bulk table


def remove(path: Path) -> None:
    """Remove a file or a folder, whichever the checkout has written."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def fit(work: Path) -> tuple[Callable[[], Any], Callable[[Any], list[Any]]]:
    ratings = Ratings.read(work / "ratings.csv")
    BayesianMF(engine="serial", random_state=0, max_seconds=0.1).fit(ratings)  # compiled

    def run() -> Any:
        return BayesianMF(engine="serial", random_state=0).fit(ratings)

    def answers(model: Any) -> list[Any]:
        remove(work / MODEL)
        model.save(work / MODEL)
        arrays = model.posterior_.draws.arrays()
        return [arrays[name] for name in sorted(arrays)]

    return run, answers


def predict(work: Path) -> tuple[Callable[[], Any], Callable[[Any], list[Any]]]:
    model, rng = BayesianMF.load(work / MODEL), np.random.default_rng(0)
    users, items = (rng.choice(ids.ids, BLOCK) for ids in (model.user_ids_, model.item_ids_))
    model.predict_table(users[:100], items[:100])
    return (
        lambda: model.predict_table(users, items),
        lambda table: [table.mean, table.std, table.low, table.high],
    )


def recommend(work: Path) -> tuple[Callable[[], Any], Callable[[Any], list[Any]]]:
    model = BayesianMF.load(work / MODEL)
    model.recommend_many(model.user_ids_.ids[:10], n=10)
    return lambda: model.recommend_many(n=10), lambda lists: [lists.items, lists.mean]


def load(work: Path) -> tuple[Callable[[], Any], Callable[[Any], list[Any]]]:
    def run() -> Any:
        model = BayesianMF.load(work / MODEL)
        return model.predict([model.user_ids_.ids[0]], [model.item_ids_.ids[0]])

    run()
    return run, lambda mean: [mean]


def packing(work: Path) -> tuple[Callable[[], Any], Callable[[Any], list[Any]]]:
    pack(work / "few.csv", work / "few.packed", overwrite=(work / "few.packed").exists())

    def run() -> Any:
        remove(work / PACKED)
        return pack(work / "ratings.csv", work / PACKED)

    return run, lambda packed: [packed.by_user.other, packed.by_user.value, packed.by_item.other]


# How a task is set up, and how many passes of it are timed.
TASKS = {
    "fit": (fit, 1),
    "predict": (predict, 3),
    "recommend": (recommend, 3),
    "load": (load, 10),
    "pack": (packing, 2),
}


def main() -> None:
    """Do the task, and print what it took."""
    name, work = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    prepare, passes = TASKS[name]
    run, answers = prepare(work)
    wall, busy, found = [], [], None
    for _ in range(passes):
        begin, cpu = time.perf_counter(), time.process_time()
        found = run()
        wall.append(time.perf_counter() - begin)
        busy.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    digest = hashlib.sha256()
    for array in answers(found):
        digest.update(np.ascontiguousarray(array).tobytes())
    result = {"wall": min(wall), "cpu": min(busy), "memory": peak, "digest": digest.hexdigest()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
