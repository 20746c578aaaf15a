"""Timers of `benchmarks bench`: epochs on one thread and several, and answers.

A time is that of the wall. Where the time of one epoch is wanted, it is the difference of a long
and a short run, so that laying out the data and starting drop out. What is compared takes turns,
and of each the best counts: on a machine that others use, the shortest is what repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.data.ratings import Ratings
from bayesmf.data.training import TrainingData
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.run.driver import start_run
from bayesmf.run.prepare import prepare
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Auto, Gibbs
from bayesmf.samplers.momentum import SGHMC
from bayesmf.samplers.sgld import SGD, SGLD

# What is timed under which name. Without burn-in, because that is how most epochs are.
RULES: dict[str, Sampler] = {
    "sgd": SGD(),
    "sgld": SGLD(burn_in=0),
    "sghmc": SGHMC(burn_in=0),
    "gibbs": Gibbs(burn_in=0),
    "gibbs-4": Gibbs(burn_in=0, joint=4),
    "gibbs-1": Gibbs(burn_in=0, joint=1),
}
LABELS = {
    "sgd": "SGD", "sgld": "SGLD", "sghmc": "SGHMC",
    "gibbs": "Gibbs, whole rows", "gibbs-4": "Gibbs, 4 columns", "gibbs-1": "Gibbs, 1 column",
}  # fmt: skip
# Seconds that the epochs of a long run are to take, and how many of them there may be.
SPENT = 0.5
FEWEST, MOST = 2, 200
# Draws of a model that is asked, and how much it is asked.
DRAWS = 20
PAIRS = 1_000_000


# -- timers that take turns -----------------------------------------------------------------------


class Timer:
    """The seconds of one epoch of something that runs for as many epochs as it is asked to.

    Parameters
    ----------
    run : callable
        Given a number of epochs, runs them and gives the seconds of all of it.
    short : int
        Epochs of the short run. 0 where a run has no cost of its own: then there is none.
    epochs : int, optional
        Epochs that a long run has more. By default as many as take about `spent` seconds.
    spent : float
        Those seconds.
    """

    def __init__(
        self,
        run: Callable[[int], float],
        *,
        short: int = 1,
        epochs: int | None = None,
        spent: float = SPENT,
    ) -> None:
        self._run, self._short, self._spent = run, short, spent
        self.epochs = epochs
        self._shortest, self._longest = np.inf, np.inf

    def calibrate(self) -> None:
        """Run once without counting it, and find how long a run should be."""
        self._run(max(self._short, 1))
        if self.epochs is None:
            least = self._run_short()
            more = self._run(self._short + FEWEST)
            # Noise may make the difference of two short runs nothing: then this is many epochs'.
            epoch = max((more - least) / FEWEST, more / MOST, 1e-9)
            self.epochs = int(np.clip(self._spent / epoch, FEWEST, MOST))

    def lap(self) -> None:
        """One short and one long run; the shortest of each is remembered."""
        if self.epochs is None:
            self.calibrate()
        assert self.epochs is not None
        self._shortest = min(self._shortest, self._run_short())
        self._longest = min(self._longest, self._run(self._short + self.epochs))

    def _run_short(self) -> float:
        return self._run(self._short) if self._short else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of an epoch, best minus best: the least difference has a late short run."""
        assert self.epochs is not None
        return max(float(self._longest - self._shortest), 1e-9) / self.epochs


def take_turns(
    timers: Iterable[Timer], repeats: int, progress: Callable[[int], Any] | None = None
) -> None:
    """Calibrate all timers, then let each run a lap, and again, as often as asked.

    `progress` is called with 1 after each of these and each lap.
    """
    todo, done = list(timers), progress or (lambda n: None)
    for timer in todo:
        timer.calibrate()
        done(1)
    for _ in range(repeats):
        for timer in todo:
            timer.lap()
            done(1)


