import pickle
import re

import numpy as np
import polars as pl
import pytest

from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.ids.unknown import unknown_examples


def test_encode_integers_orders_ids():
    ids, codes = IdMap.encode([30, 10, 20, 10])
    assert ids.kind == "int"
    assert ids.ids.dtype == np.int64
    assert ids.ids.tolist() == [10, 20, 30]
    assert codes.dtype == np.int32
    assert codes.tolist() == [2, 0, 1, 0]
    assert len(ids) == 3
    assert ids[1] == 20
    assert ids[np.array([0, 2])].tolist() == [10, 30]


@pytest.mark.parametrize("spread", [1, 10**12])
def test_encode_agrees_with_numpy(spread):
    values = np.random.default_rng(0).integers(-500, 500, 5000) * spread
    ids, codes = IdMap.encode(values)
    unique, inverse = np.unique(values, return_inverse=True)
    assert np.array_equal(ids.ids, unique)
    assert np.array_equal(codes, inverse)
    assert np.array_equal(ids.lookup(values), inverse)


def test_encode_extreme_integers():
    values = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max])
    ids, codes = IdMap.encode(values)
    assert codes.tolist() == [0, 1, 2]
    assert np.array_equal(ids.ids, values)
    assert ids.index(np.iinfo(np.int64).max) == 2
    assert ids.index(2**64) == -1


def test_encode_strings_sorts():
    ids, codes = IdMap.encode(["b", "é", "a", "007", "b"])
    assert ids.kind == "str"
    assert ids.ids.dtype == object
    assert ids.ids.tolist() == ["007", "a", "b", "é"]
    assert codes.tolist() == [2, 3, 1, 0, 2]
    assert [ids.index(value) for value in ids.ids] == [0, 1, 2, 3]
    assert ids.index("zz") == ids.index("") == -1


@pytest.mark.parametrize("make", [
    list, tuple, np.array, pl.Series, lambda v: np.array(v, dtype=object),
    lambda v: pytest.importorskip("pandas").Series(v),
    lambda v: pytest.importorskip("pandas").Series(v).astype("category"),
    lambda v: pytest.importorskip("pyarrow").array(v),
    lambda v: pytest.importorskip("pyarrow").chunked_array([v]),
])  # fmt: skip
@pytest.mark.parametrize("values", [[3, 1, 9], ["c", "a", "x"]])
def test_lookup_takes_any_column(make, values):
    ids, _ = IdMap.encode(values[:2])
    found = ids.lookup(make(values))
    assert found.dtype == np.int64
    assert found.tolist() == [1, 0, -1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.uint64, np.float32, np.float16, ">i4"])
def test_lookup_number_types(dtype):
    ids = IdMap([1, 5, 7])
    assert ids.lookup(np.array([7, 2, 1], dtype=dtype)).tolist() == [2, -1, 0]
    assert ids.lookup(np.arange(10, dtype=dtype)[1::4]).tolist() == [0, 1, -1]


def test_lookup_across_kinds():
    numbers, texts = IdMap([-3, 0, 12]), IdMap(["012", "12", "x"])
    strings = ["12", "012", "+12", "-3", "-0", "0", "x", "12.0", " 12", "99999999999999999999"]
    assert numbers.lookup(strings).tolist() == [2, -1, -1, 0, -1, 1, -1, -1, -1, -1]
    assert [numbers.index(s) for s in strings] == [2, -1, -1, 0, -1, 1, -1, -1, -1, -1]
    assert texts.lookup([12, 13]).tolist() == [1, -1]
    assert texts.lookup(np.array([12.0, 13.0])).tolist() == [1, -1]
    assert texts.index(12) == texts.index(12.0) == texts.index(np.int32(12)) == 1


def test_lookup_of_nothing_and_in_nothing():
    assert IdMap([1, 2]).lookup([]).tolist() == []
    assert IdMap(["a"]).lookup([]).tolist() == []
    assert IdMap([]).lookup([1, 2]).tolist() == [-1, -1]
    assert IdMap([]).index(1) == -1


@pytest.mark.parametrize("values", [[1, None], ["a", None], [1.0, float("nan")], [None, None]])
def test_missing_ids_are_refused(values):
    for map_ in (IdMap([1]), IdMap(["a"])):
        with pytest.raises(InputError, match="missing"):
            map_.lookup(values)


def test_missing_ids_of_pandas_are_refused():
    pd = pytest.importorskip("pandas")
    for values in (pd.Series([1, None], dtype="Int64"), pd.Series(["a", None])):
        with pytest.raises(InputError, match="row 1"):
            IdMap.encode(values)
    assert IdMap([1, 2]).lookup(pd.Series([2, 1], dtype="Int64")).tolist() == [1, 0]


