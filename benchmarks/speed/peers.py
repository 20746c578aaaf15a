"""Other libraries, each fitted in one small function; run by `peer_worker`, never by bayesmf.

A function is given a `Job` and reports checkpoints to it. Samplers report as they run; the
others are fitted again for each length of a fit, so a checkpoint costs what it would cost alone.
Settings are the documented ones, or a small grid around them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Times = dict[str, float]
Predict = Callable[[], np.ndarray]

# Draws dropped before averaging: myFM's own default, and longer ones. The best counts.
BURN_INS = (5, 20, 50)
SWEEPS = 120


class Clock:
    """Seconds of learning, by the wall and of the processor: looking at the test set stops it.

    On a machine that others use, the processor's seconds show how much of the wall's was waiting.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self.go_on()

    def stop(self) -> dict[str, float]:
        self.seconds += time.perf_counter() - self._since
        self.cpu_seconds += time.process_time() - self._cpu_since
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}

    def go_on(self) -> None:
        self._since, self._cpu_since = time.perf_counter(), time.process_time()


@dataclass
class Job:
    """The data, what was asked for, and where to report."""

    data: Arrays
    factors: int
    threads: int
    seed: int
    max_seconds: float
    quick: bool
    only: list[str] | None
    emit: Callable[[dict[str, Any]], None]
    center: float = field(init=False)
    centred: np.ndarray = field(init=False)
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        value = self.data["train_rating"]
        self.center = float(value.mean(dtype=np.float64))
        self.centred = value.astype(np.float64) - self.center
        self.low, self.high = float(value.min()), float(value.max())
        self.shape = (int(self.data["n_users"]), int(self.data["n_items"]))

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        return self.data["train_user"], self.data["train_item"]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        return self.data["test_user"], self.data["test_item"]

    def report(self, settings: str, step: int, times: Times, prediction: np.ndarray) -> None:
        """One checkpoint. Predictions are clipped to the range of the ratings, for all alike."""
        errors = np.clip(prediction, self.low, self.high) - self.data["test_rating"]
        rmse = float(np.sqrt(np.mean(errors**2, dtype=np.float64)))
        self.emit({"settings": settings, "step": step, **times, "rmse": rmse})


class Averages:
    """Running means over draws, one for each burn-in; the state itself before."""

    def __init__(self, job: Job, note: str = "") -> None:
        self.job, self.note, self.draws = job, note, 0
        self.burn_ins = (2,) if job.quick else BURN_INS
        self.totals = {b: np.zeros(len(job.test[0])) for b in self.burn_ins}

    def add(self, times: Times, prediction: np.ndarray) -> None:
        self.draws += 1
        for burn_in, total in self.totals.items():
            kept = self.draws - burn_in
            if kept > 0:
                total += prediction
            mean = total / kept if kept > 0 else prediction
            self.job.report(f"burn-in {burn_in}{self.note}", self.draws, times, mean)


def sweeps(job: Job) -> int:
    return 8 if job.quick else SWEEPS


# -- samplers --------------------------------------------------------------------------------


def myfm(job: Job) -> None:
    """Bayesian factorization machine on one-hot users and items."""
    from myfm import MyFMRegressor

    X, X_test = one_hot(job.shape, *job.train), one_hot(job.shape, *job.test)
    averages = Averages(job)
    model = MyFMRegressor(rank=job.factors, random_seed=job.seed)
    clock = Clock()

    def callback(i: int, fm: Any, hyper: Any, history: Any) -> tuple[bool, None]:
        averages.add(clock.stop(), fm.predict_score(X_test, []))
        clock.go_on()
        return clock.seconds >= job.max_seconds, None

    # It need not store draws, which spares it their copies: the averages are taken here.
    model.fit(
        X, job.data["train_rating"].astype(np.float64), n_iter=sweeps(job), n_kept_samples=1,
        group_shapes=list(job.shape), callback=callback,
    )  # fmt: skip


def one_hot(shape: tuple[int, int], user: np.ndarray, item: np.ndarray) -> Any:
    """Two ones a row: its user, its item; none for what the training ratings lack (-1)."""
    from scipy import sparse

    columns = np.stack([user, np.where(item < 0, -1, item + shape[0])], axis=1).ravel()
    known = columns >= 0
    starts = np.concatenate([[0], np.cumsum(known)[1::2]])
    ones = np.ones(int(known.sum()))
    return sparse.csr_matrix((ones, columns[known], starts), (len(user), sum(shape)))


