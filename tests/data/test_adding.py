"""Ratings that are added are where a fit on all of them would have put them."""

import numpy as np
import pytest

from bayesmf.data.training import TrainingData, add_ratings
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap, merge_ids
from bayesmf.kernels.csr import sort_rows


def _some(rng, n_users, n_items, n, levels):
    cells = rng.choice(n_users * n_items, n, replace=False)
    value = rng.choice(levels, n).astype(np.float32)
    return (cells // n_items).astype(np.int32), (cells % n_items).astype(np.int32), value


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("coded", [True, False])
def test_as_if_all_had_come_together(seed, coded):
    """New rows among the old, ratings that replace others, levels old and new."""
    rng = np.random.default_rng(seed)
    sizes = 33, 29
    moved = tuple(np.sort(rng.choice(n, n - 3, replace=False)) for n in sizes)
    levels = np.arange(5.0) if coded else np.linspace(-1, 1, 2000)
    user, item, value = _some(rng, 30, 26, 600, levels)
    data = TrainingData.from_triples(user, item, value, 30, 26)
    assert (data.by_user.value.dtype == np.uint8) == coded
    more = _some(rng, *sizes, 90, np.array([0.5, 2.0, 7.0]))
    found = add_ratings(data, moved, sizes, *more)
    known = {(moved[0][i], moved[1][j]): r for i, j, r in zip(user, item, value, strict=True)}
    overlap = len(known)
    known |= {(i, j): r for i, j, r in zip(*more, strict=True)}
    assert overlap < len(known) < overlap + 90  # some are new, some replace others
    triples = list(zip(*found.triples(), strict=True))
    assert {(i, j): r for i, j, r in triples} == known
    assert [t[:2] for t in triples] == sorted(known)  # by user, then item, each pair once
    assert (found.n_users, found.n_items) == sizes
    assert (found.by_user.value.dtype == np.uint8) == coded


def test_too_many_levels_become_numbers():
    rng = np.random.default_rng(0)
    user, item, value = _some(rng, 30, 20, 300, np.arange(5.0))
    data = TrainingData.from_triples(user, item, value, 30, 20)
    assert data.by_user.value.dtype == np.uint8
    more = _some(rng, 30, 20, 300, np.arange(5.0))
    more = *more[:2], np.linspace(10, 20, 300).astype(np.float32)
    same = np.arange(30), np.arange(20)
    found = add_ratings(data, same, (30, 20), *more)
    assert found.by_user.value.dtype == np.float32
    known = {(i, j): r for i, j, r in zip(user, item, value, strict=True)}
    known |= {(i, j): r for i, j, r in zip(*more, strict=True)}
    assert {(i, j): r for i, j, r in zip(*found.triples(), strict=True)} == known


def test_levels_that_are_the_same_when_scaled():
    """As packed ratings have them: codes are made before ratings are scaled."""
    rng = np.random.default_rng(0)
    user, item, code = _some(rng, 30, 20, 300, np.arange(4.0))
    lists = sort_rows(user, item, code.astype(np.uint8), 30, 20)
    data = TrainingData(lists, 20, np.array([-1, -1, 0.5, 2], np.float32))
    same = np.arange(30), np.arange(20)
    more = lists.other[:1] * 0, lists.other[:1], np.array([0.5], np.float32)
    found = add_ratings(data, same, (30, 20), *more)
    assert found.levels.tolist() == [-1, 0.5, 2]
    assert found.triples()[2][1:].tolist() == data.triples()[2][1:].tolist()


@pytest.mark.parametrize(("known", "more", "together"), [
    ([1, 5, 9], [2, 5, 10], [1, 2, 5, 9, 10]),
    (["b", "d"], ["a", "d", "é"], ["a", "b", "d", "é"]),
    ([1, 5], ["-3", "5"], [-3, 1, 5]),
    (["1", "x"], [7], ["1", "7", "x"]),
    ([1, 5], [5], [1, 5]),
])  # fmt: skip
def test_ids_are_merged(known, more, together):
    known, more = IdMap(known), IdMap(more)
    found = merge_ids(known, more, "user")
    assert list(found.ids) == together
    assert [found.ids[k] for k in found.old] == list(known)
    assert [str(found.ids[k]) for k in found.new] == [str(id) for id in more]


@pytest.mark.parametrize("text", ["ann", "007", "1.5", "9" * 30, "٣"])
def test_text_among_numbers_is_refused(text):
    with pytest.raises(InputError, match=r"the item id .* is text"):
        merge_ids(IdMap([1, 2]), IdMap([text]), "item")
