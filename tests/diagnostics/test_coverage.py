"""Do intervals hold what they promise: one number, the same everywhere, and what counts."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Calibration
from bayesmf.diagnostics.calibration import FINE_LEVELS, Gap, Group, allowed_gap
from calibrated import calibrate, mixtures


def told(overall, *groups, n=20_000):
    """A calibration whose coverage is off by so many points at 90%, and right elsewhere."""

    def observed(points):
        shares = np.array(FINE_LEVELS) / 100
        shares[FINE_LEVELS.index(90)] += points / 100
        return tuple(shares.tolist())

    scores = calibrate(*mixtures(50)).overall
    made = tuple(
        Group("user", "fewest", 10 * k + 1, 10 * k + 9, n // 3, 0.9, observed(points))
        for k, points in enumerate(groups)
    )
    return Calibration(replace(scores, n=n), made, (n,), FINE_LEVELS, observed(overall))


def test_the_worst_is_over_every_level_and_group():
    """The number that decides is the largest that any curve of the picture reaches."""
    found = calibrate(*mixtures(30_000))
    curves = [found.observed, *(group.observed for group in found.groups)]
    largest = max(np.abs(100 * np.array(c) - np.array(FINE_LEVELS)).max() for c in curves)
    assert abs(found.worst.points) == pytest.approx(largest)
    assert tuple(range(50, 96)) == FINE_LEVELS
    assert found.calibrated is not found.worst.counts
    assert found.as_dict()["worst_gap"] == found.worst.points
    assert f"{found.worst.points:+.1f} points" in found.headline
    assert f"{found.worst.level}% interval of {found.worst.where}" in found.verdict
    assert f"holds {100 * found.worst.observed:.1f}%" in found.verdict


def test_one_that_counts_is_worse_than_one_that_does_not():
    found = told(-1.6, -2.9)
    assert (found.worst.group, found.worst.level) == (None, 90)
    assert found.worst.points == pytest.approx(-1.6)


@pytest.mark.parametrize(
    ("overall", "groups", "sentence"),
    [
        (
            0.0,
            (1.9, 0.0),
            "Intervals hold what they promise: the worst of all is the 90% interval of users with "
            "1-9 training ratings, which holds 91.9% (up to 3.0 points off is allowed).",
        ),
        (
            0.0,
            (-5.9, 0.0),
            "Intervals are too narrow for users with 1-9 training ratings: their 90% interval "
            "holds 84.1%; where you need 90%, ask for 91%, or trust them less there.",
        ),
        (
            0.0,
            (-5.9, 4.0, -4.0),
            "Intervals are too narrow for users with 1-9 training ratings (2 other groups off as "
            "well; too wide for users with 11-19 training ratings: 94.0% in the 90% interval): "
            "their 90% interval holds 84.1%; where you need 90%, ask for 91%, or trust them less "
            "there.",
        ),
        (
            0.0,
            (5.9, -4.0),
            "Intervals are too wide for users with 1-9 training ratings (1 other group off as "
            "well; too narrow for users with 11-19 training ratings: 86.0% in the 90% interval): "
            "their 90% interval holds 95.9%; the wide ones are safe, the narrow ones are not: "
            "where you need 90%, ask for 91%, or trust them less there.",
        ),
        (
            -2.0,
            (0.0, 0.0),
            "Intervals are too narrow: the 90% interval holds 88.0% of all ratings; where you need "
            "90%, ask for 91%, or trust them less; if the model was fitted by SGD or cut short, "
            "fit with the defaults.",
        ),
        (
            -4.0,
            (0.0, -8.0),
            "Intervals are too narrow, most of all for users with 11-19 training ratings: their "
            "90% interval holds 82.0%; where you need 90%, ask for 91%, or trust them less; if the "
            "model was fitted by SGD or cut short, fit with the defaults.",
        ),
        (
            2.0,
            (0.0,),
            "Intervals are too wide: the 90% interval holds 92.0% of all ratings; they are safe, "
            "but say less than they could: where you need 90%, the 90% interval is enough.",
        ),
    ],
)
def test_verdicts(overall, groups, sentence):
    assert told(overall, *groups).verdict == sentence


def test_no_level_is_high_enough():
    found = told(0.0, 0.0)
    observed = tuple(0.75 * level / 100 for level in FINE_LEVELS)
    found = replace(found, groups=(replace(found.groups[0], observed=observed),))
    assert found.verdict == (
        "Intervals are too narrow for users with 1-9 training ratings: their 95% interval holds "
        "71.2%; no interval up to 95% holds 95%, so do not rely on them there."
    )


def test_levels_that_are_sound_are_told():
    """Stars: narrow intervals hold too much, those that people ask for hold what they promise."""
    found = told(0.0, 0.0)
    observed = tuple((level + max(0, 75 - level) / 4) / 100 for level in FINE_LEVELS)
    found = replace(found, groups=(replace(found.groups[0], observed=observed),))
    assert found.verdict == (
        "Intervals below 63% are too wide for users with 1-9 training ratings: their 50% interval "
        "holds 56.2%; ask for 63% or more, where on these ratings all hold what they promise."
    )
    assert found.headline == (
        "Intervals below 63% are too wide: worst gap +6.2 points (3.0 allowed)"
    )


def test_ratings_that_were_learnt_from_judge_nothing():
    found = told(9.0)
    spoilt = replace(found, overall=replace(found.overall, learnt=1_000))
    assert spoilt.calibrated is None and spoilt.as_dict()["calibrated"] is None
    assert spoilt.verdict == (
        "Intervals cannot be judged by these ratings: 1,000 of 20,000 are in the training data; "
        "test on ratings that were held out."
    )
    assert "cannot be judged" in spoilt.headline
    few = replace(found, overall=replace(found.overall, learnt=100))
    assert few.calibrated is found.calibrated is False


def test_few_ratings_cannot_show_that_all_is_well():
    found = calibrate(*mixtures(60, seed=4))
    assert found.calibrated
    assert found.verdict.startswith(
        "Nothing is seen to be wrong with intervals: the worst of all is the "
    )
    assert found.visible == pytest.approx(allowed_gap(50, 60, 1.5))
    assert "but with 1 test rating only gaps above" in calibrate(*mixtures(1)).verdict
    found = calibrate(*mixtures(60))
    end = (
        f"but with 60 test ratings only gaps above {found.worst.allowed:.1f} points would "
        "exceed chance there; use more test ratings."
    )
    assert found.verdict.endswith(end)
    assert told(0.0, 0.0, n=5_000).verdict.startswith("Intervals hold what they promise")


# What counts


def test_a_gap_counts_beyond_tolerance_and_chance():
    assert allowed_gap(50, 1_000_000, 1.5) == 1.5
    assert allowed_gap(80, 100_00, 1.0) == pytest.approx(1.6 + 0.8 / 30)
    assert allowed_gap(80, 100, 20.0) == 20.0
    # One rating outside, of one or of three, is nobody's fault.
    assert allowed_gap(95, 1, 1.5) == 95
    assert allowed_gap(95, 3, 1.5) > 95 - 200 / 3
    assert not Gap(None, 95, 0.0, allowed_gap(95, 1, 1.5)).counts
    assert Gap(None, 80, 0.679, 12.0).counts
    assert not Gap(None, 80, 0.919, 12.0).counts


def test_gaps_have_the_tolerance_of_their_place():
    found = calibrate(*mixtures(60_000))
    allowed = {gap.allowed for gap in found.gaps() if gap.group is None}
    assert allowed == {1.5}
    assert {gap.allowed for gap in found.gaps() if gap.group is not None} == {3.0}
    assert len(found.gaps()) == 46 * 12
