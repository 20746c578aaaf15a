"""The paper's experiments: settings as printed, runs kept, numbers traced, verdicts judged."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.errors import InputError
from cli_tools import command
from experiments.paper import claims, figures, search, tables, trials
from experiments.paper import report as report_text
from experiments.paper.__main__ import main
from experiments.paper.datasets import DataSource, load_dataset
from experiments.paper.experiments import ExperimentSettings, spec
from experiments.paper.presets import STEPS, grid_and_chains, make_plan
from experiments.paper.trials import perform

SMALL = (
    "--data", "synthetic:ml-100k", "--scale", "0.2", "--epochs", "5", "--dimensions", "2", "4",
    "--workers", "4", "--settings", "paper", "--jobs", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "report"
    ran = command(main, "all", *SMALL, "--out", out, "--json")
    assert ran.status == 0, ran.err
    return out, ran.json


def _cells(out):
    for file in out.glob("*.csv"):
        with file.open() as stream:
            for row in csv.reader(stream):
                yield from row


def test_everything_is_written(report):
    out, told = report
    for name in ("convergence", "chains", "dimension", "cost"):
        for suffix in (".png", ".svg", ".csv"):
            assert (out / f"{name}{suffix}").stat().st_size > 300
    assert (out / "report.md").read_text().count("![") == 4
    assert len(told["claims"]) == 7
    assert {claim["verdict"] for claim in told["claims"]} <= {
        claims.HOLDS, claims.PART, claims.NOT
    }  # fmt: skip


def test_every_number_of_the_report_stands_in_a_csv(report):
    out, _ = report
    values = set()
    words = set()
    for cell in _cells(out):
        words.update(re.findall(r"[\d.]+", cell))
        try:
            values.add(float(cell))
        except ValueError:
            continue
    known = np.array(sorted(values))
    with (out / "settings.csv").open() as stream:
        settings = dict(csv.reader(stream))
    text = (out / "report.md").read_text().replace(settings["machine"], "")
    # What the paper says and how verdicts are made; names of figures and sections.
    text = re.sub(r"4\.1%|1\.8%|Figures? \d( and \d| [abc](, b)?)?|D = 100|Section 4.2", "", text)
    text = re.sub(r"from 5 times|from 50 times|## .*|on 12 cores", "", text)
    checked = 0
    for token in re.findall(r"(?<![\w.])[+-]?\d[\d,]*\.?\d*(?:e-?\d+)?%?", text):
        plain = token.replace(",", "").rstrip(".")
        value = float(plain.rstrip("%")) / (100 if plain.endswith("%") else 1)
        digits = plain.rstrip("%").partition(".")[2]
        slack = 0.51 * 10.0 ** -len(digits) * (0.01 if plain.endswith("%") else 1)
        if "e" in plain:  # three digits
            slack = 0.006 * value
        near = np.abs(np.abs(known) - abs(value)).min()
        found = near <= slack or plain.rstrip("%") in words
        assert found, f"{token} stands in no CSV"
        checked += 1
    assert checked > 100


def test_runs_are_kept_and_only_missing_ones_are_made(report, monkeypatch):
    out, _ = report
    made = []
    real = trials._carry_out
    monkeypatch.setattr(
        trials, "_carry_out", lambda spec, dataset: made.append(spec) or real(spec, dataset)
    )
    monkeypatch.setattr(figures, "save_both", lambda figure, path: [])  # drawn once is enough
    assert command(main, "all", *SMALL, "--budget", "60", "--out", out).status == 0
    assert made == []  # 60 is the default, 60.0
    victim = sorted((out / "runs").glob("*.json"))[0]
    before = json.loads(victim.read_text())
    victim.unlink()
    assert command(main, "all", *SMALL, "--out", out).status == 0
    assert [spec.key for spec in made] == [before["key"]]
    again = json.loads(victim.read_text())
    assert _by_epoch(again) == _by_epoch(before)  # the same bits, other seconds


def _by_epoch(record):
    trace = record["trace"]
    return dict(
        zip(zip(trace["chain"], trace["epoch"], strict=True), trace["train_rmse"], strict=True)
    )


def test_the_search_looks_at_validation_ratings_alone(tmp_path, monkeypatch):
    seen = []
    real = trials._carry_out
    monkeypatch.setattr(
        trials, "_carry_out", lambda spec, dataset: seen.append(spec) or real(spec, dataset)
    )
    monkeypatch.setattr(search, "PACES", (1.0, 2.0))
    monkeypatch.setattr(search, "REGULARIZATIONS", (4.0, 8.0))
    monkeypatch.setattr(search, "SAMPLERS", ((4.0, 1.0), (8.0, 2.0)))
    monkeypatch.setattr(search, "SEARCH_EPOCHS", 3.0)
    small = [*SMALL[:4], "--epochs", "3", "--dimensions", "2", "4", "--workers", "4", "--jobs", "1"]
    ran = command(main, "search", *small, "--out", tmp_path / "s", "--json")
    found = ran.json["tuned"]
    assert set(found) == {"SGD", "DSGD", "SGLD", "DSGLD-S", "DSGLD-C"}
    assert all(spec.validating for spec in seen)
    assert set(found["SGD"]) == {"2", "4"} and found["SGD"]["4"]["epochs"] <= 3
    assert found["SGLD"]["2"] in ({"mini_batches": 4, "pace": 1}, {"mini_batches": 8, "pace": 2})
    assert json.loads((tmp_path / "s" / "tuned.json").read_text()) == found


def test_parts_do_not_overlap(tmp_path):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.2), tmp_path)
    cells = [
        set(zip(user.tolist(), item.tolist(), strict=True))
        for user, item, _ in dataset.parts.values()
    ]
    assert not cells[0] & cells[1] and not cells[0] & cells[2] and not cells[1] & cells[2]
    assert dataset.floors["noise"] < dataset.floors["bound"]


def test_burn_in_that_never_ends_is_a_run_without_a_result(tmp_path):
    """On the paper's own data burn-in ends at its RMSE, which a short run may not reach."""
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.05), tmp_path)
    settings = ExperimentSettings(DataSource("netflix", "elsewhere"), tmp_path, "paper", epochs=2)
    one = spec(settings, dataset, "SGLD", 2)
    assert one.plan.sampler["burn_in"] == "rmse:0.85"
    assert spec(settings, dataset, "SGLD", epochs=1).plan.sampler["burn_in"] == pytest.approx(0.2)
    hard = replace(one, plan=replace(one.plan, sampler={**one.plan.sampler, "burn_in": "rmse:0.1"}))
    record = perform(hard, dataset, tmp_path / "runs")
    assert record["final"] is None and "never ended" in record["failed"]
    told = report_text._convergence([record], settings, dataset)
    assert tables.cost_rows([record]) == []
    assert "| none |" in told and "has no result: burn-in of chain 0 never ended" in told


