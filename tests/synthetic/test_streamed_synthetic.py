"""Synthetic ratings in two parts: what is held out, shuffled rows, the truth's file, memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from bayesmf import Ratings, Synthetic
from bayesmf.errors import InputError
from bayesmf.synthetic.truth import Truth
from cli_tools import contents, run

PLAN = Synthetic(n_users=2000, n_items=1500, n_ratings=150_000, random_state=5)


def gather(plan, holdout, **options):
    """Train and test as columns of numbers."""
    parts = zip(*plan.parts(holdout, **options), strict=True)
    return [[np.concatenate(x) for x in zip(*part, strict=True)] for part in parts]


def in_order(columns):
    """By user and item: rows of (pair, rating)."""
    user, item, rating = columns
    pair = user.astype(np.int64) * 10**6 + item
    order = np.argsort(pair)
    return pair[order], rating[order]


@pytest.fixture(scope="module")
def split():
    return gather(PLAN, 0.1)


# -- what is held out -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "holdout", "count"),
    [
        (PLAN, 0.1, 15_000),
        (PLAN, 1, 1),
        (PLAN, 148_000, 148_000),  # all but one of everybody's
        (Synthetic(7, 30, 60), 0.001, 1),
        (Synthetic(1000, 20_000, 1003), 2, 2),  # nearly all have a single one
        (Synthetic(5, 10, 30), 0.5, 15),
    ],
)
def test_parts_are_the_ratings_and_everybody_keeps_one(plan, holdout, count):
    train, test = gather(plan, holdout)
    assert plan.held_out(holdout) == len(test[0]) == count
    both = [np.concatenate(x) for x in zip(train, test, strict=True)]
    whole = [np.concatenate(x) for x in zip(*plan.chunks(), strict=True)]
    for found, made in zip(in_order(both), in_order(whole), strict=True):
        np.testing.assert_array_equal(found, made)
    assert len(np.unique(in_order(both)[0])) == plan.n_ratings
    assert np.bincount(train[0], minlength=plan.n_users).min() >= 1
    held = np.bincount(test[0], minlength=plan.n_users)
    share = (plan.activity() - 1) * count / (plan.n_ratings - plan.n_users)
    assert np.abs(held - share).max() <= 1


def test_any_of_a_users_ratings_may_be_held_out():
    # Two of everybody's nine, 20 000 times. Counts of the 36 pairs of places: chi-square of 35
    # degrees, whose deviation is sqrt(70).
    plan = Synthetic(20_000, 15, 180_000)
    activity = plan.activity()
    _, test = gather(plan, 0.25)
    user, item, _ = (np.concatenate(x) for x in zip(*plan.chunks(), strict=True))
    held = np.isin(user * 15 + item, test[0] * 15 + test[1])
    starts = np.cumsum(activity) - activity
    counts = {}
    for first in starts[activity == 9]:
        places = tuple(np.flatnonzero(held[first : first + 9]))
        if len(places) == 2:
            counts[places] = counts.get(places, 0) + 1
    seen = np.array(list(counts.values()))
    assert len(seen) == 36
    assert abs(((seen - seen.mean()) ** 2 / seen.mean()).sum() - 35) < 4 * np.sqrt(70)


@pytest.mark.parametrize("options", [{"max_ratings": 997}, {"shuffle": True}])
def test_chunks_and_order_change_no_part(split, options):
    for part, other in zip(split, gather(PLAN, 0.1, **options), strict=True):
        for x, y in zip(in_order(part), in_order(other), strict=True):
            np.testing.assert_array_equal(x, y)


def test_shuffled_rows_come_from_all_over():
    options = {"max_ratings": 20_000, "shuffle": True}
    chunks = [train for train, _ in PLAN.parts(0.1, **options)]
    assert max(len(user) for user, _, _ in chunks) <= 20_000
    for user, _, _ in chunks[:-1]:  # the last has what is left
        assert user.min() < 0.2 * PLAN.n_users
        assert user.max() > 0.8 * PLAN.n_users
        assert abs(np.corrcoef(user, np.arange(len(user)))[0, 1]) < 5 / np.sqrt(len(user))
        # Next to each other, two ratings of a user are as rare as chance has it.
        share = np.bincount(user) / len(user)
        assert np.mean(user[1:] == user[:-1]) < 2 * np.sum(share**2)
    for x, y in zip(gather(PLAN, 0.1, **options)[0], zip(*chunks, strict=True), strict=True):
        assert x.tobytes() == np.concatenate(y).tobytes()


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_two_files(tmp_path, split, suffix, shuffle):
    paths = [tmp_path / f"{name}.{suffix}" for name in ("train", "test")]
    done = []
    PLAN.write(paths[0], done.append, test=paths[1], holdout=0.1, shuffle=shuffle)
    assert sum(done) == PLAN.n_ratings
    read = {"csv": pl.read_csv, "tsv": lambda path: pl.read_csv(path, separator="\t")}
    for path, part in zip(paths, split, strict=True):
        user, item, rating = (
            column.to_numpy() for column in read.get(suffix, pl.read_parquet)(path).iter_columns()
        )
        found = (user - 1, item - 1, rating.astype(np.float32))
        assert np.all(np.diff(user) >= 0) == (not shuffle)
        for x, y in zip(in_order(found), in_order(part), strict=True):
            np.testing.assert_array_equal(x, y)
    assert contents(tmp_path) == {path.name for path in paths}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"holdout": 0.0}, "holdout must be"),
        ({"holdout": 1.5}, "holdout must be"),
        ({"holdout": True}, "holdout must be"),
        ({"holdout": 0}, "cannot be held out"),
        ({"holdout": 148_001}, "from 1 to 148000"),
        ({"holdout": 0.999}, "every user keeps one"),
        ({"test": "train.csv"}, "both"),
        ({"test": "test.txt"}, r"\.csv, \.tsv or \.parquet"),
        ({"test": "none/test.csv"}, "No such file"),
    ],
)
def test_bad_parts(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        PLAN.write("train.csv", **{"test": "test.csv", **options})
    assert contents(tmp_path) == set()


def test_a_full_disk_is_told_in_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr("bayesmf.synthetic.synthetic.make_parts", full)
    with pytest.raises(InputError, match=r"train\.parquet cannot be written: the disk is full"):
        PLAN.write(tmp_path / "train.parquet", test=tmp_path / "test.parquet")
    assert contents(tmp_path) == set()


@pytest.mark.parametrize("stars", [False, True])
def test_the_truth_is_read_as_it_was_written(tmp_path, stars):
    truth = Synthetic(30, 20, 200, 3, 0.5, mean=2, stars=stars, random_state=2**40).truth()
    truth.save(tmp_path / "truth.safetensors")
    found = Truth.load(tmp_path / "truth.safetensors")
    for x, y in zip(truth, found, strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(x, y)
    assert contents(tmp_path) == {"truth.safetensors"}


def test_bad_truths(tmp_path):
    path = tmp_path / "truth.safetensors"
    truth = Synthetic(30, 20, 200, 3).truth()
    with pytest.raises(InputError, match="There is no planted truth file"):
        Truth.load(path)
    path.write_bytes(b"nothing of the sort")
    with pytest.raises(InputError, match="not a bayesmf planted truth file"):
        Truth.load(path)
    path.unlink()
    truth.save(path)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(InputError, match="the array b does not have the digest"):
        Truth.load(path)


@pytest.mark.parametrize("change", [
    {"noise": -1.0}, {"factor": -0.5}, {"seed": -1}, {"seed": 0.5}, {"seed": 2**70}, {"stars": 1},
    {"bias_item": True}, {"U": np.full((30, 3), np.nan, np.float32)}, {"V": np.zeros((20, 3))},
    {"a": np.zeros(20, np.float32)}, {"U": np.zeros((30, 2), np.float32)},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_truths_that_cannot_be(tmp_path, change):
    path = tmp_path / "truth.safetensors"
    Synthetic(30, 20, 200, 3).truth()._replace(**change).save(path)
    with pytest.raises(InputError, match="damaged"):
        Truth.load(path)


# -- memory ---------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from bayesmf.synthetic.synthetic import Synthetic

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin"
                                                                 else 1024)

path, test = sys.argv[1:]
def write(plan):
    plan.write(path, test=test, holdout=0.6, shuffle=True)
# Libraries, compiled code and the chunks under way are not what is measured.
write(Synthetic(20_000, 5000, 3_000_000))
before = peak()
write(Synthetic(80_000, 5000, 12_000_000))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage")
def test_memory_does_not_grow_with_the_ratings(tmp_path):
    # Nine million ratings more are 108 MB, those held out of them 65 MB. What polars has under
    # way differs from run to run, by up to 40 MB.
    paths = [str(tmp_path / name) for name in ("train.parquet", "test.parquet")]
    env = {**os.environ, "POLARS_MAX_THREADS": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths], check=True, capture_output=True, env=env
    )
    assert int(ran.stdout) < 60e6


# -- the command ----------------------------------------------------------------------------------


def test_synth_in_two_files_with_the_truth(tmp_path):
    paths = [tmp_path / name for name in ("train.parquet", "test.csv", "truth.safetensors")]
    args = ("synth", "--users", 90, "--items", 80, "--ratings", 2000, "--seed", 3, "--shuffle")
    args += ("--out", paths[0], "--test", paths[1], "--truth", paths[2], "--holdout", 0.1)
    told = run(*args, "--json").json
    assert (told["ratings"], told["held_out"]) == (2000, 200)
    assert [told[name] for name in ("out", "test", "truth")] == [str(path) for path in paths]
    assert contents(tmp_path) == {path.name for path in paths}
    plan = Synthetic(90, 80, 2000, random_state=3)
    for path, part in zip(paths, plan.split(0.1), strict=False):
        found = Ratings.read(path)
        pairs = sorted(zip(found.users, found.items, found.rating, strict=True))
        assert pairs == sorted(zip(part.users, part.items, part.rating, strict=True))
    np.testing.assert_array_equal(Truth.load(paths[2]).U, plan.truth().U)
    said = run(*args).out
    assert f"200: {paths[1]}" in said
    assert str(paths[2]) in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--out s.csv --holdout 0.1", "--holdout needs --test"),
        ("--out s.csv --test s.csv", "is also --out"),
        ("--out s.csv --test t.txt", "must end in"),
        ("--out s.csv --test none/t.csv", "cannot be written"),
        ("--out s.csv --truth t.npy", "must end in .safetensors"),
        ("--out s.csv --test t.csv --holdout 1.5", "'1.5' is not a share below 1 or a whole"),
        ("--out s.csv --test t.csv --holdout 0", "'0' is not a share"),
        ("--out s.csv --test t.csv --holdout 999999", "cannot be held out"),
    ],
)
def test_synth_refuses(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    ran = run("synth", "--shape", "ml-100k", *options.split())
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()
