"""Slow plain twins of the kernels: what they must equal, written to be read."""

from __future__ import annotations

import numpy as np

from bayesmf.model.draws import spread_evenly
from bayesmf.posterior.ranking import BONUS_DRAWS
from bayesmf.posterior.rows import RowPrecisions


def as_batches(user, item, value, starts, levels=(0.0,)):
    """Mini-batches as kernels read them, from ratings that stand by user in each."""
    from bayesmf.kernels.minibatch import Batches

    batch = np.searchsorted(starts, np.arange(len(user)), side="right")
    new = np.flatnonzero(np.diff(user, prepend=-1) + np.diff(batch, prepend=0))
    return Batches(
        np.asarray(user, np.int32)[new], np.append(new, len(user)), np.asarray(item, np.int32),
        value, np.asarray(levels, np.float32), np.searchsorted(new, starts),
    )  # fmt: skip


def normals(numbers, width, iteration, stream, key):
    """Noise of rows as the kernels draw it, {row number: vector}."""
    from bayesmf.kernels.keys import fill_normals

    out = {}
    for number in numbers:
        z = np.zeros(width + 3, np.float32)
        fill_normals(z, (width + 3) // 4, int(number), iteration, np.uint32(stream), *key)
        out[int(number)] = z[:width]
    return out


def predict(x, y, n_factors):
    """U_i . V_j + a_i + b_j."""
    total = x[:n_factors] @ y[:n_factors]
    return total + x[n_factors] + y[n_factors] if len(x) > n_factors else total


def gradients(users, items, ratings, n_factors, weights=None):
    """Sum of the ratings' gradients (tau = 1) for every row, at one state; and the sum of e^2.

    `weights` are those of users' and of items' ratings, in gradients alone; ones without.
    """
    own, other = weights or (np.ones(len(users)), np.ones(len(items)))
    gx, gy, sse = np.zeros_like(users), np.zeros_like(items), 0.0
    for i, j, r in ratings:
        error = r - predict(users[i], items[j], n_factors)
        sse += error**2
        error *= own[i] * other[j]
        gx[i, :n_factors] += error * items[j, :n_factors]
        gy[j, :n_factors] += error * users[i, :n_factors]
        if users.shape[1] > n_factors:
            gx[i, n_factors] += error
            gy[j, n_factors] += error
    return gx, gy, sse


def update_batch(users, items, ratings, n_factors, scale, sides, noise):
    """The updates of Section 3.3.1 for one mini-batch: rows it touches, all from the old state.

    `sides` is ((step, 1/hbar, weight of ratings, noise variance, mu, Lambda as a matrix), the same
    for items), `noise` a pair of {row: vector}.
    """
    gx, gy, sse = gradients(users, items, ratings, n_factors, (sides[0][2], sides[1][2]))
    new = users.copy(), items.copy()
    touched = {i for i, _, _ in ratings}, {j for _, j, _ in ratings}
    for rows, old, gradient, hit, side, z in zip(
        new, (users, items), (gx, gy), touched, sides, noise, strict=True
    ):
        step, weight, _, variance, mu, Lambda = side
        for k in hit:
            drift = scale * gradient[k] - weight[k] * (Lambda @ (old[k] - mu))
            rows[k] = old[k] + step / 2 * drift + np.sqrt(step * variance[k]) * z[k]
    return new[0], new[1], sse


def regression(partners, value, n_factors, weight=None):
    """Regressors [V_j, 1] and targets r - b_j of a row, in float64; without a bias V_j and r.

    Both are times the roots of the ratings' weights.
    """
    X, target = np.array(partners, np.float64), np.array(value, np.float64)
    if X.shape[1] > n_factors:
        target = target - X[:, n_factors]
        X[:, n_factors] = 1.0
    root = np.ones(len(X)) if weight is None else np.sqrt(np.array(weight, np.float64))
    return X * root[:, None], target * root


def row_sums(X, target, x, n_factors):
    """What is told of a row's ratings at x: squared errors, f t, b t, f f, f b and b b."""
    f, b = X[:, :n_factors] @ x[:n_factors], X[:, n_factors:] @ x[n_factors:]
    parts = (target - f - b, target - f - b), (f, target), (b, target), (f, f), (f, b), (b, b)
    return np.array([one @ other for one, other in parts])


def row_posterior(X, target, mu, Lambda, tau):
    """Mean and precision matrix of a row given what its ratings meet; `Lambda` is a matrix."""
    precision = Lambda + tau * X.T @ X
    # Around mu: with few ratings a solve for the mean itself would lose digits.
    return mu + np.linalg.solve(precision, tau * X.T @ (target - X @ mu)), precision


def draw_by_columns(row, X, target, mu, Lambda, tau, relax, joint, z):
    """A row redrawn in groups of four columns, each given the rest; with joint=1 column by column.

    `Lambda` is a matrix, `z` standard normals. Returns the row and the conditional means met.
    """
    new, means, noise = row.copy(), np.empty_like(row), np.sqrt(1 - relax**2)
    step = 4 if joint == 4 else 1
    for c in range(0, len(row), step):
        own = slice(c, min(c + step, len(row)))
        precision = Lambda[own, own] + tau * X[:, own].T @ X[:, own]
        gradient = tau * X[:, own].T @ (target - X @ new) - Lambda[own] @ (new - mu)
        to_mean = np.linalg.solve(precision, gradient)
        means[own] = new[own] + to_mean
        fresh = np.linalg.solve(np.linalg.cholesky(precision).T, z[own])
        new[own] = means[own] + relax * to_mean + noise * fresh
    return new, means


class Exact:
    """All that a posterior says about pairs, by dense linear algebra in float64, one at a time.

    A row under a draw is a Gaussian: stored as it is, or worked out from its ratings, or its prior.
    """

    def __init__(self, posterior):
        self.posterior, self.draws, self.D = posterior, posterior.draws, posterior.n_factors
        user, item, value = posterior.ratings.triples()
        self.user, self.item, self.value = user, item, value.astype(np.float64)
        self.rated = set(zip(user.tolist(), item.tolist(), strict=True))
        self._rows = {}

    def row(self, side, k, t):
        """Mean and covariance of row k of "user" or "item" under draw t; -1 has no ratings."""
        if (side, k, t) not in self._rows:
            self._rows[side, k, t] = self._row(side, k, t)
        return self._rows[side, k, t]

    def _row(self, side, k, t):
        draws, other = self.draws, "item" if side == "user" else "user"
        stored = getattr(draws, f"{side}s")
        if stored is not None and k >= 0:
            width = stored.shape[2]
            return stored[t, k].astype(np.float64), np.zeros((width, width))
        mu, Lambda = getattr(draws, f"{side}_mu")[t], getattr(draws, f"{side}_Lambda")[t]
        mine = getattr(self, side) == k
        partners = getattr(draws, f"{other}s")
        if k < 0 or partners is None:
            mine[:] = False
            partners = np.zeros((len(draws), 1, len(mu)))
        met = getattr(self, other)[mine]
        weight = [self.precision(other, j, t) for j in met]
        X, target = regression(partners[t, met], self.value[mine], self.D, weight)
        Lambda = np.diag(Lambda) if Lambda.ndim == 1 else Lambda
        tau = self.precision(side, k, t) * (1.0 if self.own_noise else draws.tau[t])
        mean, precision = row_posterior(X, target, mu, Lambda, tau)
        return mean, np.linalg.inv(precision)

    @property
    def own_noise(self):
        """Whether rows have precisions of their own."""
        return self.draws.user_tau_prior is not None or self.draws.item_tau_prior is not None

    def precision(self, side, k, t):
        """That of a row's own: as stored, one where there is none, a quantile of the unseen."""
        prior = getattr(self.draws, f"{side}_tau_prior")
        if prior is None:
            return 1.0
        if k >= 0:
            return float(getattr(self.draws, f"{side}_tau")[t, k])
        return RowPrecisions(self.draws.tau, None, prior, int(side == "item")).unseen()[t]

    def noise(self, user, item):
        """Variances of a pair's noise, by draw."""
        if not self.own_noise:
            return 1 / self.draws.tau
        pairs = (("user", user), ("item", item))
        return np.array(
            [1 / np.prod([self.precision(*at, t) for at in pairs]) for t in range(len(self.draws))]
        )

    def component(self, user, item, t):
        """Mean and variance, noise left out, of U_i . V_j + a_i + b_j for two Gaussian rows."""
        (x, S), (y, C), D = self.row("user", user, t), self.row("item", item, t), self.D
        x1, y1 = x.copy(), y.copy()
        x1[D:] = y1[D:] = 1.0
        both = np.trace(S[:D, :D] @ C[:D, :D])
        return predict(x, y, D), y1 @ S @ y1 + x1 @ C @ x1 + both

    def expected(self, user, item):
        """Mean over draws: of conditional means where there are any and nobody told the rating."""
        means = [self.component(user, item, t)[0] for t in range(len(self.draws))]
        draws, at = self.draws, {"user": user, "item": item}
        kept = [side for side in at if getattr(draws, f"{side}s") is not None]
        has_means = all(getattr(draws, f"{side}_means") is not None for side in kept)
        if not has_means or min(user, item) < 0 or (user, item) in self.rated:
            return np.mean(means)
        rows = [
            [
                getattr(draws, f"{side}_means")[t, k] if side in kept else self.row(side, k, t)[0]
                for side, k in at.items()
            ]
            for t in range(len(draws))
        ]
        return np.mean([predict(x.astype(float), y.astype(float), self.D) for x, y in rows])

    def mixture(self, user, item):
        """Means, moved to the expected one, and variances of the components, units of ratings."""
        pairs = [self.component(user, item, t) for t in range(len(self.draws))]
        mu, var = (np.array(part) for part in zip(*pairs, strict=True))
        mu += self.expected(user, item) - mu.mean()
        center, scale = self.posterior.center, self.posterior.scale
        return center + scale * mu, scale**2 * (var + self.noise(user, item))

    def mean_std(self, user, item):
        """Mean and standard deviation of a new rating: the law of total variance."""
        mu, var = self.mixture(user, item)
        return mu.mean(), np.sqrt(mu.var() + var.mean())

    def quantile(self, p, user, item):
        """Where the mixture's distribution function is p, by bisection."""
        from scipy import optimize, stats

        mu, std = self.mixture(user, item)[0], np.sqrt(self.mixture(user, item)[1])
        low, high = (mu - 40 * std).min(), (mu + 40 * std).max()
        return optimize.brentq(lambda y: stats.norm.cdf(y, mu, std).mean() - p, low, high)

    def score(self, policy, user, item, n_draws=BONUS_DRAWS):
        """What "mean", "ucb" and "lcb" rank by; rows' own variances are those of some draws."""
        mean = self.expected(user, item)
        if policy == "mean":
            return mean
        pairs = [self.component(user, item, t) for t in range(len(self.draws))]
        mu, var = (np.array(part) for part in zip(*pairs, strict=True))
        some = spread_evenly(self.draws.chain, n_draws)
        spread = np.sqrt(mu.var() + var[some].mean())
        return mean + spread * (1 if policy == "ucb" else -1)
