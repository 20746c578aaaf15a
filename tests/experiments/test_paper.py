"""The paper's experiments: settings as printed, runs kept, numbers traced, verdicts judged."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import SGLD, Ratings, Synthetic
from bayesmf.chains.pairs import IntegratedPairs
from bayesmf.errors import InputError
from bayesmf.run.driver import start_run
from bayesmf.run.prepare import prepare, prepare_validation
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.base import DataShape
from bayesmf.samplers.registry import sampler_from, settings_dict
from bayesmf.samplers.schedules import Thinning, burn_in_rule
from cli_tools import command
from experiments.paper import (
    experiments,
    figures,
    tables,
    trials,
    verdicts,
)
from experiments.paper.__main__ import main, note_excerpt
from experiments.paper.datasets import DataSource, load_dataset
from experiments.paper.estimates import Estimates
from experiments.paper.experiments import (
    ExperimentSettings,
    Job,
    perform_all,
    spec,
    with_burn_in,
)
from experiments.paper.presets import SINGLE, STEPS, grid_and_chains, make_plan
from experiments.paper.trials import (
    best_rmse,
    burn_in_of,
    by_draws,
    make_links_engine,
    perform,
    shown,
)
from experiments.simulated import Simulated

SMALL = (
    "--data", "synthetic:ml-100k", "--scale", "0.2", "--epochs", "5", "--dimensions", "2", "4",
    "--workers", "4", "--jobs", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "report"
    ran = command(main, "all", *SMALL, "--out", out, "--json")
    assert ran.status == 0, ran.err
    return out, ran.json


def test_everything_is_written(report):
    out, told = report
    for name in ("convergence", "chains", "dimension", "cost"):
        for suffix in (".png", ".csv"):
            assert (out / f"{name}{suffix}").stat().st_size > 300
    assert (out / "report.md").read_text().count("![") == 5
    assert len(told["claims"]) == len(verdicts.claims_about("netflix"))
    assert {claim["verdict"] for claim in told["claims"]} <= {
        verdicts.HOLDS, verdicts.PART, verdicts.NOT, verdicts.UNTESTED
    }  # fmt: skip


def test_errors_of_the_report_stand_in_a_csv(report):
    out, _ = report
    cells = ",".join(file.read_text() for file in out.glob("*.csv"))
    known = np.array([float(x) for x in re.findall(r"(?<![\w.-])\d+\.\d+(?![\w.])", cells)])
    found = re.findall(r"(?<![\w.])\d\.\d{4}(?![\d%])", (out / "report.md").read_text())
    assert len(found) > 50
    assert [x for x in found if np.abs(known - float(x)).min() > 0.51e-4] == []


def test_runs_are_kept_and_only_missing_ones_are_made(report, monkeypatch):
    out, _ = report
    made = []
    real = trials._carry_out
    monkeypatch.setattr(
        trials, "_carry_out", lambda spec, dataset: made.append(spec) or real(spec, dataset)
    )
    monkeypatch.setattr(figures, "save", lambda figure, path: path)  # drawn once is enough
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


def test_parts_do_not_overlap(tmp_path):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.2), tmp_path)
    cells = [
        set(zip(user.tolist(), item.tolist(), strict=True))
        for user, item, _ in dataset.parts.values()
    ]
    assert not cells[0] & cells[1] and not cells[0] & cells[2] and not cells[1] & cells[2]
    assert dataset.floors["noise"] < dataset.floors["bound"] < dataset.biases < dataset.mean_rmse()


def test_burn_in_that_never_ends_is_a_run_without_a_result(tmp_path):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.05), tmp_path)
    settings = ExperimentSettings(dataset.source, tmp_path, epochs=2, burn_in=0.1)
    one = spec(settings, dataset, "SGLD", 2)
    assert one.plan.sampler["burn_in"] == "mean-rmse:0.1"
    assert spec(settings, dataset, "SGLD", epochs=1).plan.sampler["burn_in"] == pytest.approx(0.2)
    for limit in (60.0, 1e-4):  # by epochs, and by time
        record = perform(replace(one, seconds=limit), dataset, tmp_path / "runs")
        assert record["final"] is None and "never ended" in record["failed"]
        assert record["burn_in"] == {"rule": "mean-rmse:0.1", "ended": None, "by": "never"}
        assert tables.cost_rows([record]) == []
    # Rounds of several passes: time ends before any error is known.
    plan = replace(one.plan, sampler={**one.plan.sampler, "batch_size": 5000, "round_length": 9})
    record = perform(replace(one, plan=plan, seconds=1e-4), dataset, tmp_path / "runs")
    assert "never ended" in record["failed"] and record["final"] is None


HEADERS = {
    "netflix": (DataShape(80_384_405, 480_189, 17_770, 1.0), 50_000, 9),
    "yahoo": (DataShape(699_640_226, 1_823_179, 136_736, 1.0), 100_000, 16),
}
# Rounds of a pass by hand: groups x mini-batches of a block / 50. On Netflix a block of 1 x 1 has
# 1,608 mini-batches, of 3 x 3 and 9 x 1 179, of 9 x 9 20; on Yahoo 6,996, 437 (4 x 4, 16 x 1), 27.
ROUNDS = {
    "netflix": {
        "SGD": 1608 / 50, "SGLD": 1608 / 50, "DSGD": 9 * 20 / 50, "DSGLD-S": 3 * 179 / 50,
        "DSGLD-C": 9 * 179 / 50, SINGLE: 9 * 179 / 50,
    },
    "yahoo": {
        "SGD": 6996 / 50, "SGLD": 6996 / 50, "DSGD": 16 * 27 / 50, "DSGLD-S": 4 * 437 / 50,
        "DSGLD-C": 16 * 437 / 50, SINGLE: 16 * 437 / 50,
    },
}  # fmt: skip


@pytest.mark.parametrize("model", HEADERS)
@pytest.mark.parametrize("name", ROUNDS["netflix"])
def test_sizes_are_as_printed(model, name):
    """By the numbers of ratings in the files' headers: no data are needed."""
    shape, batch, workers = HEADERS[model]
    kind = {"netflix": "netflix", "yahoo": "yahoo-r2"}[model]
    share = DataSource(kind, "folder").share(shape.n_ratings)
    assert share == 1.0
    plan = make_plan(
        name, workers, 30, model=model, shape=shape, share=share, epochs=10,
        burn_in="mean-rmse:0.85",
    )  # fmt: skip
    rule = sampler_from(plan.sampler).resolve(shape)
    assert (rule.batch_size, rule.round_length) == (batch, 50)
    per_epoch = rule.rounds_per_epoch(shape)
    assert per_epoch == pytest.approx(ROUNDS[model][name])
    step, kappa = STEPS[model]["DSGLD-C" if name == SINGLE else name]
    # As many blocks as the printed v counts a gradient for: docs/deviations.md.
    group = 1 if name == SINGLE else min(grid_and_chains(name, workers)[0])
    assert (rule.step_size, rule.kappa, rule.decay) == (group * step, kappa, 0.51)
    assert plan.tau == 2.0
    if name in ("SGD", "DSGD"):
        assert (plan.beta_0, rule.regularization) == (1.0, 2.0)
        return
    assert (rule.noise, rule.precision_every, rule.precisions_from) == ("paper", 50, "burn-in")
    assert (rule.initial_precision, plan.beta_0) == (2.0, 300.0)
    assert str(burn_in_rule(rule.burn_in)) == "mean-rmse:0.85"
    thinning = Thinning.spread(1234, rule.thin * per_epoch, 10**6)
    assert [k for k in range(1234) if thinning.keeps(k)] == list(range(9, 1234, 10))