def test_settings_are_those_of_the_appendix():
    for model, batch in (("netflix", 50_000), ("yahoo", 100_000)):
        for name, (step, kappa) in STEPS[model].items():
            plan = make_plan(
                name, 9, 30, "paper", model=model, n_ratings=80_000_000, share=1.0, epochs=10
            )
            rule = plan.sampler
            assert (rule["step_size"], rule["kappa"], rule["decay"]) == (step, kappa, 0.51)
            assert (rule["batch_size"], rule["round_length"]) == (batch, 50)
            assert plan.tau == 2.0
            if "LD" in name:
                assert (rule["noise"], rule["precision_every"]) == ("paper", 50)
                assert rule["precisions_from"] == "burn-in"
                assert rule["initial_precision"] == 2.0
                assert plan.beta_0 == 300.0
            else:
                assert plan.beta_0 == 1.0
    assert STEPS["netflix"]["DSGLD-S"] == (3e-6, 500)
    assert STEPS["yahoo"]["DSGD"] == (3e-7, 100)


def test_thinning_is_ten_rounds():
    plan = make_plan(
        "SGLD", 1, 30, "paper", model="netflix", n_ratings=80_000_000, share=1.0, epochs=10
    )
    rounds_per_epoch = 80_000_000 / (50 * 50_000)
    assert plan.sampler["thin"] * rounds_per_epoch == pytest.approx(10)


def test_splits_of_workers():
    assert grid_and_chains("DSGD", 9) == ((9, 9), 1)
    assert grid_and_chains("DSGLD-S", 9) == ((3, 3), 3)
    assert grid_and_chains("DSGLD-C", 9) == ((9, 1), 9)
    with pytest.raises(InputError, match="not a square"):
        grid_and_chains("DSGLD-S", 8)


def _record(name, curve, workers=1, d=30, **more):
    trace = {
        "chain": [0] * len(curve), "epoch": list(range(1, len(curve) + 1)),
        "seconds": [t for t, _ in curve], "burning": [False] * len(curve),
        "rmse": [r for _, r in curve], "rmse_all_chains": [r for _, r in curve],
        "draws": [1] * len(curve),
    }  # fmt: skip
    plan = {"algorithm": name, "workers": workers, "n_factors": d, "sampler": {"n_chains": 1}}
    return {
        "key": name, "plan": plan, "trace": trace, "final": curve[-1][1], "seed": 0,
        "failed": None, "clock_seconds": curve[-1][0], "epochs": float(len(curve)), **more,
    }  # fmt: skip


def test_verdicts_follow_the_numbers():
    gibbs = _record("Gibbs", [(10.0, 0.9), (100.0, 0.81)], workers=12)
    quick = _record("DSGLD-C", [(1.0, 0.9), (8.0, 0.81)], workers=9)
    slow = _record("DSGLD-C", [(1.0, 0.9), (200.0, 0.81)], workers=9)
    assert claims.sooner_than_gibbs([gibbs, quick]).verdict == claims.HOLDS
    verdict = claims.sooner_than_gibbs([gibbs, slow])
    assert verdict.verdict == claims.NOT and "changes the verdict" in verdict.because
    dsgd = _record("DSGD", [(1.0, 0.846)])
    assert claims.accuracy("netflix", [quick, dsgd]).verdict == claims.HOLDS
    close = _record("DSGD", [(1.0, 0.815)])
    assert claims.accuracy("netflix", [quick, close]).verdict == claims.PART
    better = _record("DSGD", [(1.0, 0.80)])
    assert claims.accuracy("netflix", [quick, better]).verdict == claims.NOT


