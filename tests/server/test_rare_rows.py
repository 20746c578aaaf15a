"""A new item's row under a draw: mean and variance against the exact conditional posterior."""

from dataclasses import replace

import numpy as np

from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from bayesmf.model.params import RowPrior
from bayesmf.server.rare_rows import ENOUGH, LEAST, draw_rare, find_rare

D, TAU, COPIES = 2, 2.0, 300
PRIORS = (
    RowPrior(np.array([0.3, -0.2, 0.1]), np.array([2.0, 1.0, 3.0])),  # of items
    RowPrior(np.zeros(3), np.array([1.5, 1.0, 2.0])),  # of users
)


def _cells():
    """Twelve users and ten items, the last of which is new: ten have rated it."""
    rng = np.random.default_rng(3)
    cells = [(i, j) for i in range(12) for j in range(9) if rng.random() < 0.6]
    user, item = np.array(cells + [(i, 9) for i in range(10)], np.int32).T
    value = rng.normal(size=len(user)).astype(np.float32)
    value[item == 9] += 1.0
    return user, item, value, rng.normal(size=(10, 3)).astype(np.float32)


def _copies():
    """The same many times, each with users and a new item of its own: so many draws at once."""
    user, item, value, rows = _cells()
    copy = np.repeat(np.arange(COPIES, dtype=np.int32), len(user))
    users = np.tile(user, COPIES) + 12 * copy
    items = np.tile(item, COPIES)
    items = np.where(items == 9, 9 + copy, items).astype(np.int32)
    data = TrainingData.from_triples(users, items, np.tile(value, COPIES), 12 * COPIES, 9 + COPIES)
    new = np.where(np.arange(9 + COPIES) < 9, 0, data.item_counts())
    return data, np.vstack([rows[:9], np.zeros((COPIES, 3), np.float32)]), new


def _long_chains(user, item, value, rows, rng, n=3_000, sweeps=20):
    """Draws of the new row by Gibbs in double precision, the other items' rows held."""
    x = np.hstack([rows[:, :D], np.ones((10, 1))]).astype(float)
    v = np.tile(PRIORS[0].mu, (n, 1))
    raters = np.unique(user[item == 9])
    for _ in range(sweeps):
        A0, b0 = np.diag(PRIORS[0].Lambda), PRIORS[0].Lambda * PRIORS[0].mu
        A, b = np.tile(A0, (n, 1, 1)), np.tile(b0, (n, 1))
        for i in raters:
            mine = (user == i) & (item != 9)
            P = np.diag(PRIORS[1].Lambda) + TAU * x[item[mine]].T @ x[item[mine]]
            q = TAU * x[item[mine]].T @ (value[mine] - rows[item[mine], D])
            r = float(value[(user == i) & (item == 9)][0])
            z = np.concatenate([v[:, :D], np.ones((n, 1))], axis=1)
            P = P + TAU * z[:, :, None] * z[:, None, :]
            q = q + TAU * z * (r - v[:, D])[:, None]
            u = _draw(P, q, rng)
            w = np.concatenate([u[:, :D], np.ones((n, 1))], axis=1)
            A += TAU * w[:, :, None] * w[:, None, :]
            b += TAU * w * (r - u[:, D])[:, None]
        v = _draw(A, b, rng)
    return v


def _draw(A, b, rng):
    cov = np.linalg.inv(A)
    noise = np.linalg.cholesky(cov) @ rng.normal(size=(*b.shape, 1))
    return np.einsum("nde,ne->nd", cov, b) + noise[..., 0]


def test_a_new_row_is_a_draw_given_its_ratings(monkeypatch):
    """Four standard errors (false-alarm rate 6e-5 of each of nine numbers), and 5% of a spread for
    what the last pass leaves."""
    monkeypatch.setattr("bayesmf.server.rare_rows.EFFORT", 1e6)
    data, rows, new = _copies()
    rare = find_rare(data.by_item, data.by_user, data.levels, new, 3, 1)
    assert rare.own.rows.tolist() == list(range(9, 9 + COPIES)) and len(rare.own) == 10 * COPIES
    found, expected = [], []
    for t in range(10):
        now, means = rows.copy(), np.zeros_like(rows)
        draw_rare(rare, now, means, PRIORS, TAU, D, t, make_key(1))
        assert np.array_equal(now[:9], rows[:9])
        found.append(now[9:])
        expected.append(means[9:])
    found, expected = np.concatenate(found), np.concatenate(expected)
    exact = _long_chains(*_cells(), np.random.default_rng(0))
    mean, spread = exact.mean(0), exact.std(0)
    error = spread * np.sqrt(1 / len(found) + 1 / len(exact))
    assert np.all(np.abs(found.mean(0) - mean) < 4 * error + 0.05 * spread)
    assert np.all(np.abs(expected.mean(0) - mean) < 4 * error + 0.05 * spread)
    noise = np.sqrt(2 / len(found) + 2 / len(exact))
    assert np.all(np.abs(found.var(0) / spread**2 - 1) < 4 * noise + 0.05)
    # One pass is not enough here: the test can fail.
    now = rows.copy()
    draw_rare(replace(rare, passes=1), now, None, PRIORS, TAU, D, 0, make_key(1))
    assert np.any(np.abs(now[9:].mean(0) - mean) > 4 * error + 0.05 * spread)


def test_the_effort_is_limited():
    """With many draws a row is drawn from its cheapest raters, and at least from some."""
    rng = np.random.default_rng(0)
    n_users, n_items = 400, 60
    busy = rng.random(n_users)
    cells = rng.random((n_users, n_items)) < 0.5 * busy[:, None]
    cells[:, -1] = rng.random(n_users) < 0.5  # two new items, one rated by many, one by few
    cells[:, -2] = np.arange(n_users) < 3
    user, item = (part.astype(np.int32) for part in np.nonzero(cells))
    data = TrainingData.from_triples(
        user, item, rng.normal(size=len(user)).astype(np.float32), n_users, n_items
    )
    new = np.where(np.arange(n_items) >= n_items - 2, data.item_counts(), 0)
    new[0] = 1  # one more of many: nothing is done for it
    read = []
    for n_draws in (1, 1000, 100_000):
        rare = find_rare(data.by_item, data.by_user, data.levels, new, 6, n_draws)
        assert rare.own.rows.tolist() == [n_items - 2, n_items - 1]
        counts = np.diff(rare.own.starts)
        assert np.all((np.minimum(LEAST, new[-2:]) <= counts) & (counts <= ENOUGH))
        weights = data.user_counts()[rare.raters.rows]
        assert len(rare.raters) == weights.sum()
        assert len(rare.without) < len(rare.raters)
        read.append(len(rare.raters))
    assert read[0] > read[1] > read[2] > 0
    assert find_rare(data.by_item, data.by_user, data.levels, 0 * new, 6, 10) is None
