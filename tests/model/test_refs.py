"""Rows in pieces: however they are cut, and whatever they are multiplied by, they are the rows."""

import numpy as np
import pytest

from bayesmf.model.refs import (
    Pieces,
    Ref,
    Scaled,
    StripeLayout,
    in_layout,
    leaves,
    tree_map,
    value_of,
)

ROWS = np.arange(21, dtype=np.float32).reshape(7, 3)
SPANS = StripeLayout([slice(0, 2), slice(2, 7)], 7)
SHUFFLED = StripeLayout([np.array([6, 0, 3], np.int32), np.array([1, 2, 4, 5], np.int32)], 7)


@pytest.mark.parametrize("layout", [SPANS, SHUFFLED])
def test_pieces_are_the_rows(layout):
    pieces = layout.split(ROWS)
    assert np.array_equal(np.asarray(pieces), ROWS) and len(pieces) == 7
    assert layout.sizes() == [len(part) for part in pieces.parts]
    following = np.concatenate(pieces.parts)
    assert np.array_equal(following[layout.order], ROWS)
    assert in_layout(pieces, layout) is pieces
    again = in_layout(pieces, SPANS if layout is SHUFFLED else SHUFFLED)
    assert np.array_equal(np.asarray(again), ROWS)


def test_factors_are_applied_one_after_the_other():
    """As rows would be that were multiplied, written down, and multiplied again."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 3)).astype(np.float32)
    first, second = rng.uniform(0.3, 3, (2, 3)).astype(np.float32)
    pieces = Pieces(tuple(map(Ref, SPANS.split(rows).parts)), SPANS)
    found = np.asarray(pieces.scaled(first).scaled(second))
    assert np.array_equal(found, (rows * first) * second)
    assert np.array_equal(np.asarray(pieces), rows)  # the rows stay
    two = np.array([2.0, 0.25, 1.0])
    assert np.array_equal(np.asarray(pieces.scaled(two).scaled(1 / two)), rows)


def test_arrays_that_lie_elsewhere_are_fetched():
    parts = SPANS.split(ROWS).parts
    remote = {Ref(nbytes=part.nbytes, shape=part.shape): part for part in parts}
    pieces = Pieces(tuple(remote), SPANS)
    with pytest.raises(AssertionError, match="another process"):
        np.asarray(pieces)
    assert np.array_equal(pieces.whole(lambda refs: [remote[ref] for ref in refs]), ROWS)
    scaled = pieces.scaled(2.0)
    assert np.array_equal(scaled.whole(lambda refs: [remote[ref] for ref in refs]), 2 * ROWS)


def test_a_stripe_is_replaced():
    pieces = SPANS.split(ROWS)
    new = pieces.put(1, np.zeros((5, 3), np.float32))
    assert np.asarray(new)[2:].sum() == 0 and np.array_equal(np.asarray(pieces), ROWS)


def test_references_are_found_and_changed_however_deep():
    ref = Ref(ROWS)
    value = (1, Pieces((Scaled(ref, (np.float32(2),)), ROWS), SPANS))
    assert list(leaves(value, Ref)) == [ref]
    changed = tree_map(value, Ref, lambda ref: ref.value)
    assert np.array_equal(value_of(changed[1][0]), 2 * ROWS)
    same = (1, "a", ROWS)
    assert tree_map(same, Ref, lambda ref: None) is same
