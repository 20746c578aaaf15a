import os
import shutil

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, PackedRatings, Ratings, Synthetic, pack
from bayesmf.errors import InputError
from bayesmf.storage.artefact import MODEL, PACKED, write_file
from forged import drop, edit, edit_meta, file_contents, flip, place, set_at

FIT = {"sampler": Gibbs(epochs=3, burn_in=1), "random_state": 0}


@pytest.fixture(scope="module")
def packed_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    Synthetic(60, 40, 900, random_state=1, stars=True).ratings().write(folder / "ratings.csv")
    pack(folder / "ratings.csv", folder / "packed")
    return folder / "packed"


@pytest.fixture
def packed(packed_once, tmp_path):
    return shutil.copyfile(packed_once, tmp_path / "packed")


def assert_refused(path, sentence, act=PackedRatings.open, **options):
    with pytest.raises(InputError, match=sentence) as caught:
        act(path, **options)
    text = str(caught.value)
    assert not text.endswith(".") and "\n" not in text


def fit(path):
    return BayesianMF(2, **FIT).fit(path).posterior_.draws.items


def test_contents(packed):
    found = PackedRatings.open(packed, verify=True)
    assert len(found) == 900 == len(found.by_user) == len(found.by_item)
    rating = found.levels[found.by_user.value].astype(np.float64)
    assert found.mean() == pytest.approx(rating.mean(), abs=1e-12)
    assert found.std() == pytest.approx(rating.std(), abs=1e-12)
    assert (found.low, found.high) == (rating.min(), rating.max())
    assert repr(found).startswith("PackedRatings(900 ratings of ")
    assert PackedRatings.is_packed(packed) and not PackedRatings.is_packed(packed.parent)
    arrays, _ = file_contents(packed, PACKED)
    lists = [array for name, array in arrays.items() if name.endswith(("_other", "_value"))]
    assert sum(array.nbytes for array in lists) == 2 * 5 * 900  # int32 and uint8, twice


def test_moments_far_above_the_spread(tmp_path):
    rng = np.random.default_rng(0)
    ratings = 4096.0 + np.round(rng.normal(size=3000), 1)
    made = Ratings(np.arange(3000) % 70, np.arange(3000) // 70, ratings)
    made.write(tmp_path / "a.parquet")
    found = pack(tmp_path / "a.parquet", tmp_path / "packed", chunk=700, stretch=900)
    kept = made.rating.astype(np.float64)
    assert found.mean() == pytest.approx(kept.mean(), rel=1e-15)
    assert found.std() == pytest.approx(np.std(kept), rel=1e-12)


def test_arrays_are_plain_and_can_be_written_to_without_effect(packed):
    found, before = PackedRatings.open(packed), packed.read_bytes()
    for lists in (found.by_user, found.by_item):
        for array in (lists.starts, lists.other, lists.value):
            assert type(array) is np.ndarray and array.flags.writeable
    found.by_user.other[:] = 0
    assert packed.read_bytes() == before


@pytest.mark.parametrize("name", ["by_user_other", "by_item_starts", "by_item_value"])
def test_damaged_arrays(packed, name):
    good = packed.read_bytes()
    flip(packed, name)
    assert_refused(packed, f"{name} does not have the digest", verify=True)
    packed.write_bytes(good[:-1])
    assert_refused(packed, "its header does not describe it")
    packed.write_bytes(good)
    drop(packed, name, PACKED)
    assert_refused(packed, f"{name}.* is missing")


FORGED = {
    "item below": ("by_user_other", set_at(3, -1)),
    "item at the end": ("by_user_other", set_at(-1, 40)),
    "user at the end": ("by_item_other", set_at(0, 60)),
    "far away": ("by_item_other", lambda a: np.full_like(a, 2**31 - 1)),
    "starts fall": ("by_user_starts", set_at(5, 10**6)),
    "starts fall below": ("by_item_starts", set_at(5, -1)),
    "code of no level": ("by_user_value", set_at(-1, 5)),
    "codes as numbers": ("by_item_value", lambda a: a.astype(np.float32)),
    "ids fall": ("user_id_ids", set_at(0, 10**6)),
    "an item twice": ("by_user_other", lambda a: np.concatenate([a[:1], a[:1], a[2:]])),
    "users of an item fall": ("by_item_other", lambda a: np.concatenate([a[1::-1], a[2:]])),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_ratings_are_refused_when_opened(packed, what):
    name, change = FORGED[what]
    edit(packed, name, change, PACKED)
    assert_refused(packed, "is damaged")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"levels": "none"}, "meta.levels is of a wrong type"),
        ({"levels": None}, "by_user_value.* is uint8"),
        ({"levels": [3.0, 1.0]}, "meta.levels are not"),
        ({"n_ratings": 899}, "does not fit the ratings"),
        ({"n_users": 7}, "by_user_starts does not fit"),
        ({"n_users": 0}, "n_users or n_items is 0"),
        ({"low": 9.0}, "are not those of ratings"),
    ],
)
def test_forged_metadata(packed, change, sentence):
    edit_meta(packed, lambda meta: meta.update(change), PACKED)
    assert_refused(packed, sentence)


def test_a_fit_verifies_what_was_not_verified(packed):
    opened = PackedRatings.open(packed)
    good = packed.read_bytes()
    raw = bytearray(good)
    at = place(packed, "by_user_value")[0] + 72
    raw[at] = 1 if raw[at] != 1 else 2  # another rating
    packed.write_bytes(raw)
    again = PackedRatings.open(packed)
    for ratings in (opened, again, str(packed)):
        assert_refused(ratings, "by_user_value does not have the digest", fit)
    packed.write_bytes(good)
    fit(again)


def test_a_fit_uses_what_was_verified(packed):
    """Not what was opened before it was mended, nor what was changed after a fit."""
    good, expected = packed.read_bytes(), fit(packed)
    raw = bytearray(good)
    at = place(packed, "by_user_value")[0] + 72
    raw[at] = 1 if raw[at] != 1 else 2
    packed.unlink()
    packed.write_bytes(raw)
    opened = PackedRatings.open(packed)
    packed.unlink()
    packed.write_bytes(good)
    assert np.array_equal(fit(opened), expected)
    packed.write_bytes(raw)
    assert_refused(opened, "by_user_value does not have the digest", fit)


def test_other_ratings_under_the_name_are_refused(packed, tmp_path):
    opened = PackedRatings.open(packed)
    Synthetic(60, 40, 900, random_state=2, stars=True).ratings().write(tmp_path / "b.csv")
    pack(tmp_path / "b.csv", packed, overwrite=True)
    assert_refused(opened, "holds other ratings than before", fit)


def test_what_is_not_packed_ratings(tmp_path):
    assert_refused(tmp_path / "none", "There is no packed ratings file")
    assert_refused(tmp_path, "is a folder: give the file")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "regular file")
    write_file(tmp_path / "model", MODEL, {}, {})
    assert_refused(tmp_path / "model", "is not a bayesmf packed ratings file")
    assert not PackedRatings.is_packed(tmp_path / "model")
    with pytest.raises(InputError, match="opened, not made"):
        PackedRatings()