@pytest.mark.parametrize("values", [
    [1.5],
    [1, "a"],
    [True],
    [[1], [2]], np.zeros((2, 2)), 5, np.array([2**63], dtype=np.uint64),
    [1e300],
    [object()], np.array(["2020-01-01"], dtype="datetime64[s]"),
])  # fmt: skip
def test_what_is_no_id_is_refused(values):
    with pytest.raises(InputError):
        IdMap.encode(values)


@pytest.mark.parametrize("value", [None, float("nan"), 1.5, True, b"a", [1]])
def test_what_is_no_single_id_is_refused(value):
    with pytest.raises(InputError, match="not an id"):
        IdMap([1, 2]).index(value)


@pytest.mark.parametrize("values", [[2, 1], [1, 1], ["b", "a"], ["a", "a"]])
def test_ids_of_a_map_ascend(values):
    with pytest.raises(InputError, match="ascend"):
        IdMap(values)


@pytest.mark.parametrize("values", [[-5, 3], [], ["", "a", "zażółć", "日本"]])
def test_arrays_round_trip(values):
    ids = IdMap(values)
    arrays = ids.to_arrays()
    assert all(array.dtype != object for array in arrays.values())
    again = IdMap.from_arrays(arrays)
    assert again == ids
    assert again.kind == ids.kind
    assert np.array_equal(again.lookup(ids.ids), np.arange(len(ids)))


@pytest.mark.parametrize("arrays", [
    {},
    {"bytes": np.zeros(2, np.uint8)},
    {"bytes": np.zeros(2, np.uint8), "offsets": np.array([0, 1])},
    {"bytes": np.zeros(2, np.uint8), "offsets": np.array([0, 3, 2])},
    {"bytes": np.array([255], np.uint8), "offsets": np.array([0, 1])},
])  # fmt: skip
def test_damaged_arrays_are_refused(arrays):
    with pytest.raises(InputError):
        IdMap.from_arrays(arrays)


def test_equality_and_text():
    assert IdMap([1]) != IdMap(["1"])
    assert IdMap([1]) != 1
    assert repr(IdMap([1, 2, 3, 4])) == "IdMap(4 int ids: 1, 2, 3, ...)"


def test_contains_agrees_with_lookup():
    strings = ["12", "012", "-3", "x", "12.0", " 12", 12, 12.0, np.int32(-3), "9" * 20]
    for ids in (IdMap([-3, 0, 12]), IdMap(["012", "12", "x"])):
        for value in strings:
            assert (value in ids) == (ids.lookup([value])[0] >= 0), value
        for value in (None, float("nan"), 1.5, True, [12]):
            assert value not in ids
    assert "1" in IdMap([1]) and 1 in IdMap(["1"])
    assert list(IdMap([1, 2])) == [1, 2] and list(IdMap(["a", "b"])) == ["a", "b"]
    assert all(type(value) is int for value in IdMap([1, 2]))


@pytest.mark.parametrize(("known", "values", "found"), [
    (["0114709", "0133093"], [114709, 5, 5], (2, ["114709", "5"], "leading zeros dropped")),
    ([114709], ["0114709"], (1, ["0114709"], "'114709' is known: were leading zeros added")),
    (["bob"], [" bob", "al"], (2, [" bob", "al"], "'bob' is known: is there white space")),
    (["Bob"], ["bob"], (1, ["bob"], "'Bob' is known: upper and lower case")),
    ([17, 18], ["17.0", "18"], (1, ["17.0"], "'17' is known: .*'17.0'")),
    (["17.0"], [17], (1, ["17"], "'17.0' is known")),
    ([1, 2], [1, 2], (0, [], "^$")),
    ([1, 2], [9, 8, 7, 6, 9], (4, ["9", "8", "7"], "^$")),
    ([], [1], (1, ["1"], "^$")),
    ([1], [], (0, [], "^$")),
])  # fmt: skip
def test_unknown_ids_are_told(known, values, found):
    count, examples, hint = unknown_examples(IdMap(known), values)
    assert (count, examples) == found[:2]
    assert re.search(found[2], hint)
    assert unknown_examples(IdMap(known), values, most=1)[1] == examples[:1]


TEXTS = ["", "a", "a\0", "a\0b", "ab", "abcdefgh", "abcdefgh\0", "abcdefghi", "é", "日本"]
TEXTS.append("\U0001f600")


