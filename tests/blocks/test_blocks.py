"""Layout of ratings into blocks, mini-batches and stripes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bayesmf.blocks.blocks import batch_order, block_h, h_bar, h_replacement, make_blocks
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import make_stripes
from bayesmf.data.training import TrainingData
from bayesmf.kernels.keys import make_key
from problems import random_data


def _triples(user, item, value):
    return sorted(zip(user.tolist(), item.tolist(), value.tolist(), strict=True))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 1), (1, 3), (2, 3), (5, 4)])
@pytest.mark.parametrize("n_batches", [1, 3, 7])
def test_blocks_hold_every_rating_once(shape, n_batches):
    data = random_data(17, 13, 90)
    grid = Grid.parse(shape)
    blocks = make_blocks(data, grid, n_batches, seed=1)
    assert len(blocks) == len(grid)
    parts = [block.triples() for block in blocks]
    users = np.concatenate([b.user_rows[p[0]] for b, p in zip(blocks, parts, strict=True)])
    items = np.concatenate([b.item_rows[p[1]] for b, p in zip(blocks, parts, strict=True)])
    values = np.concatenate([p[2] for p in parts])
    assert _triples(users, items, values) == _triples(*data.triples())
    for block, (user, item, _) in zip(blocks, parts, strict=True):
        assert block.n_batches == n_batches
        sizes = np.diff(block.rating_starts)
        assert sizes.max() - sizes.min() <= 1
        assert np.all(np.diff(block.batches.segment_starts) > 0)
        for lo, hi in itertools.pairwise(block.rating_starts):
            assert np.all(np.diff(user[lo:hi].astype(int) * 1000 + item[lo:hi]) > 0)
        for lo, hi in itertools.pairwise(block.batches.starts):
            assert np.all(np.diff(block.batches.segment_user[lo:hi]) > 0)
    for group in grid.groups():
        rows = [set(blocks[b].user_rows) for b in group]
        assert sum(map(len, rows)) == len(set().union(*rows))


def test_batches_are_dealt_at_random():
    data = random_data(40, 30, 600)
    first = make_blocks(data, Grid(), 4, seed=1)[0]
    again = make_blocks(data, Grid(), 4, seed=1)[0]
    other = make_blocks(data, Grid(), 4, seed=2)[0]
    assert np.array_equal(first.batches.item, again.batches.item)
    assert not np.array_equal(first.batches.item, other.batches.item)


def test_all_ways_of_dealing_are_equally_likely():
    """Five ratings to mini-batches of 2 and 3: ten ways, by chi-squared (false-alarm rate 1e-4)."""
    data = random_data(3, 3, 5)
    ways = [
        tuple(sorted(_first_batch(make_blocks(data, Grid(), 2, seed)[0]))) for seed in range(2000)
    ]
    _, counts = np.unique(np.array(ways), axis=0, return_counts=True)
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4


def _first_batch(block):
    user, item, _ = block.triples()
    hi = block.rating_starts[1]
    return (block.user_rows[user[:hi]] * 10 + block.item_rows[item[:hi]]).tolist()


def test_a_block_without_ratings():
    """Users of one stripe and items of another may never meet."""
    user, item = np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int32)
    data = TrainingData.from_triples(user, item, np.ones(2, np.float32), 2, 2)
    blocks = make_blocks(data, Grid(2, 2), 3, seed=0)
    assert sorted(len(b) for b in blocks) == [0, 0, 1, 1]
    for block in blocks:
        assert block.n_batches == 3
        assert block.rating_starts[-1] == len(block)
        assert [c.sum() for c in block.counts()] == [len(block)] * 2


def test_a_coded_rating_takes_few_bytes():
    data = random_data(100, 90, 6000)
    coded = TrainingData(
        replace(data.by_user, value=np.zeros(6000, np.uint8)), 90, np.zeros(1, np.float32)
    )
    (block,) = make_blocks(coded, Grid(), 1, seed=0)
    held = (
        block.batches.segment_user,
        block.batches.segment_starts,
        block.batches.item,
        block.batches.value,
    )
    assert sum(a.nbytes for a in held) < 5.5 * 6000


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
    stripes = make_stripes(data.by_user, data.levels, n_stripes)
    assert np.concatenate([s.rows for s in stripes]).tolist() == list(range(17))
    found = []
    for stripe in stripes:
        row = np.repeat(stripe.rows, np.diff(stripe.starts))
        found += _triples(row, stripe.other, data.decode(stripe.value))
    assert sorted(found) == _triples(*data.triples())


def test_printed_h_by_enumeration():
    """1 - (1 - N_i/N)^m is the share of all N^m mini-batches that hold the row."""
    data = random_data(3, 3, 5)
    n, m = 5, 3
    index = np.stack(np.meshgrid(*[np.arange(n)] * m), -1).reshape(-1, m)
    counted = [(data.triples()[0][index] == i).any(1).mean() for i in range(3)]
    assert np.allclose(h_replacement(data.user_counts(), n, m), counted, atol=1e-15)
    assert np.allclose(h_replacement(np.array([0, 5]), 5, 2), [0, 1])


def test_counted_h():
    data = random_data(12, 9, 60)
    block = make_blocks(data, Grid(), 6, seed=0)[0]
    h_user, h_item = block_h(block, None)
    for i in range(12):
        hits = [
            i in block.user_rows[block.batches.segment_user[lo:hi]]
            for lo, hi in itertools.pairwise(block.batches.starts)
        ]
        assert h_user[list(block.user_rows).index(i)] == np.mean(hits)
    for j in range(9):
        hits = [
            j in block.item_rows[block.batches.item[lo:hi]]
            for lo, hi in itertools.pairwise(block.rating_starts)
        ]
        assert h_item[list(block.item_rows).index(j)] == np.mean(hits)
    user, item, _ = block.triples()
    for counts, own in zip(block.counts(), (user, item), strict=True):
        assert np.array_equal(counts, np.bincount(own, minlength=len(counts)))


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
