"""What the attacks of benchmarks/attack have found, one test each, so that it stays mended."""

import datetime
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs, InputError, PackedRatings, Ratings
from problems import planted


@pytest.fixture(scope="module")
def model():
    sampler = Gibbs(epochs=4, burn_in=1)
    return BayesianMF(2, sampler=sampler, random_state=0).fit(planted(40, 30, 600))


def test_an_empty_field_between_tabs_is_not_passed_over(tmp_path):
    rows = [f"{u}\t{i}\t{(u * i) % 5 + 1}\t9464454{u:02}" for u in range(1, 30) for i in range(5)]
    rows[20] = "4\t\t15\t2\t946445455"
    (tmp_path / "a.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match="line 21 has 5 fields instead of 4"):
        Ratings.read(tmp_path / "a.tsv")


def test_threads_verify_one_model(model, tmp_path):
    """The first that is done closes the file, while the others still read it."""
    model.save(tmp_path / "model")
    for _ in range(20):
        loaded = BayesianMF.load(tmp_path / "model")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: loaded.predict([1001], [5])[0], range(8)))  # noqa: B023
        assert len(set(answers)) == 1


@pytest.mark.parametrize(
    "given",
    [np.timedelta64(3, "s"), datetime.timedelta(3), np.datetime64("2024-01-01"), [1], {1: 2}],
)
def test_times_and_lists_are_no_ids(model, given):
    for ask in (
        lambda: model.predict([1001, given], [5, 6]),
        lambda: model.predict([given, given], [5, 6]),
        lambda: model.recommend(given),
        lambda: Ratings.from_data(([given, given], [1, 2], [3.0, 4.0])),
    ):
        with pytest.raises(InputError):
            ask()


def test_a_flag_is_a_flag():
    for given in (np.array([True, False]), "yes", [], 1):
        sampler = SGLD(epochs=2, shuffle_groups=given)
        with pytest.raises(InputError, match="shuffle_groups must be True or False"):
            BayesianMF(2, sampler=sampler).fit(planted(40, 30, 600))


def test_broken_sparse_matrices(model):
    scipy = pytest.importorskip("scipy.sparse")
    broken = scipy.csr_matrix(np.arange(12.0).reshape(3, 4))
    broken.indptr = np.array([0, 500, 2, 11], np.int32)
    far = scipy.csr_matrix(np.arange(12.0).reshape(3, 4))
    far.indices = far.indices + 7
    empty = scipy.csr_matrix(np.arange(12.0).reshape(3, 4))
    empty.indptr = np.array([0, 2**30, 2**30, 0], np.int32)  # which SciPy takes for one of nothing
    for matrix in (broken, far, empty):
        before = matrix.indptr.copy(), matrix.indices.copy()
        with pytest.raises(InputError, match="sparse matrix"):
            Ratings.from_data(matrix)
        assert np.array_equal(before[0], matrix.indptr)
        assert np.array_equal(before[1], matrix.indices)


def test_ragged_and_odd_things(model):
    for ask in (
        lambda: model.predict([[1], [2, 3]], [[5], [6, 7]]),
        lambda: model.recommend(1001, n=np.ma.masked),
        lambda: Ratings.from_data([range(3), b"7"]),
        lambda: model.save("\ud800"),
        lambda: PackedRatings.open("x" * 5000),
        lambda: model.predict(([1001], [5]), columns={"who": np.arange(3)}),
    ):
        with pytest.raises(InputError) as told:
            ask()
        assert len(str(told.value)) < 2000


@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
def test_half_a_character_in_a_table(model):
    table = model.predict_table(["\ud800", "x"], [5, 6]).to_polars()
    assert table["user"].to_list() == ["\\ud800", "x"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /dev/full")
def test_a_full_standard_error_changes_no_status(tmp_path):
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "bayesmf", "predict", tmp_path / "model", "nowhere"]
        assert subprocess.run(argv, stderr=full).returncode == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /dev/full")
@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_what_could_not_be_printed_is_a_failure(argument):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "bayesmf", argument], stdout=full, stderr=subprocess.PIPE
        )
    assert ended.returncode == 1 and b"No space left" in ended.stderr
