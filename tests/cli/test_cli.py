"""The command line: what it says of itself, `bayesmf fit`, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bayesmf import BayesianMF, Ratings, __version__, cli
from bayesmf.cli import COMMANDS, fit, fit_options
from cli_tools import QUICK, SGLD, Data, contents, run
from forged import file_contents

# -- help and the command itself ------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_ends_with_an_example(command: str) -> None:
    ran = run(command, "-h")
    assert (ran.status, ran.err) == (0, "")
    assert f"  bayesmf {command} " in ran.out.partition("example:\n")[2]


def test_help_and_version() -> None:
    told = run("--help").out
    assert all(f"  {command} " in told for command in COMMANDS)
    assert run("--version") == (0, f"bayesmf {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "says", "see"),
    [
        ([], "a command is needed", "bayesmf -h"),
        (["fti"], "unknown command 'fti'", "bayesmf -h"),
        (["--nonsense"], "--nonsense", "bayesmf -h"),
        (["fit"], "--out", "bayesmf fit -h"),
        (["fit", "--out", "m"], "RATINGS", "bayesmf fit -h"),
        (["fit", "r.csv", "--out", "m", "--facto", "3"], "--facto", "bayesmf fit -h"),
        (["evaluate", "m"], "TEST", "bayesmf evaluate -h"),
    ],
)
def test_wrong_command_lines(args: list[str], says: str, see: str) -> None:
    ran = run(*args)
    assert ran.status == 2
    assert says in ran.sentence
    assert ran.sentence.endswith(f"(see {see})")


# -- fit ------------------------------------------------------------------------------------------


def test_fit_tells_people(data: Data, tmp_path: Path) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", "--test", data.test, *QUICK)
    assert (ran.status, ran.err) == (0, "")
    facts = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert {"ratings", "sampler", "time", "RMSE", "coverage", "saved"} <= set(facts)
    assert facts["ratings"].strip() == "720 by 60 users of 40 items"
    assert "+/-" in facts["RMSE"]


def test_fit_tells_programs(data: Data, tmp_path: Path) -> None:
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
    assert (found["factors"], found["prior"], found["model"]) == (3, "wishart-bias", str(out))
    assert found["sampler"]["rule"] == "Gibbs"
    assert 0 < found["test"]["rmse_se"] < 0.2


def test_fit_holds_a_share_out(data: Data, tmp_path: Path) -> None:
    out = tmp_path / "m"
    found = run("fit", data.train, "--out", out, "--holdout", "0.25", "--json", *QUICK).json
    assert (found["ratings"], found["test"]["n"]) == (540, 180)
    _, rest = Ratings.read(data.train).split(0.25, random_state=0)
    assert found["rmse"] == BayesianMF.load(out).evaluate(rest).rmse
    for share, also in (("0", ()), ("1", ()), ("0.1", ("--test", data.test))):
        ran = run("fit", data.train, "--out", tmp_path / "n", "--holdout", share, *also, *QUICK)
        assert (ran.status, ran.out) == (2, "")


def test_fit_by_defaults(data: Data, tmp_path: Path) -> None:
    found = run("fit", data.train, "--out", tmp_path / "m", "--json").json
    assert found["sampler"]["rule"] == "Gibbs"
    assert [found[name] for name in ("rmse", "mae", "nll", "crps", "coverage")] == [None] * 5


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (
            "sgld --grid 2x3 --chains 2 --epochs 7 --burn-in stationary --thin 2 --batch-size 100 "
            "--round-length 3 --step-size 1e-4 --kappa 20 --decay 0.33 --noise paper "
            "--minibatch replacement --precision-every 2 --precisions-from burn-in "
            "--initial-precision 3.5 --visits size --group-size 2 --shuffle-groups",
            {
                "grid": "2x3", "n_chains": 2, "epochs": 7, "burn_in": "stationary", "thin": 2,
                "batch_size": 100, "round_length": 3, "step_size": 1e-4, "kappa": 20,
                "decay": 0.33, "noise": "paper", "minibatch": "replacement", "precision_every": 2,
                "precisions_from": "burn-in", "initial_precision": 3.5, "visits": "size",
                "group_size": 2, "shuffle_groups": True,
            },
        ),
        ("sgld --grid 2x2 --visits 1,2 --burn-in 3", {"visits": [1, 2], "burn_in": 3}),
        ("sgd --regularization 5 --grid 2x2", {"regularization": 5, "grid": "2x2"}),
        ("gibbs --thin 3 --burn-in 0 --epochs 5", {"thin": 3, "burn_in": 0, "epochs": 5}),
        ("gibbs --sgd-epochs 2.5", {"sgd_epochs": 2.5}),
    ],
)  # fmt: skip
def test_sampler_settings(options: str, settings: dict[str, Any]) -> None:
    given = ["r.csv", "--out", "m", "--sampler", *options.split()]
    sampler = fit_options.make_sampler(fit.parser().parse_args(given))
    assert {name: getattr(sampler, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--tau 1.5", "tau", 1.5),
        ("--tau sample", "tau", "sample"),
        ("--prior gamma --alpha0 2", "alpha_0", 2),
        ("--prior gamma --beta0 3", "beta_0", 3),
        ("--prior wishart-bias --mu0 -0.5", "mu_0", -0.5),
        ("--prior wishart-bias --kappa0 9", "kappa_0", 9),
        ("--prior wishart-bias --nu0 20", "nu_0", 20),
        ("--prior wishart --w0 0.2", "W_0", 0.2),
        ("--no-standardize", "standardize", False),
        ("--max-draws 5", "max_draws", 5),
        ("--keep items", "keep", "items"),
        ("--keep both", "keep", "both"),
        ("--engine serial", "engine", "serial"),
        ("--workers 2", "n_workers", 2),
    ],
)
def test_model_settings(data: Data, tmp_path: Path, option: str, name: str, value: Any) -> None:
    def fit(*more: str) -> dict[str, Any]:
        return run("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK, *more).json

    plain, found = fit(), fit(*option.split())
    assert found["settings"][name] == value
    if option.split()[0] in ("--engine", "--workers", "--keep") or value == "sample":
        assert found["tau"] == plain["tau"]
    else:
        assert (found["tau"], found["draws"]) != (plain["tau"], plain["draws"])
    if option == "--tau 1.5":
        assert found["tau"] == pytest.approx(1.5)


def test_what_is_saved_of_a_model(data: Data, tmp_path: Path) -> None:
    def fit(name: str, *more: str) -> set[str]:
        folder = tmp_path / name
        two = ("--chains", "2", "--seed", "1")
        told = run(
            "fit", data.train, "--out", folder, "--test", data.test, "--json", *QUICK, *two, *more
        )
        assert told.json["draws"] == 16 and told.json["rmse"] == pytest.approx(rmse, rel=0.05)
        return set(file_contents(folder)[0])

    rmse = run("evaluate", data.model, data.test, "--json").json["rmse"]
    plain = fit("plain")
    assert plain >= {"items", "item_means", "seen_values", "user_id_ids"} and "users" not in plain
    assert fit("users", "--keep", "users") >= {"users", "user_means", "seen_values"}
    assert fit("both", "--keep", "both") == plain | {"users", "user_means"}
    assert len(BayesianMF.load(tmp_path / "both").posterior_.draws) == 16
    # The scores above are those of the whole model; what is saved of it may be less.
    alone = fit("items", "--no-users", "--max-saved-draws", "4")
    assert not any(name.startswith(("users", "user_id", "user_means", "seen")) for name in alone)
    saved = BayesianMF.load(tmp_path / "items")
    assert len(saved.posterior_.draws) == saved.report_["draws"] == 4 and saved.keep == "items"
    ran = run("recommend", tmp_path / "items", "--all", "--json")
    assert (ran.status, "saved without its users" in ran.err) == (2, True)
    best = run("recommend", tmp_path / "items", "17", "-n", "2", "--json").json["recommendations"]
    assert len(best[0]["items"]) == 2 and not best[0]["known"]
    for command in (("diagnose", tmp_path / "items"), ("evaluate", tmp_path / "items", data.test)):
        assert run(*command).status == 0


def test_without_users_items_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where users would be kept otherwise, being far fewer."""
    monkeypatch.setattr("bayesmf.run.settings.DRAW_BYTES", 10_000)
    (tmp_path / "few.csv").write_text(
        "user,item,rating\n" + "".join(f"{k % 5},{k},{k % 3 + k % 5}\n" for k in range(100))
    )
    made = ("fit", tmp_path / "few.csv", "--out", tmp_path / "m", *QUICK)
    for more, has_users in (((), True), (("--no-users",), False)):
        assert run(*made, *more).status == 0
        found = BayesianMF.load(tmp_path / "m").posterior_
        assert found.users_kept == found.ratings.has_users == has_users


