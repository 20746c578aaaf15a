"""Output of the experiments: CSV files, figures and report.md."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.machine import describe_machine, machine_text
from experiments.paper import claims, figures, tables
from experiments.paper.datasets import Dataset
from experiments.paper.experiments import EXPERIMENTS, ExperimentSettings
from experiments.paper.presets import GIBBS_CORES, MCMC, TIMES
from experiments.paper.tables import Record, Row, over_seeds
from experiments.paper.trials import by_draws, until
from experiments.paper.verdicts import Verdict, tally

WHICH = ("algorithm", "grid", "workers", "chains", "D", "step_size")  # a trial, whatever its seed
RUN_VALUES = (
    "rmse", "lowest_rmse", "exact_rmse", "same_rmse", "exact_draws", "clock_seconds",
    "printed_seconds", "exact_seconds", "draws", "epochs",
    "burn_in_ended", "server_megabytes", "node_megabytes", "peak_mb",
)  # fmt: skip
Groups = list[list[Record]]


@dataclass(frozen=True)
class Results:
    """Records of one seed's trials of each experiment that was made, in order."""

    seed: int = 0
    convergence: Sequence[Record] = ()
    chains: Sequence[Record] = ()
    dimension: Sequence[Record] = ()
    cost: Sequence[Record] = ()

    def until(self, share: float) -> Results:
        """Results with this share of the budget; the cost is what it is."""
        convergence, chains, dimension = (
            [until(one, share) for one in made]
            for made in (self.convergence, self.chains, self.dimension)
        )
        return replace(self, convergence=convergence, chains=chains, dimension=dimension)

    def distributed(self) -> list[Record]:
        """Trials of SGLD and DSGLD on any number of workers, each once."""
        named = (*self.convergence, *self.chains)
        kept = {one["key"]: one for one in named if "LD" in one["plan"]["algorithm"]}
        return list(kept.values())

    def all(self) -> list[Record]:
        """Every trial once."""
        named = (*self.convergence, *self.chains, *self.dimension, *self.cost)
        return list({record["key"]: record for record in named}.values())


def write_all(
    results: Sequence[Results], settings: ExperimentSettings, datasets: Sequence[Dataset]
) -> list[Verdict]:
    """Write tables, figures and report.md; returns the verdicts."""
    verdicts = claims.judge(settings.source.model, results)
    groups = {name: _groups(results, name) for name in EXPERIMENTS}
    written: dict[str, list[Row]] = {
        "runs": [tables.run_row(record) for one in results for record in one.all()],
        "settings": settings_rows(results, settings, datasets),
        "claims": [row for one in verdicts for row in one.rows()],
        # Trials of the cost are short ones of the same algorithms.
        "summary": [{"experiment": k, **row} for k in EXPERIMENTS for row in _summary(groups[k])],
        "packets": over_seeds(
            [tables.packet_rows(one.distributed()) for one in results],
            ("algorithm", "workers", "chains"),
        ),
        "dimension": over_seeds(
            [tables.dimension_rows(settings.source.model, one.dimension) for one in results],
            ("D", "algorithm"),
        ),
        "cost": over_seeds([tables.cost_rows(one.cost) for one in results], ("D", "algorithm")),
        "paper": _paper(settings),
    }
    for name in ("convergence", "chains"):
        written[name] = tables.curve_rows(record for group in groups[name] for record in group)
    written = {name: rows for name, rows in written.items() if rows}
    for name, rows in written.items():
        tables.write_csv(settings.out / f"{name}.csv", rows)
    _draw(groups, written, settings, datasets)
    parts = text(results, settings, datasets, groups, written, verdicts)
    tables.write_text(settings.out / "report.md", "\n\n".join(parts) + "\n")
    return verdicts


def _draw(
    groups: Mapping[str, Groups],
    written: Mapping[str, Sequence[Row]],
    settings: ExperimentSettings,
    datasets: Sequence[Dataset],
) -> None:
    """The figure of each experiment that was made."""
    out, clock, title = settings.out, settings.links.clock, settings.source.title
    floors = {**_floors(datasets, "bound"), "biases": _biases(datasets)}
    if made := groups["convergence"]:
        figures.draw_convergence(made, floors, title, clock, out / "convergence.png")
        if averaged := _averaged(made):
            figures.draw_averages(averaged, title, clock, out / "averages.png")
    if made := groups["chains"]:
        panels = [[g for g in made if (g[0]["plan"]["algorithm"] == "DSGLD-C") == columns]
                  for columns in (True, False)]  # fmt: skip
        figures.draw_chains(panels, floors, title, clock, out / "chains.png")
    if rows := written.get("dimension"):
        what = "RMSE at the end (SGD, DSGD: lowest)"
        figures.draw_by_dimension(rows, "rmse", what, title, out / "dimension.png")
    if rows := written.get("cost"):
        figures.draw_by_dimension(
            rows, "seconds_per_draw", "seconds for a draw", title, out / "cost.png", log=True
        )


