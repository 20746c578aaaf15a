"""The commands that answer: predict, evaluate, recommend; and synth and demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bayesmf.demo
from bayesmf import BayesianMF, Gibbs, Ratings, Synthetic
from cli_tools import QUICK, Data, contents, process, run

# -- predict --------------------------------------------------------------------------------------


def test_predict_prints_what_the_model_says(data: Data) -> None:
    ran = run("predict", data.model, data.test, "--level", 0.8)
    assert (ran.status, ran.err) == (0, "")
    found = pl.read_csv(ran.out.encode())
    assert found.columns == ["user", "item", "mean", "std", "low", "high", "known"]
    assert found["known"].all()
    pairs, model = pl.read_csv(data.test), BayesianMF.load(data.model)
    assert found["user"].equals(pairs["user"])
    assert found["item"].equals(pairs["item"])
    mean, std = model.predict(pairs["user"], pairs["item"], return_std=True)
    low, high = model.predict_interval(pairs["user"], pairs["item"], 0.8)
    for name, values in (("mean", mean), ("std", std), ("low", low), ("high", high)):
        assert found[name].to_list() == pytest.approx(values.tolist(), rel=1e-6)


def test_predict_writes_files(data: Data, tmp_path: Path) -> None:
    printed = run("predict", data.model, data.test).out
    csv, parquet = tmp_path / "p.csv", tmp_path / "p.parquet"
    assert str(csv) in run("predict", data.model, data.test, "--out", csv).out
    assert csv.read_text() == printed
    found = run("predict", data.model, data.test, "--out", parquet, "--json").json
    assert found["pairs"] == 180
    assert "predictions" not in found
    assert pl.read_parquet(parquet).write_csv() == printed
    assert contents(tmp_path) == {"p.csv", "p.parquet"}


def test_predict_json_and_unseen_ids(data: Data, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("who,what\n007,1\nnew,2\n3,4\n")
    args = ("predict", data.model, file, "--columns", "user=who,item=what")
    found = run(*args, "--json").json
    assert [(p["user"], p["item"]) for p in found["predictions"]] == [
        ("007", 1),
        ("new", 2),
        ("3", 4),
    ]
    assert found["unseen"] == 2
    ran = run(*args)
    assert ran.status == 0
    assert (
        "2 of 3 pairs have a user or an item that is not in the training data (user 007, new;"
        in ran.err
    )
    assert "were leading zeros added?" in ran.err
    assert [line.split(",")[-1] for line in ran.out.splitlines()] == [
        "known", "false", "false", "true",
    ]  # fmt: skip
    assert ran.out.splitlines()[1].startswith("007,1,")


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("p.txt", ".csv or .parquet"),
        ("none/p.csv", "cannot be written"),
        ("folder.csv", "not a regular file"),
        ("pairs.csv", "also read from"),
    ],
)
def test_predict_checks_its_out_first(tmp_path: Path, out: str, says: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "pairs.csv").write_text("user,item")
    ran = run("predict", tmp_path / "no-model", tmp_path / "pairs.csv", "--out", tmp_path / out)
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == {"folder.csv", "pairs.csv"}
    assert (tmp_path / "pairs.csv").read_text() == "user,item"


@pytest.mark.parametrize("command", ["predict", "evaluate", "recommend"])
def test_models_that_are_none(data: Data, tmp_path: Path, command: str) -> None:
    for model in (tmp_path / "none", tmp_path, data.train):
        ran = run(command, model, data.test)
        assert ran.status == 2
        assert str(model) in ran.sentence


# -- evaluate -------------------------------------------------------------------------------------


def test_evaluate(data: Data) -> None:
    found = run("evaluate", data.model, data.test, "--json").json
    scores = BayesianMF.load(data.model).evaluate(Ratings.read(data.test)).as_dict()
    assert {name: found[name] for name in scores} == scores
    assert found["unseen"] == 0
    told = run("evaluate", data.model, data.test).out
    assert f"RMSE {scores['rmse']:.4f} +/- " in " ".join(told.split())
    assert "95%: " in told


def test_evaluate_ranking(data: Data) -> None:
    asked = ("evaluate", data.model, data.test, "--ranking", "--k", 5, "--relevant", 3.5)
    found = run(*asked, "--json").json
    model, test = BayesianMF.load(data.model), Ratings.read(data.test)
    scores = model.evaluate_ranking(test, k=5, relevant=3.5)
    assert found["ranking"] == scores.as_dict()
    assert found["rmse"] == model.evaluate(test).rmse
    ran = run(*asked)
    assert (ran.status, ran.err) == (0, "")
    sentence = " ".join(ran.out.split())
    assert f"Lists of 5 items, by held-out ratings of 3.5 or more, of {scores.who}:" in sentence
    *_, own, common = (line.split() for line in ran.out.splitlines())
    assert own[:2] == ["expected", "rating"] and common[0] == "popularity"
    assert [own[2], common[1]] == [f"{s.ndcg:.3f}" for s in (scores.model, scores.popularity)]
    assert "ranking" not in run("evaluate", data.model, data.test, "--json").json


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--k", 5), "--k does nothing without --ranking"),
        (("--relevant", 3), "--relevant does nothing without --ranking"),
        (("--ranking", "--k", 0), "--k: '0' is not a whole number >= 1"),
        (("--ranking", "--relevant", "good"), "--relevant: 'good' is not a number"),
        (("--ranking", "--relevant", 99), "no held-out rating is 99 or more"),
    ],
)
def test_evaluate_ranking_refuses(data: Data, options: Sequence[object], says: str) -> None:
    assert says in run("evaluate", data.model, data.test, *options).sentence


# -- recommend ------------------------------------------------------------------------------------


def test_recommend_tables(data: Data) -> None:
    ran = run("recommend", data.model, 1, "-n", 3, 2)
    assert (ran.status, ran.err) == (0, "")
    first, second = ran.out.split("\n\n")
    assert first.startswith("user 1\nitem ")
    assert second.startswith("user 2\nitem ")
    assert len(first.splitlines()) == 2 + 3


def test_recommend_json_is_what_the_model_says(data: Data) -> None:
    args = ("recommend", data.model, 5, "-n", 4, "--json", "--level", 0.5)
    (answer,) = run(*args).json["recommendations"]
    model = BayesianMF.load(data.model)
    best = model.recommend(5, 4, level=0.5)
    assert (answer["user"], answer["known"]) == (5, True)
    assert [tuple(r.values()) for r in answer["items"]] == [tuple(r) for r in best]
    (seen,) = run(*args, "--include-seen", "-n", 999).json["recommendations"]
    assert len(seen["items"]) == len(model.item_ids_)
    (unseen,) = run(*args, "-n", 999).json["recommendations"]
    assert len(unseen["items"]) == 40 - len(set(Ratings.read(data.train).items[_of(data, 5)]))


def _of(data: Data, user: int) -> Any:
    return Ratings.read(data.train).users == user


def test_recommend_policies_and_seeds(data: Data) -> None:
    def best(*more: object) -> list[list[Any]]:
        found = run("recommend", data.model, "--all", "-n", 3, "--json", *more).json
        return [[r["item"] for r in a["items"]] for a in found["recommendations"]]

    mean, thompson = best(), best("--policy", "thompson", "--seed", 1)
    assert len(mean) == 60
    assert best("--policy", "ucb") != mean
    assert thompson != mean
    assert thompson == best("--policy", "thompson", "--seed", 1)
    assert thompson != best("--policy", "thompson", "--seed", 2)
    alone = run("recommend", data.model, 7, "-n", 3, "--json", "--policy", "thompson", "--seed", 1)
    assert [r["item"] for r in alone.json["recommendations"][0]["items"]] == thompson[6]


def test_recommend_to_unknown_users_and_from_a_file(data: Data, tmp_path: Path) -> None:
    file, out = tmp_path / "users.txt", tmp_path / "best.csv"
    file.write_text("3\n\n  stranger \n")
    ran = run("recommend", data.model, "--users", file, "-n", 2)
    assert ran.status == 0
    assert "(user stranger)" in ran.err
    assert "user stranger (unknown" in ran.out
    ran = run("recommend", data.model, 1, "--users", file, "-n", 2, "--out", out, "--json")
    assert ran.json["users"] == 3
    found = pl.read_csv(out, infer_schema_length=None)
    assert found.columns == ["user", "rank", "item", "mean", "std", "low", "high"]
    assert found["user"].to_list() == ["1", "1", "3", "3", "stranger", "stranger"]
    assert found["rank"].to_list() == [1, 2] * 3


def test_recommend_to_all_writes_any_kind_of_file(data: Data, tmp_path: Path) -> None:
    files = [tmp_path / f"best.{suffix}" for suffix in ("csv", "parquet", "jsonl")]
    for file in files:
        ran = run("recommend", data.model, "--all", "-n", 3, "--level", 0.8, "--out", file)
        assert (ran.status, ran.err) == (0, "")
        assert "users  60" in ran.out and str(file) in ran.out
    csv, parquet, lines = pl.read_csv(files[0]), pl.read_parquet(files[1]), pl.read_ndjson(files[2])
    assert csv.columns == ["user", "rank", "item", "mean", "std", "low", "high"]
    assert lines.rows() == csv.rows()
    assert parquet.write_csv() == files[0].read_text()
    model = BayesianMF.load(data.model)
    for user in (1, 33, 60):
        best = model.recommend(user, 3, level=0.8)
        assert csv.filter(pl.col("user") == user)["item"].to_list() == [r.item for r in best]
    assert contents(tmp_path) == {file.name for file in files}


def test_recommend_when_nothing_is_left(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating\n1,1,3\n1,2,4\n2,1,5\n")
    assert run("fit", file, "--out", tmp_path / "m", *QUICK).status == 0
    ran = run("recommend", tmp_path / "m", 1)
    assert ran.status == 0
    assert "no items left" in ran.out
    out = tmp_path / "best.csv"
    assert run("recommend", tmp_path / "m", 1, "--out", out).status == 0
    assert out.read_text() == "user,rank,item,mean,std,low,high\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ((), "no users given"),
        (("1", "--all"), "no users given"),
        (("17", "--columns", "user=a"), "--columns does nothing without --ratings"),
        (("1", "-n", "0"), "-n: '0'"),
        (("1", "--policy", "best"), "--policy: invalid choice"),
        (("1", "--level", "90"), "--level: '90'"),
        (("--users", "nowhere"), "There is no file nowhere"),
        (("1", "--out", "best.txt"), "must end in .csv or .parquet"),
    ],
)
def test_recommend_refuses(data: Data, more: Sequence[str], says: str) -> None:
    ran = run("recommend", data.model, *more)
    assert ran.status == 2
    assert says in ran.sentence


# -- synth and demo -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_synth(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"s.{suffix}"
    sizes = ("--users", 30, "--items", 20, "--ratings", 200)
    args = ("synth", "--out", out, *sizes, "--factors", 2, "--noise", 0.5, "--seed", 4)
    ran = run(*args)
    assert ran.status == 0
    assert "200 by 30 users of 20 items" in ran.out
    assert "RMSE 0.5" in ran.out
    found, made = Ratings.read(out), Synthetic(30, 20, 200, 2, 0.5, random_state=4).ratings()
    assert found.rating.tolist() == made.rating.tolist()
    told = run(*args, "--stars", "--json").json
    assert (told["users"], told["ratings"], told["noise_floor"]) == (30, 200, None)
    assert set(Ratings.read(out).rating.tolist()) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--out s.csv", "give --shape"),
        ("--out s.csv --shape ml-1m --users 5", "give --shape"),
        ("--out s.csv --users 5 --items 5", "give --shape"),
        ("--out s.csv --users 5 --items 5 --ratings 20 --scale 0.5", "give --shape"),
        ("--out s.csv --shape ml-2m", "--shape: invalid choice"),
        ("--out s.csv --shape ml-1m --scale 2", "scale"),
        ("--out s.csv --users 5 --items 5 --ratings 2000", "too many"),
        ("--out s.csv --users 5 --items 5 --ratings 10 --noise -1", "--noise: '-1'"),
        ("--out s.txt --shape ml-1m", "must end in"),
        ("--out none/s.csv --shape ml-1m", "cannot be written"),
    ],
)
def test_synth_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("synth", *options.split())
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()


def test_demo_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(bayesmf.demo, "run", lambda *args: calls.append(args))
    assert run("demo", "--out", tmp_path, "--seed", 3, "--json").status == 0
    assert calls == [(tmp_path, 3, True)]


# -- in processes of their own --------------------------------------------------------------------


def test_a_process_says_no_without_a_traceback(tmp_path: Path) -> None:
    ended = process("fit", tmp_path / "nowhere.csv", "--out", tmp_path / "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    nowhere = tmp_path / "nowhere.csv"
    assert ended.stderr == f"bayesmf: error: There is no file or folder {nowhere}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close otherwise")
def test_a_closed_pipe_is_quiet(data: Data) -> None:
    command = [sys.executable, "-m", "bayesmf", "recommend", str(data.model), "--all"]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=120)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_ids_that_a_terminal_cannot_show(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "r.csv"
    rows = [f"u{k % 7},\N{LATIN SMALL LETTER SHARP S}{k % 11},{k % 5}" for k in range(50)]
    file.write_text("\n".join(["user,item,rating", *rows]) + "\n", encoding="utf-8")
    assert run("fit", file, "--out", tmp_path / "m", *QUICK).status == 0
    shown = run("recommend", tmp_path / "m", "u1", encoding=encoding)
    assert shown.status == 0
    assert ("\\xdf" in shown.out) == (encoding == "ascii")
    printed = run("predict", tmp_path / "m", file, encoding=encoding)
    assert pl.read_csv(printed.out.encode())["item"].equals(pl.read_csv(file)["item"])


# -- ratings that come with a question ------------------------------------------------------------


def test_new_users_by_a_file_of_ratings(data: Data, tmp_path: Path) -> None:
    model = BayesianMF.load(data.model)
    items = model.item_ids_.ids[:4].tolist()
    new, pairs = tmp_path / "new.csv", tmp_path / "pairs.csv"
    new.write_text(f"user,item,rating\nann,{items[0]},5\nann,{items[1]},1\nbob,{items[0]},2\n")
    pairs.write_text(f"user,item\nann,{items[2]}\nbob,{items[3]}\nzoe,{items[3]}\n")
    sent = Ratings.read(new)
    ran = run("recommend", data.model, "--ratings", new, "-n", 2, "--json")
    told = ran.json["recommendations"]
    assert [one["user"] for one in told] == ["ann", "bob"]
    wanted = model.recommend_many(ratings=sent, n=2).items.tolist()
    assert [[row["item"] for row in one["items"]] for one in told] == wanted
    ran = run("predict", data.model, pairs, "--ratings", new)
    found = pl.read_csv(ran.out.encode())
    assert found["known"].to_list() == [True, True, False]
    assert "user without ratings" in ran.err
    mean = model.predict(["ann", "bob"], items[2:], ratings=sent)
    assert found["mean"][:2].to_list() == pytest.approx(mean.tolist(), rel=1e-6)
    only = tmp_path / "items.txt"
    only.write_text("\n".join(map(str, items)))
    some = run("recommend", data.model, "ann", "--ratings", new, "--items", only, "--json").json
    assert {row["item"] for row in some["recommendations"][0]["items"]} == set(items[2:])
    none = run("recommend", data.model, "ann", "--ratings", new, "--exclude", only, "--json").json
    assert not {row["item"] for row in none["recommendations"][0]["items"]} & set(items)


def test_who_sends_only_unknown_items_is_unknown(data: Data, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("user,item,rating\nann,Heat (1995),4\n")
    ran = run("recommend", data.model, "--ratings", new, "--json")
    assert [one["known"] for one in ran.json["recommendations"]] == [False]
    ran = run("recommend", data.model, "--ratings", new)
    assert "user ann (unknown: from the prior)" in ran.out


def test_items_that_nobody_knows_are_no_failure(data: Data, tmp_path: Path) -> None:
    only = tmp_path / "items.txt"
    only.write_text("999999\n999998\n")
    for who in (["1"], ["--all", "--out", tmp_path / "best.csv"]):
        ran = run("recommend", data.model, *who, "--items", only)
        assert ran.status == 0
        assert "are left out" in ran.err


def test_probabilities_of_stars(data: Data, tmp_path: Path) -> None:
    plan = Synthetic(60, 40, 1200, stars=True, random_state=2)
    ratings = plan.ratings()
    model = BayesianMF(2, sampler=Gibbs(epochs=45, burn_in=5), random_state=0).fit(ratings)
    model.save(tmp_path / "m")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n1,2\n3,4\n999,4\n")
    ran = run("predict", tmp_path / "m", pairs, "--proba")
    head, *rows = ran.out.splitlines()
    assert head == "user,item,mean,std,low,high,known,p_1,p_2,p_3,p_4,p_5"
    found = np.array([[float(x) for x in row.split(",")[7:]] for row in rows])
    np.testing.assert_allclose(found[:2], model.predict_proba([1, 3], [2, 4]), atol=1e-6)
    assert ran.err.count("warning") == 1  # of the user that is not known
    told = run("predict", tmp_path / "m", pairs, "--proba", "--json").json["predictions"]
    assert [f"p_{k}" for k in range(1, 6)] == list(told[0])[7:]
    test = tmp_path / "test.csv"
    test.write_text("user,item,rating\n1,2,3\n3,4,5\n")
    scores = run("evaluate", tmp_path / "m", test, "--json").json
    assert scores["log_loss"] > 0 and scores["rps"] > 0
    out = run("evaluate", tmp_path / "m", test).out
    assert "\nlog loss " in out and "\nRPS " in out and "\nlevels " in out
