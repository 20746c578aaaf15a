import gzip
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from bayesmf import InputError, PackedRatings, Ratings, pack
from bayesmf.kernels.csr import sort_rows
from bayesmf.packed import sorted_chunks
from bayesmf.reading import chunks

# Sizes at which a thousand ratings are several chunks and stretches.
SMALL = {"chunk": 150, "stretch": 170}


def frame(n=1000, *, users=40, items=30, seed=0, repeats=False, times=False, strings=False):
    """Ratings in a random order, ids with gaps, ratings from a few levels."""
    rng = np.random.default_rng(seed)
    pair = rng.choice(users * items, n, replace=repeats)
    user, item = pair // items * 7 - 20, pair % items * 3 + 5
    found = {
        "user": [f"u{k}" for k in user] if strings else user,
        "item": [f"{k}" for k in item] if strings else item,
        "rating": rng.integers(1, 11, n) / 2,
    }
    if times:
        found["timestamp"] = rng.integers(0, 5, n)
    return pl.DataFrame(found)


def write_parts(folder, data, rows=300):
    """Write several files, one of them without a row."""
    folder.mkdir()
    for k, part in enumerate(data.iter_slices(rows)):
        part.write_parquet(folder / f"part-{k:02}.parquet", row_group_size=70)
    data.head(0).write_parquet(folder / "part-01-empty.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def write(folder, data, name):
    path = folder / name
    data.write_parquet(path) if name.endswith(".parquet") else data.write_csv(path)
    return path


def assert_same(packed, ratings):
    """That packed ratings are those in memory: ids, lists, values, range."""
    ratings = ratings.compact()
    assert packed.user_ids == ratings.user_ids and packed.item_ids == ratings.item_ids
    sizes = ratings.n_users, ratings.n_items
    assert (packed.n_users, packed.n_items) == sizes
    user = sort_rows(ratings.user_rows, ratings.item_rows, ratings.rating, *sizes)
    item = sort_rows(ratings.item_rows, ratings.user_rows, ratings.rating, *sizes[::-1])
    for got, want in ((packed.by_user, user), (packed.by_item, item)):
        np.testing.assert_array_equal(got.starts, want.starts)
        np.testing.assert_array_equal(got.other, want.other)
        value = got.value if packed.levels is None else packed.levels[got.value]
        np.testing.assert_array_equal(value, want.value)
    assert (packed.low, packed.high) == ratings.range()
    levels = np.unique(ratings.rating)
    if len(levels) > 256:
        assert packed.levels is None and packed.by_user.value.dtype == np.float32
    else:
        np.testing.assert_array_equal(packed.levels, levels)
    assert packed.mean() == pytest.approx(ratings.mean())
    assert packed.std() == pytest.approx(np.std(ratings.rating, dtype=float))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("sizes", [SMALL, {}, {"chunk": 1000, "stretch": 1}])
def test_as_in_memory(tmp_path, name, strings, sizes):
    path = write(tmp_path, frame(strings=strings), name)
    assert_same(pack(path, tmp_path / "out", **sizes), Ratings.read(path))
    assert sorted(os.listdir(tmp_path)) == [name, "out"]


@pytest.mark.parametrize("duplicates", ["last", "mean"])
@pytest.mark.parametrize("times", [False, True])
def test_repeats_as_in_memory(tmp_path, duplicates, times, caplog):
    path = write(tmp_path, frame(repeats=True, times=times), "a.parquet")
    ratings = Ratings.read(path, duplicates=duplicates)
    packed = pack(path, tmp_path / "out", duplicates=duplicates, **SMALL)
    assert 500 < len(ratings) < 1000
    assert_same(packed, ratings)
    assert caplog.messages[0] == caplog.messages[1]
    untimed = {"timestamp": None}
    again = pack(path, tmp_path / "untimed", duplicates=duplicates, columns=untimed, **SMALL)
    assert_same(again, Ratings.read(path, duplicates=duplicates, columns=untimed))


def test_a_level_that_only_a_dropped_rating_had_is_gone(tmp_path):
    data = pl.DataFrame({"user": [1, 1, 2], "item": [5, 5, 5], "rating": [9.0, 1.0, 2.0]})
    packed = pack(write(tmp_path, data, "a.csv"), tmp_path / "out")
    assert packed.levels.tolist() == [1.0, 2.0] and packed.high == 2.0


def test_repeats_are_refused(tmp_path):
    path = write(tmp_path, frame(repeats=True), "a.parquet")
    with pytest.raises(InputError, match=r"User -?\d+ rated item \d+ more than once; clean"):
        pack(path, tmp_path / "out", duplicates="error", **SMALL)
    assert os.listdir(tmp_path) == ["a.parquet"]
    unique = write(tmp_path, frame(times=True), "b.parquet")
    assert_same(pack(unique, tmp_path / "out", duplicates="error"), Ratings.read(unique))


def test_many_levels_are_kept_as_they_are(tmp_path):
    """Also where no stretch alone has too many."""
    rng = np.random.default_rng(3)
    path = write(tmp_path, frame().with_columns(rating=rng.normal(size=1000)), "a.parquet")
    for k, sizes in enumerate((SMALL, {}, {"stretch": 10**4})):
        assert_same(pack(path, tmp_path / f"out{k}", **sizes), Ratings.read(path))


def test_folders_lists_and_mixed_ids(tmp_path):
    (tmp_path / "parts").mkdir()
    data = frame(times=True)
    whole = write(tmp_path, data, "whole.parquet")
    for k, part in enumerate(data.iter_slices(300)):
        write(tmp_path / "parts", part, f"part-{k}.parquet")
    (tmp_path / "parts" / "_SUCCESS").touch()
    assert_same(pack(tmp_path / "parts", tmp_path / "a", **SMALL), Ratings.read(whole))
    files = sorted((tmp_path / "parts").glob("*.parquet"))
    assert_same(pack(files, tmp_path / "b"), Ratings.read(whole))
    # One file with a string among the ids makes all ids strings; without times in one, none count.
    odd = pl.DataFrame({"user": ["x"], "item": ["5"], "rating": [1.0]})
    both = pl.concat([data.cast({"user": pl.String}), odd.cast({"item": pl.Int64})], how="diagonal")
    extra = write(tmp_path, odd, "odd.csv")
    packed = pack([whole, extra], tmp_path / "c", **SMALL)
    assert_same(packed, Ratings(*(both[name] for name in ("user", "item", "rating"))))
    assert packed.item_ids.kind == "int" and packed.user_ids.kind == "str"


def test_formats(tmp_path):
    lines = frame(times=True).write_csv(include_header=False).replace(",", "::")
    (tmp_path / "ratings.dat").write_text(lines)
    assert_same(pack(tmp_path, tmp_path / "a", **SMALL), Ratings.read(tmp_path))
    netflix = tmp_path / "combined_data_1.txt"
    netflix.write_text("7:\n1,3,2005-01-01\n2,4,2005-01-02\n8:\n1,5,2005-01-03\n")
    assert_same(pack(netflix, tmp_path / "b", chunk=2), Ratings.read(netflix))
    arrow = tmp_path / "a.arrow"
    frame(strings=True).write_ipc(arrow)
    assert_same(pack(arrow, tmp_path / "c", **SMALL), Ratings.read(arrow))
    with pytest.raises(InputError, match="format 'xml' is not known"):
        pack(arrow, tmp_path / "d", format="xml")
    with pytest.raises(InputError, match=r"without ratings of the format 'parquet'"):
        pack(tmp_path, tmp_path / "d", format="parquet")


@pytest.mark.parametrize("name", ["[a]*.parquet", "[a]*.arrow", "[a]*.csv"])
def test_names_with_characters_of_patterns(tmp_path, name):
    data = frame(50)
    data.write_ipc(tmp_path / name) if name.endswith("arrow") else write(tmp_path, data, name)
    write(tmp_path, frame(60), f"a{name[3:].replace('*', '1')}")
    assert_same(pack(tmp_path / name, tmp_path / "out"), Ratings.read(tmp_path / name))


@pytest.mark.parametrize("strings", [False, True])
def test_ids_are_merged_now_and_then(tmp_path, monkeypatch, strings):
    monkeypatch.setattr(sorted_chunks, "_MERGE_IDS", 10)
    path = write(tmp_path, frame(users=300, items=200, strings=strings), "a.parquet")
    assert_same(pack(path, tmp_path / "out", chunk=20), Ratings.read(path))


def test_blank_lines_quotes_and_compression(tmp_path):
    """Blank lines, quoted fields over several lines, a byte order mark, compression."""
    rows = frame(400, strings=True).rows()
    text = "User,Item,Rating\r\n" + "".join(
        (f'"{user}\nx, y"' if k % 5 == 3 else user)
        + f",{item}, {rating}\r\n"
        + ("\r\n" if k % 7 == 0 else "")
        for k, (user, item, rating) in enumerate(rows)
    )
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    packed = pack(path, tmp_path / "out", **SMALL)
    assert_same(packed, Ratings.read(path))
    assert packed.item_ids.kind == "int"
    spaced = tmp_path / "b.txt"
    spaced.write_bytes(b"\n\n1  2  3\n\n\n\n 4 5  2 \n" + b"\n" * 200 + b"9 9 1")
    assert_same(pack(spaced, tmp_path / "spaced", chunk=1), Ratings.read(spaced))


@pytest.mark.parametrize(
    "line", ["7,8,three", "7,8,NaN", "7,8,", ",8,3", "7,8,3,9", "7,8", "7,8,1e39", "7,8,inf"]
)
def test_bad_lines_have_the_messages_of_the_reader(tmp_path, line):
    lines = frame().write_csv().splitlines()
    lines[700] = line
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError) as want:
        Ratings.read(path)
    with pytest.raises(InputError) as got:
        pack(path, tmp_path / "out", chunk=100)
    assert str(got.value) == str(want.value) and "line 701" in str(got.value)
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("column", ["user", "item", "rating"])
def test_bad_rows_have_the_messages_of_the_reader(tmp_path, column):
    data = frame().with_row_index()
    empty = pl.when(pl.col("index") == 700).then(None).otherwise(pl.col(column)).alias(column)
    path = write(tmp_path, data.with_columns(empty), "a.parquet")
    with pytest.raises(InputError) as want:
        Ratings.read(path)
    with pytest.raises(InputError) as got:
        pack(path, tmp_path / "out", **SMALL)
    assert str(got.value) == str(want.value) and "row 700" in str(got.value)