def _groups(results: Sequence[Results], experiment: str) -> Groups:
    """Trials of an experiment, those that differ in the seed alone together."""
    out: dict[tuple[Any, ...], list[Record]] = {}
    for one in results:
        for record in getattr(one, experiment):
            row = tables.run_row(record)
            out.setdefault(tuple(row[name] for name in WHICH), []).append(record)
    return list(out.values())


def _averaged(groups: Groups) -> Groups:
    """Trials that have draws to average with every seed."""
    return [g for g in groups if g[0]["plan"]["algorithm"] in MCMC
            and all(by_draws(record["trace"]) for record in g)]  # fmt: skip


def _paper(settings: ExperimentSettings) -> list[Row]:
    """The paper's numbers, for ratings of its data sets or of their shapes."""
    source = settings.source
    own = {"netflix", "yahoo", "yahoo-r2"} & {source.kind, source.what}
    return tables.paper_rows(source.model) if own else []


def settings_rows(
    results: Sequence[Results], settings: ExperimentSettings, datasets: Sequence[Dataset]
) -> list[Row]:
    """Rows of settings.csv: what was asked for, on which data, and on which machine."""
    links, dataset = settings.links, datasets[0]
    records = [record for one in results for record in one.all()]
    values: dict[str, Any] = {
        "data": f"{settings.source.kind}:{Path(settings.source.what).name}",
        "scale": settings.source.scale,
        "users": dataset.n_users,
        "items": dataset.n_items,
        "training ratings": sum(len(dataset.parts[name][0]) for name in ("train", "validation")),
        "test ratings": len(dataset.parts["test"][0]),
        **{f"lowest error ({name})": value for name, value in _floors(datasets).items()},
        "settings": settings.settings,
        "workers": settings.workers,
        "budget in seconds": settings.budget,
        "most passes": settings.epochs,
        "latency in ms": 1e3 * links.latency,
        "bandwidth in Gbit/s": links.bandwidth / 1.25e8,
        "clock": links.clock,
        "seeds": " ".join(str(one.seed) for one in results),
        "trials": len(records),
        "seconds of computing": round(sum(r.get("real_seconds") or 0 for r in records)),
        "seconds of compiling": round(sum(r.get("compile_seconds") or 0 for r in records)),
        "peak memory in MB": round(max((r.get("peak_mb") or 0 for r in records), default=0)),
        "date": datetime.date.today().isoformat(),
        "machine": machine_text(describe_machine()),
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _floors(datasets: Sequence[Dataset], *names: str) -> dict[str, float]:
    """Lower bounds of the error, the mean over seeds."""
    every = datasets[0].floors
    return {name: sum(one.floors[name] for one in datasets) / len(datasets)
            for name in (names or every) if name in every}  # fmt: skip


def _biases(datasets: Sequence[Dataset]) -> float:
    """Error of biases alone, the mean over seeds."""
    return sum(one.biases for one in datasets) / len(datasets)


def text(
    results: Sequence[Results],
    settings: ExperimentSettings,
    datasets: Sequence[Dataset],
    groups: Mapping[str, Groups],
    written: Mapping[str, Sequence[Row]],
    verdicts: Sequence[Verdict],
) -> Iterator[str]:
    """The report, part by part."""
    about = {row["name"]: row["value"] for row in written["settings"]}
    paper = written.get("paper", ())
    yield _opening(about, settings)
    yield _verdicts(verdicts)
    if made := groups["convergence"]:
        yield _convergence(made, settings, datasets)
    if made := groups["chains"]:
        yield _chains(made)
    if rows := written.get("packets"):
        yield _packets(rows)
    if rows := written.get("dimension"):
        yield _dimension(rows, paper)
    if rows := written.get("cost"):
        yield _cost(rows, paper)
    yield _method(results, settings, about)


def _section(title: str, *parts: str | None) -> str:
    """A section; parts that are None or empty are left out."""
    return "\n\n".join([f"## {title}", *filter(None, parts)])


def _opening(about: Mapping[str, Any], settings: ExperimentSettings) -> str:
    seeds = f"Seed{'s' * (' ' in about['seeds'])} {about['seeds']}"
    return (
        '# The experiments of "Large-Scale Distributed Bayesian Matrix Factorization using '
        'Stochastic Gradient MCMC", run again\n\n'
        f"{about['training ratings']:,} training ratings and {about['test ratings']:,} test "
        f"ratings of {about['users']:,} users and {about['items']:,} items: "
        f"{settings.source.title}. {seeds}. {about['date']}, "
        f"{about['machine']}.\n\n"
        "All numbers below are in CSV files in the same folder: [runs](runs.csv), "
        "[means over seeds](summary.csv), [settings](settings.csv), [claims](claims.csv), and one "
        "for each figure. With several seeds a number is their mean, with the lowest and the "
        "highest in brackets. Each seed has its own data, on which all algorithms are compared: "
        "gains therefore vary less between seeds than errors."
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    lines = _table("claim", "place", "verdict", "at a quarter, half of the time", "because")
    lines += [
        f"| {one.claim} | {one.place} | **{one.verdict}** | {', '.join(one.earlier)} | "
        f"{one.because} |"
        for one in verdicts
    ]
    rules = _table("claim", "holds if")
    rules += [f"| {one.claim} | {one.rule} |" for one in verdicts if one.rule]
    holds = (
        "A claim holds if its rule is met for every seed that was tested. It does not hold if no "
        "seed meets the rule even in part; otherwise it holds in part. SGD and DSGD count with "
        "their lowest error, as if stopped by the test ratings, which favours them. Rules:"
    )
    return _section(
        "Claims of the paper, and results",
        tally(verdicts),
        "\n".join(lines),
        holds,
        "\n".join(rules),
    )


def _table(*columns: str, numbers: int = 0) -> list[str]:
    """The head of a table, whose last `numbers` columns are aligned to the right."""
    sides = ["---"] * (len(columns) - numbers) + ["--:"] * numbers
    return [f"| {' | '.join(columns)} |", f"|{'|'.join(sides)}|"]


def _by_trial(rows: Sequence[Row], columns: Mapping[str, tuple[str, str]]) -> str:
    """A table with a line for each trial; `columns` are titles, with names and formats."""
    lines = _table("algorithm", "workers", "chains", *columns, numbers=2 + len(columns))
    for row in rows:
        cells = [_number(row[name], form) for name, form in columns.values()]
        cells = [row["algorithm"], str(row["workers"]), str(row["chains"]), *cells]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _summary(groups: Groups) -> list[Row]:
    """The rows of summary.csv for these trials."""
    seeds = max(map(len, groups), default=0)
    rows = [[tables.run_row(g[k]) for g in groups if k < len(g)] for k in range(seeds)]
    return over_seeds(rows, WHICH, RUN_VALUES)


RMSE = {"RMSE": ("rmse", ".4f"), "lowest": ("lowest_rmse", ".4f"),
        "seconds": ("clock_seconds", ".3g"), "burn-in until": ("burn_in_ended", ".3g"),
        "draws": ("draws", ".0f"), "passes": ("epochs", ".0f")}  # fmt: skip
EXACT = {"seconds of predictions": ("printed_seconds", ".2g"), "exact RMSE": ("exact_rmse", ".4f"),
         "its draws": ("exact_draws", ".0f"), "its seconds": ("exact_seconds", ".2g"),
         "RMSE of these draws": ("same_rmse", ".4f")}  # fmt: skip


def _convergence(groups: Groups, settings: ExperimentSettings, datasets: Sequence[Dataset]) -> str:
    floors = _floors(datasets)
    failed = [
        f"{figures.label(record)} has no result with seed {record['seed']}: {record['failed']}."
        for group in groups
        for record in group
        if record["failed"]
    ]
    return _section(
        f"Accuracy against time (Figures 3 and 4), D = {groups[0][0]['plan']['n_factors']}",
        "![RMSE against time](convergence.png)",
        "The curve of a sampler is the RMSE of one chain's state until burn-in ends, at the mark, "
        "and then that of the average over the draws of all chains. Seconds are "
        f"{settings.links.clock}. Points: [convergence.csv](convergence.csv).",
        "![Both estimators, and the RMSE by draws](averages.png)" if _averaged(groups) else None,
        "The printed estimator averages U.V + a + b over all draws. The exact estimator uses every "
        "fourth draw of a chain, and integrates users out given V; with Gibbs it averages the "
        "conditional means of all draws. Curves include the seconds that the estimator takes. The "
        "right panel shows the printed estimator against the number of "
        'draws; "thinned" uses every C-th draw of C chains, as many draws as one chain has in the '
        "same time. `bayesmf` has only the exact estimator.",
        f"Biases of users and items alone have an RMSE of {_biases(datasets):.4f}.",
        f"The noise of the ratings is {floors['noise']:.4f}; an estimator that knows the true rows "
        f"of one side could reach {floors['bound']:.4f}." if floors else None,
        _by_trial(_summary(groups), RMSE | EXACT),
        *failed,
    )  # fmt: skip


def _chains(groups: Groups) -> str:
    return _section(
        "Chains and workers (Figure 5)",
        "![RMSE against time by the number of chains](chains.png)",
        "DSGLD-1 has the blocks of DSGLD-S, but each block is a group by itself, and there are as "
        "many chains as blocks. All numbers of workers have the printed steps, which are for 9 "
        "(Netflix) or 16 workers (Yahoo). The paper's v multiplies the step of DSGLD-S by the "
        "number of blocks in a group, so with more workers steps are longer. Points: "
        "[chains.csv](chains.csv).",
        _by_trial(_summary(groups), RMSE | {"step": ("step_size", ".3g")}),
    )


def _packets(rows: Sequence[Row]) -> str:
    columns = {"rows of a chain": ("rows_one_chain", ",.0f"),
               "rows of all": ("rows_all_chains", ",.0f"), "as printed": ("printed_rows", ",.0f"),
               "MB of rows": ("printed_megabytes", ".3g"),
               "MB, server": ("server_megabytes", ".3g"),
               "MB, workers": ("node_megabytes", ".3g")}  # fmt: skip
    return _section(
        "Packets of a round",
        "Rows that the server sends to workers in a round by the paper's protocol, counted block "
        "by block, for one chain and for all chains. The column `as printed` has L + M for DSGLD-S "
        "and L + SM for DSGLD-C, `MB of rows` the size of the rows of all chains, sent there and "
        "back. The last two columns are what our engine moved in a round of all chains: over the "
        "link of the server, in both directions, and over the links of workers, in the direction "
        "with more. In our engine rows of one side stay with workers: [packets.csv](packets.csv).",
        _by_trial(rows, columns),
    )


def _dimension(rows: Sequence[Row], paper: Sequence[Row]) -> str:
    def with_gain(group: Sequence[Row]) -> Callable[[Row], str]:
        def cell(row: Row) -> str:
            same = [_mean(r["rmse"]) for r in group if r["D"] == row["D"] and r["rmse"] is not None]
            entry = _number(row["rmse"], ".4f")
            if row["rmse"] is not None and _mean(row["rmse"]) == min(same):
                entry = f"**{entry}**"
            gain = row["relative_improvement"]
            return entry if gain is None else f"{entry}<br>{gain:+.2%}"

        return cell

    return _section(
        "Latent features (Figure 6 a, b, and Table 3)",
        "![RMSE against D](dimension.png)",
        "RMSE at the end, for SGD and DSGD the lowest, and below it the relative improvement "
        "RI(x) = (r_d - r_x) / r_d. r_d is the RMSE of the DSGLD in the paper's table, r_x that of "
        "algorithm x; RI is negative where x is less accurate: [dimension.csv](dimension.csv)."
        + (" The paper's numbers: [paper.csv](paper.csv)." if paper else ""),
        _by_dimension({
            "": (rows, with_gain(rows)), ", paper": (paper, with_gain(paper)),
        }),
    )  # fmt: skip


def _mean(value: Any) -> float:
    return float(value.mean if isinstance(value, tables.Span) else value)


def _cost(rows: Sequence[Row], paper: Sequence[Row]) -> str:
    timed = [row for row in paper if row["seconds_per_draw"] is not None]
    samples = ", ".join(f"{row['draws']:.0f} of {row['algorithm']} with D = {row['D']} in "
                        f"{row['seconds']:,.0f} s" for row in timed)  # fmt: skip
    return _section(
        "Seconds for a draw (Figure 6 c)",
        "![Seconds for a draw against D](cost.png)",
        "A draw takes ten rounds of a chain with the printed settings, otherwise one pass; with "
        "Gibbs one sweep. Seconds are counted from the end of the first pass, so the start is not "
        "included: [cost.csv](cost.csv).",
        f"The paper counts samples: {samples} ([paper.csv](paper.csv))." if timed else None,
        _by_dimension({
            "": (rows, _entry("seconds_per_draw", ".3g")),
            ", paper": (timed, _entry("seconds_per_draw", ",.0f")),
        }),
    )  # fmt: skip


def _entry(column: str, form: str) -> Callable[[Row], str]:
    return lambda row: _number(row[column], form)


def _by_dimension(kinds: Mapping[str, tuple[Sequence[Row], Callable[[Row], str]]]) -> str:
    """A table with a line for each D and kind of number, and a column for each algorithm."""
    names = list(dict.fromkeys(row["algorithm"] for row in kinds[""][0]))
    lines = _table("D", *names, numbers=len(names) + 1)
    for d in sorted({row["D"] for rows, _ in kinds.values() for row in rows}):
        for kind, (rows, cell) in kinds.items():
            own = {row["algorithm"]: cell(row) for row in rows if row["D"] == d}
            if any(value != "none" for value in own.values()):
                lines.append(f"| {d}{kind} | {' | '.join(own.get(n, 'none') for n in names)} |")
    return "\n".join(lines)


def _method(
    results: Sequence[Results], settings: ExperimentSettings, about: Mapping[str, Any]
) -> str:
    records = [record for one in results for record in one.all()]
    timed = {record["key"] for one in results for record in one.cost}  # they need no end
    samplers = [r for r in records if "LD" in r["plan"]["algorithm"] and r["key"] not in timed]
    ways = [r["burn_in"] for r in samplers if r.get("burn_in")]
    rules = sorted({str(way["rule"]) for way in ways} - {"none"})
    by = {name: sum(way["by"] == name for way in ways) for name in ("rmse", "epochs", "never")}
    ended = ", ".join(f"{n} by `{name}`" for name, n in by.items() if n)
    names = ", ".join(f"`{rule}`" for rule in rules)
    times = TIMES.get(settings.source.model, {}).items()
    longer = "".join(f" ({n:g} times with D = {d})" for d, n in times if d in settings.dimensions)
    burn_in = f" Burn-in of SGLD and DSGLD ends by {names} (trials: {ended})." if rules else ""
    if any(rule.startswith("mean-rmse") for rule in rules):
        burn_in += " These are errors on the test ratings, as in the paper."
    how = {
        "paper": "Steps, tau, hyper-priors, mini-batches (in proportion to the data), rounds and "
        "thinning are the paper's (Section 4.2, Appendix A).",
        "default": "Splits and numbers of chains are the paper's, all other settings the library's "
        "defaults.",
    }[settings.settings]
    return _section(
        "How it was done",
        f"{how}{burn_in} Gibbs is the paper's, with full "
        f"covariances, on {GIBBS_CORES} cores of one machine; `bayesmf` is the library with its "
        "default settings. Each run ends after "
        f"{settings.budget:g} s of its own clock{longer}, or after the given number of passes. The "
        f"clock is {settings.links.clock}. On this machine {about['trials']:,} trials took "
        f"{about['seconds of computing']:,} s of computing, {about['seconds of compiling']:,} s of "
        f"compiling, and at most {about['peak memory in MB']:,} MB "
        "([settings.csv](settings.csv)).",
        *_settings_of_runs(results[0].all(), settings.dimensions[0]),
    )


def _settings_of_runs(records: Sequence[Record], d: int) -> tuple[str, str]:
    """Settings of the mini-batch samplers with the fewest features, as a reader would set them."""
    columns = {"step": ("step_size", "g"), "mini-batch": ("batch_size", "g"),
               "regularisation": ("regularization", "g")}  # fmt: skip
    rows = [row for row in map(tables.run_row, records) if row["D"] == d and row["batch_size"]]
    text = (
        f"Settings at D = {d}. Printed steps are "
        "multiplied by the number of blocks in a group: [runs.csv](runs.csv)."
    )
    return text, "\n".join(dict.fromkeys(_by_trial(rows, columns).splitlines()))


def _number(value: Any, form: str) -> str:
    return "none" if value is None else format(value, form)
