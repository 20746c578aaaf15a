"""Accuracy on MovieLens 100K, fold u1, D = 10: the figures of docs/results.md, as a floor.

Default settings, but for fewer epochs of the slow ones. Skipped where the data is absent.
"""

from pathlib import Path

import pytest

from bayesmf import SGD, SGLD, BayesianMF, Gibbs, Ratings

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "ml-100k"
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not FOLDER.exists(), reason="MovieLens 100K is not here"),
]


@pytest.fixture(scope="module")
def fold():
    return Ratings.read(FOLDER / "u1.base"), Ratings.read(FOLDER / "u1.test")


@pytest.mark.parametrize(
    ("sampler", "prior", "rmse", "calibrated"),
    [
        (SGD(), "gamma", 0.945, False),
        (SGD(grid=(2, 2)), "gamma", 0.945, False),
        (SGLD(), "gamma", 0.920, True),
        (SGLD(grid=(2, 2), n_chains=2, epochs=200), "gamma", 0.935, True),
        (SGLD(noise="paper", epochs=200), "gamma", 0.970, False),
        (Gibbs(), "gamma", 0.916, True),
        (Gibbs(), "wishart", 0.910, True),
        ("auto", "auto", 0.908, True),
    ],
    ids=["SGD", "DSGD", "SGLD", "DSGLD-S", "SGLD paper", "Gibbs", "Gibbs wishart", "default"],
)
def test_u1(fold, sampler, prior, rmse, calibrated):
    model = BayesianMF(10, sampler=sampler, prior=prior, random_state=0).fit(fold[0])
    scores = model.evaluate(fold[1])
    assert scores.rmse <= rmse
    if calibrated:
        assert 0.885 <= scores.coverage["90"] <= 0.915
    if sampler == "auto":
        # Whole stars: intervals below some 80% hold more than they promise, and the verdict says
        # so; wider ones hold what they promise in every group.
        found = model.calibration(fold[1])
        assert found.verdict.startswith(("Intervals hold what they promise", "Intervals below "))
        assert not any(gap.counts for gap in found.gaps() if gap.level >= 85)