def test_bad_arguments(tmp_path):
    path = write(tmp_path, frame(), "a.csv")
    for wrong, sentence in (
        ({"source": tmp_path / "no.csv"}, "There is no file or folder"),
        ({"source": []}, "There is nothing to read"),
        ({"duplicates": "first"}, "duplicates is one of last, mean, error"),
        ({"chunk": 0}, "chunk must be a whole number"),
        ({"stretch": 1.5}, "stretch must be a whole number"),
        ({"columns": {"rating": "stars"}}, "no column 'stars' for rating"),
        ({"out": path}, "exists and does not hold packed ratings"),
        ({"out": tmp_path}, "exists and does not hold packed ratings"),
        ({"out": path / "deep"}, "a part of that path is a file"),
    ):
        with pytest.raises(InputError, match=sentence):
            pack(**{"source": path, "out": tmp_path / "out"} | wrong)
    empty = write(tmp_path, frame().head(0), "empty.parquet")
    with pytest.raises(InputError, match="has no ratings in it"):
        pack(empty, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "empty.parquet"]


def test_packed_ratings_are_replaced_only_when_asked(tmp_path):
    path, other = (write(tmp_path, frame(seed=k), f"{k}.csv") for k in range(2))
    pack(path, tmp_path / "deep" / "out")
    with pytest.raises(InputError, match="holds packed ratings already"):
        pack(other, tmp_path / "deep" / "out")
    assert_same(PackedRatings.open(tmp_path / "deep" / "out"), Ratings.read(path))
    assert_same(pack(other, tmp_path / "deep" / "out", overwrite=True), Ratings.read(other))
    assert os.listdir(tmp_path / "deep") == ["out"]


