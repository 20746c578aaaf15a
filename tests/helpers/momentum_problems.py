"""Problems for rules with momenta: a posterior that is known, and a joint one.

V held fixed, every user's posterior is a known Gaussian. Users have 3 to 1000 ratings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import naive
from bayesmf import BayesianMF, Ratings
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.momentum import MomentumRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.worker.momentum_tasks import MomentumTask, RareResult, RareTask

CLASSES, EACH, TAU = (3, 10, 30, 100, 300, 1000), 12, 1.0


class Known:
    """Data whose users' posterior given the items is known; so many of each number of ratings.

    With `noise` users and items have precisions of their own, which are known as well.
    """

    def __init__(self, d, seed=0, classes=CLASSES, noise=False):
        rng = np.random.default_rng(seed)
        width, counts, n_items = d + 1, np.repeat(classes, EACH), max(classes) * 6 // 5
        user = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
        item = np.concatenate([rng.permutation(n_items)[:n] for n in counts]).astype(np.int32)
        self.d, self.items = d, (0.6 * rng.normal(size=(n_items, width))).astype(np.float32)
        self.prior = RowPrior(np.zeros(width), rng.uniform(1, 3, width))
        users = rng.normal(size=(len(counts), width)) / np.sqrt(self.prior.Lambda)
        regressors = np.concatenate([self.items[:, :d], np.ones((n_items, 1))], axis=1)
        mean = np.einsum("nd,nd->n", users[user], regressors[item]) + self.items[item, d]
        self.noise, self.weights = None, (np.ones(len(counts)), np.ones(n_items))
        if noise:
            rows = [rng.gamma(3.0, 1 / 3.0, n).astype(np.float32) for n in (len(counts), n_items)]
            self.noise = Noise(RowNoise(rows[0]), RowNoise(rows[1], mean_one=True))
            self.weights = tuple(own.astype(float) for own in rows)
        tau = TAU * self.weights[0][user] * self.weights[1][item]
        value = (mean + tau**-0.5 * rng.normal(size=len(user))).astype(np.float32)
        self.data = TrainingData.from_triples(user, item, value, len(counts), n_items)
        self.mean, self.covariance = self._exact()
        self.variance = np.array([np.diag(c) for c in self.covariance])

    def _exact(self):
        means, covariances = [], []
        for i in range(self.data.n_users):
            user, item, value = self.data.triples()
            mine = user == i
            X, target = naive.regression(self.items[item[mine]], value[mine], self.d)
            prior = self.prior.mu, np.diag(self.prior.Lambda)
            root = np.sqrt(self.weights[0][i] * self.weights[1][item[mine]])
            X, target = X * root[:, None], target * root
            mean, precision = naive.row_posterior(X, target, *prior, TAU)
            means.append(mean)
            covariances.append(np.linalg.inv(precision))
        return np.array(means), np.array(covariances)

    def start(self, rng):
        """A draw from the posterior: no burn-in is needed."""
        return np.array(
            [rng.multivariate_normal(m, c) for m, c in zip(self.mean, self.covariance, strict=True)]
        ).astype(np.float32)

    def chain(self, rule, n_passes, seed=0):
        """Mean of every user's row, and variance about the known one, the items held.

        Steps are the rule's final ones. Rows are looked at when all blocks have been visited, as a
        fit does when it keeps draws.
        """
        shape = data_shape(self.data)
        rule = replace(rule.choose(shape, self.d, 1).resolve(shape), burn_in=0.0)
        rounds = MomentumRounds(self.data, rule, seed)
        params = Params(self.start(np.random.default_rng(seed)), self.items.copy(), self.d)
        now = Precisions(self.prior, self.prior, TAU, noise=self.noise)
        state = ChainState(0, make_key(seed), params, now)
        total, square = np.zeros(params.users.shape), np.zeros(params.users.shape)
        per_pass = round(rule.rounds_per_epoch(shape))
        for t in range(10 * per_pass, (10 + n_passes) * per_pass):
            run_round(rounds, state, t)
            if (t + 1) % per_pass == 0:
                users = state.whole().users.astype(float)
                total += users
                square += users**2
        assert np.array_equal(state.whole().items, self.items)
        mean = total / n_passes
        return mean, square / n_passes - mean**2 + (mean - self.mean) ** 2


def run_round(rounds, state, t):
    """One round with the items held."""
    phases, results = rounds.round(state, t), None
    while True:
        try:
            tasks = next(phases) if results is None else phases.send(results)
        except StopIteration:
            return
        results = [_work(rounds.held[task.partition], task) for task in tasks]


def _work(held, task):
    if isinstance(task, MomentumTask):
        still = held.moving[0], np.zeros_like(held.moving[1])
        return task.execute(replace(held, moving=still))
    if isinstance(task, RareTask) and task.shared.side == 1:
        return RareResult(task.rows, task.fixed, True)
    return task.execute(held)


def by_class(values):
    """Mean over the users and columns of each class, and its standard error over users."""
    parts = values.reshape(len(values) // EACH, EACH, -1).mean(2)
    return parts.mean(1), parts.std(1, ddof=1) / EACH**0.5


def batches(known, share):
    """Size of a mini-batch that is a share of all ratings."""
    return max(1, round(len(known.data) * share))


class Joint:
    """500 users x 300 items, 20,000 ratings from the model itself; 1,000 unseen pairs."""

    N, D = 20_000, 5

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        n_users, n_items, width = 500, 300, self.D + 1
        users, items = (
            rng.normal(size=(n, width)) / np.sqrt(rng.uniform(2, 4, width))
            for n in (n_users, n_items)
        )
        cells = rng.choice(n_users * n_items, self.N + 1000, replace=False)
        user, item = cells // n_items, cells % n_items
        value = 3 + np.einsum("nd,nd->n", users[user, : self.D], items[item, : self.D])
        value += users[user, self.D] + items[item, self.D] + 0.7 * rng.normal(size=len(user))
        self.train = Ratings(user[: self.N], item[: self.N], value[: self.N])
        self.pairs = user[self.N :], item[self.N :]

    def draws(self, sampler, seed=0):
        """Predictions of the unseen pairs, (draws, pairs), and the chain of each draw."""
        model = BayesianMF(
            self.D,
            sampler=sampler,
            keep="both",
            random_state=seed,
            max_draws=100_000,
            engine="serial",
        ).fit(self.train)
        draws = model.posterior_.draws
        users, items = (
            np.searchsorted(ids.ids, asked)
            for ids, asked in zip(
                (self.train.user_ids, self.train.item_ids), self.pairs, strict=True
            )
        )
        x, y = draws.users[:, users].astype(float), draws.items[:, items].astype(float)
        d = self.D
        return np.einsum("snd,snd->sn", x[..., :d], y[..., :d]) + x[..., d] + y[..., d], draws.chain
