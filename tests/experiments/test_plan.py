"""Plans beside the simulated engine, which does the arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import SGLD, Auto, Gibbs, InputError, Synthetic
from bayesmf.blocks.blocks import make_blocks
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import make_stripes
from bayesmf.run.driver import run
from bayesmf.run.prepare import prepare
from experiments.links import Network
from experiments.plan import plan as plans
from experiments.plan.costs import calibrate, for_epochs
from experiments.plan.plan import Planned, Split, advice, settle, sketch, splits
from experiments.plan.sketch import Rate, block_sizes, made_up, stripe_sizes
from experiments.simulated import Simulated

RATINGS = Synthetic(1200, 500, 60_000, random_state=0).ratings()
DATA = prepare(RATINGS, standardize=True).data
COUNTS = DATA.user_counts(), DATA.item_counts()
# So slow that links count as much as arithmetic.
NETWORK = Network(0.5e-3, 2e7, workers_per_node=2)
RATE = 2e6


class Epochs:
    """When each chain has ended its epochs."""

    def __init__(self):
        self.ends = {}

    def __call__(self, event):
        self.ends.setdefault(event.chain, []).append(event.seconds)

    def mean(self):
        return np.mean([(own[-1] - own[0]) / (len(own) - 1) for own in self.ends.values()])


@pytest.mark.parametrize(
    ("name", "sampler", "workers"),
    [
        ("default", Auto(n_chains=2), 6),
        ("default", Gibbs(n_chains=1), 4),
        ("dsgld-s", SGLD(grid=(3, 3), n_chains=3), 9),
        ("dsgld-c", SGLD(grid=(6, 1), n_chains=6), 6),
        ("hybrid", SGLD(grid=(4, 4), n_chains=2), 8),
        ("blocks", SGLD(grid=(3, 3), n_chains=9, group_size=1), 9),
        ("items", SGLD(grid=(1, 4), n_chains=4), 4),
    ],
)
def test_a_plan_takes_as_long_as_the_simulated_run(name, sampler, workers):
    split = Split(name, sampler, workers)
    settings = settle(COUNTS, split, 4)
    planned = sketch(COUNTS, split, settings, NETWORK, Rate(RATE), epochs=4)
    epochs, engine = Epochs(), Simulated(workers, NETWORK, rate=RATE)
    told = run(DATA, for_epochs(settings, DATA, 4), engine, callbacks=(epochs,)).engine
    assert planned.seconds_per_epoch == pytest.approx(epochs.mean(), rel=0.15)
    rounds = told["rounds"]
    assert planned.driver_bytes == pytest.approx(told["driver_bytes_per_round"], rel=0.15)
    assert planned.fetched_bytes == pytest.approx(told["fetched_bytes"] / rounds, rel=0.05)
    assert planned.node_bytes == pytest.approx(max(told["node_bytes"]) / rounds, rel=0.15)
    held = max(sum(node.values()) for node in told["memory_by_node"])
    assert planned.memory == pytest.approx(held, rel=0.4)


def test_efficiency_is_that_beside_one_worker():
    many, one = (
        sketch(COUNTS, split, settle(COUNTS, split, 4), NETWORK, Rate(RATE))
        for split in (Split("default", Auto(n_chains=2), n) for n in (8, 1))
    )
    assert one.efficiency == pytest.approx(1.0, abs=0.1)
    expected = one.seconds_per_epoch / (8 * many.seconds_per_epoch)
    assert many.efficiency == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("n", [1, 3, 8, 40])
def test_stripes_of_a_sketch(n):
    sizes = stripe_sizes(COUNTS, n)
    small = made_up(sizes)
    first = 0
    for side, lists in enumerate((DATA.by_user, DATA.by_item)):
        real = make_stripes(lists, DATA.levels, n)
        own = small.by_item if side else small.by_user
        assert len(make_stripes(own, small.levels, n)) == len(real) == sizes.stripes[side]
        for k, stripe in enumerate(real):
            assert sizes.ratings[first + k] == len(stripe)
            assert sizes.rows[first + k][side] == len(stripe.rows)
        first += len(real)


@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(3, 3), Grid(6, 1), Grid(2, 5)])
def test_blocks_of_a_sketch(grid):
    sizes, real = block_sizes(COUNTS, grid, 8), make_blocks(DATA, grid, 8, 0)
    for k, block in enumerate(real):
        assert sizes.ratings[k] == pytest.approx(len(block), rel=0.1)
        assert sizes.rows[k] == (len(block.user_rows), len(block.item_rows))
    small = made_up(sizes)
    assert (small.n_items > small.n_users) == (DATA.n_items > DATA.n_users)
    assert all(len(block) > 0 for block in make_blocks(small, grid, 8, 0))


def test_costs_are_those_of_this_machine():
    for sampler in (Auto(n_chains=2), SGLD(grid=(2, 2))):
        settings = settle(COUNTS, Split("any", sampler, 4), 4)
        costs = calibrate(COUNTS, settings, (20_000, 20_000))
        main = "RowsTask users" if isinstance(sampler, Auto) else "GradientTask"
        assert 1e-9 < costs.tasks[main].rating < 1e-5
        assert all(cost.call >= 0 and cost.row >= 0 for cost in costs.tasks.values())


def test_splits_make_sense():
    found = {(s.name, s.workers): s.sampler for s in splits(16, 4)}
    assert found["dsgld-s", 16] == SGLD(grid=(4, 4), n_chains=4)
    assert found["dsgld-c", 16] == SGLD(grid=(16, 1), n_chains=16)
    assert ("hybrid", 16) not in found  # it would be the square one
    assert [s.name for s in splits(256, 4)] == ["default", "dsgld-s", "hybrid"]


def test_too_many_blocks_are_left_out():
    few = np.full(40, 5), np.full(20, 10)
    found = plans.plan(few, (1, 64), 4, NETWORK, 2, costs=Rate(RATE))
    assert {one.split for one in found if one.workers == 64} == {"default", "dsgld-s", "hybrid"}
    with pytest.raises(InputError, match="two users"):
        plans.plan((few[0][:1], few[1]), (1,), 4, NETWORK, 2, costs=Rate(RATE))


def test_advice_is_one_sentence():
    base = Planned("default", "Gibbs", "", 4, 1, 4, 8, 1.0, 1.0, 4.0, 1.0, 0, 0, 0, 0, 0, 0.0)
    wide = replace(base, workers=64, seconds_per_epoch=0.2, efficiency=0.3)
    best, why = advice([base, wide])
    assert best is base
    assert "4 workers" in why and "64 would take" in why and why.count(". ") == 0
    other = replace(base, split="dsgld-s", efficiency=0.9, seconds_per_epoch=0.5)
    assert advice([wide, other])[0] is other