def test_parts_of_the_data_keep_their_proportions():
    assert DataSource("netflix", "folder", 0.1).share(7) == 0.1
    assert DataSource("synthetic", "yahoo", 0.001).share(7) == 0.001
    assert DataSource("movielens", "ml-1m").share(900_188) == pytest.approx(900_188 / 80_384_405)
    assert DataSource("csv", "ratings.csv").share(10**9) == 1.0
    shape = DataShape(900_188, 6040, 3706, 1.0)
    plan = make_plan("SGLD", 1, 30, model="netflix", shape=shape, share=900_188 / 80_384_405)
    assert plan.sampler["batch_size"] == 560 and plan.beta_0 == 300
    assert STEPS["netflix"]["DSGLD-S"] == (3e-6, 500)
    assert STEPS["yahoo"]["DSGD"] == (3e-7, 100)


def test_default_settings_are_the_librarys():
    shape, share = HEADERS["netflix"][0], 1.0
    plan = make_plan(
        "DSGLD-S", 4, 5, model="netflix", shape=shape, share=share, settings="default", epochs=40
    )
    assert plan.sampler == settings_dict(SGLD(grid=(2, 2), n_chains=2, epochs=40))
    assert (plan.tau, plan.beta_0, plan.standardize) == (None, 1.0, True)


