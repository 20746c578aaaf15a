import hashlib
import json

import numpy as np
import pytest

from bayesmf import PackedRatings, Synthetic, pack
from bayesmf.errors import InputError


@pytest.fixture
def folder(tmp_path):
    Synthetic(60, 40, 900, random_state=1, stars=True).ratings().write(tmp_path / "ratings.csv")
    pack(tmp_path / "ratings.csv", tmp_path / "packed")
    return tmp_path / "packed"


def sign(folder, **changes):
    """Change the manifest as somebody would who knows the format."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest |= {k: changes.pop(k) for k in list(changes) if k in manifest}
    manifest["meta"] |= changes
    raw = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(raw)
    (folder / "manifest.sha256").write_text(hashlib.sha256(raw).hexdigest() + "\n")


def assert_refused(folder, sentence, **options):
    with pytest.raises(InputError, match=sentence) as caught:
        PackedRatings.open(folder, **options)
    text = str(caught.value)
    assert not text.endswith(".") and "\n" not in text


def test_what_there_is(folder):
    packed = PackedRatings.open(folder, verify=True)
    assert len(packed) == 900 == len(packed.by_user) == len(packed.by_item)
    rating = packed.levels[packed.by_user.value].astype(np.float64)
    assert packed.mean() == pytest.approx(rating.mean(), abs=1e-12)
    assert packed.std() == pytest.approx(rating.std(), abs=1e-12)
    assert (packed.low, packed.high) == (rating.min(), rating.max())
    assert repr(packed).startswith("PackedRatings(900 ratings of ")
    assert PackedRatings.is_packed(folder)
    assert not PackedRatings.is_packed(folder.parent)
    # int32 and uint8, twice
    sizes = sum(
        (folder / f"by_{side}_{part}.npy").stat().st_size - 128
        for side in ("user", "item")
        for part in ("other", "value")
    )
    assert sizes == 2 * 5 * 900


def test_arrays_are_plain_and_can_be_written_to_without_effect(folder):
    packed = PackedRatings.open(folder)
    for lists in (packed.by_user, packed.by_item):
        for array in (lists.starts, lists.other, lists.value):
            assert type(array) is np.ndarray and array.flags.writeable
    before = (folder / "by_user_other.npy").read_bytes()
    packed.by_user.other[:] = 0
    assert (folder / "by_user_other.npy").read_bytes() == before


@pytest.mark.parametrize(
    "name", ["by_user_other.npy", "by_item_starts.npy", "by_item_value.npy", "user_id_ids.npy"]
)
def test_missing_short_and_changed_files(folder, name):
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[:-1])
    assert_refused(folder, f"{name} has {len(raw) - 1} bytes instead of {len(raw)}")
    (folder / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert_refused(folder, f"{name} does not have the digest", verify=True)
    (folder / name).unlink()
    assert_refused(folder, f"{name} is missing")


def test_another_manifest(folder):
    raw = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(raw.replace(b'"low": 1.0', b'"low": 2.0'))
    assert_refused(folder, "does not have the digest noted")
    (folder / "manifest.json").write_bytes(b"{")
    assert_refused(folder, "does not have the digest noted")
    (folder / "manifest.json").write_bytes(raw)
    (folder / "manifest.sha256").unlink()
    assert_refused(folder, r"manifest.sha256 is missing")
    sign(folder, format_version=3)
    assert_refused(folder, "newer format version 3, this bayesmf reads up to 2: upgrade")
    sign(folder, format_version=1)
    assert_refused(folder, "old format version 1, this bayesmf reads 2: pack the ratings again")
    sign(folder, format_version=2, levels="none")
    assert_refused(folder, "meta.levels is of a wrong type")
    sign(folder, levels=None)
    assert_refused(folder, "by_user_value.npy is uint8")
    sign(folder, n_ratings=899)
    assert_refused(folder, "does not fit the ratings")
    sign(folder, n_users=7)
    assert_refused(folder, "by_user_starts.npy does not fit")
    sign(folder, format="bayesmf-model")
    assert_refused(folder, "of another kind")
    assert not PackedRatings.is_packed(folder)


def test_no_packed_ratings(tmp_path):
    assert_refused(tmp_path / "none", "There is no packed ratings folder")
    assert_refused(tmp_path, "is not a bayesmf packed ratings folder")
    with pytest.raises(InputError, match="opened, not made"):
        PackedRatings()
