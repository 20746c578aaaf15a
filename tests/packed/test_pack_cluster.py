"""Packing by workers: the same folder to the byte, whoever is lost on the way.

Most of it is done by `Hands`, which need no cluster; a Ray cluster of this machine does the rest.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from bayesmf import BayesianMF, Cluster, InputError, PackedRatings, Ratings, Synthetic, pack
from bayesmf.packed import cluster as cluster_steps
from bayesmf.packed.pack import pack as pack_by
from bayesmf.packed.ratings import work_folder
from bayesmf.storage import pieces
from cli_tools import run
from hands import Hands, Lost

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
    """Several files, one of them without a row."""
    folder.mkdir()
    for k, part in enumerate(data.iter_slices(rows)):
        part.write_parquet(folder / f"part-{k:02}.parquet", row_group_size=70)
    data.head(0).write_parquet(folder / "part-01-empty.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def files_of(folder):
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


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
    for seed, sizes in enumerate((SMALL, {}, {"chunk": 100, "stretch": 1})):
        out = tmp_path / f"out{seed}"
        got = pack_by(parts, out, workers=Hands(seed), **options, **sizes)
        same = files_of(got.path)
        if sizes != SMALL:  # moments are sums over stretches, and those are others
            del same["manifest.json"], same["manifest.sha256"]
        assert same.items() <= files_of(want.path).items() and len(same) >= 8
        assert got.mean() == pytest.approx(want.mean()) and got.std() == pytest.approx(want.std())
    assert len(set(caplog.messages)) == ("repeats" in made)
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

    for k in range(lose_note, len(whole.done), 2):
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


# -- a cluster -------------------------------------------------------------------------------------

SCRIPT = """
import sys
from bayesmf import Cluster, pack
print("begun", flush=True)
tell = lambda done, total, stage: print(stage, flush=True)
pack(sys.argv[1], sys.argv[2], engine=Cluster(sys.argv[3], n_workers=2), chunk=2000, stretch=2000,
     progress=tell)
"""


@pytest.fixture(scope="module")
def ray():
    """A cluster of this machine, which this process has joined."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    quiet = {"logging_level": 40, "log_to_driver": False}
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, **quiet)
    yield ray
    ray.shutdown()


ray_itself = [
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def marked(function):
    for mark in ray_itself:
        function = mark(function)
    return function


@marked
def test_on_ray(ray, tmp_path):
    """Files, an address, and a bad row: as one machine has it."""
    made = frame(2000, users=60, items=50, repeats=True, times=True, strings=True)
    parts = write_parts(tmp_path / "parts", made)
    sizes = {"chunk": 400, "stretch": 500}
    want = files_of(pack(parts, tmp_path / "want", **sizes).path)
    seen = []
    told = {"progress": lambda *about: seen.append(about)}
    got = pack(parts.as_uri(), tmp_path / "out", engine=Cluster(n_workers=2), **sizes, **told)
    assert files_of(got.path) == want
    assert all(0 <= done <= total for done, total, _ in seen)
    stages = ["reading", "sorting by user", "sorting by item", "finished"]
    assert list(dict.fromkeys(stage for *_, stage in seen)) == stages
    spoilt = made.with_columns(rating=pl.lit(np.nan))
    spoilt.write_parquet(parts / "part-02.parquet")
    with pytest.raises(InputError) as here:
        pack(parts, tmp_path / "bad", **sizes)
    with pytest.raises(InputError) as there:
        pack(parts, tmp_path / "bad", engine="ray", **sizes)
    assert str(there.value) == str(here.value) and "part-02.parquet row 0 " in str(here.value)
    assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want"]


@marked
def test_a_dataset(ray, tmp_path):
    """Blocks of Arrow and of pandas, in their order; other columns are left out."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    data = frame(repeats=True).with_columns(colour=pl.lit("red"))
    data.write_parquet(tmp_path / "a.parquet")
    want = files_of(pack(tmp_path / "a.parquet", tmp_path / "want", **SMALL).path)
    parts = [part.to_arrow() for part in data.iter_slices(190)]
    dataset = ray.data.from_arrow([*parts[:2], parts[0].slice(0, 0), *parts[2:]])
    got = pack(dataset, tmp_path / "out", engine=Cluster(n_workers=2), **SMALL)
    assert files_of(got.path) == want
    frames = ray.data.from_pandas([part.to_pandas() for part in parts])
    mapped = frames.map_batches(lambda batch: batch, batch_format="pandas")
    again = pack(mapped, tmp_path / "out", engine="ray", overwrite=True, **SMALL)
    assert files_of(again.path) == want
    odd = frames.rename_columns({"rating": "colours", "colour": "tint"})
    with pytest.raises(InputError, match="the Ray Dataset"):
        pack(odd, tmp_path / "odd", engine="ray")
    with pytest.raises(InputError, match='packed by the workers of its cluster: give engine="ray"'):
        pack(dataset, tmp_path / "odd")
    with pytest.raises(InputError, match="a Ray Dataset is packed first"):
        BayesianMF(2).fit(dataset)
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "out", "want"]


@marked
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_workers_that_are_killed(ray, tmp_path):
    parts = write_parts(tmp_path / "parts", frame(20_000, users=500, items=300), rows=4000)
    sizes = {"chunk": 2000, "stretch": 2000}
    want = files_of(pack(parts, tmp_path / "want", **sizes).path)
    killed = []

    def kill(done, total, stage):
        """The first worker that is found at work, once a stage."""
        if stage not in killed:
            for pid in at_work():
                os.kill(pid, signal.SIGKILL)
                killed.append(stage)
                return

    got = pack(parts, tmp_path / "out", engine=Cluster(n_workers=2), progress=kill, **sizes)
    assert killed
    assert files_of(got.path) == want
    assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want"]


def at_work():
    """Processes of Ray that are at one of our tasks."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                title = file.read()
        except OSError:
            continue
        if title.startswith(b"ray::perform"):
            yield int(name)


@marked
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_driver_that_is_killed(ray, tmp_path):
    parts = write_parts(tmp_path / "parts", frame(20_000, users=500, items=300), rows=4000)
    want = files_of(pack(parts, tmp_path / "want", chunk=2000, stretch=2000).path)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", SCRIPT, str(parts), str(tmp_path / "out"), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        next(line for line in process.stdout if line.startswith("sorting by user"))
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="is not finished: run it again"):
        PackedRatings.open(tmp_path / "out")
    time.sleep(0.2)
    stages = set()
    tell = {"progress": lambda done, total, stage: stages.add(stage)}
    sizes = {"chunk": 2000, "stretch": 2000}
    got = pack(parts, tmp_path / "out", engine=Cluster(n_workers=2), **tell, **sizes)
    assert files_of(got.path) == want
    assert "reading" not in stages and "sorting by item" in stages
    assert sorted(os.listdir(tmp_path)) == ["out", "parts", "want"]


@marked
def test_the_command(ray, tmp_path):
    Synthetic(60, 40, 900, random_state=1, stars=True).ratings().write(tmp_path / "a.parquet")
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    told = run("pack", path, "--out", out, "--engine", "ray", "--workers", "1", "--json").json
    assert told["ratings"] == len(Ratings.read(path))
    assert files_of(out) == files_of(pack(path, tmp_path / "want").path)
    for option in ("--workers", "--ray-address", "--retries"):
        refused = run("pack", path, "--out", out, option, "1")
        assert refused.status == 2 and f"{option} is for --engine ray" in refused.sentence


def test_engines_that_there_are_not(tmp_path):
    with pytest.raises(InputError, match="engine"):
        pack(tmp_path, tmp_path / "out", engine="simulated")
