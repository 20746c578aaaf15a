"""Speed of bulk answers, or of single ones and loading (`--latency`).

Mean and spread of many pairs, and the ten best items of every user, from draws made at random: how
fast an answer is does not depend on what it says. The measure of top-k is implicit's, on factors of
one draw's size. It is run by the Python that `--peers` names, of an environment of its own:

    python3 -m venv DIR && DIR/bin/pip install implicit==0.7.3

Runs of all take turns and the best of each counts: on a shared machine the minimum is what repeats.
The processor's seconds, summed over threads, show how much was waiting.

`--latency` measures instead how long one user waits, and a load of a model (py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Gibbs
from bayesmf.data.training import TrainingData
from bayesmf.errors import ConvergenceWarning, DataWarning
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import RowLists
from bayesmf.model.draws import Draws
from bayesmf.posterior import POLICIES
from bayesmf.posterior.posterior import Posterior
from bayesmf.posterior.ranking import Question, rank_users
from benchmarks.options import BenchParser, command

TIMES = 50
LOADS = 5


def make_model(posterior: Posterior) -> BayesianMF:
    """A model around given draws; a fit of a few ratings gives the rest of it."""
    few = (*np.divmod(np.arange(63), 7), np.random.default_rng(0).normal(size=63))
    model = BayesianMF(posterior.n_factors, sampler=Gibbs(epochs=2, burn_in=1), random_state=0)
    model.fit(few)
    users, items = (IdMap(np.arange(n)) for n in (posterior.n_users, posterior.n_items))
    sizes = {"users": len(users), "items": len(items), "ratings": len(posterior.ratings)}
    report = {**model.report_, **sizes, "draws": len(posterior.draws)}
    model._found = model._found._replace(
        posterior=posterior, user_ids=users, item_ids=items, report=report
    )
    return model


def milliseconds(work: Callable[[], Any], times: int) -> float:
    """The median of some calls."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found)