def test_as_fast_as_dsgd_on_the_whole_way():
    dsgd = _record("DSGD", [(1.0, 1.0), (2.0, 0.9), (3.0, 0.86), (4.0, 0.85)])
    ahead = _record("DSGLD-C", [(0.9, 0.9), (2.0, 0.85), (4.0, 0.82)], workers=9)
    late = _record("DSGLD-C", [(2.0, 0.96), (3.0, 0.87), (9.0, 0.82)], workers=9)
    behind = _record("DSGLD-C", [(4.0, 0.96), (8.0, 0.9), (20.0, 0.84)], workers=9)
    found = claims.as_fast_as_dsgd([dsgd, ahead])
    assert found.verdict == claims.HOLDS and found.figures["all_dsgld_seconds"] == 2.0
    assert claims.as_fast_as_dsgd([dsgd, late]).verdict == claims.PART
    assert claims.as_fast_as_dsgd([dsgd, behind]).verdict == claims.NOT
    never = claims.as_fast_as_dsgd([dsgd, _record("DSGLD-C", [(1.0, 0.9)], workers=9)])
    assert never.verdict == claims.PART and "never" in never.because
    assert claims.as_fast_as_dsgd([ahead]).verdict == claims.NOT


def test_cost_is_judged_at_the_largest_dimension():
    sgld = _record("SGLD", [(1.0, 0.9)], d=100)
    for seconds, verdict in ((80.0, claims.HOLDS), (10.0, claims.PART), (2.0, claims.NOT)):
        found = claims.cost_of_gibbs([sgld, _record("Gibbs", [(seconds, 0.9)], d=100)])
        assert found.verdict == verdict


def test_dimension_needs_sampling_to_improve_and_sgd_not_to():
    def curve(name, values):
        return [_record(name, [(1.0, v)], d=d) for d, v in zip((30, 60, 100), values, strict=True)]

    falls, rises = (0.82, 0.81, 0.80), (0.84, 0.85, 0.84)
    mcmc = curve("SGLD", falls) + curve("DSGLD-C", falls) + curve("DSGLD-S", falls)
    assert claims.better_with_dimension(mcmc + curve("SGD", rises)).verdict == claims.HOLDS
    assert claims.better_with_dimension(mcmc + curve("SGD", falls)).verdict == claims.PART
    worse = curve("SGLD", rises) + curve("DSGLD-C", rises)
    assert claims.better_with_dimension(worse + curve("SGD", rises)).verdict == claims.NOT


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["all", "--data", "nothing:x"], "none of netflix:PATH"),
        (["all", "--data", "synthetic:nothing"], "the shapes are"),
        (["all", "--workers", "8"], "not a square"),
        (["all", "--scale", "2"], "at most 1"),
        (["convergence", "--data", "netflix:missing"], "missing"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, given, sentence):
    ran = command(main, *given, "--out", tmp_path / "out")
    assert ran.status == 2
    assert sentence in ran.err and ran.err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_cost_says_beforehand_how_long_it_takes_and_searches_for_nothing(tmp_path):
    """Three passes of each need no good steps: the search was most of five minutes."""
    args = ("cost", "--scale", "0.0002", "--budget", "1", "--dimensions", "3", "4",
            "--jobs", "1", "--out", tmp_path / "r")  # fmt: skip
    ran = command(main, *args)
    assert ran.status == 0, ran.err
    assert "cost: 10 trials to run, of at most 1 s each by their own clock; about " in ran.err
    assert not (tmp_path / "r" / "tuned.json").exists()
    kept = [json.loads(file.read_text()) for file in (tmp_path / "r" / "runs").iterdir()]
    assert len(kept) == 10
    again = command(main, *args)
    assert again.status == 0 and again.err == ""


def test_a_run_keeps_to_its_budget(tmp_path):
    """By its own clock, which ends it at the end of a round: three passes would take longer."""
    args = ("cost", "--scale", "0.0002", "--dimensions", "3", "--jobs", "1", "--out")
    epochs = {}
    for budget in ("60", "1e-4"):
        assert command(main, *args, tmp_path / budget, "--budget", budget).status == 0
        kept = [json.loads(one.read_text()) for one in (tmp_path / budget / "runs").iterdir()]
        epochs[budget] = {one["plan"]["algorithm"]: one["epochs"] for one in kept}
    assert set(epochs["60"].values()) == {3.0}
    assert all(epochs["1e-4"][name] < 3 for name in ("SGLD", "DSGLD-S", "Gibbs"))
