"""Rows to draw, with what plain float64 arithmetic makes of them."""

import numpy as np

import naive
from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.gather import N_SUMS, SSE, HalfSweep, regressors
from bayesmf.kernels.keys import StreamCounter, fill_normals, make_key, stream_word
from bayesmf.kernels.whole_rows import DUAL_SHARE
from bayesmf.model.priors import RowPrior
from bayesmf.worker.row_tasks import draw_rows

COUNTER = StreamCounter(5, stream_word(2, 0), make_key(2))
WIDTHS = (1, 2, 7, 8, 9, 31, 33, 101)


class Case:
    """Rows with the given numbers of ratings, a prior, and what `draw_rows` makes of them."""

    def __init__(self, width, counts, bias=True, full=False, tau=1.7, scale=1.0, seed=0):
        rng = np.random.default_rng(seed)
        self.width, self.D, self.full = width, width - bias, full
        self.tau, self.weight = np.full(len(counts), float(tau)), np.ones(300, np.float32)
        self.other = rng.normal(size=(300, width)).astype(np.float32)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        n = self.starts[-1]
        self.index = rng.integers(300, size=n).astype(np.int32)
        self.value = (rng.normal(size=n) * (1 + width**0.5)).astype(np.float32)
        self.numbers = rng.permutation(10 * len(counts))[: len(counts)].astype(np.int32)
        self.mu = rng.normal(size=width)
        root = rng.normal(size=(width, width)) / width**0.5
        diagonal = np.diag(rng.uniform(1, 3, width))
        self.Lambda = scale * (root @ root.T + np.eye(width) if full else diagonal)

    def with_own_priors(self, seed=1):
        """Give every row a prior of its own."""
        rng, n = np.random.default_rng(seed), len(self.numbers)
        roots = rng.normal(size=(n, self.width, self.width)) / self.width**0.5
        self.mu, self.full = rng.normal(size=(n, self.width)), True
        self.Lambda = roots @ roots.transpose(0, 2, 1) + rng.uniform(0.5, 2, (n, 1, 1)) * np.eye(
            self.width
        )
        return self

    def with_own_noise(self, seed=2):
        """Give every row a precision of its own, and every row of the other side a weight."""
        rng = np.random.default_rng(seed)
        self.tau = rng.gamma(2.0, 1.0, len(self.numbers)) + 0.1
        self.weight = (rng.gamma(2.0, 0.5, 300) + 0.05).astype(np.float32)
        return self

    def draw(self, rows=None, want_means=True, relax=0.0, old=np.nan, joint=None):
        """(draws, means, sse) of some rows, in the order given; `told` are the rows' sums."""
        rows = np.arange(len(self.numbers)) if rows is None else np.asarray(rows, int)
        spans = [np.arange(self.starts[k], self.starts[k + 1]) for k in rows]
        take = np.concatenate([*spans, np.zeros(0, int)]).astype(int)
        starts = np.concatenate([[0], np.cumsum([len(span) for span in spans])])
        out = np.full((len(rows), self.width), np.nan, np.float32)
        out[:] = old
        means = np.full((len(rows) * want_means, self.width), np.nan, np.float32)
        Lambda = self.Lambda if self.full else np.diag(self.Lambda).copy()
        stripe = Stripe(
            self.numbers[rows], starts, self.index[take], self.value[take], np.zeros(1, np.float32)
        )
        mu = self.mu
        if mu.ndim == 2:
            mu, Lambda = mu[rows], Lambda[rows]
        prior, sweep = RowPrior(mu, Lambda), HalfSweep(self.D, self.tau[rows], relax, COUNTER)
        given = regressors(self.other, self.D, self.weight)
        self.told = draw_rows(out, means, stripe, given, prior, sweep, joint)
        return out, means, self.told[:, SSE].sum()

    def normals(self, k, n_quads):
        """The random numbers of a row, in fours."""
        z = np.zeros(4 * n_quads, np.float32)
        round_, word, key = COUNTER
        fill_normals(z, n_quads, int(self.numbers[k]), round_, np.uint32(word), *key)
        return z

    def regression(self, k):
        """Regressors and targets of a row, in float64."""
        span = slice(self.starts[k], self.starts[k + 1])
        partners, value = self.other[self.index[span]], self.value[span]
        return naive.regression(partners, value, self.D, self.weight[self.index[span]])

    def prior(self, k):
        """Mean and precision matrix of a row's prior: its own, where rows have such."""
        return (self.mu[k], self.Lambda[k]) if self.mu.ndim == 2 else (self.mu, self.Lambda)

    def posterior(self, k):
        """Mean and precision matrix of a row."""
        return naive.row_posterior(*self.regression(k), *self.prior(k), self.tau[k])

    def is_dual(self, k):
        return not self.full and self.starts[k + 1] - self.starts[k] <= int(DUAL_SHARE * self.width)

    def expected_draw(self, k):
        """The draw that the row's random numbers give."""
        X, t = self.regression(k)
        n_normals = self.width + len(t) * self.is_dual(k)
        z = self.normals(k, (n_normals + 3) // 4)
        mean, precision = self.posterior(k)
        if not self.is_dual(k):
            return mean + np.linalg.solve(np.linalg.cholesky(precision).T, z[: self.width])
        covariance = np.linalg.inv(self.Lambda)
        x0 = self.mu + np.sqrt(np.diag(covariance)) * z[: self.width]
        e = z[self.width : n_normals] / self.tau[k] ** 0.5
        S = X @ covariance @ X.T + np.eye(len(t)) / self.tau[k]
        return x0 + covariance @ X.T @ np.linalg.solve(S, t - X @ x0 - e)

    def sums(self, out):
        """What `told` must be at the rows `out`."""
        rows = enumerate(out.astype(float))
        found = [naive.row_sums(*self.regression(k), row, self.D) for k, row in rows]
        return np.array(found).reshape(-1, N_SUMS)

    def squared_errors(self, out):
        return self.sums(out)[:, SSE].sum()

    def told_is_right(self, out, tolerance):
        """Whether all sums are, in units of the largest that each is made of."""
        sums = self.sums(out)
        size = np.abs(sums).max(axis=1, keepdims=True)
        return bool((np.abs(self.told - sums) <= tolerance * size).all())


def distance(a, b):
    """Relative, but for a mean that happens to be near zero."""
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), 0.1)
