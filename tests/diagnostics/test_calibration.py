"""Calibration of predictive mixtures whose truth is known: coverage, PIT, groups, the verdict."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bayesmf import BayesianMF, Calibration, Gibbs, InputError
from bayesmf.diagnostics.calibration import (
    FINE_LEVELS,
    PIT_BINS,
    Calibrator,
    equal_parts,
)
from bayesmf.diagnostics.metrics import LEVELS, Scorer
from calibrated import calibrate, mixtures
from problems import planted

# Known truths


def test_ratings_drawn_from_the_mixtures_are_covered():
    """68 shares within 4.5 standard errors and a chi-square test at 1e-4: 6e-4 false alarms."""
    errors = np.random.default_rng(5).gamma(4.0, 0.2, 30_000)
    found = calibrate(*mixtures(30_000), errors=errors)
    assert len(found.groups) == 16
    for scores in (found.overall, *found.groups):
        for level in LEVELS:
            p = level / 100
            error = np.sqrt(p * (1 - p) / scores.n)
            assert abs(scores.coverage[str(level)] - p) < 4.5 * error
    assert stats.chisquare(found.pit).pvalue > 1e-4
    assert found.calibrated
    assert found.verdict.startswith("Intervals hold what they promise: the worst of all is the ")


@pytest.mark.parametrize(("factor", "word"), [(0.8, "narrow"), (1.25, "wide")])
def test_wrong_spread_is_noticed(factor, word):
    """Standard deviations off by 11%: gaps of about 3 points, ten standard errors."""
    y, mu, var, *counts = mixtures(30_000)
    mu = mu[:1] + 0 * mu  # so that all the spread is in the components
    y = mu[0] + np.sqrt(var[0]) * np.random.default_rng(1).standard_normal(len(y))
    found = calibrate(y, mu, factor * var[:1] + 0 * var, *counts)
    assert not found.calibrated
    assert found.verdict.startswith(f"Intervals are too {word}, most of all for ")
    assert stats.chisquare(found.pit).pvalue < 1e-6


def test_a_fault_in_one_group_is_found_there():
    """Too narrow for the third of users with the fewest ratings, by 3.7 points: 1.2 overall.

    That is four standard errors more than 3.0, and three less than 1.5.
    """
    y, mu, var, users, items = mixtures(240_000)
    mu = mu[:1]
    y = mu[0] + np.sqrt(var[0]) * np.random.default_rng(1).standard_normal(len(y))
    var = np.where(users < 100, 0.86, 1.0) * var[:1]
    found = calibrate(y, mu, var, users, items)
    wrong = [gap for gap in found.gaps() if gap.counts]
    assert {(gap.group.side, gap.group.name) for gap in wrong} == {("user", "fewest")}
    assert " too narrow for users with 0-99 training ratings: their " in found.verdict


@pytest.mark.parametrize(("n", "most"), [(3, 2), (60, 3), (600, 7)])
def test_false_alarms_are_rare(n, most):
    """552 correlated looks: of a right model 0.06% of sets of 60 and 0.4% of sets of 600 have a gap
    that counts, of three ratings none (measured over 8,000 sets): more than `most` of 400 happen
    once in 5,000. With three standard errors and nothing for few ratings it is 14% and more.
    """
    alarms = sum(not calibrate(*mixtures(n, draws=2, seed=seed)).calibrated for seed in range(400))
    assert alarms <= most


# Sums


def test_one_pass_agrees_with_the_scorer_and_with_masks():
    y, mu, var, users, items = mixtures(5_000)
    errors = np.random.default_rng(5).gamma(4.0, 0.2, 5_000)
    std = np.sqrt(mu.var(axis=0) + var.mean(axis=0)).astype(np.float32)
    found = calibrate(y, mu, var, users, items, errors=errors)
    assert [group.side for group in found.groups[6:]] == ["error"] * 5 + ["std"] * 5
    assert all(group.n == 1_000 for group in found.groups[6:])
    scorer = Scorer()
    scorer.add(y, mu.mean(axis=0), mu, var)
    assert found.overall == scorer.result()
    curve = dict(zip(found.levels, found.observed, strict=True))
    assert {level: curve[int(level)] for level in map(int, found.overall.coverage)} == {
        int(level): share for level, share in found.overall.coverage.items()
    }
    for group in found.groups:
        by = {"user": users, "item": items, "error": errors, "std": std}[group.side]
        mine = (by >= group.low) & (by <= group.high)
        assert (by[mine].min(), by[mine].max()) == (group.low, group.high)
        scorer = Scorer()
        part = np.ascontiguousarray(mu[:, mine]), np.ascontiguousarray(var[:, mine])
        scorer.add(y[mine], part[0].mean(axis=0), *part)
        scores = scorer.result()
        assert (group.n, group.coverage) == (scores.n, scores.coverage)
        assert group.rmse == pytest.approx(scores.rmse)


def test_groups_and_bins_add_up_whatever_the_chunks():
    data = mixtures(1_001)
    found, parts = calibrate(*data), calibrate(*data, chunk=90)
    for side in ("user", "item"):
        groups = [group for group in found.groups if group.side == side]
        assert sum(group.n for group in groups) == 1_001
        inside = sum(group.n * np.array(group.observed) for group in groups)
        np.testing.assert_allclose(inside / 1_001, found.observed)
    assert (sum(found.pit), len(found.pit)) == (1_001, PIT_BINS)
    assert found.levels == FINE_LEVELS
    assert np.all(np.diff(found.observed) >= 0)
    assert (parts.pit, parts.observed) == (found.pit, found.observed)
    assert [g.n for g in parts.groups] == [g.n for g in found.groups]


def test_pit_counts_are_of_the_distribution_function():
    """Ratings at known quantiles of one normal fall into known bins, the last one included."""
    y = stats.norm.ppf([0.01, 0.04, 0.06, 0.52, 0.999, 1 - 1e-18])
    y[-1] = 50.0  # a PIT of exactly one
    found = calibrate(y, np.zeros((1, 6)), np.ones((1, 6)), np.ones(6), np.ones(6))
    want = np.zeros(PIT_BINS, int)
    want[[0, 1, 10, 19]] = 2, 1, 1, 2
    assert found.pit == tuple(want)


def test_it_is_plain_json():
    found = calibrate(*mixtures(500))
    told = found.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert set(told) == {
        "overall", "groups", "pit", "levels", "observed", "few_values", "worst_gap", "worst",
        "calibrated", "verdict",
    }  # fmt: skip
    assert set(told["groups"][0]) == {
        "side", "name", "low", "high", "n", "rmse", "observed", "coverage",
    }  # fmt: skip


def test_stars_are_few_values():
    y, mu, var, *counts = mixtures(400)
    assert not calibrate(y, mu, var, *counts, chunk=90).few_values
    assert calibrate(np.round(y), mu, var, *counts, chunk=90).few_values
    y, mu, var, *counts = mixtures(9)
    assert not calibrate(y, mu, var, *counts).few_values  # nine ratings have nine values at most


# For people


def test_html_is_a_table_with_the_verdict_above():
    found = calibrate(*mixtures(3_000))
    html = found._repr_html_()
    assert html.startswith(f"<p>{found.verdict}</p><table><thead><tr><th></th><th>range</th>")
    assert (html.count("<tr>"), html.count("<td>")) == (13, 12 * 8)
    assert f"<td>{found.groups[0].span}</td><td>{found.groups[0].n:,}</td>" in html
    odd = replace(found, groups=(replace(found.groups[0], name="<b>&"),))
    assert "<td>users, &lt;b&gt;&amp;</td>" in odd._repr_html_()


def test_refusals():
    with pytest.raises(InputError, match="no ratings"):
        Calibrator([], []).result()
    calibrator = Calibrator([1, 2], [1, 2])
    calibrator.add([3.0], [3.0], np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(InputError, match="1 ratings were added and 2 announced"):
        calibrator.result()


# Groups


@pytest.mark.parametrize(
    ("counts", "bounds"),
    [
        ([1, 2, 3, 4, 5, 6], [(1, 2), (3, 4), (5, 6)]),
        ([6, 5, 4, 3, 2, 1, 0], [(0, 1), (2, 4), (5, 6)]),
        # Ties stay together, on the side where the cut is nearest to a third.
        ([1, 1, 1, 4, 5, 6], [(1, 1), (4, 4), (5, 6)]),
        ([1, 2, 2, 2, 2, 6], [(1, 1), (2, 2), (6, 6)]),
        ([0] * 9 + [5], [(0, 0), (5, 5)]),
        ([0] + [5] * 9, [(0, 0), (5, 5)]),
        ([1, 1, 2, 2], [(1, 1), (2, 2)]),
        ([7, 7, 7], [(7, 7)]),
        ([4], [(4, 4)]),
        ([], []),
    ],
)
def test_terciles(counts, bounds):
    assert equal_parts(np.array(counts, np.int64), 3) == bounds


def test_names_of_fewer_groups():
    y, mu, var, *_ = mixtures(90)
    found = calibrate(y, mu, var, np.repeat([3, 8], 45), np.full(90, 5))
    assert [(g.side, g.name, str(g)) for g in found.groups if g.side != "std"] == [
        ("user", "fewest", "users with 3 training ratings"),
        ("user", "most", "users with 8 training ratings"),
        ("item", "all", "items with 5 training ratings"),
    ]


# Of a model


@pytest.fixture(scope="module")
def model():
    triple = planted(n_users=40, n_items=30, n_ratings=600)
    return BayesianMF(2, sampler=Gibbs(epochs=12, burn_in=4), random_state=0).fit(triple), triple


def test_model_counts_training_ratings(model, monkeypatch):
    model, (user, item, rating) = model
    new = int(user.max()) + 1
    users, items = np.append(user, [new] * 5), np.append(item, np.unique(item)[:5])
    ratings = np.append(rating, [3.0] * 5)
    steps = []
    monkeypatch.setattr("bayesmf.posterior.posterior.COMPONENTS", 100 * len(model.posterior_.draws))
    found = model.calibration((users, items, ratings), progress=steps.append)
    assert isinstance(found, Calibration)
    assert (sum(steps), max(steps)) == (605, 100)
    assert found.overall == model.evaluate((users, items, ratings))
    for side, known, tested in (("user", user, users), ("item", item, items)):
        per_id = dict(zip(*np.unique(known, return_counts=True), strict=True))
        counts = np.array([per_id.get(i, 0) for i in tested])
        groups = [group for group in found.groups if group.side == side]
        assert [(g.low, g.high) for g in groups] == equal_parts(counts, 3)
        assert [g.n for g in groups] == [
            int(np.sum((counts >= g.low) & (counts <= g.high))) for g in groups
        ]
    assert found.groups[0].low == 0  # the new user
    assert min(g.low for g in found.groups if g.side == "item") > 0


def test_only_unseen_ids(model):
    found = model[0].calibration((["a", "b"], ["x", "y"], [3.0, 4.0]))
    by_counts = [g for g in found.groups if g.side in ("user", "item")]
    assert [(g.low, g.high, g.n) for g in by_counts] == [(0, 0, 2)] * 2
    assert not [g for g in found.groups if g.side == "error"]  # nothing is known of them