# Its SampledNoise draws nothing: the precision stays where it was set (as version 1.1 says itself
# with verbose=2, and as FixedNoise gives the same bits). AdaptiveNoise is what draws it, up to a
# bound that is far away here. On MovieLens 1M predictions are better at a precision a little below
# those it draws: so that value is tried as well, and the better of the two counts.
SMURFF: dict[str, tuple[str, dict[str, float]]] = {
    "noise drawn": ("AdaptiveNoise", {"sn_init": 1.0, "sn_max": 10.0}),
    "noise held at 1.5": ("FixedNoise", {"precision": 1.5}),
}


def smurff(job: Job) -> None:
    """BPMF on centred ratings; raw ones end as well, a little later."""
    for name in list(SMURFF)[: 1 if job.quick else None]:
        smurff_chain(job, name)


def smurff_chain(job: Job, name: str) -> None:
    """One chain with one of the settings.

    Its own count of seconds is taken, which leaves out that it predicts the test set in every step
    and computes a training RMSE for its status.
    """
    session, clock = smurff_session(job, name), Clock()
    session.init()
    times = clock.stop()
    averages, order = Averages(job, f", {name}"), None
    for status, wall, cpu in smurff_steps(session):
        times["seconds"] += status.elapsed_iter
        times["cpu_seconds"] += cpu * status.elapsed_iter / wall
        found = session.getTestPredictions()
        if order is None:
            order = positions([p.coords for p in found], *job.test)
        prediction = np.empty(len(found))
        prediction[order] = [p.pred_1sample for p in found]
        averages.add(times, prediction + job.center)
        if times["seconds"] >= job.max_seconds:
            break


def smurff_session(job: Job, name: str) -> Any:
    """A session with its data, not yet begun."""
    import smurff as library
    from scipy import sparse

    session = library.TrainSession(
        priors=["normal", "normal"], num_latent=job.factors, num_threads=job.threads,
        burnin=0, nsamples=sweeps(job), seed=job.seed, verbose=0,
    )  # fmt: skip
    kind, options = SMURFF[name]
    train = sparse.coo_matrix((job.centred, job.train), job.shape)
    session.setTrain(train.tocsr(), getattr(library, kind)(**options), True)
    known = job.data["test_rating"].astype(np.float64) - job.center
    session.setTest(sparse.coo_matrix((known, job.test), job.shape).tocsr())
    return session


def smurff_steps(session: Any) -> Iterator[tuple[Any, float, float]]:
    """The session's state after each of its sweeps, with the seconds of the whole step."""
    while True:
        clock = Clock()
        status = session.step()
        if status is None:
            return
        took = clock.stop()
        yield status, took["seconds"], took["cpu_seconds"]


def positions(pairs: list[Any], user: np.ndarray, item: np.ndarray) -> np.ndarray:
    """The position of each pair among the test pairs."""
    at = {pair: k for k, pair in enumerate(zip(user.tolist(), item.tolist(), strict=True))}
    return np.array([at[tuple(pair)] for pair in pairs])


# -- point estimates -------------------------------------------------------------------------


def over_grid(
    job: Job,
    grid: Mapping[str, dict[str, Any]],
    lengths: tuple[int, ...],
    fit: Callable[[dict[str, Any], int], Predict],
) -> None:
    """Fit with each setting and length; stop when their time is used up."""
    used = 0.0
    names = job.only or list(grid)[: 1 if job.quick else None]
    for name in names:
        for length in lengths[: 2 if job.quick else None]:
            if used >= job.max_seconds:
                return
            clock = Clock()
            predict = fit(grid[name], length)
            times = clock.stop()
            used += clock.seconds
            job.report(name, length, times, predict())


# Its documentation recommends 35, or 0.05 scaled by the number of ratings, for MovieLens 10M.
CMFREC = {
    "scaled 0.05": {"lambda_": 0.05, "scale_lam": True, "use_cg": True},
    "scaled 0.05, Cholesky": {"lambda_": 0.05, "scale_lam": True, "use_cg": False},
    "scaled 0.07": {"lambda_": 0.07, "scale_lam": True, "use_cg": True},
    "scaled 0.08": {"lambda_": 0.08, "scale_lam": True, "use_cg": True},
    "10": {"lambda_": 10.0, "use_cg": True},
    "20": {"lambda_": 20.0, "use_cg": True},
    "35": {"lambda_": 35.0, "use_cg": True},
}


