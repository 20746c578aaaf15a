"""Blocks, orthogonal groups, the rotation of Figure 2, visit rates."""

import numpy as np
import pytest

from bayesmf.blocks.blocks import stripes
from bayesmf.blocks.grid import Grid, Rotation, visit_turns
from bayesmf.errors import InputError

GRIDS = [(1, 1), (2, 2), (3, 3), (4, 1), (1, 4), (2, 3), (3, 2), (4, 2), (5, 3)]


@pytest.mark.parametrize("shape", GRIDS)
def test_groups_are_orthogonal_and_hold_every_block_once(shape):
    grid = Grid.parse(shape)
    groups = grid.groups()
    assert sorted(b for group in groups for b in group) == list(range(len(grid)))
    assert len(groups) == max(shape)
    for group in groups:
        assert len(group) == min(shape)
        assert len({b // grid.cols for b in group}) == len(group)
        assert len({b % grid.cols for b in group}) == len(group)


@pytest.mark.parametrize(("text", "shape"), [("2x3", (2, 3)), (" 4X1 ", (4, 1))])
def test_grid_from_text(text, shape):
    assert Grid.parse(text) == Grid(*shape)


@pytest.mark.parametrize("bad", ["2", "0x2", "axb", (2,), (0, 1), (1.5, 2), "-1x2"])
def test_bad_grids_are_refused(bad):
    with pytest.raises(InputError, match="grid"):
        Grid.parse(bad)


def test_figure_2():
    """Two chains on a 2x2 grid: gray and white, then white and gray."""
    rotation = Rotation([1, 1], 2)
    assert [[rotation.group(c, t) for c in range(2)] for t in range(3)] == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("turns", [[1, 1], [1] * 5, [2, 1, 1, 1, 1], [3, 2, 4, 3], [2, 2, 3]])
def test_chains_move_every_round_and_never_meet(turns, shuffle):
    n_chains = sum(turns) // max(turns)
    rotation = Rotation(turns, n_chains, shuffle=shuffle, seed=3)
    n = len(rotation)
    for t in range(4 * n):
        here = [rotation.group(c, t) for c in range(n_chains)]
        assert len(set(here)) == n_chains
        if not shuffle and len(turns) > 1:
            assert all(rotation.group(c, t + 1) != g for c, g in enumerate(here))
    for c in range(n_chains):
        for cycle in range(4):
            seen = [rotation.group(c, cycle * n + t) for t in range(n)]
            assert np.allclose(np.bincount(seen) / n, np.array(turns) / sum(turns))
    assert np.allclose(rotation.rates, np.array(turns) / sum(turns))


def test_more_chains_than_groups_share_blocks():
    rotation = Rotation([1, 1], 5)
    assert {rotation.group(c, 0) for c in range(5)} == {0, 1}


def test_shuffled_cycles_differ():
    rotation = Rotation([1] * 6, 1, shuffle=True)
    cycles = {tuple(rotation.group(0, 6 * k + t) for t in range(6)) for k in range(10)}
    assert len(cycles) > 5


def test_stripes_are_balanced_in_ratings():
    counts = (2000 / (1 + np.arange(500)) + 1).astype(int)
    stripe = stripes(counts, 4, seed=0)
    sums = np.bincount(stripe, weights=counts)
    assert np.bincount(stripe).tolist() == [125] * 4
    assert sums.max() < sums.mean() + counts.max() / 2
    assert np.array_equal(stripe, stripes(counts, 4, seed=0))


def test_visit_turns():
    sizes = np.array([30, 10, 20])
    assert visit_turns("equal", sizes) == [1, 1, 1]
    assert visit_turns("size", sizes) == [3, 1, 2]
    assert visit_turns([2, 1, 1], sizes) == [2, 1, 1]
    for bad in ("often", [1, 2], [1, 0, 1], [1, np.nan, 1]):
        with pytest.raises(InputError, match="visits"):
            visit_turns(bad, sizes)
