"""Natural mistakes, one a line: each ends in a sentence, or in a warning, and with nothing written.

What other files look at more closely (files of ratings, options of samplers) is not repeated here.
"""

from __future__ import annotations

import errno
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from bayesmf import (
    SGLD,
    BayesianMF,
    Checkpoint,
    DataWarning,
    Gibbs,
    InputError,
    NotFittedError,
    Ratings,
    Synthetic,
    pack,
)
from bayesmf.checkpoints.folder import as_checkpoint
from cli_tools import QUICK, Data, contents, make_data, run
from problems import planted


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("mistakes"))


@pytest.fixture(scope="module")
def model(data: Data) -> BayesianMF:
    return BayesianMF.load(data.model)


# -- where output goes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "diagnose MODEL --plots MODEL", "predict MODEL TEST --out MODEL",
        "recommend MODEL --all --out MODEL", "demo --out MODEL", "fit TRAIN --out MODEL/second",
        "pack TRAIN --out MODEL", "fit TRAIN --out m --checkpoint MODEL",
    ],
)  # fmt: skip
def test_no_model_is_replaced_by_something_else(data: Data, line: str) -> None:
    before = data.model.read_bytes()
    names = {"TRAIN": data.train, "TEST": data.test}
    args = [word.replace("MODEL", str(data.model)) for word in line.split()]
    ran = run(*(names.get(arg, arg) for arg in args))
    assert ran.status == 2
    assert data.model.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "fit TRAIN --out=~/m", "pack TRAIN --out=~/p", "demo --out=~/d", "synth --out=~/s.csv",
        "fit TRAIN --out m --checkpoint=~/c", "diagnose MODEL --plots=~/p",
        "predict MODEL TEST --out=~/p.csv",
    ],
)  # fmt: skip
def test_a_tilde_that_no_shell_read(
    data: Data, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"TRAIN": data.train, "MODEL": data.model, "TEST": data.test}
    ran = run(*(names.get(arg, arg) for arg in line.split()))
    assert ran.status == 2 and "'~' is not read as your home folder; write /" in ran.sentence
    assert contents(tmp_path) == set()


# -- what cannot be told --------------------------------------------------------------------------