def latency(posterior: Posterior) -> dict[str, Any]:
    """Milliseconds to load a model, to its first answer, and to answers by each policy."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        for category in (ConvergenceWarning, DataWarning):  # it is there to answer
            warnings.simplefilter("ignore", category)
        path = Path(folder) / "model"
        make_model(posterior).save(path)
        size = path.stat().st_size
        BayesianMF.load(path).recommend(0)  # compiled
        found = {
            "load": milliseconds(lambda: BayesianMF.load(path), LOADS),
            "load, first recommendation": milliseconds(
                lambda: BayesianMF.load(path).recommend(0), LOADS
            ),
            "load without verifying, first recommendation": milliseconds(
                lambda: BayesianMF.load(path, verify=False).recommend(0), LOADS
            ),
        }
        model = BayesianMF.load(path)
        for policy in POLICIES:
            model.recommend(0, policy=policy)
            for name, user in (("a user", 1), ("an unseen user", -1)):
                found[f"recommend to {name}, {policy}"] = milliseconds(
                    lambda u=user, p=policy: model.recommend(u, policy=p), TIMES
                )
        found["recommend_many of one user, mean, no interval"] = milliseconds(
            lambda: model.recommend_many([1]), TIMES
        )
        return {"megabytes": size / 1e6, "milliseconds": found}


def report_latency(found: dict[str, Any]) -> None:
    """One table."""
    print(
        f"D = {found['factors']}, {found['draws']} draws, a model of {found['megabytes']:.0f} MB; "
        f"medians of {LOADS} loads and {TIMES} answers, {found['cores']} cores"
    )
    for name, ms in found["milliseconds"].items():
        print(f"{name:<48}{ms:>9.1f} ms")


SHAPES = {"ml-1m": (6040, 3706, 1_000_209), "ml-10m": (69_878, 10_677, 10_000_054)}
ROOT = Path(__file__).resolve().parents[2]
THREADS = (1, 2)
Times = tuple[float, float]  # seconds by the wall, and of the processor over all threads
Run = Callable[[], Times]


def make_posterior(
    shape: tuple[int, int, int], n_draws: int, D: int, means: bool, keep: str = "items"
) -> Posterior:
    """Draws, and ratings, at random."""
    rng = np.random.default_rng(0)
    n_users, n_items, n_ratings = shape

    def rows(n: int, wanted: bool) -> np.ndarray | None:
        return 0.2 * rng.standard_normal((n_draws, n, D + 1), dtype=np.float32) if wanted else None

    cells = np.unique(rng.integers(0, n_users * n_items, n_ratings))
    starts = np.searchsorted(cells, n_items * np.arange(n_users + 1))
    codes = rng.integers(0, 5, len(cells)).astype(np.uint8)
    lists = RowLists(starts, (cells % n_items).astype(np.int32), codes)
    data = TrainingData(lists, n_items, np.linspace(-2, 1.3, 5).astype(np.float32))
    mu, Lambda = np.zeros((n_draws, D + 1)), np.full((n_draws, D + 1), 5.0)
    both = keep == "both"
    user_tau, item_tau = (
        rng.gamma(4.0, 0.25, (n_draws, n)).astype(np.float32) for n in (n_users, n_items)
    )
    law = np.full((n_draws, 2), 4.0)
    draws = Draws(
        rows(n_users, both), rows(n_items, True), mu, Lambda, mu, Lambda, np.ones(n_draws),
        np.zeros(n_draws, np.int64), rows(n_users, means and both), rows(n_items, means),
        user_tau=user_tau, item_tau=item_tau, user_tau_prior=law, item_tau_prior=law,
    )  # fmt: skip
    return Posterior(draws, data, D, 3.5, 1.1, 1.0, 5.0)


def timed(work: Callable[[], Any]) -> Run:
    """Seconds of a call."""

    def run() -> Times:
        begin, busy = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - begin, time.process_time() - busy

    return run


def pair_runs(shape: str, n_pairs: int, n_draws: int, D: int) -> dict[str, Run]:
    """Mean and spread of pairs at random: rows in the cache or not, means alone, both sides kept.

    Cold is a copy of the posterior each time, with nothing worked out.
    """
    rng = np.random.default_rng(1)
    user, item = (rng.integers(0, n, n_pairs) for n in SHAPES[shape][:2])
    runs = {}
    items = make_posterior(SHAPES[shape], n_draws, D, means=True)
    both = make_posterior(SHAPES[shape], n_draws, D, means=True, keep="both")
    for source in (items, both):
        source.mean_std(user[:10], item[:10])  # compiled
    items.mean_std(user, item)  # worked out
    for threads in THREADS:
        runs |= {
            f"pairs {shape} items kept, {threads}": timed(
                lambda t=threads: items.mean_std(user, item, t)
            ),
            f"pairs {shape} items kept, cold, {threads}": timed(
                lambda t=threads: copy(items).mean_std(user, item, t)
            ),
            f"pairs {shape} items kept, means alone, {threads}": timed(
                lambda t=threads: items.mean(user, item, t)
            ),
            f"pairs {shape} both kept, {threads}": timed(
                lambda t=threads: both.mean_std(user, item, t)
            ),
        }
    return runs


def first_draw(posterior: Posterior) -> Posterior:
    """One draw of both sides and no conditional means: what a point estimate has."""
    draws, users = posterior.draws, posterior.sides.source.solve(np.arange(posterior.n_users))
    one = Draws(
        users.means[users.place, 0][None], draws.kept[:1], draws.user_mu[:1], draws.user_Lambda[:1],
        draws.item_mu[:1], draws.item_Lambda[:1], draws.tau[:1], draws.chain[:1],
    )  # fmt: skip
    return Posterior(one, posterior.ratings, posterior.n_factors, 0.0, 1.0, -9.0, 9.0)


def top_runs(posterior: Posterior, alone: Posterior) -> dict[str, Run]:
    """The ten best items of every user by each policy, and from one draw as implicit has it."""
    cases = [(posterior, policy, policy, True) for policy in POLICIES]
    cases += [(posterior, "mean", "mean", False)]
    cases += [(alone, "one draw", "mean", exclude) for exclude in (True, False)]
    users = np.arange(posterior.n_users)
    runs = {}
    for source, name, policy, exclude in cases:
        question = Question(10, policy, exclude, None)
        rank_users(source, users, question)  # compiled, and rows worked out
        for threads in THREADS:
            runs[top_name(name, exclude, threads)] = timed(
                lambda p=source, q=question, t=threads: rank_users(p, users, q, t)
            )
    for threads in THREADS:
        runs[top_name("mean, cold", True, threads)] = timed(
            lambda t=threads: rank_users(
                copy(posterior), users, Question(10, "mean", True, None), t
            )
        )
    return runs


def top_name(system: str, exclude: bool, threads: int) -> str:
    """The name of one way to the ten best items."""
    return f"top {system}, {'rated left out' if exclude else 'all items'}, {threads}"


class AnswerPeer:
    """implicit in a process of its own, with the factors of the first draw."""

    def __init__(self, python: str, posterior: Posterior, folder: str) -> None:
        self.out = Path(folder) / "ids.npy"
        data, draws = Path(folder) / "data.npz", posterior.draws
        assert draws.users is not None and draws.items is not None
        users = draws.users[0].copy()
        users[:, -1] = 1.0  # for the item's bias; the user's own does not change the order
        np.savez(
            data, users=users, items=draws.items[0], seen_starts=posterior.seen.starts,
            seen_items=posterior.seen.items,
        )  # fmt: skip
        # As its documentation asks: its own threads, and none of BLAS inside them.
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.speed.peer_worker"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )  # fmt: skip
        self.about = self._ask({"task": "lists", "data": str(data), "out": str(self.out)})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        return dict(json.loads(line)) if line else {"missing": "implicit's process ended"}

    def runs(self) -> dict[str, Run]:
        """The questions that we are asked, asked of the peer."""

        def run(exclude: bool, threads: int) -> Times:
            answer = self._ask({"exclude_seen": exclude, "threads": threads})
            return float(answer["seconds"]), float(answer["cpu_seconds"])

        return {
            top_name("implicit", exclude, threads): lambda e=exclude, t=threads: run(e, t)
            for exclude in (True, False)
            for threads in THREADS
        }

    def agreement(self, alone: Posterior) -> float:
        """Share of its items that ours are too, from that one draw, rated ones left out."""
        self._ask({"exclude_seen": True, "threads": 1})
        ours, _ = rank_users(alone, np.arange(alone.n_users), Question(10, "mean", True, None))
        theirs = np.load(self.out)
        return float(
            np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ours, theirs, strict=True)])
        )

    def close(self) -> None:
        """End its process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def peer_of(
    python: str | None, posterior: Posterior
) -> Iterator[tuple[AnswerPeer | None, str | None]]:
    """The peer, or None and why there is none."""
    if python is None:
        yield None, "no environment was named: give --peers PYTHON"
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            peer = AnswerPeer(python, posterior, folder)
        except OSError as error:
            yield None, str(error)
            return
        try:
            missing = peer.about.get("missing")
            yield (None if missing else peer), missing
        finally:
            peer.close()