# -- packings that are stopped --------------------------------------------------------------------


class Stopped(BaseException):
    pass


def test_a_packing_stopped_at_any_step_leaves_nothing(tmp_path):
    path = write(tmp_path, frame(600, repeats=True, times=True, strings=True), "a.parquet")

    def pack_until(steps, **options):
        seen = []

        def progress(done, total, stage):
            assert 0 <= done <= total
            seen.append(stage)
            if len(seen) > steps:
                raise Stopped

        pack(path, tmp_path / "out", progress=progress, **options, **SMALL)
        return seen

    seen = pack_until(1000)
    stages = ["reading", "sorting by user", "sorting by item", "writing"]
    assert list(dict.fromkeys(seen)) == stages and len(seen) > 10
    before = (tmp_path / "out").read_bytes()
    for steps in range(len(seen)):
        with pytest.raises(Stopped):
            pack_until(steps, overwrite=True)
        assert (tmp_path / "out").read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["a.parquet", "out"]


SCRIPT = """
import os, sys
from bayesmf import pack
os.fsync = lambda handle: None
def show(done, total, stage):
    print(stage, flush=True)
pack(sys.argv[1], sys.argv[2], chunk=int(sys.argv[3]), stretch=int(sys.argv[3]), progress=show)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def command(*args):
    return [sys.executable, "-c", SCRIPT, *map(str, args)]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_packing_leaves_no_result_and_starts_again(tmp_path):
    path = write(tmp_path, frame(20_000, users=500, items=300), "a.parquet")
    want = pack(path, tmp_path / "whole", chunk=2000, stretch=2000).path.read_bytes()
    for stage in ("reading", "sorting by user", "sorting by item"):
        with subprocess.Popen(
            command(path, tmp_path / "out", 2000), stdout=subprocess.PIPE, text=True
        ) as process:
            # Somewhere in the middle of what follows the first step of the stage.
            next(line for line in process.stdout if line.startswith(stage))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "out").exists()
    assert pack(path, tmp_path / "out", chunk=2000, stretch=2000).path.read_bytes() == want


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_ratings(tmp_path):
    """Five times the ratings, of the same users and items, in as much memory."""
    peaks = []
    for n in (500_000, 2_500_000):
        pair = np.random.default_rng(1).permutation(2_500_000)[:n]
        data = {"user": pair // 500, "item": pair % 500, "rating": (pair % 5).astype(np.float32)}
        path = tmp_path / f"{n}.parquet"
        pl.DataFrame(data).write_parquet(path, row_group_size=50_000)
        done = subprocess.run(
            command(path, tmp_path / f"{n}", 100_000), capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout.split()[-2]) / 1024)
    # In memory the added ratings would take 24 MB as plain columns, and more to sort them.
    assert peaks[1] - peaks[0] < 20, peaks


# -- patterns and URIs --------------------------------------------------------------------------


def test_secrets_of_a_uri_are_not_shown():
    """Nor what else is there for the storage alone; both are kept for who opens it."""
    uri = "s3://name:word@bucket/ratings/part-*.parquet?region=nowhere"
    assert chunks._shown(uri) == "s3://bucket/ratings/part-*.parquet"
    folder = "s3://name:word@bucket/ratings?region=nowhere"
    assert chunks._without_pattern(uri) == (folder, "part-*.parquet")
    assert chunks._without_pattern(folder) == (folder, "")


def test_patterns_and_uris(tmp_path):
    parts = write_parts(tmp_path / "parts", frame(repeats=True, times=True))
    want = pack(parts, tmp_path / "want", **SMALL).path.read_bytes()
    uri = parts.as_uri()
    for k, source in enumerate(
        (f"{parts}/part-*.parquet", [f"{parts}/part-0[01]*", f"{uri}/part-0[23]*"], uri, f"{uri}/")
    ):
        assert pack(source, tmp_path / f"here{k}", **SMALL).path.read_bytes() == want
    one = pack(f"{uri}/part-00.parquet", tmp_path / "one")
    assert len(one) <= 300 and one.path == tmp_path / "one"


def test_uris_are_named_in_messages(tmp_path):
    data = frame().with_row_index()
    empty = pl.when(pl.col("index") == 400).then(None).otherwise(pl.col("rating"))
    parts = write_parts(tmp_path / "parts", data.with_columns(empty.alias("rating")))
    uri = parts.as_uri()
    out = tmp_path / "out"
    with pytest.raises(InputError) as want:
        pack(parts, out, **SMALL)
    with pytest.raises(InputError) as got:
        pack(uri, out, **SMALL)
    assert str(got.value) == str(want.value).replace(str(parts), uri)
    (parts / "part-00.parquet").write_bytes(b"PAR1, or so it seems")
    with pytest.raises(InputError, match=r"file:.*part-00.parquet cannot be read as Parquet data"):
        pack(uri, out, **SMALL)
    (parts / "part-00.parquet").write_bytes(b"")
    for source, says in (
        (uri, "part-00.parquet is empty"),
        (f"{uri}/none", "There is no file or folder file:"),
        (f"{uri}/none-*", "matches no file"),
        (f"{uri}/*/a.parquet", "only the last part of a URI"),
        (tmp_path.as_uri(), "is a folder without Parquet files"),
        ("nowhere://a/b", "nowhere://a/b cannot be read: Unrecognized filesystem"),
        ("https://a.example/b.csv", "addresses are not read"),
        (f"{tmp_path}/none-*", "There is no file or folder"),
    ):
        with pytest.raises(InputError, match=says):
            pack(source, out)
    with pytest.raises(InputError, match="is read as Parquet, not as 'csv'"):
        pack(uri, out, format="csv")