def test_gibbs_is_the_papers_baseline():
    shape, _, _ = HEADERS["netflix"]
    plan = make_plan("Gibbs", 9, 30, model="netflix", shape=shape, share=1.0, epochs=40)
    rule = sampler_from(plan.sampler)
    assert (plan.prior, plan.workers, plan.shared_memory) == ("wishart", 12, True)
    assert (rule.overrelax, rule.burn_in, rule.epochs, rule.joint) == (0.0, 0, 40, None)
    assert rule.sgd_epochs > 0 and plan.tau == 2.0


def test_the_validation_part_counts_as_training_ratings(tmp_path):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.2), tmp_path)
    n = len(dataset.train())
    assert dataset.shape().n_ratings == n == 16_000
    settings = ExperimentSettings(dataset.source, tmp_path)
    rule = sampler_from(spec(settings, dataset, "SGLD", 2).plan.sampler)
    assert rule.thin * rule.resolve(dataset.shape()).rounds_per_epoch(dataset.shape()) == (
        pytest.approx(10)
    )


def _lines(path, rows, separator="\t"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))


def test_yahoos_test_files_are_the_test_part(tmp_path):
    rng = np.random.default_rng(0)
    train = {(int(u), int(i)): int(r) for u, i, r in rng.integers(1, 6, (60, 3))}
    rows = [(u, i, r) for (u, i), r in train.items()]
    _lines(tmp_path / "r2" / "train_0.txt", rows[:10])
    _lines(tmp_path / "r2" / "train_1.txt", rows[10:])
    _lines(tmp_path / "r2" / "test_0.txt", [(rows[0][0], 77, 4), (rows[3][0], rows[5][1], 2)])
    _lines(tmp_path / "r2" / "test_1.txt", [(99, 77, 5)])
    source = DataSource.parse(str(tmp_path / "r2"), 1.0, 0)
    assert (source.kind, source.model, source.share(17)) == ("yahoo-r2", "yahoo", 1.0)
    dataset = load_dataset(source, tmp_path)
    ids = Ratings.read(tmp_path / "r2")
    found = dataset.train()
    assert {
        (int(ids.user_ids.ids[u]), int(ids.item_ids.ids[i]), int(r))
        for u, i, r in zip(found.users, found.items, found.rating, strict=True)
    } == set(rows)
    user, item, rating = dataset.parts["test"]
    assert rating.tolist() == [4, 2, 5]
    assert ids.user_ids.ids[user[0]] == rows[0][0] and item[0] >= dataset.n_items
    assert (ids.user_ids.ids[user[1]], ids.item_ids.ids[item[1]]) == (rows[3][0], rows[5][1])
    assert user[2] >= dataset.n_users and item[2] >= dataset.n_items
    part = load_dataset(replace(source, scale=0.5), tmp_path)
    assert 0 < part.n_users < dataset.n_users and (part.parts["test"][0] < part.n_users).all()
    (tmp_path / "r2" / "test_0.txt").unlink()
    (tmp_path / "r2" / "test_1.txt").unlink()
    with pytest.raises(InputError, match=r"has no test_\*.txt"):
        load_dataset(replace(source, seed=1), tmp_path)


