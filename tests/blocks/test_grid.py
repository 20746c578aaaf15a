"""Blocks, orthogonal groups, the rotation of Figure 2, visit rates."""

import numpy as np
import pytest

from bayesmf.blocks.blocks import stripes
from bayesmf.blocks.grid import Grid, Rotation, visit_turns
from bayesmf.errors import InputError

GRIDS = [(1, 1), (2, 2), (3, 3), (4, 1), (1, 4), (2, 3), (3, 2), (4, 2), (5, 3), (4, 4)]
SIZES = [(shape, size) for shape in GRIDS for size in (None, *range(1, min(shape) + 1))]


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_groups_are_orthogonal_and_hold_every_block_once(shape, size):
    grid = Grid.parse(shape)
    groups = grid.groups(size)
    assert sorted(b for group in groups for b in group) == list(range(len(grid)))
    assert len(groups) == grid.n_groups(size) == max(shape) * -(-min(shape) // (size or 99))
    sizes = {len(group) for group in groups}
    assert max(sizes) <= (size or min(shape)) and max(sizes) - min(sizes) <= 1
    for group in groups:
        assert len({b // grid.cols for b in group}) == len(group)
        assert len({b % grid.cols for b in group}) == len(group)


def test_group_sizes_by_hand():
    assert Grid(2, 2).groups() == [[0, 3], [1, 2]]
    assert Grid(2, 2).groups(1) == [[0], [3], [1], [2]]
    assert Grid(3, 3).groups(2) == [[0], [4, 8], [1], [5, 6], [2], [3, 7]]
    assert Grid(4, 4).groups(3)[:2] == [[0, 5], [10, 15]]  # not three and one
    assert Grid(3, 1).groups() == Grid(3, 1).groups(1) == [[0], [1], [2]]
    with pytest.raises(InputError, match=r"group_size .* of a 3x2 grid must be at most 2.* not 3"):
        Grid(3, 2).groups(3)


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


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("shape", "size"), [((2, 2), 1), ((3, 3), 2), ((4, 3), 1), ((4, 4), 3)])
def test_chains_on_smaller_groups_visit_every_block_once_a_cycle(shape, size, shuffle):
    """As many chains as there are groups: in every round all blocks are visited, each by one."""
    grid = Grid.parse(shape)
    groups = grid.groups(size)
    rotation = Rotation([1] * len(groups), len(groups), shuffle=shuffle, seed=5)
    on = np.array([[rotation.group(c, t) for t in range(len(groups))] for c in range(len(groups))])
    for axis in range(2):  # all chains of a round, all rounds of a chain
        for visited in np.moveaxis(on, axis, 0):
            assert sorted(b for g in visited for b in groups[g]) == list(range(len(grid)))


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