def test_strings_of_every_length_are_found(monkeypatch):
    """By halving, and by the table: long prefixes, zero bytes, several bytes for a character."""
    from bayesmf.ids import strings

    texts = sorted({*TEXTS, *(f"{'x' * (k % 40)}{k}" for k in range(3000))})
    ids = IdMap(texts)
    asked = [*texts[::-1], "abcdefg", "x" * 41, "a\0\0", "\ud83d", "é\ud83d", "日"]
    right = [*range(len(texts) - 1, -1, -1), -1, -1, -1, -1, -1, -1]
    assert ids.lookup(asked).tolist() == right
    assert [ids.index(text) for text in asked] == right
    assert ids.lookup(np.array(asked, object)).tolist() == right
    assert list(ids) == texts and ids[len(texts) - 1] == texts[-1]
    monkeypatch.setattr(strings, "_FEW", 10**9)
    assert ids.lookup(asked).tolist() == right


def test_order_is_that_of_polars():
    texts = [*TEXTS, *(chr(k) for k in (0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF))]
    ids, codes = IdMap.encode(texts[::-1])
    assert list(ids) == pl.Series(texts).sort().to_list() == sorted(texts)
    assert codes.tolist() == list(ids.lookup(texts[::-1]))


@pytest.mark.parametrize("n", [2, 600])
@pytest.mark.parametrize(
    "pair", [("b", "a"), ("a", "a"), ("a\0", "a"), ("x" * 30 + "b", "x" * 30 + "a"), ("ab", "a")]
)
def test_pairs_that_do_not_ascend_are_seen_among_many(pair, n):
    from bayesmf.ids.strings import Strings

    before, behind = [f"A{k:05}" for k in range(n)], [f"é{k:05}" for k in range(n)]
    assert Strings.from_texts([*before, *sorted({*pair}), *behind]).ascending()
    assert not Strings.from_texts([*before, *pair, *behind]).ascending()


def test_integers_in_text_are_read_alike_few_or_many():
    largest = 2**63 - 1
    ids = IdMap([-(2**63), -3, 0, 12, 10**18, largest])
    asked = ["12", "-3", "0", "-0", "012", "+12", "", "-", "1_2", str(10**18), str(largest)]
    asked += [str(largest + 1), str(-(2**63)), str(-(2**63) - 1)]
    asked += ["9" * 19, "9" * 20, "1e3", "\u0661"]
    few = ids.lookup(asked)
    assert few.tolist() == [ids.index(text) for text in asked]
    assert few.tolist()[:5] == [3, 1, 2, -1, -1] and few.tolist()[9:13] == [4, 5, -1, 0]
    assert ids.lookup(asked * 9).tolist() == few.tolist() * 9


def test_half_of_a_character_is_unknown_and_no_id():
    ids = IdMap(["a", "b"])
    assert ids.lookup(["\ud800", "b"]).tolist() == [-1, 1]
    assert "\ud800" not in ids and ids.index("\udfff") == -1
    assert unknown_examples(ids, ["\ud800"])[0] == 1
    with pytest.raises(InputError, match="surrogate"):
        IdMap(["a", "\ud800"])


@pytest.mark.parametrize(
    "values", [[2**60 + 1, 1.0], [np.float64(5), 2**60 + 1], np.array([2**60 + 1, 1.0], object)]
)
def test_integers_beside_floats_keep_their_digits(values):
    ids = IdMap([1, 5, 2**60, 2**60 + 1])
    assert sorted(ids.lookup(values))[1] == 3


@pytest.mark.parametrize("value", [2.0**63, -(2.0**63) * 1.1, np.inf, 2**63, 0.5])
def test_numbers_that_are_no_ids_are_told_with_their_row(value):
    for values in ([1, value], np.array([1.0, value]), (1.0, value)):
        with pytest.raises(InputError, match="row 1"):
            IdMap([1]).lookup(values)


def test_a_map_is_looked_up_in_another():
    ids = IdMap(["a", "b", "c"])
    assert ids.lookup(IdMap(["b", "x"])).tolist() == [1, -1]
    assert ids.take(np.array([0, 2])) == IdMap(["a", "c"])
    assert IdMap([1, 2]).lookup(IdMap(["2"])).tolist() == [1]


def test_a_copy_by_pickle_finds_the_same():
    ids = IdMap([f"u{k:04}" for k in range(500)])
    asked = [f"u{k:04}" for k in range(600)]
    found = ids.lookup(asked)
    assert np.array_equal(pickle.loads(pickle.dumps(ids)).lookup(asked), found)
    assert pickle.loads(pickle.dumps(ids)) == ids
