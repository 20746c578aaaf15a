"""What passes through the driver: statistics, which do not grow with users or items."""

import numpy as np
import pytest

from bayesmf import SGHMC, SGLD, BayesianMF, Gibbs, Synthetic
from bayesmf.worker.stripe_tasks import NoiseResult
from bayesmf.worker.tasks import added_up
from experiments.simulated import Network, Simulated

SAMPLERS = {
    "default": Gibbs(epochs=6, n_stripes=8),
    "columns": Gibbs(epochs=6, n_stripes=8, joint=4),
    "DSGLD-S": SGLD(grid=(3, 3), n_chains=3, epochs=6),
    "DSGLD-C": SGLD(grid=(4, 1), n_chains=4, epochs=6),
    "hybrid": SGLD(grid=(2, 3), n_chains=2, epochs=6),
    "SGHMC": SGHMC(grid=(2, 2), epochs=6),
}
D, WORKERS, PER_NODE = 4, 8, 4


def _report(sampler, n_users, n_items=60):
    ratings = Synthetic(n_users, n_items, 12 * n_users, random_state=0).ratings()
    engine = Simulated(WORKERS, Network(workers_per_node=PER_NODE), rate=1e7)
    model = BayesianMF(D, sampler=sampler, engine=engine, random_state=0, progress=False)
    return model.fit(ratings).report_["engine"]


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
@pytest.mark.parametrize("name", SAMPLERS)
def test_driver_bytes_do_not_grow_with_users(name):
    """Four times the users: the same messages, but for the laws that are looked at, and bins."""
    few, many = (_report(SAMPLERS[name], n) for n in (512, 2048))
    assert many["driver_bytes_per_round"] < 1.25 * few["driver_bytes_per_round"]
    rows = 4 * (D + 1) * 2048
    assert many["driver_bytes_per_round"] < rows
    if name in ("default", "columns"):  # users' rows go to the other node, and not by the driver
        assert many["peer_bytes_per_round"] > rows / 2


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
def test_the_formula_of_the_page():
    """docs/cluster.md: W (m + s) + n p there and back in each half of a sweep, and the pairs."""
    found = _report(Gibbs(epochs=12, n_stripes=8), 1024, 256)["driver_bytes_per_round"]
    w = D + 1
    moments = 16 * (w + w * (w + 1) // 2)
    told, prior = 24 * (2 * 6 + 3 + 9), 8 * (w + w * w) + 16 * 9
    sweep = 2 * (WORKERS * (moments + told) + WORKERS / PER_NODE * prior)
    pairs = 400 * (4 + 4 + 8 + 8 + 8 + 1)
    assert found < 1.5 * (sweep + pairs)


def test_sums_are_added_where_they_are_found():
    one, two, three = (
        NoiseResult(np.ones(2), np.full((3, 2), k), np.full((1, 2), 10 * k)) for k in (1, 2, 3)
    )
    found = added_up([one, two, three])
    assert np.array_equal(found[0].sums, np.full((3, 2), 6))
    assert np.array_equal(found[0].weighted, np.full((1, 2), 60))
    assert [r.sums for r in found[1:]] == [None, None] and found[2].value is three.value