# -- epochs of our rules --------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """A rule as it is timed.

    Parameters
    ----------
    sampler : sampler object
        The rule; `Auto` chooses by the data.
    n_factors : int
        Latent features.
    threads : int
        1 is the caller's own thread.
    prior : str
        As in `BayesianMF`.
    """

    sampler: Sampler | Auto
    n_factors: int
    threads: int = 1
    prior: str = "auto"

    @property
    def n_chains(self) -> int:
        """Chains that run side by side."""
        return self.sampler.n_chains or 1

    def settings(self, epochs: int) -> FitSettings:
        """Settings of a run of some epochs, which keeps one draw of each chain."""
        sampler: Any = self.sampler
        return FitSettings(
            n_factors=self.n_factors,
            sampler=replace(sampler, epochs=epochs),
            prior=self.prior,
            max_draws=self.n_chains,
            random_state=0,
            engine="serial" if self.threads == 1 else "threads",
            n_workers=self.threads,
        )


class EpochTimer(Timer):
    """The time of a rule's epoch on some data.

    Parameters
    ----------
    data : TrainingData
        The ratings.
    case : Timed
        The rule.
    **options
        As for `Timer`.
    """

    def __init__(self, data: TrainingData, case: Timed, **options: Any) -> None:
        super().__init__(self._epochs, **{"short": 0, **options})
        self.data, self.case = data, case

    def _epochs(self, epochs: int) -> float:
        """Seconds from the end of the first epoch on: layout and start take as long as many."""
        ends: list[float] = []
        note = lambda event: ends.append(time.perf_counter())  # noqa: E731
        start_run(self.data, self.case.settings(epochs + 1), callbacks=(note,))
        return ends[-1] - ends[self.case.n_chains - 1]

    @property
    def ratings_per_second(self) -> float:
        """Ratings a second of all chains; a Gibbs sweep reads each twice and is counted once."""
        return self.case.n_chains * len(self.data) / self.seconds


def training_data(ratings: Ratings) -> TrainingData:
    """Ratings in the units of a chain."""
    return prepare(ratings, standardize=True).data


def default_rule(data: TrainingData, n_factors: int) -> str:
    """The name in `RULES` of what `sampler="auto"` runs."""
    joint = Auto().choose(data_shape(data), n_factors, 1).joint
    return "gibbs" if joint is None else f"gibbs-{joint}"


def scaling_timers(
    data: TrainingData, n_factors: int, threads: int, **options: Any
) -> dict[str, tuple[EpochTimer, EpochTimer]]:
    """Timers, on one thread and on several, of what threads share: blocks, stripes, chains.

    Parameters
    ----------
    data : TrainingData
        The ratings.
    n_factors : int
        Latent features.
    threads : int
        Threads that one is compared with: as many blocks and chains are there.
    **options
        As for `Timer`.
    """
    grid, size = (threads, threads), f"{threads}x{threads}"
    samplers: dict[str, Sampler | Auto] = {
        f"SGLD, one chain, {size} grid": SGLD(burn_in=0, grid=grid),
        f"SGHMC, one chain, {size} grid": SGHMC(burn_in=0, grid=grid),
        "default, one chain": Auto(burn_in=0, n_chains=1),
        f"default, {threads} chains": Auto(burn_in=0, n_chains=threads),
    }
    found = {}
    for name, sampler in samplers.items():
        one, more = (Timed(sampler, n_factors, n) for n in (1, threads))
        found[name] = EpochTimer(data, one, **options), EpochTimer(data, more, **options)
    return found


def scaling_rows(timers: dict[str, tuple[EpochTimer, EpochTimer]]) -> list[dict[str, Any]]:
    """Results of `scaling_timers`: the speed-up is the time of one thread over that of several."""
    return [
        {
            "case": name,
            "factors": one.case.n_factors,
            "threads": more.case.threads,
            "seconds_one_thread": one.seconds,
            "seconds": more.seconds,
            "speed_up": one.seconds / more.seconds,
        }
        for name, (one, more) in timers.items()
    ]


# -- answers of a fitted model --------------------------------------------------------------------


def fitted(ratings: Ratings, n_factors: int) -> BayesianMF:
    """A model with a known number of draws: how fast it answers depends on nothing else of a fit.

    Parameters
    ----------
    ratings : Ratings
        What it learns from.
    n_factors : int
        Latent features.
    """
    sampler = Auto(n_chains=1, epochs=DRAWS + 1, burn_in=1)
    return BayesianMF(n_factors, sampler=sampler, random_state=0).fit(ratings)


def answer_timers(
    model: BayesianMF, threads: Sequence[int], n_pairs: int = PAIRS
) -> dict[str, Timer]:
    """Timers of mean and spread of pairs at random, and of the ten best items of every user.

    Parameters
    ----------
    model : BayesianMF
        A fitted model.
    threads : sequence of int
        Numbers of threads.
    n_pairs : int
        Pairs that are predicted.
    """
    rng = np.random.default_rng(1)
    users = rng.choice(model.user_ids_.ids, n_pairs)
    items = rng.choice(model.item_ids_.ids, n_pairs)
    timers = {}
    for n in threads:
        timers[f"predict {n}"] = _timer(model, n, lambda: model.predict(users, items, True))
        timers[f"top-10 {n}"] = _timer(model, n, lambda: model.recommend_many(n=10))
    return timers


def _timer(model: BayesianMF, threads: int, work: Callable[[], Any]) -> Timer:
    def run_once(_: int) -> float:
        model.set_params(n_workers=threads)
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return Timer(run_once, short=0, epochs=1)


def answer_rows(
    model: BayesianMF, timers: dict[str, Timer], n_pairs: int = PAIRS
) -> list[dict[str, Any]]:
    """Results of `answer_timers`: pairs and users a second."""
    rows = []
    for name, timer in timers.items():
        what, threads = name.split()
        count = n_pairs if what == "predict" else len(model.user_ids_)
        rows.append(
            {
                "answer": what, "of": "pairs" if what == "predict" else "users", "count": count,
                "draws": len(model.posterior_.draws), "threads": int(threads),
                "seconds": timer.seconds, "per_second": count / timer.seconds,
            }
        )  # fmt: skip
    return rows
