"""People whom the model never met: the service's intervals hold what they promise.

Planted ratings, 80 people left out. Coverage may be three points off, as the items' draws have not
seen what is sent, and four standard errors besides: 6e-5 by chance for each number sent. Seeds are
fixed.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from bayesmf import BayesianMF, Gibbs, Synthetic
from bayesmf.posterior.rows import STEPS, _fold_numbers
from bayesmf.web import create_app

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.accuracy import new_people

PEOPLE = 80


@pytest.fixture(scope="module")
def ratings():
    """People who differ a lot: what is not known of a new one matters beside the noise."""
    law = {"noise": 0.6, "bias_user": 0.6, "factor_strength": 0.6}
    return Synthetic(330, 80, 12_000, n_factors=3, **law, random_state=1).ratings()


@pytest.fixture(scope="module")
def asked(ratings):
    """What the service says by the number of ratings sent."""
    others, owned = new_people.left_out(ratings, PEOPLE, 0)
    assert others.n_users == ratings.n_users - PEOPLE == 330 - len(owned)
    model = BayesianMF(4, sampler=Gibbs(epochs=40, n_chains=2), random_state=0).fit(others)
    with TestClient(create_app(model)) as client:
        return {n: new_people.answers(client, owned, n, 0.9, 20) for n in new_people.SENT}


@pytest.mark.parametrize("n", new_people.SENT)
def test_intervals_hold_whatever_was_sent(asked, n):
    found = asked[n]
    inside = (found.low <= found.rating) & (found.rating <= found.high)
    held, error = new_people.clustered(inside.astype(float), found.person)
    assert abs(held - 0.9) < 0.03 + 4 * error < 0.09
    # The test would notice if what is not known did not count.
    noise = np.sqrt(found.std**2 - found.unknown**2)
    alone = np.abs(found.rating - found.mean) < 1.645 * noise
    if n < 5:
        assert alone.mean() < 0.9 - 0.03 - 4 * error


def test_noise_of_new_people_depends_little_on_chance():
    """Its random numbers are the same for everybody: one from each part of the distribution."""
    normals, _ = _fold_numbers(40, 5)
    for step in range(STEPS):
        part = np.floor(40 * stats.norm.cdf(normals[:, step, 5])).astype(int)
        assert sorted(part) == list(range(40))
    assert not np.array_equal(normals[:, 0, 5].argsort(), normals[:, 1, 5].argsort())


def test_the_table(tmp_path, capsys):
    Synthetic(70, 80, 3000, random_state=1).write(tmp_path / "ratings.csv")
    assert new_people.main([str(tmp_path / "ratings.csv"), "--people", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "12 people left out" in lines[0]
    assert sum(line.startswith("all") for line in lines) == len(new_people.SENT)
    assert new_people.main([str(tmp_path / "ratings.csv"), "--people", "70"]) == 2
    assert "leave out fewer" in capsys.readouterr().err
