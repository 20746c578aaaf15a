"""Scores against plain formulas."""

import json

import numpy as np
import pytest
from scipy import stats

from bayesmf.diagnostics.metrics import LEVELS, Scorer
from bayesmf.errors import InputError


def test_scores_of_one_normal():
    rng = np.random.default_rng(0)
    mu, var = rng.normal(3.0, 1.0, (1, 500)), rng.gamma(2.0, 0.5, (1, 500))
    y = mu[0] + np.sqrt(var[0]) * rng.standard_normal(500)
    scorer = Scorer()
    scorer.add(y, mu[0], mu, var)
    scores = scorer.result()
    law = stats.norm(mu[0], np.sqrt(var[0]))
    assert scores.n == 500
    assert scores.rmse == pytest.approx(np.sqrt(np.mean((y - mu[0]) ** 2)))
    assert scores.mae == pytest.approx(np.mean(np.abs(y - mu[0])))
    assert scores.nll == pytest.approx(-law.logpdf(y).mean())
    z, sd = (y - mu[0]) / np.sqrt(var[0]), np.sqrt(var[0])
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert scores.crps == pytest.approx(crps.mean())
    for level in LEVELS:
        low, high = law.interval(level / 100)
        assert scores.coverage[str(level)] == np.mean((low <= y) & (y <= high))


def test_calibrated_predictions_are_covered():
    rng = np.random.default_rng(1)
    mu = rng.normal(3.0, 0.5, (20, 20000)).astype(np.float32)
    var = np.full_like(mu, 0.7)
    y = mu[rng.integers(20, size=20000), np.arange(20000)]
    y = y + np.sqrt(0.7) * rng.standard_normal(20000)
    scorer = Scorer()
    scorer.add(y, mu.mean(axis=0), mu, var)
    coverage = scorer.result().coverage
    assert set(coverage) == {str(level) for level in LEVELS}
    for level, share in coverage.items():
        p = int(level) / 100
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 20000)


def test_chunks_add_up_and_the_result_is_json():
    rng = np.random.default_rng(2)
    mu, var, y = rng.normal(size=(6, 90)), rng.gamma(2.0, 1.0, (6, 90)), rng.normal(size=90)
    whole, parts = Scorer(), Scorer()
    whole.add(y, np.clip(mu.mean(axis=0), -1, 1), mu, var)
    for piece in (slice(0, 1), slice(1, 1), slice(1, 60), slice(60, 90)):
        chunk = np.ascontiguousarray(mu[:, piece]), np.ascontiguousarray(var[:, piece])
        parts.add(y[piece], np.clip(chunk[0].mean(axis=0), -1, 1), *chunk)
    a, b = whole.result().as_dict(), parts.result().as_dict()
    assert json.loads(json.dumps(a, allow_nan=False)) == a
    errors = {"n", "rmse", "mae", "nll", "crps", "coverage", "rmse_se", "log_loss", "rps"}
    errors |= {"level_coverage", "level_promised"}
    assert set(a) == errors | {"unseen_users", "unseen_items", "unseen", "learnt"}
    assert tuple(a["coverage"]) == ("50", "80", "90", "95")
    assert a["coverage"] == b["coverage"]
    for key in ("n", "rmse", "mae", "nll", "crps"):
        assert a[key] == pytest.approx(b[key], rel=1e-12)


def test_scores_refuse_nothing_and_mismatches():
    with pytest.raises(InputError, match="no ratings"):
        Scorer().result()
    with pytest.raises(InputError, match="do not match"):
        Scorer().add([1.0, 2.0], [1.0], np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(InputError, match="do not fit"):
        Scorer().add([1.0], [1.0], np.ones((3, 2)), np.ones((3, 2)))


def test_standard_error_of_the_rmse():
    """Against the spread of the RMSE over 2,000 repeated samples, to 10%; chunks do not matter."""
    rng = np.random.default_rng(0)
    repeated = np.sqrt(np.mean(rng.normal(size=(2000, 500)) ** 2, axis=1)).std()
    y = rng.normal(size=500)
    whole, parts = Scorer(), Scorer()
    zero, one = np.zeros((1, 500)), np.ones((1, 500))
    whole.add(y, zero[0], zero, one)
    for part in (slice(0, 100), slice(100, 500)):
        parts.add(y[part], zero[0, part], zero[:, part].copy(), one[:, part].copy())
    assert whole.result().rmse_se == pytest.approx(repeated, rel=0.1)
    assert parts.result().rmse_se == pytest.approx(whole.result().rmse_se)
    single = Scorer()
    single.add([1.0], [2.0], np.zeros((1, 1)), np.ones((1, 1)))
    assert single.result().rmse_se is None