@pytest.mark.parametrize("scale", [1e-6, 1e-5])
def test_too_few_ratings_are_named_with_their_scale(tmp_path, scale):
    with pytest.raises(
        InputError, match=f"ml-100k at --scale {scale:g} has . rating.*larger --scale"
    ):
        load_dataset(DataSource("synthetic", "ml-100k", scale), tmp_path)


def test_folders_are_recognised(tmp_path, capsys):
    (tmp_path / "nf" / "training_set").mkdir(parents=True)
    for movie in (1, 2):
        lines = "".join(f"{user},{1 + user % 5},2005-09-06\n" for user in range(1, 11))
        (tmp_path / "nf" / "training_set" / f"mv_{movie:07}.txt").write_text(f"{movie}:\n{lines}")
    netflix = DataSource.parse(str(tmp_path / "nf"), 1.0, 0)
    assert (netflix.kind, netflix.model, netflix.test_share) == ("netflix", "netflix", 0.2)
    dataset = load_dataset(netflix, tmp_path)
    assert (dataset.shape().n_ratings, len(dataset.parts["test"][0]), dataset.share) == (16, 4, 1.0)
    note_excerpt(netflix, dataset)
    assert "nf has 16 training ratings, not 80,384,405" in capsys.readouterr().err
    _lines(tmp_path / "ml" / "ratings.dat", [(u, i, 3, 9) for u in (1, 2) for i in (5, 6)], "::")
    movielens = DataSource.parse(str(tmp_path / "ml"), 1.0, 0)
    assert (movielens.kind, movielens.title) == ("movielens", "MovieLens (ml)")
    assert not movielens.of_paper and netflix.of_paper


def test_burn_in_ends_at_the_printed_rmse_or_by_dsgd(tmp_path):
    source = DataSource("synthetic", "ml-100k", 0.2)
    settings = ExperimentSettings(source, tmp_path, epochs=3, workers=4, dimensions=(2,))
    ((one, dataset),) = with_burn_in([settings.of_seed(0)])
    dsgd = perform(spec(one, dataset, "DSGD"), dataset, settings.runs)
    best, ratings = best_rmse(dsgd["trace"]), dataset.train().rating.astype(float)
    start = np.sqrt(np.mean((dataset.parts["test"][2] - ratings.mean()) ** 2))
    assert one.burn_in == pytest.approx(start - 0.8 * (start - best), rel=1e-4)
    assert spec(one, dataset, "DSGLD-C").plan.sampler["burn_in"] == f"mean-rmse:{one.burn_in:g}"
    given = replace(settings, burn_in=0.9)
    assert with_burn_in([given.of_seed(0)])[0][0].burn_in == 0.9
    for kind, printed in (("netflix", 0.85), ("yahoo-r2", 1.08)):
        real = replace(one, source=DataSource(kind, "folder"), burn_in=None)
        assert with_burn_in([(real, dataset)])[0][0].burn_in == printed