def cmfrec(job: Job) -> None:
    """ALS with biases."""
    from cmfrec import CMF
    from scipy import sparse

    value = job.data["train_rating"].astype(np.float64)
    train = sparse.coo_matrix((value, job.train), job.shape)

    def fit(options: dict[str, Any], length: int) -> Predict:
        model = CMF(
            k=job.factors, method="als", niter=length, nthreads=job.threads, use_float=True,
            precompute_for_predictions=False, verbose=False, random_state=job.seed + 1, **options,
        )  # fmt: skip
        model.fit(train)
        return lambda: model.predict(*job.test)

    over_grid(job, CMFREC, (3, 5, 10, 15), fit)


# The first is its default.
SURPRISE = {
    "rate 0.005, reg 0.02": {"lr_all": 0.005, "reg_all": 0.02},
    "rate 0.005, reg 0.05": {"lr_all": 0.005, "reg_all": 0.05},
    "rate 0.01, reg 0.05": {"lr_all": 0.01, "reg_all": 0.05},
    "rate 0.01, reg 0.07": {"lr_all": 0.01, "reg_all": 0.07},
}


def surprise(job: Job) -> None:
    """SVD with biases, by SGD."""
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    user, item = job.train
    frame = pd.DataFrame({"u": user, "i": item, "r": job.data["train_rating"].astype(float)})
    reader = Reader(rating_scale=(job.low, job.high))
    train = Dataset.load_from_df(frame, reader).build_full_trainset()
    to_user = np.array([train.to_inner_uid(u) for u in job.test[0].tolist()])
    to_item = np.array([train.to_inner_iid(i) for i in job.test[1].tolist()])

    def fit(options: dict[str, Any], length: int) -> Predict:
        m = SVD(n_factors=job.factors, n_epochs=length, random_state=job.seed, **options)
        m.fit(train)

        def predict() -> np.ndarray:
            dots = np.einsum("nd,nd->n", m.pu[to_user], m.qi[to_item])
            return np.asarray(train.global_mean + m.bu[to_user] + m.bi[to_item] + dots)

        return predict

    over_grid(job, SURPRISE, (10, 20, 30, 40), fit)


# It has no biases: they are removed before, or only the mean is. Its default L1 terms are off.
LIBMF = {
    "mean out, l2 0.05, rate 0.1": {"reg": 0.05, "eta": 0.1, "biases": False},
    "mean out, l2 0.04, rate 0.1": {"reg": 0.04, "eta": 0.1, "biases": False},
    "mean out, l2 0.06, rate 0.1": {"reg": 0.06, "eta": 0.1, "biases": False},
    "mean out, l2 0.05, rate 0.07": {"reg": 0.05, "eta": 0.07, "biases": False},
    "mean and biases out, l2 0.05, rate 0.1": {"reg": 0.05, "eta": 0.1, "biases": True},
}


def libmf(job: Job) -> None:
    """SGD on what the mean, or the mean and biases, leave."""
    from libmf import mf

    user, item = job.train

    def fit(options: dict[str, Any], length: int) -> Predict:
        a, b = biases(job) if options["biases"] else (np.zeros(n) for n in job.shape)
        rest = job.centred - a[user] - b[item]
        reg = options["reg"]
        model = mf.MF(
            k=job.factors, nr_threads=job.threads, nr_iters=length, eta=options["eta"], quiet=True,
            lambda_p1=0.0, lambda_q1=0.0, lambda_p2=reg, lambda_q2=reg,
        )  # fmt: skip
        model.fit(np.stack([user, item, rest], axis=1).astype(np.float32))

        def predict() -> np.ndarray:
            # From the factors: the package's own predict reads its pairs in the wrong order.
            P, Q = model.p_factors()[job.test[0]], model.q_factors()[job.test[1]]
            found = np.einsum("nd,nd->n", P, Q)
            return np.asarray(job.center + a[job.test[0]] + b[job.test[1]] + found)

        return predict

    over_grid(job, LIBMF, (3, 5, 10, 15, 20, 40), fit)


def biases(job: Job, strength: float = 5.0, rounds: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Shrunken offsets of users and items, by turns."""
    (user, item), (n_users, n_items) = job.train, job.shape
    a, b = np.zeros(n_users), np.zeros(n_items)
    of_user = np.bincount(user, minlength=n_users) + strength
    of_item = np.bincount(item, minlength=n_items) + strength
    for _ in range(rounds):
        b = np.bincount(item, job.centred - a[user], minlength=n_items) / of_item
        a = np.bincount(user, job.centred - b[item], minlength=n_users) / of_user
    return a, b


PEERS: dict[str, Callable[[Job], None]] = {
    "myfm": myfm,
    "smurff": smurff,
    "cmfrec": cmfrec,
    "surprise": surprise,
    "libmf": libmf,
}