def best_of(runs: dict[str, Run], repeats: int) -> dict[str, dict[str, float]]:
    """The shortest of some laps over all runs."""
    times: dict[str, list[Times]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(run())
    return {
        name: {"seconds": min(t[0] for t in found), "cpu_seconds": min(t[1] for t in found)}
        for name, found in times.items()
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All of it as one object."""
    ranked = make_posterior(SHAPES["ml-1m"], args.draws, args.factors, means=True)
    found: dict[str, Any] = {
        "pairs": args.pairs, "draws": args.draws, "factors": args.factors, "repeats": args.repeats,
        "cores": os.cpu_count(),
    }  # fmt: skip
    alone = first_draw(ranked)
    with peer_of(args.peers, alone) as (peer, missing):
        runs = top_runs(ranked, alone)
        if peer is not None:
            runs |= peer.runs()
            found |= {"implicit": peer.about["version"], "agreement": peer.agreement(alone)}
        else:
            found["missing"] = missing
        for shape in args.shapes:
            runs |= pair_runs(shape, args.pairs, args.draws, args.factors)
        found["runs"] = best_of(runs, args.repeats)
    return found


def measure_latency(args: argparse.Namespace) -> dict[str, Any]:
    """How long one user waits, as one object."""
    about = {"draws": args.draws, "factors": args.factors, "cores": os.cpu_count()}
    posterior = make_posterior(SHAPES["ml-1m"], args.draws, args.factors, means=True)
    return about | latency(posterior)


def report(found: dict[str, Any]) -> None:
    """Two tables."""
    print(
        f"D = {found['factors']}, {found['draws']} draws, best of {found['repeats']}, "
        f"{found['cores']} cores"
    )
    report_pairs(found)
    report_top(found)
    if "missing" in found:
        print(f"implicit is left out: {found['missing']}")
    else:
        print(
            f"implicit {found['implicit']} over ours a draw, by the wall and the processor; on one "
            f"draw's factors {100 * found['agreement']:.2f}% of the items are the same"
        )


def report_pairs(found: dict[str, Any]) -> None:
    """Pairs and draws a second; in brackets what the processor's seconds come to."""
    work = found["pairs"] * found["draws"]
    title = f"mean and std of {found['pairs']:,} pairs"
    print(f"\n{title:<42}{'s':>8}{'cpu s':>8}{'M pair-draws/s':>16}{'a cpu s':>9}")
    for name, run in found["runs"].items():
        if name.startswith("pairs"):
            wall, cpu = run["seconds"], run["cpu_seconds"]
            print(
                f"{threads_of(name):<42}{wall:>8.2f}{cpu:>8.2f}{work / wall / 1e6:>16.0f}"
                f"{work / cpu / 1e6:>9.0f}"
            )


def report_top(found: dict[str, Any]) -> None:
    """Milliseconds, and how many times as long implicit takes as we do for a draw."""
    print(
        f"\n{'ten best of 3,706 items for 6,040 users':<42}{'ms':>8}{'cpu ms':>8}{'ms a draw':>11}"
        f"{'implicit':>10}{'cpu':>8}"
    )
    runs = found["runs"]
    for name, run in runs.items():
        if not name.startswith("top"):
            continue
        single = "implicit" in name or "one draw" in name
        n_draws = 1 if single else found["draws"]
        theirs = runs.get(", ".join(["top implicit", *name.split(", ")[-2:]]))
        line = f"{threads_of(name):<42}{1e3 * run['seconds']:>8.0f}{1e3 * run['cpu_seconds']:>8.0f}"
        line += f"{1e3 * run['seconds'] / n_draws:>11.1f}"
        if theirs is not None and "implicit" not in name:
            wall, cpu = (n_draws * theirs[k] / run[k] for k in ("seconds", "cpu_seconds"))
            line += f"{wall:>8.1f} x{cpu:>6.1f} x"
        print(line)


def threads_of(name: str) -> str:
    """A run's name for people."""
    return f"{name.split(' ', 1)[1]} thread{'s' if name[-1] != '1' else ''}"


@command
def main(argv: list[str] | None = None) -> None:
    """Print tables, or one JSON object."""
    parser = BenchParser("answers", __doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has implicit")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--draws", type=int, help="20, or 140 with --latency")
    parser.add_argument("--factors", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--latency", action="store_true", help="one user's answers, and loads")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    args.draws = args.draws or (140 if args.latency else 20)
    found = measure_latency(args) if args.latency else measure(args)
    if args.json:
        print(json.dumps(found))
    elif args.latency:
        report_latency(found)
    else:
        report(found)