@pytest.fixture(scope="module")
def watched():
    """A run of DSGLD-S whose draws are all stored, and its estimates."""
    ratings = Synthetic(60, 40, 1400, random_state=0).ratings()
    train, test = ratings.split(0.2, random_state=0)
    made = prepare(train, standardize=False)
    unseen = Ratings([*test.users, 999], [*test.items, 999], [*test.rating, 3.0])
    known = prepare_validation(unseen, made)
    pairs = known.pairs
    exact = IntegratedPairs(pairs.user, pairs.item, pairs.rated, made.data, "items")
    engine = Simulated(4, rate=1e6)
    found = Estimates.of(
        known, exact, chains=2, scale=made.scale, workers=4, engine=engine, algorithm="DSGLD-S"
    )
    sampler = SGLD(
        grid=(2, 2), n_chains=2, epochs=12, burn_in=2, noise="paper", step_size=1e-3,
        precision_every=2, thin=0.5, batch_size=100,
    )  # fmt: skip
    wanted = FitSettings(
        3, sampler, prior="gamma", tau=2.0, noise_by=None, keep="both", max_draws=1000,
        random_state=0, engine=engine,
    )  # fmt: skip
    done = start_run(
        made.data, wanted, scale=made.scale, validation=replace(known, pairs=found),
        callbacks=(found,),
    )  # fmt: skip
    return made, known, found, done


def test_the_printed_estimator_is_the_mean_over_stored_draws(watched):
    made, known, found, done = watched
    draws, pairs = done.draws, known.pairs
    n = len(draws)
    assert n == found.printed.count == 2 * 20
    mean = np.mean([_drawn(draws, t, pairs) for t in range(n)], axis=0)
    assert np.abs(found.printed.mean() - mean).max() < 1e-6
    errors = np.clip(mean, known.low, known.high) - known.value
    rmse = made.scale * np.sqrt(np.mean(errors**2))
    assert found.rmse(found.printed) == pytest.approx(rmse, abs=1e-6)
    trace = found.trace()
    assert trace["rmse_all"][-1] == pytest.approx(rmse, abs=1e-6)
    assert trace["draws_all"][-1] == n


def test_the_exact_estimator_is_of_one_draw_in_several(watched):
    """Of each chain's draws 1, 5, 9, ...; tests/chains/test_watched_pairs.py has its numbers."""
    _, known, found, done = watched
    draws, chain = done.draws, np.asarray(done.draws.chain)
    assert found.exact.count == found.same.count == 2 * 5
    chosen = [t for c in (0, 1) for t in np.flatnonzero(chain == c)[::4]]
    printed = np.mean([_drawn(draws, t, known.pairs) for t in chosen], axis=0)
    assert np.abs(found.same.mean() - printed).max() < 1e-6
    assert 1e-3 < np.abs(found.exact.mean() - printed).max() < 1


def test_thinned_are_as_many_draws_as_one_chain_has(watched):
    """Of two chains every second draw."""
    _, known, found, done = watched
    draws, chain = done.draws, np.asarray(done.draws.chain)
    chosen = [t for c in (0, 1) for t in np.flatnonzero(chain == c)[1::2]]
    assert found.thinned.count == len(chosen) == 20
    mean = np.mean([_drawn(draws, t, known.pairs) for t in chosen], axis=0)
    assert np.abs(found.thinned.mean() - mean).max() < 1e-6
    assert by_draws(found.trace(), thinned=True)[-1][0] == 20


def _drawn(draws, t, pairs):
    """U_i . V_j + biases of a draw; 0 of unknown users and items."""
    u, v = (rows[t].astype(np.float64)[at] for rows, at in
            ((draws.users, pairs.user), (draws.items, pairs.item)))  # fmt: skip
    seen = (pairs.user >= 0) & (pairs.item >= 0)
    return np.where(seen, (u[:, :3] * v[:, :3]).sum(1) + u[:, 3] + v[:, 3], 0.0)


