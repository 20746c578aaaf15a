"""Layout of ratings into blocks, mini-batches and stripes."""

import numpy as np
import pytest

from bayesmf.batches import batch_order, make_blocks, make_stripes
from bayesmf.correctors import block_h, h_bar, h_replacement
from bayesmf.grid import Grid
from bayesmf.keys import make_key
from problems import random_data


def _triples(user, item, value):
    return sorted(zip(user.tolist(), item.tolist(), value.tolist(), strict=True))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 1), (1, 3), (2, 3), (5, 4)])
@pytest.mark.parametrize("n_batches", [1, 3, 7])
def test_blocks_hold_every_rating_once(shape, n_batches):
    data = random_data(17, 13, 90)
    grid = Grid.of(shape)
    blocks = make_blocks(data, grid, n_batches, seed=1)
    assert len(blocks) == len(grid)
    users = np.concatenate([b.user_rows[b.user] for b in blocks])
    items = np.concatenate([b.item_rows[b.item] for b in blocks])
    values = np.concatenate([b.value for b in blocks])
    assert _triples(users, items, values) == _triples(data.user, data.item, data.value)
    for block in blocks:
        assert block.n_batches == n_batches
        sizes = np.diff(block.starts)
        assert sizes.max() - sizes.min() <= 1
        for lo, hi in zip(block.starts[:-1], block.starts[1:], strict=True):
            rank = block.user[lo:hi].astype(int) * 1000 + block.item[lo:hi]
            assert np.all(np.diff(rank) > 0)
    for group in grid.groups():
        rows = [set(blocks[b].user_rows) for b in group]
        assert sum(map(len, rows)) == len(set().union(*rows))


def test_batches_are_dealt_at_random():
    data = random_data(40, 30, 600)
    first = make_blocks(data, Grid(), 4, seed=1)[0]
    again = make_blocks(data, Grid(), 4, seed=1)[0]
    other = make_blocks(data, Grid(), 4, seed=2)[0]
    assert np.array_equal(first.item, again.item)
    assert not np.array_equal(first.item, other.item)


def test_batch_order_is_a_permutation_in_every_pass_and_needs_no_memory():
    key = make_key(4)
    whole = batch_order(key, 2, 5, 0, 20)
    for lap in range(4):
        assert sorted(whole[5 * lap : 5 * lap + 5]) == list(range(5))
    parts = [batch_order(key, 2, 5, first, 7) for first in (0, 7, 13)]
    assert np.array_equal(parts[0], whole[:7])
    assert np.array_equal(parts[1], whole[7:14])
    assert np.array_equal(parts[2], whole[13:20])


@pytest.mark.parametrize("n_stripes", [1, 3, 50])
def test_stripes_hold_every_rating_once_by_row(n_stripes):
    data = random_data(17, 13, 90)
    stripes = make_stripes(data.user, data.item, data.value, 17, n_stripes)
    assert np.concatenate([s.rows for s in stripes]).tolist() == list(range(17))
    found = []
    for stripe in stripes:
        row = np.repeat(stripe.rows, np.diff(stripe.starts))
        found += _triples(row, stripe.other, stripe.value)
    assert sorted(found) == _triples(data.user, data.item, data.value)


def test_printed_h_by_enumeration():
    """1 - (1 - N_i/N)^m is the share of all N^m mini-batches that hold the row."""
    data = random_data(3, 3, 5)
    n, m = 5, 3
    index = np.stack(np.meshgrid(*[np.arange(n)] * m), -1).reshape(-1, m)
    counted = [(data.user[index] == i).any(1).mean() for i in range(3)]
    assert np.allclose(h_replacement(data.user_counts(), n, m), counted, atol=1e-15)
    assert np.allclose(h_replacement(np.array([0, 5]), 5, 2), [0, 1])


def test_counted_h():
    data = random_data(12, 9, 60)
    block = make_blocks(data, Grid(), 6, seed=0)[0]
    h_user, h_item = block_h(block, None)
    for i in range(12):
        hits = [
            i in block.user_rows[block.user[lo:hi]]
            for lo, hi in zip(block.starts[:-1], block.starts[1:], strict=True)
        ]
        assert h_user[list(block.user_rows).index(i)] == np.mean(hits)
    assert h_item.min() > 0


def test_h_bar_averages_blocks_by_visit_rate():
    data = random_data(12, 9, 60)
    blocks = make_blocks(data, Grid(3, 1), 4, seed=0)
    rates = np.array([0.5, 0.3, 0.2])
    hbar_user, hbar_item = h_bar(blocks, rates, 12, 9, 7)
    for block, v in zip(blocks, rates, strict=True):
        h_user, _ = block_h(block, 7)
        assert np.allclose(hbar_user[block.user_rows], v * h_user)
    h = np.array([block_h(b, 7)[1] for b in blocks])
    assert np.allclose(hbar_item, rates @ h)
