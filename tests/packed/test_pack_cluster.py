"""Packing by workers: the same folder to the byte, whoever is lost on the way.

Workers are `Hands` here, which need no cluster; test_pack_ray.py has one.
"""

import os
import shutil

import numpy as np
import polars as pl
import pytest

from bayesmf import InputError, pack
from bayesmf.packed import cluster as cluster_steps
from bayesmf.packed.pack import pack as pack_by
from bayesmf.packed.ratings import work_folder
from bayesmf.reading import remote
from bayesmf.storage import pieces
from hands import Hands, Lost
from rating_frames import SMALL, files_of, frame, write_parts

CASES = {
    "plain": ({}, {}),
    "last": ({"repeats": True}, {}),
    "last by time": ({"repeats": True, "times": True}, {}),
    "mean": ({"repeats": True, "times": True}, {"duplicates": "mean"}),
    "times left out": ({"repeats": True, "times": True}, {"columns": {"timestamp": None}}),
    "strings": ({"repeats": True, "strings": True, "times": True}, {}),
    "error": ({"times": True}, {"duplicates": "error"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_folder_as_one_machine(tmp_path, case, caplog):
    made, options = CASES[case]
    parts = write_parts(tmp_path / "parts", frame(**made))
    want = pack(parts, tmp_path / "want", **options, **SMALL)
    # A stretch for each user takes long, and is no different in other cases.
    others = [{"chunk": 300, "stretch": 1}] if case == "mean" else [{}]
    for seed, sizes in enumerate((SMALL, *others)):
        out = tmp_path / f"out{seed}"
        got = pack_by(parts, out, workers=Hands(seed), **options, **sizes)
        same = files_of(got.path)
        if sizes != SMALL:  # moments are sums over stretches, and those are others
            del same["manifest.json"], same["manifest.sha256"]
        assert same.items() <= files_of(want.path).items() and len(same) >= 8
        assert got.mean() == pytest.approx(want.mean()) and got.std() == pytest.approx(want.std())
    told = {message for name, _, message in caplog.record_tuples if name == "bayesmf"}
    assert len(told) == ("repeats" in made)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_many_levels_and_a_user_with_very_many_ratings(tmp_path):
    rng = np.random.default_rng(3)
    data = frame(users=10, items=400, n=2000)
    data = data.with_columns(
        user=pl.when(pl.int_range(2000) % 2 == 0).then(7).otherwise(pl.col("user")),
        item=pl.when(pl.int_range(2000) % 2 == 0).then(pl.int_range(2000)).otherwise("item"),
        rating=rng.normal(size=2000),
    )
    parts = write_parts(tmp_path / "parts", data)
    want = pack(parts, tmp_path / "want", **SMALL)
    got = pack_by(parts, tmp_path / "out", workers=Hands(), **SMALL)
    assert got.levels is None and np.diff(got.by_user.starts).max() >= 1000 > SMALL["stretch"]
    assert files_of(got.path) == files_of(want.path)


def test_text_and_ids_of_both_kinds(tmp_path):
    """Files without row groups are read by one task each; one string makes all ids strings."""
    data = frame(repeats=True)
    data.write_csv(tmp_path / "a.csv")
    data.write_parquet(tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("user,item,rating\nx,5,1\n")
    netflix = tmp_path / "combined_data_1.txt"
    netflix.write_text("7:\n1,3,2005-01-01\n2,4,2005-01-02\n8:\n1,5,2005-01-03\n")
    files = [tmp_path / "a.csv", tmp_path / "b.parquet", tmp_path / "c.txt", netflix]
    want = pack(files, tmp_path / "want", **SMALL)
    got = pack_by(files, tmp_path / "out", workers=Hands(), **SMALL)
    assert want.user_ids.kind == "str" and want.item_ids.kind == "int"
    assert files_of(got.path) == files_of(want.path)


def test_trees_and_many_tasks_of_each_kind(tmp_path, monkeypatch):
    """Sizes at which each step has several tasks, and ids are merged over three levels."""
    for name in ("_FILES", "_FAN", "_CHUNKS", "_ENTRIES"):
        monkeypatch.setattr(cluster_steps, name, 3)
    parts = write_parts(tmp_path / "parts", frame(strings=True))
    want = pack(parts, tmp_path / "want", chunk=70, stretch=170)
    hands = Hands()
    got = pack_by(parts, tmp_path / "out", workers=hands, chunk=70, stretch=170)
    assert files_of(got.path) == files_of(want.path)
    assert min(hands.done.count(name) for name in ("merge_ids", "number_chunks", "count_rows")) > 4


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["user", "item", "rating"])
def test_bad_rows_are_told_as_one_machine_tells_them(tmp_path, column):
    """The first of several, though another task may have found another before."""
    data = frame().with_row_index()
    empty = pl.when(pl.col("index").is_in([400, 700, 900])).then(None).otherwise(pl.col(column))
    parts = write_parts(tmp_path / "parts", data.with_columns(empty.alias(column)))
    with pytest.raises(InputError) as want:
        pack(parts, tmp_path / "out", chunk=50)
    for seed in range(4):
        with pytest.raises(InputError) as got:
            pack_by(parts, tmp_path / "out", workers=Hands(seed, 9), chunk=50)
        assert str(got.value) == str(want.value) and "part-01.parquet row 100 " in str(got.value)
    assert os.listdir(tmp_path) == ["parts"]


def test_bad_files_and_repeats_are_told_as_one_machine_tells_them(tmp_path):
    bad = {
        "damaged": lambda file: file.write_bytes(file.read_bytes()[:100]),
        "no rating": lambda file: pl.DataFrame({"user": [1], "item": [2]}).write_parquet(file),
        "empty": lambda file: file.write_bytes(b""),
        "no rows": None,
        "repeats": None,
    }
    for name, spoil in bad.items():
        parts = write_parts(tmp_path / name, frame(repeats=name == "repeats"))
        if spoil is not None:
            spoil(parts / "part-02.parquet")
        elif name == "no rows":
            for file in parts.glob("part-0?.parquet"):
                file.unlink()
        options = {"duplicates": "error", **SMALL} if name == "repeats" else SMALL
        with pytest.raises(InputError) as want:
            pack(parts, tmp_path / "out", **options)
        with pytest.raises(InputError) as got:
            pack_by(parts, tmp_path / "out", workers=Hands(1), **options)
        assert str(got.value) == str(want.value)
    assert sorted(os.listdir(tmp_path)) == sorted(bad)


def test_storage_that_a_node_does_not_see(tmp_path, monkeypatch):
    parts = write_parts(tmp_path / "parts", frame())
    real = Hands.perform

    def elsewhere(self, function, arguments):
        job, *rest = arguments
        return real(self, function, (type(job)(tmp_path / "none", "last", 150), *rest))

    monkeypatch.setattr(Hands, "perform", elsewhere)
    with pytest.raises(InputError, match=r"sees no folder .* must lie on storage that all nodes"):
        pack_by(parts, tmp_path / "out", workers=Hands())


# -- workers and drivers that are lost -------------------------------------------------------------


@pytest.mark.parametrize("renamed", [0, 1, 3])
def test_every_worker_is_lost_once(tmp_path, monkeypatch, renamed):
    """Each task dies before, between or after the renames of its files, and is done again."""
    parts = write_parts(tmp_path / "parts", frame(repeats=True, times=True, strings=True))
    want = files_of(pack(parts, tmp_path / "want", **SMALL).path)

    def lose(number):
        left = [renamed]

        def replace(source, target, real=os.replace):
            if left[0] == 0:
                raise Lost
            left[0] -= 1
            real(source, target)

        # Killed, a worker does not clean up.
        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(pieces.Aside, "__exit__", lambda self, *ended: None)
        return monkeypatch.undo

    hands = Hands(lose=lose)
    assert files_of(pack_by(parts, tmp_path / "out", workers=hands, **SMALL).path) == want
    assert hands.lost > 5
    assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("lose_note", [False, True])
def test_going_on_after_every_task(tmp_path, lose_note):
    parts = write_parts(tmp_path / "parts", frame(600, repeats=True, strings=True))
    options = {"duplicates": "mean", **SMALL}
    want = files_of(pack(parts, tmp_path / "want", **options).path)
    whole = Hands()
    pack_by(parts, tmp_path / "whole", workers=whole, **options)
    out, journal = tmp_path / "out", work_folder(tmp_path / "out") / "journal"

    for k in range(lose_note, len(whole.done), 3):
        hands = Hands(k)
        hands.perform = lambda function, arguments, k=k, hands=hands: killed_after(
            hands, k, function, arguments
        )
        with pytest.raises(Killed):
            pack_by(parts, out, workers=hands, **options)
        assert not out.exists()
        if lose_note:
            *notes, last = journal.read_bytes().splitlines(keepends=True)
            if b'"drop"' not in last:  # noted before anything is removed, so never lost
                journal.write_bytes(b"".join(notes) + last[: 9 * (k % 3)])
        rest = Hands(k + 1)
        pack_by(parts, out, workers=rest, **options)
        again = [name for name in rest.done if not name.startswith("check_")]
        assert len(again) <= len(whole.done) - k + lose_note
        assert files_of(out) == want
        assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want", "whole"]
        shutil.rmtree(out)


def killed_after(hands, k, function, arguments):
    """Do a call, unless so many are done: then the process that packs is killed."""
    if len(hands.done) >= k:
        raise Killed
    return Hands.perform(hands, function, arguments)


def test_what_a_disk_has_damaged_is_done_again(tmp_path, caplog):
    parts = write_parts(tmp_path / "parts", frame())
    want = files_of(pack(parts, tmp_path / "want", **SMALL).path)
    hands = Hands()
    hands.perform = lambda function, arguments: killed_after(hands, 9, function, arguments)
    with pytest.raises(Killed):
        pack_by(parts, tmp_path / "out", workers=hands, **SMALL)
    file = next(work_folder(tmp_path / "out").glob("tasks-*/users/*.value"))
    file.write_bytes(b"\0" * file.stat().st_size)
    assert files_of(pack_by(parts, tmp_path / "out", workers=Hands(), **SMALL).path) == want
    assert "is damaged: all is done again" in caplog.text


def test_secrets_of_an_address_are_not_told():
    """Nor what else is there for the storage alone; both are kept for who opens it."""
    uri = "s3://name:word@bucket/ratings/part-*.parquet?region=nowhere"
    assert remote._shown(uri) == "s3://bucket/ratings/part-*.parquet"
    folder = "s3://name:word@bucket/ratings?region=nowhere"
    assert remote._without_pattern(uri) == (folder, "part-*.parquet")
    assert remote._without_pattern(folder) == (folder, "")


# -- where files are -------------------------------------------------------------------------------


def test_patterns_and_addresses(tmp_path):
    parts = write_parts(tmp_path / "parts", frame(repeats=True, times=True))
    want = files_of(pack(parts, tmp_path / "want", **SMALL).path)
    uri = parts.as_uri()
    for k, source in enumerate(
        (f"{parts}/part-*.parquet", [f"{parts}/part-0[01]*", f"{uri}/part-0[23]*"], uri, f"{uri}/")
    ):
        got = pack(source, tmp_path / f"here{k}", **SMALL)
        there = pack_by(source, tmp_path / f"there{k}", workers=Hands(k), **SMALL)
        assert files_of(got.path) == files_of(there.path) == want
    one = pack(f"{uri}/part-00.parquet", tmp_path / "one")
    assert len(one) <= 300 and one.path == tmp_path / "one"


def test_addresses_are_told_of_as_paths_are(tmp_path):
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
        (f"{uri}/none-*", "stands for no file"),
        (f"{uri}/*/a.parquet", "in the last part of a URI alone"),
        (tmp_path.as_uri(), "is a folder without Parquet files"),
        ("nowhere://a/b", "nowhere://a/b cannot be read: Unrecognized filesystem"),
        ("https://a.example/b.csv", "addresses are not read"),
        (f"{tmp_path}/none-*", "There is no file or folder"),
    ):
        with pytest.raises(InputError, match=says):
            pack(source, out)
    with pytest.raises(InputError, match="is read as Parquet, not as 'csv'"):
        pack(uri, out, format="csv")