def test_a_trace_has_burn_in_then_the_average_of_all_chains(watched):
    _, _, found, _ = watched
    trace = found.trace()
    # Epochs, states in burn-in, and draws.
    assert {len(column) for column in trace.values()} == {24 + 4 + 40}
    burning = [chain for chain, b in zip(trace["chain"], trace["burning"], strict=True) if b]
    assert sorted(burning) == [0] * 4 + [1] * 4
    assert [n for n in trace["epoch"] if n is not None] == sorted(2 * [*range(1, 13)])
    for column in ("rmse_all", "exact_all"):
        assert [x is None for x in trace[column]] == trace["burning"]
    assert trace["seconds"] == sorted(trace["seconds"])
    curve = shown(trace)
    # Ends of epochs before the first draw have no average.
    assert [flag for _, _, flag in curve] == [True] * 4 + [False] * 60
    assert by_draws(trace)[-1] == (40, trace["rmse_all"][-1])
    later = shown(trace, "exact")[-1]
    assert later[0] == pytest.approx(trace["seconds"][-1] + trace["exact_seconds"][-1])
    assert later[1] == trace["exact_all"][-1]
    assert burn_in_of(SGLD(burn_in=2), trace)["by"] == "epochs"


def test_an_optimiser_is_solved_exactly_at_its_end(tmp_path):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.2), tmp_path)
    settings = ExperimentSettings(
        dataset.source, tmp_path, epochs=3, workers=4, dimensions=(2,), burn_in=1.0
    )
    record = perform(spec(settings, dataset, "DSGD"), dataset, settings.runs)
    trace = record["trace"]
    assert trace["exact_all"][-1] is not None and None in trace["exact_all"]
    assert record["final"] == pytest.approx(trace["rmse_all"][-1], abs=1e-6)
    assert record["final_exact"] == trace["exact_all"][-1]
    assert record["sizes"]["ratings"] == 16_000 and record["n_draws"] == 1
    assert record["peak_mb"] > 50 and record["engine"]["workers"] == 4


def test_seeds_have_data_chains_and_links_of_their_own(tmp_path):
    settings = ExperimentSettings(DataSource("synthetic", "ml-100k", 0.2), tmp_path, seeds=(3, 5))
    (a, left), (b, right) = (settings.of_seed(seed) for seed in settings.seeds)
    assert (a.seed, b.seed) == (3, 5) and left.digest != right.digest
    one = spec(replace(a, burn_in=0.9), left, "DSGLD-S")
    assert one.seed == 3 and one.links.share == left.share < 1e-3
    engine = make_links_engine(one)
    assert engine.network.latency == pytest.approx(left.share * 0.5e-3)
    assert engine.server == left.share
    # A round's packets of items over its ratings are what they are at full size.
    assert left.item_share == pytest.approx(left.n_items / 17_770)
    # The rate of the precisions keeps its ratio to the number of items.
    plan = spec(settings, left, "SGLD", 2).plan
    assert plan.beta_0 == pytest.approx(300 * left.n_items / 17_770)
    assert spec(replace(settings, beta_0=300.0), left, "SGLD", 2).plan.beta_0 == 300
    # Figure 6: 50,000 s on Netflix; 100,000, 200,000 and 300,000 s on Yahoo.
    for what, times in (("ml-100k", [1, 1, 1]), ("yahoo", [1, 2, 3])):
        own = replace(settings, source=DataSource("synthetic", what), budget=5.0)
        assert [spec(own, left, "Gibbs", d).seconds / 5 for d in (30, 60, 100)] == times
    faster = left.item_share / left.share
    assert engine.network.bandwidth == pytest.approx(1.25e9 * faster) and faster > 50