def test_validation_is_followed_and_test_is_not(data: Data, tmp_path: Path) -> None:
    args = ("fit", data.train, "--out", tmp_path / "m", "--json", *QUICK)
    assert run(*args, "--test", data.test).json["validation_rmse"] is None
    followed = run(*args, "--validation", data.test).json["validation_rmse"]
    assert followed == run("evaluate", tmp_path / "m", data.test, "--json").json["rmse"]
    found = run(*args, "--burn-in", "rmse:5", "--validation", data.test).json
    assert found["sampler"]["burn_in"] == "rmse:5"
    found = run(*args, "--burn-in", "mean-rmse:5", "--validation", data.test).json
    assert found["sampler"]["burn_in"] == "mean-rmse:5"


def test_files_are_read_as_told(data: Data, tmp_path: Path) -> None:
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
    data: Data, tmp_path: Path, sampler: Sequence[str]
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
    ("--factors 99999999999999999999", "too large"),
    ("--sampler sgld --grid 0x2", "--grid: '0x2'"),
    ("--sampler sgld --grid 999x999", "60x40"),
    ("--sampler gibbs --grid 2x2", "--grid does nothing in gibbs: use --sampler sghmc or"),
    ("--sampler sgd --noise paper", "--noise does nothing in sgd: use --sampler sgld"),
    ("--sgd-epochs 5", "--sgd-epochs does nothing in auto: use --sampler gibbs"),
    ("--grid 2x2", "--grid does nothing in auto: use --sampler sghmc or --sampler sgnht"),
    ("--sampler gibbs --epochs 5 --burn-in 7", "leaves no draw"),
    ("--sampler gibbs --burn-in soon", "--burn-in: 'soon'"),
    ("--sampler gibbs --burn-in rmse:x", "--burn-in: 'rmse:x'"),
    ("--sampler gibbs --burn-in rmse:0.8", "needs --validation"),
    ("--sampler gibbs --burn-in mean-rmse:-1", "--burn-in: 'mean-rmse:-1'"),
    ("--sampler gibbs --burn-in mean-rmse:0.8", "needs --validation"),
    ("--sampler sgld --decay 1.5", "--decay: '1.5'"),
    ("--sampler sgld --visits 1,-2", "--visits: '1,-2'"),
    ("--sampler sgld --grid 3x2 --group-size 3", "of a 3x2 grid must be at most 2"),
    ("--tau 0", "--tau: '0'"),
    ("--sampler sgd --alpha0 2", "--alpha0 is for --prior gamma"),
    ("--prior wishart --tau 1 --beta0 2", "--beta0 is for --prior gamma"),
    (
        "--prior gamma --kappa0 2",
        "--kappa0 is for --prior wishart or wishart-bias, and may",
    ),
    ("--sampler sgld --w0 2", "no effect with --prior auto: add --prior wishart or wishart-bias"),
    ("--sampler sgd --prior wishart --mu0 2", "may have no effect with --sampler sgd"),
    ("--prior wishart --nu0 1", "must be above"),
    ("--engine serial --workers 2", "--workers is for the other engines"),
    ("--workers 0", "--workers: '0'"),
    ("--max-draws 0", "--max-draws: '0'"),
    ("--keep neither", "--keep: invalid choice"),
    ("--no-users --keep users", "--no-users leaves nothing of a model with --keep users"),
    ("--columns person=3", "--columns: 'person=3'"),
    ("--columns user=nobody", "no column 'nobody'"),
    ("--format odd", "format 'odd' is not known"),
    ("--test nowhere.csv", "nowhere.csv"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_fit_refuses(data: Data, tmp_path: Path, options: str, says: str) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", "--json", *options.split())
    assert ran.status == 2
    assert says in ran.sentence
    assert contents(tmp_path) == set()


def test_fit_checks_its_out_before_it_reads(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    for out in ("foreign", "foreign/letter.txt", "foreign/letter.txt/below"):
        # The ratings do not exist either; the place of the model is looked at first.
        ran = run("fit", tmp_path / "nowhere.csv", "--out", tmp_path / out)
        assert ran.status == 2
        assert str(tmp_path / out) in ran.sentence
    assert contents(tmp_path / "foreign") == {"letter.txt"}
    assert (tmp_path / "foreign" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--epochs 5 --target accurate", "--target does nothing with --epochs"),
        ("--sampler sgld --target fast", "--target does nothing with --sampler sgld"),
        ("--factor 3", "unrecognized arguments: --factor 3; did you mean '--factors'?"),
        ("--sampler gibs", "did you mean 'gibbs'?"),
        ("another.csv", "unrecognized arguments: another.csv (see"),
        ("--verbose", "unrecognized arguments: --verbose (see"),
        ("--holdout 10", "'10' is not a share between 0 and 1, such as 0.1"),
    ],
)
def test_options_that_cannot_be_meant(data: Data, tmp_path: Path, options: str, says: str) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", *options.split())
    assert ran.status == 2 and says in ran.sentence
    assert contents(tmp_path) == set()


def test_advice_is_for_the_sampler_that_ran(data: Data, tmp_path: Path) -> None:
    for options, todo in (
        ((*SGLD, "--step-size", "1e-9"), "with --epochs 60."),
        (("--max-seconds", "1e-9"), "--max-seconds"),
    ):
        ran = run("fit", data.train, "--out", tmp_path / "m", *options)
        told = " ".join(ran.out.split())
        assert ran.status == 0 and todo in told and "--target" not in told
        assert todo in " ".join(run("diagnose", tmp_path / "m").out.split())


def test_evaluate_says_how_many_ratings_were_learnt_from(data: Data) -> None:
    ran = run("evaluate", data.model, data.train)
    assert "720 of them in the training data, which flatters the scores" in ran.out
    assert (
        "Intervals cannot be judged by these ratings: 720 of 720 are in the training data"
        in " ".join(ran.out.split())
    )
    assert "flatters" not in run("evaluate", data.model, data.test).out


@pytest.mark.parametrize(
    "line",
    ["fit a SURPLUS --out m", "predict m p SURPLUS", "evaluate m t SURPLUS", "diagnose m SURPLUS",
     "synth SURPLUS --out s.csv", "demo SURPLUS"],
)  # fmt: skip
def test_a_word_too_many(line: str) -> None:
    assert "unrecognized arguments: SURPLUS" in run(*line.split()).sentence


def test_a_command_that_is_none() -> None:
    assert "did you mean 'recommend'?" in run("recomend", "m").sentence


def test_divergence_is_status_1(data: Data, tmp_path: Path) -> None:
    ran = run("fit", data.train, "--out", tmp_path / "m", *SGLD, "--step-size", 1000)
    assert ran.status == 1
    assert "--step-size" in ran.sentence
    assert contents(tmp_path) == set()


def test_what_nobody_foresaw_is_a_sentence(monkeypatch: Any) -> None:
    def fail(args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert "not enough memory" in run("fit").sentence
    monkeypatch.setattr(cli, "_dispatch", lambda args: 1 / 0)
    assert run("fit").sentence.startswith("unexpected ZeroDivisionError")
