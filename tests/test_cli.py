"""The command line: in this process for speed, in processes of its own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import bayesmf.demo
from bayesmf import BayesianMF, Ratings, Synthetic, __version__
from bayesmf.cli import COMMANDS, main
from bayesmf.cli.diagnose import verdict

QUICK = ("--sampler", "gibbs", "--epochs", "12", "--burn-in", "4", "--factors", "3")
SGLD = ("--sampler", "sgld", "--epochs", "6", "--burn-in", "2", "--factors", "3")
SGD = ("--sampler", "sgd", "--epochs", "6", "--factors", "3")


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; null is the only way to say that a number is missing."""
        assert self.status == 0, self.err
        assert self.out.count("\n") == 1
        found = json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        assert isinstance(found, dict)
        return found

    @property
    def sentence(self) -> str:
        """What was wrong, having checked that it is told as it should be."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("bayesmf: error: ")
        return lines[0].removeprefix("bayesmf: error: ")


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> Ran:
        capsys.readouterr()
        return Ran(main([str(arg) for arg in args]), *capsys.readouterr())

    return run


class Data(NamedTuple):
    train: Path
    test: Path
    model: Path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("cli")
    found = Data(folder / "train.csv", folder / "test.csv", folder / "model")
    train, test = Synthetic(60, 40, 900, seed=1).ratings().split(0.2)
    train.write(found.train)
    test.write(found.test)
    fit = ("--sampler", "gibbs", "--epochs", "60", "--chains", "2", "--factors", "3")
    assert main(["fit", str(found.train), "--out", str(found.model), *fit]) == 0
    return found


def process(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bayesmf", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


def contents(folder: Path) -> set[str]:
    return set(os.listdir(folder))


# -- help and the command itself ------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_ends_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "-h"])
    assert ended.value.code == 0
    assert f"  bayesmf {command} " in capsys.readouterr().out.partition("example:\n")[2]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(f"  {command} " in told for command in COMMANDS)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"bayesmf {__version__}\n"


@pytest.mark.parametrize(
    ("args", "says", "see"),
    [
        ([], "a command is needed", "bayesmf -h"),
        (["fti"], "'fti' is no command", "bayesmf -h"),
        (["--nonsense"], "--nonsense", "bayesmf -h"),
        (["fit"], "--out", "bayesmf fit -h"),
        (["fit", "--out", "m"], "RATINGS", "bayesmf fit -h"),
        (["fit", "r.csv", "--out", "m", "--facto", "3"], "--facto", "bayesmf fit -h"),
        (["evaluate", "m"], "TEST", "bayesmf evaluate -h"),
    ],
)
def test_wrong_command_lines(run: Run, args: list[str], says: str, see: str) -> None:
    ran = run(*args)
    assert ran.status == 2
    assert says in ran.sentence
    assert ran.sentence.endswith(f"(see {see})")


# -- fit ------------------------------------------------------------------------------------------


def test_fit_tells_people(run: Run, data: Data, tmp_path: Path) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", "--test", data.test, *QUICK)
    assert (ran.status, ran.err) == (0, "")
    facts = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert {"ratings", "sampler", "time", "RMSE", "coverage", "saved"} <= set(facts)
    assert facts["ratings"].strip() == "720 by 60 users of 40 items"
    assert "+/-" in facts["RMSE"]


def test_fit_tells_programs(run: Run, data: Data, tmp_path: Path) -> None:
    out = tmp_path / "m"
    found = run("fit", data.train, "--out", out, "--test", data.test, "--json", *QUICK).json
    scores = BayesianMF.load(out).evaluate(Ratings.read(data.test))
    assert found["rmse"] == scores.rmse
    assert (found["mae"], found["nll"], found["crps"]) == (scores.mae, scores.nll, scores.crps)
    assert found["coverage"] == scores.coverage
    assert list(found["coverage"]) == ["50", "80", "90", "95"]
    numbers = ("seconds", "compile_seconds", "ratings_per_second", "peak_rss_mb", "tau")
    assert all(found[name] > 0 for name in numbers)
    assert (found["epochs"], found["draws"], found["seed"]) == (12, 8, 0)
    assert (found["ratings"], found["users"], found["items"]) == (720, 60, 40)
    assert (found["factors"], found["prior"], found["model"]) == (3, "gamma", str(out))
    assert found["sampler"]["rule"] == "Gibbs"
    assert 0 < found["test"]["rmse_se"] < 0.2


def test_fit_without_a_test_file_has_null_scores(run: Run, data: Data, tmp_path: Path) -> None:
    found = run("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK).json
    assert [found[name] for name in ("rmse", "mae", "nll", "crps", "coverage")] == [None] * 5


def test_fit_by_defaults_is_auto(run: Run, data: Data, tmp_path: Path) -> None:
    found = run("fit", data.train, "--out", tmp_path / "m", "--json").json
    assert found["sampler"]["rule"] == "Gibbs"


@pytest.mark.parametrize(
    ("base", "option", "name", "value"),
    [
        (SGLD, "--grid 2x3", "grid", "2x3"),
        (SGLD, "--chains 2", "n_chains", 2),
        (SGLD, "--epochs 7", "epochs", 7),
        (SGLD, "--burn-in 3", "burn_in", 3),
        (SGLD, "--burn-in stationary", "burn_in", "stationary"),
        (SGLD, "--thin 2", "thin", 2),
        (SGLD, "--batch-size 100", "batch_size", 100),
        (SGLD, "--round-length 3", "round_length", 3),
        (SGLD, "--step-size 1e-4", "step_size", 1e-4),
        (SGLD, "--kappa 20", "kappa", 20),
        (SGLD, "--decay 0.33", "decay", 0.33),
        (SGLD, "--noise paper", "noise", "paper"),
        (SGLD, "--minibatch replacement", "minibatch", "replacement"),
        (SGLD, "--precision-every 2", "precision_every", 2),
        (SGLD, "--precisions-from burn-in", "precisions_from", "burn-in"),
        (SGLD, "--initial-precision 3.5", "initial_precision", 3.5),
        ((*SGLD, "--grid", "2x2"), "--visits size", "visits", "size"),
        pytest.param(
            (*SGLD, "--grid", "2x2"),
            "--visits 1,2",
            "visits",
            [1, 2],
            marks=pytest.mark.xfail(reason="compile_kernels keeps the weights on a 1x1 grid"),
        ),
        ((*SGLD, "--grid", "3x3"), "--shuffle-groups", "shuffle_groups", True),
        (SGD, "--regularization 5", "regularization", 5),
        (SGD, "--grid 2x2", "grid", "2x2"),
        (SGD, "--epochs 3", "epochs", 3),
        (QUICK, "--chains 2", "n_chains", 2),
        (QUICK, "--burn-in 0", "burn_in", 0),
        (QUICK, "--thin 3", "thin", 3),
        (QUICK, "--initial-precision 1", "initial_precision", 1),
    ],
)
def test_sampler_settings(
    run: Run, data: Data, tmp_path: Path, base: Sequence[str], option: str, name: str, value: Any
) -> None:
    found = run("fit", data.train, "--out", tmp_path / "m", "--json", *base, *option.split()).json
    assert found["sampler"][name] == value


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--tau 1.5", "tau", 1.5),
        ("--tau sample", "tau", "sample"),
        ("--alpha0 2", "alpha_0", 2),
        ("--beta0 3", "beta_0", 3),
        ("--no-standardize", "standardize", False),
        ("--max-draws 5", "max_draws", 5),
        ("--engine serial", "engine", "serial"),
        ("--workers 2", "n_workers", 2),
    ],
)
def test_model_settings(
    run: Run, data: Data, tmp_path: Path, option: str, name: str, value: Any
) -> None:
    def fit(*more: str) -> dict[str, Any]:
        return run("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK, *more).json

    plain, found = fit(), fit(*option.split())
    assert found["settings"][name] == value
    if option.split()[0] in ("--engine", "--workers") or value == "sample":
        assert found["tau"] == plain["tau"]
    else:
        assert (found["tau"], found["draws"]) != (plain["tau"], plain["draws"])
    if option == "--tau 1.5":
        assert found["tau"] == pytest.approx(1.5)


def test_prior_factors_and_seed(run: Run, data: Data, tmp_path: Path) -> None:
    more = ("--prior", "wishart", "--factors", "5", "--seed", "9")
    found = run("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK, *more).json
    assert (found["prior"], found["factors"], found["seed"]) == ("wishart", 5, 9)


def test_validation_is_followed_and_test_is_not(run: Run, data: Data, tmp_path: Path) -> None:
    args = ("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK)
    assert run(*args, "--test", data.test).json["validation_rmse"] == [None]
    followed = run(*args, "--validation", data.test).json["validation_rmse"]
    assert 0.5 < followed[0] < 1.5
    found = run(*args, "--burn-in", "rmse:5", "--validation", data.test).json
    assert found["sampler"]["burn_in"] == "rmse:5"


def test_files_are_read_as_told(run: Run, data: Data, tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    rows = [f"{k},x{k % 7},{k % 5},y{k % 11}" for k in range(70)]
    file.write_text("\n".join(["id,who,points,what", *rows, "99,x1,3,y1"]) + "\n")
    args = ("fit", file, "--out", tmp_path / "m", "--json", *QUICK)
    columns = ("--columns", "user=who,item=what,rating=points")
    assert "columns" in run(*args).sentence
    found = run(*args, *columns, "--format", "csv").json
    assert (found["users"], found["items"], found["ratings"]) == (7, 11, 70)
    refused = run(*args, *columns, "--duplicates", "error")
    assert refused.status == 2
    assert "more than once" in refused.sentence
    mean = run(*args, *columns, "--duplicates", "mean").json
    assert mean["ratings"] == 70
    assert mean["tau"] != found["tau"]
    wrong = run(*args, *columns, "--format", "parquet")
    assert wrong.status == 2
    assert "Parquet" in wrong.sentence


@pytest.mark.parametrize("sampler", [QUICK, (*SGLD, "--grid", "2x2", "--chains", "2")])
def test_same_seed_same_result_whatever_runs_it(
    run: Run, data: Data, tmp_path: Path, sampler: Sequence[str]
) -> None:
    told = []
    for k, engine in enumerate(["serial", "threads", "threads"]):
        out = tmp_path / f"m{k}"
        more = ("--engine", engine, *(("--workers", 3) if k == 2 else ()))
        assert run("fit", data.train, "--out", out, *sampler, *more).status == 0
        told.append(run("predict", out, data.test).out)
    assert told[0] == told[1] == told[2]
    other = tmp_path / "other"
    assert run("fit", data.train, "--out", other, *sampler, "--seed", 1).status == 0
    assert run("predict", other, data.test).out != told[0]


# -- fit: what is refused -------------------------------------------------------------------------

REFUSED = [
    ("--factors -3", "--factors: '-3'"),
    ("--factors 2.5", "--factors: '2.5'"),
    ("--factors 99999999999999999999", "too large"),
    ("--sampler sgld --grid 0x2", "--grid: '0x2'"),
    ("--sampler sgld --grid two", "--grid: 'two'"),
    ("--sampler sgld --grid 999x999", "60x40"),
    ("--sampler gibbs --grid 2x2", "--grid is not a setting of --sampler gibbs"),
    ("--sampler sgd --noise paper", "--noise is not a setting of --sampler sgd, but of sgld"),
    ("--sampler sgd --chains 2", "but of sgld and gibbs"),
    ("--sampler gibbs --shuffle-groups", "--shuffle-groups is not"),
    ("--sampler sgld --regularization 2", "but of sgd"),
    ("--epochs 5", "name the sampler with --sampler"),
    ("--grid 2x2", "name the sampler with --sampler"),
    ("--sampler gibbs --epochs 5 --burn-in 7", "leaves no draw"),
    ("--sampler gibbs --burn-in soon", "--burn-in: 'soon'"),
    ("--sampler gibbs --burn-in rmse:x", "--burn-in: 'rmse:x'"),
    ("--sampler gibbs --burn-in rmse:0.8", "needs --validation"),
    ("--sampler sgld --decay 1.5", "--decay: '1.5'"),
    ("--sampler sgld --step-size nan", "--step-size: 'nan'"),
    ("--sampler sgld --visits 1,-2", "--visits: '1,-2'"),
    ("--sampler sgld --noise loud", "--noise: invalid choice"),
    ("--tau 0", "--tau: '0'"),
    ("--alpha0 0", "--alpha0: '0'"),
    ("--sampler sgd --alpha0 2", "--alpha0 has no effect"),
    ("--prior wishart --tau 1 --beta0 2", "--beta0 has no effect"),
    ("--engine serial --workers 2", "--workers is for --engine threads"),
    ("--workers 0", "--workers: '0'"),
    ("--seed -1", "--seed: '-1'"),
    ("--max-draws 0", "--max-draws: '0'"),
    ("--columns person=3", "--columns: 'person=3'"),
    ("--columns user=", "--columns: 'user='"),
    ("--columns user=nobody", "no column 'nobody'"),
    ("--format odd", "format 'odd' is not known"),
    ("--test nowhere.csv", "nowhere.csv"),
    ("--validation nowhere.csv", "nowhere.csv"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_fit_refuses(run: Run, data: Data, tmp_path: Path, options: str, says: str) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", "--json", *options.split())
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user,item,rating\n1,1,3\n1,2,nan\n", "line 3"),
        ("user,item,rating\n1,1,3\n1,2,good\n", "line 3"),
        ("user,item,rating\n1,1,3\n1,2\n", "fields"),
        ("user,item,rating\n", "no ratings"),
        ("", "empty"),
        ("hello\n", "not a table"),
        (None, "There is no file"),
    ],
)
def test_fit_refuses_files(run: Run, tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "r.csv"
    if text is not None:
        file.write_text(text)
    before = contents(tmp_path)
    ran = run("fit", file, "--out", tmp_path / "m")
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == before


def test_fit_checks_its_out_before_it_reads(run: Run, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    for out in ("foreign", "foreign/letter.txt", "foreign/letter.txt/below"):
        # The ratings do not exist either; the place of the model is looked at first.
        ran = run("fit", tmp_path / "nowhere.csv", "--out", tmp_path / out)
        assert ran.status == 2
        assert str(tmp_path / out) in ran.sentence
    assert contents(tmp_path / "foreign") == {"letter.txt"}
    assert (tmp_path / "foreign" / "letter.txt").read_text() == "dear"


def test_divergence_is_status_1(run: Run, data: Data, tmp_path: Path) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", *SGLD, "--step-size", 1000)
    assert ran.status == 1
    assert "--step-size" in ran.sentence
    assert contents(tmp_path) == set()


def test_interrupted(run: Run, data: Data, tmp_path: Path, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BayesianMF, "fit", interrupt)
    ran = run("fit", data.train, "--out", tmp_path / "m", *QUICK)
    assert ran == (130, "", "bayesmf: interrupted\n")


# -- predict --------------------------------------------------------------------------------------


def test_predict_prints_what_the_model_says(run: Run, data: Data) -> None:
    ran = run("predict", data.model, data.test, "--level", 0.8)
    assert (ran.status, ran.err) == (0, "")
    found = pl.read_csv(ran.out.encode())
    assert found.columns == ["user", "item", "mean", "std", "low", "high"]
    pairs, model = pl.read_csv(data.test), BayesianMF.load(data.model)
    assert found["user"].equals(pairs["user"])
    assert found["item"].equals(pairs["item"])
    mean, std = model.predict(pairs["user"], pairs["item"], return_std=True)
    low, high = model.predict_interval(pairs["user"], pairs["item"], 0.8)
    for name, values in (("mean", mean), ("std", std), ("low", low), ("high", high)):
        assert found[name].to_list() == pytest.approx(values.tolist(), rel=1e-6)


def test_predict_writes_files(run: Run, data: Data, tmp_path: Path) -> None:
    printed = run("predict", data.model, data.test).out
    csv, parquet = tmp_path / "p.csv", tmp_path / "p.parquet"
    assert str(csv) in run("predict", data.model, data.test, "--out", csv).out
    assert csv.read_text() == printed
    found = run("predict", data.model, data.test, "--out", parquet, "--json").json
    assert found["pairs"] == 180
    assert "predictions" not in found
    assert pl.read_parquet(parquet).write_csv() == printed
    assert contents(tmp_path) == {"p.csv", "p.parquet"}


def test_predict_json_and_unseen_ids(run: Run, data: Data, tmp_path: Path) -> None:
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
    assert "2 pairs have an unseen" in ran.err
    assert ran.out.splitlines()[1].startswith("007,1,")


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("p.txt", ".csv or .parquet"),
        ("none/p.csv", "cannot be written"),
        ("folder.csv", "not a plain file"),
    ],
)
def test_predict_checks_its_out_first(run: Run, tmp_path: Path, out: str, says: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    ran = run("predict", tmp_path / "no-model", tmp_path / "no-pairs", "--out", tmp_path / out)
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == {"folder.csv"}


def test_predict_does_not_write_over_its_input(run: Run, data: Data) -> None:
    before = data.test.read_bytes()
    ran = run("predict", data.model, data.test, "--out", data.test)
    assert ran.status == 2
    assert "also read from" in ran.sentence
    assert data.test.read_bytes() == before


@pytest.mark.parametrize("command", ["predict", "evaluate", "recommend"])
def test_models_that_are_none(run: Run, data: Data, tmp_path: Path, command: str) -> None:
    for model in (tmp_path / "none", tmp_path, data.train):
        ran = run(command, model, data.test)
        assert ran.status == 2
        assert str(model) in ran.sentence


# -- evaluate -------------------------------------------------------------------------------------


def test_evaluate(run: Run, data: Data) -> None:
    found = run("evaluate", data.model, data.test, "--json").json
    scores = BayesianMF.load(data.model).evaluate(Ratings.read(data.test)).as_dict()
    assert {name: found[name] for name in scores} == scores
    assert found["unseen"] == 0
    told = run("evaluate", data.model, data.test).out
    assert f"RMSE      {scores['rmse']:.4f} +/- " in told
    assert "95%: " in told


def test_evaluate_on_ids_that_are_all_unseen(run: Run, data: Data, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("user,item,rating\nann,1,3\nbob,tea,4\n")
    found = run("evaluate", data.model, file, "--json").json
    assert (found["n"], found["unseen"]) == (2, 2)
    assert (found["unseen_users"], found["unseen_items"]) == (2, 1)
    assert "2 of them with an unseen" in run("evaluate", data.model, file).out


# -- recommend ------------------------------------------------------------------------------------


def test_recommend_tables(run: Run, data: Data) -> None:
    ran = run("recommend", data.model, 1, "-n", 3, 2)
    assert (ran.status, ran.err) == (0, "")
    first, second = ran.out.split("\n\n")
    assert first.startswith("user 1\nitem ")
    assert second.startswith("user 2\nitem ")
    assert len(first.splitlines()) == 2 + 3


def test_recommend_json_is_what_the_model_says(run: Run, data: Data) -> None:
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


def test_recommend_policies_and_seeds(run: Run, data: Data) -> None:
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


def test_recommend_to_unknown_users_and_from_a_file(run: Run, data: Data, tmp_path: Path) -> None:
    file, out = tmp_path / "users.txt", tmp_path / "best.csv"
    file.write_text("3\n\n  stranger \n")
    ran = run("recommend", data.model, "--users", file, "-n", 2)
    assert ran.status == 0
    assert "'stranger' is unknown" in ran.err
    assert "user stranger (unknown" in ran.out
    ran = run("recommend", data.model, 1, "--users", file, "-n", 2, "--out", out, "--json")
    assert ran.json["users"] == 3
    found = pl.read_csv(out, infer_schema_length=None)
    assert found.columns == ["user", "rank", "item", "mean", "std", "low", "high"]
    assert found["user"].to_list() == ["1", "1", "3", "3", "stranger", "stranger"]
    assert found["rank"].to_list() == [1, 2] * 3


def test_recommend_when_nothing_is_left(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating\n1,1,3\n1,2,4\n2,1,5\n")
    assert run("fit", file, "--out", tmp_path / "m", *QUICK).status == 0
    ran = run("recommend", tmp_path / "m", 1)
    assert ran.status == 0
    assert "nothing is left" in ran.out
    out = tmp_path / "best.csv"
    assert run("recommend", tmp_path / "m", 1, "--out", out).status == 0
    assert out.read_text() == "user,rank,item,mean,std,low,high\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ((), "say for whom"),
        (("1", "--all"), "say for whom"),
        (("1", "-n", "0"), "-n: '0'"),
        (("1", "--policy", "best"), "--policy: invalid choice"),
        (("1", "--level", "90"), "--level: '90'"),
        (("--users", "nowhere"), "nowhere cannot be read"),
        (("1", "--out", "best.txt"), "must end in .csv or .parquet"),
    ],
)
def test_recommend_refuses(run: Run, data: Data, more: Sequence[str], says: str) -> None:
    ran = run("recommend", data.model, *more)
    assert ran.status == 2
    assert says in ran.sentence


# -- diagnose -------------------------------------------------------------------------------------


def test_diagnose(run: Run, data: Data) -> None:
    found = run("diagnose", data.model, "--test", data.test, "--json").json
    model = BayesianMF.load(data.model)
    assert found["diagnostics"] == model.diagnose()
    assert (found["chains"], found["draws_per_chain"]) == (2, 48)
    assert found["fit"] == model.report_
    assert found["test"]["rmse"] == model.evaluate(Ratings.read(data.test)).rmse
    assert found["verdict"].startswith("R-hat of predictions ")
    told = run("diagnose", data.model).out
    assert all(f"\n{name} " in told for name in ("prediction", "tau", "lambda_U", "lambda_b"))
    assert "Gibbs: " in told
    assert told.endswith(f"\n\n{found['verdict']}\n")
    assert "RMSE" in run("diagnose", data.model, "--test", data.test).out


def test_diagnose_of_one_state(run: Run, data: Data, tmp_path: Path) -> None:
    assert run("fit", data.train, "--out", tmp_path / "m", *SGD).status == 0
    found = run("diagnose", tmp_path / "m", "--json").json
    assert found["diagnostics"]["prediction"]["rhat"] is None
    assert "cannot be known" in found["verdict"]
    assert "cannot be known" in run("diagnose", tmp_path / "m").out


def test_verdicts() -> None:
    assert verdict(2, 50, 1.01) == "R-hat of predictions 1.010: the 2 chains agree."
    assert "run longer" in verdict(2, 50, 1.2)
    assert "run longer" in verdict(1, 50, float("inf"))
    assert "--chains 2" in verdict(1, 50, 1.01)
    assert "cannot be known" in verdict(2, 3, float("nan"))
    assert "cannot be known" in verdict(2, 50, float("nan"))


# -- synth and demo -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_synth(run: Run, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"s.{suffix}"
    sizes = ("--users", 30, "--items", 20, "--ratings", 200)
    args = ("synth", "--out", out, *sizes, "--factors", 2, "--noise", 0.5, "--seed", 4)
    ran = run(*args)
    assert ran.status == 0
    assert "200 by 30 users of 20 items" in ran.out
    assert "RMSE 0.5" in ran.out
    found, made = Ratings.read(out), Synthetic(30, 20, 200, 2, 0.5, seed=4).ratings()
    assert found.rating.tolist() == made.rating.tolist()
    told = run(*args, "--stars", "--json").json
    assert (told["users"], told["ratings"], told["noise_floor"]) == (30, 200, None)
    assert set(Ratings.read(out).rating.tolist()) <= {1, 2, 3, 4, 5}


def test_synth_like_a_known_shape(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "s.csv"
    found = run("synth", "--out", out, "--shape", "ml-100k", "--scale", 0.01, "--json").json
    assert found["ratings"] == len(Ratings.read(out)) == 1000
    assert found["noise_floor"] == found["noise"] == 0.85


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
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("synth", *options.split())
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()


def test_demo_is_called(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(bayesmf.demo, "run", lambda *args: calls.append(args))
    assert run("demo", "--out", tmp_path, "--seed", 3, "--json").status == 0
    assert calls == [(tmp_path, 3, True)]


# -- in processes of their own --------------------------------------------------------------------


def test_a_fresh_process_predicts_the_same(run: Run, data: Data) -> None:
    fresh = process("predict", data.model, data.test)
    assert (fresh.returncode, fresh.stderr) == (0, "")
    assert fresh.stdout == run("predict", data.model, data.test).out


def test_a_process_says_no_without_a_traceback(tmp_path: Path) -> None:
    ended = process("fit", tmp_path / "nowhere.csv", "--out", tmp_path / "m")
    assert (ended.returncode, ended.stdout) == (2, "")
    nowhere = tmp_path / "nowhere.csv"
    assert ended.stderr == f"bayesmf: error: There is no file or folder {nowhere}.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close otherwise")
def test_a_closed_pipe_is_quiet(data: Data) -> None:
    command = [sys.executable, "-m", "bayesmf", "recommend", str(data.model), "--all"]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=120)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