def test_an_interrupted_run_has_whole_seeds(tmp_path, monkeypatch):
    """Trials of the first seed come first, in each the longest."""
    settings = ExperimentSettings(
        DataSource("synthetic", "ml-100k", 0.2), tmp_path, seeds=(7, 2), burn_in=1.0
    )
    jobs = []
    for seed in settings.seeds:
        one, dataset = settings.of_seed(seed)
        names = ("SGLD", "DSGLD-C", "SGD")
        jobs += [Job(spec(one, dataset, name), one, dataset) for name in names]
    made = []

    def record(spec, dataset, folder):
        made.append((spec.seed, spec.plan.algorithm))
        return {"key": spec.key}

    monkeypatch.setattr(experiments, "perform", record)
    records = perform_all(jobs[::-1][3:] + jobs[3:])
    assert [seed for seed, _ in made] == [7, 7, 7, 2, 2, 2]
    assert made[0] == (7, "DSGLD-C") and made[3] == (2, "DSGLD-C")
    assert set(records) == {job.spec.key for job in jobs}


def test_splits_of_workers():
    assert grid_and_chains("DSGD", 9) == ((9, 9), 1)
    assert grid_and_chains("DSGLD-S", 9) == ((3, 3), 3)
    assert grid_and_chains("DSGLD-C", 9) == ((9, 1), 9)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["all", "--data", "nothing:x"], "nothing:x"),
        (["all", "--data", "synthetic:nothing"], "the shapes are"),
        (["all", "--data", "netflix"], "nor synthetic:SHAPE"),
        (["all", "--workers", "8"], "8 workers are not a square number"),
        (["all", "--scale", "2"], "at most 1"),
        (["convergence", "--data", "missing/folder"], "no file or folder missing"),
        (["all", "--seeds", "-1"], "-1"),
        (["all", "--burn-in", "0.9", "--settings", "default"], "--burn-in does nothing"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, given, sentence):
    ran = command(main, *given, "--out", tmp_path / "out")
    assert ran.status == 2
    assert sentence in ran.err and ran.err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_run_keeps_to_its_budget(tmp_path):
    """By its own clock, which ends it at the end of a round: three passes would take longer."""
    args = ("cost", "--scale", "0.0002", "--dimensions", "3", "--jobs", "1", "--out")
    epochs = {}
    for budget in ("60", "1e-4"):
        ran = command(main, *args, tmp_path / budget, "--budget", budget)
        assert ran.status == 0 and "cost: 4 trials to run, of at most" in ran.err
        kept = [json.loads(one.read_text()) for one in (tmp_path / budget / "runs").iterdir()]
        epochs[budget] = {one["plan"]["algorithm"]: one["epochs"] for one in kept}
    expected = {name: 30.0 if name == "Gibbs" else 3.0 for name in epochs["60"]}
    assert epochs["60"] == pytest.approx(expected, rel=0.02)
    assert all(epochs["1e-4"][name] < 3 for name in ("SGLD", "DSGLD-S", "Gibbs"))
    again = command(main, *args, tmp_path / "60", "--budget", "60")
    assert again.status == 0 and again.err == ""


@pytest.mark.parametrize("text", ["", "[]", '{"key": "another"}', "[" * 10**5])
def test_a_damaged_trial_is_made_again(tmp_path, text):
    dataset = load_dataset(DataSource("synthetic", "ml-100k", 0.05), tmp_path)
    one = spec(ExperimentSettings(dataset.source, tmp_path), dataset, "SGLD", 2)
    path = tmp_path / f"{one.key}.json"
    path.write_text(json.dumps({"key": one.key}))
    assert trials.stored(one, tmp_path) == {"key": one.key}
    path.write_text(text)
    assert trials.stored(one, tmp_path) is None
    path.unlink()
    os.mkfifo(path)  # must not be waited for
    assert trials.stored(one, tmp_path) is None


def test_a_folder_of_others_is_left_alone(tmp_path):
    """Folders called data and runs are no sign of a report."""
    for name in ("data", "runs"):
        mine = tmp_path / name / name
        mine.mkdir(parents=True)
        (mine / "mine.csv").write_text("mine")
        ran = command(main, "convergence", *SMALL, "--out", mine.parent)
        assert ran.status == 2 and "holds other files" in ran.err
        assert [one.name for one in mine.parent.rglob("*")] == [name, "mine.csv"]