class _Full(io.StringIO):
    """A file on a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_warning_that_cannot_be_told_costs_nothing(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is saved: it may have taken hours."""
    from bayesmf.cli import main

    monkeypatch.setattr("sys.stderr", _Full())
    args = ["fit", data.train, "--validation", data.train, "--out", tmp_path / "m", *QUICK]
    status = main(list(map(str, args)))
    monkeypatch.undo()
    assert status == 0 and (tmp_path / "m").is_file()


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "says"), [
    ("fit MODEL --out m", "is a model, not ratings"),
    ("fit - --out m", "standard input is not read"),
    ("fit /dev/null --out m", "is a pipe or a device"),
    ("pack PACKED --out p", "holds packed ratings, which are for fit"),
    ("evaluate MODEL PACKED", "holds packed ratings, which are for fit"),
    ("fit TRAIN --out m --holdout 0.99999", "--holdout 0.99999 leaves 1 to learn from"),
    ("fit TRAIN --out m --sampler sgld --step-size 1e-5 --pace 3", "pace does nothing beside"),
    ("fit TRAIN --out m --sampler sgld --visits size", "--visits does nothing with one block"),
    ("fit TRAIN --out m --sampler sgld --group-size 1", "--group-size does nothing with one block"),
    ("fit TRAIN --out m --sampler sgd --shuffle-groups", "--shuffle-groups does nothing"),
    ("diagnose MODEL --columns user=a", "do nothing without --test"),
    ("diagnose MODEL --format csv", "do nothing without --test"),
    ("recommend MODEL --users TRAIN", "is a table, with '"),
])  # fmt: skip
def test_commands(
    data: Data, line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = data.model.parent / "packed"
    if "PACKED" in line and not packed.exists():
        pack(data.train, packed)
    monkeypatch.chdir(tmp_path)
    names = {"TRAIN": data.train, "MODEL": data.model, "PACKED": packed}
    ran = run(*(names.get(arg, arg) for arg in line.split()))
    assert ran.status == 2 and says in ran.sentence
    assert contents(tmp_path) == set()


def test_a_header_above_ids_of_users_is_no_user(data: Data, tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("user_id\n1\n2\n")
    found = run("recommend", data.model, "--users", tmp_path / "users.txt", "--json").json
    assert [one["user"] for one in found["recommendations"]] == [1, 2]


@pytest.mark.parametrize(
    ("text", "reader"),
    [('[{"user": 1, "item": 2, "rating": 3}]', "read_json"), ('{"user": 1}\n', "read_ndjson")],
)
def test_json_is_refused_with_what_reads_it(tmp_path: Path, text: str, reader: str) -> None:
    (tmp_path / "r.json").write_text(text)
    ran = run("fit", tmp_path / "r.json", "--out", tmp_path / "m")
    assert ran.status == 2 and f"polars.{reader}(...)" in ran.sentence


# -- odd ratings and ids --------------------------------------------------------------------------


def _told(ratings: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", DataWarning)
        BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    return [str(one.message) for one in told if issubclass(one.category, DataWarning)]


def _with(*values: float, scale: Any = (1, 2, 3, 4, 5)) -> tuple[Any, ...]:
    """A hundred pairs rated by a scale, the first of them with other values."""
    rating = np.resize(np.array(scale, float), 100)
    rating[: len(values)] = values
    return np.repeat(np.arange(10), 10), np.tile(np.arange(10), 10), rating


@pytest.mark.parametrize(("ratings", "says"), [
    (_with(-1, -1), "the rating -1 stands apart from all others, 1 to 5"),
    (_with(9999), "the rating 9999 stands apart from all others, 1 to 5"),
    (_with(scale=[8.7e8, 8.8e8, 9.1e8]), "like times since 1970"),
    (_with(), None),
    (_with(scale=[-1, 1]), None),
    (_with(scale=[0, 1]), None),
    (_with(scale=[-2, -1, 0, 1, 2]), None),
    (_with(scale=[0.5, 1, 2, 3.5, 5]), None),
    (_with(scale=[0, 2, 3, 4, 5]), None),
    (_with(scale=[1, 10, 100, 1000, 10000]), None),
    (_with(scale=[*range(1, 40), 60, 90]), None),
    (_with(scale=np.random.default_rng(0).normal(size=100)), None),
    (_with(scale=np.random.default_rng(0).exponential(size=100)), None),
])  # fmt: skip
def test_values_that_stand_apart(ratings: Any, says: str | None) -> None:
    told = _told(ratings)
    assert told == [] if says is None else (len(told) == 1 and says in told[0])


def test_ratings_that_single_precision_cannot_tell_apart() -> None:
    with pytest.raises(InputError, match="are one number in single precision"):
        BayesianMF(2).fit(([1, 2], [1, 2], [1e9 + 1, 1e9 + 2]))


def test_most_ratings_that_are_repeats(caplog: pytest.LogCaptureFixture) -> None:
    Ratings([1, 1, 1, 2], [5, 5, 5, 5], [1.0, 2, 3, 4])
    assert "2 of the 4 ratings are repeats" in caplog.text
    assert "check which columns are the user and the item" in caplog.text


# -- from Python ----------------------------------------------------------------------------------

FRAME = pl.DataFrame({"user": [1, 2], "item": [3, 4], "rating": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda m: m.recommend([1, 2]), "several to recommend_many"),
        (lambda m: m.recommend(FRAME["user"].to_numpy()), "several to recommend_many"),
        (lambda m: m.recommend([[1], [2, 3]]), "several to recommend_many"),
        (lambda m: m.recommend(1, n=2.5), "n must be a whole number"),
        (lambda m: m.recommend(1, exclude_seen="no"), "exclude_seen must be True or False"),
        (lambda m: m.predict(1, 2, return_std="no"), "return_std must be True or False"),
        (lambda m: m.diagnose(FRAME), "give held-out ratings to evaluate or calibration"),
        (lambda m: m.diagnose("held-out.csv"), "give held-out ratings to evaluate"),
        (lambda m: m.diagnose(-1), "n_pairs must be a whole number of at least 1"),
        (lambda m: pack(FRAME, "p"), "pack reads files, not a DataFrame"),
        (lambda m: pack(None, "p"), "pack reads files, not a NoneType"),
        (lambda m: Ratings.from_data(FRAME).take([9]), "take needs positions below 2"),
        (lambda m: Ratings.from_data(FRAME).take("a"), "take needs positions below 2"),
        (
            lambda m: Synthetic(10, 10, 50, bias_user="a"),
            "bias_user must be a number of at least 0",
        ),
        (lambda m: Synthetic(10, 10, 50, stars="no"), "stars must be True or False"),
        (lambda m: as_checkpoint(Checkpoint("c", resume="yes")), "resume must be True or False"),
        (lambda m: BayesianMF(FRAME).fit(FRAME), "n_factors must be .*, not a DataFrame"),
        (lambda m: BayesianMF(alpha_0=3.0).fit(FRAME), 'alpha_0 does nothing .* prior="gamma"'),
        (lambda m: BayesianMF(prior="gamma", W_0=2).fit(FRAME), 'W_0 does .* prior="wishart"'),
        (lambda m: BayesianMF(4, nu_0=4).fit(FRAME), "above 4, the number of columns less one"),
        (lambda m: BayesianMF(kappa_0=0).fit(FRAME), "kappa_0 must be a positive number, not 0"),
        (lambda m: BayesianMF(mu_0="a").fit(FRAME), "mu_0 must be a number, not 'a'"),
        (
            lambda m: BayesianMF(sampler=SGLD(step_size=1e-5, pace=3)).fit(FRAME),
            "pace does nothing beside step_size",
        ),
    ],
)
def test_calls(model: BayesianMF, ask: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as told:
        ask(model)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["report_", "history_", "user_ids_", "item_ids_", "posterior_"])
def test_what_a_fit_would_have_found(name: str) -> None:
    with pytest.raises(NotFittedError, match="call fit or BayesianMF"):
        getattr(BayesianMF(), name)
    assert hasattr(BayesianMF(2, sampler=Gibbs(epochs=2)).fit(planted(20, 15, 100)), name)
