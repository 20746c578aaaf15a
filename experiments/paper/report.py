"""Output of the experiments: CSV files, figures and report.md."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.machine import describe_machine, machine_text
from experiments.paper import claims, figures, tables
from experiments.paper.datasets import Dataset
from experiments.paper.experiments import CHAINS, SQUARES, ExperimentSettings
from experiments.paper.presets import BURN_IN, GIBBS_CORES

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """Records of the trials of each experiment that was made, in order."""

    convergence: Sequence[Record] = ()
    chains: Sequence[Record] = ()
    dimension: Sequence[Record] = ()
    cost: Sequence[Record] = ()

    def all(self) -> list[Record]:
        """Every trial once."""
        named = (*self.convergence, *self.chains, *self.dimension, *self.cost)
        return list({record["key"]: record for record in named}.values())


def write_all(found: Results, settings: ExperimentSettings, dataset: Dataset) -> Path:
    """Write tables, figures and report; returns the path of the report."""
    out, clock, title = settings.out, settings.links.clock, settings.source.title
    tables.write_csv(out / "runs.csv", [tables.run_row(record) for record in found.all()])
    tables.write_csv(out / "settings.csv", settings_rows(settings, dataset))
    if found.convergence:
        tables.write_csv(out / "convergence.csv", tables.curve_rows(found.convergence))
        figures.draw_convergence(
            found.convergence, dataset.floors, title, clock, out / "convergence.png"
        )
    if found.chains:
        tables.write_csv(out / "chains.csv", tables.curve_rows(found.chains))
        groups = found.chains[: len(CHAINS)], found.chains[len(CHAINS) :]
        assert len(groups[1]) == len(SQUARES)
        figures.draw_chains(groups, _bound(dataset), title, clock, out / "chains.png")
    if found.dimension:
        rows = tables.dimension_rows(found.dimension)
        tables.write_csv(out / "dimension.csv", rows)
        points = _points(rows, "rmse")
        figures.draw_dimension(points, _bound(dataset), title, out / "dimension.png")
    if found.cost:
        rows = tables.cost_rows(found.cost)
        tables.write_csv(out / "cost.csv", rows)
        figures.draw_cost(_points(rows, "seconds_per_draw"), title, out / "cost.png")
    verdicts = claims.judge(
        settings.source.model, found.convergence, found.chains, found.dimension, found.cost
    )
    tables.write_csv(out / "claims.csv", [row for one in verdicts for row in one.rows()])
    path = out / "report.md"
    tables.write_text(path, text(found, settings, dataset, verdicts))
    return path


def settings_rows(settings: ExperimentSettings, dataset: Dataset) -> list[tables.Row]:
    """Rows of settings.csv: what was asked for, on which data, and on which machine."""
    links = settings.links
    values: dict[str, Any] = {
        "data": f"{settings.source.kind}:{Path(settings.source.what).name}",
        "scale": settings.source.scale,
        "users": dataset.n_users,
        "items": dataset.n_items,
        "training ratings": len(dataset) + len(dataset.parts["validation"][0]),
        "test ratings": len(dataset.parts["test"][0]),
        **{f"lowest error ({name})": value for name, value in dataset.floors.items()},
        "settings": settings.settings,
        "workers": settings.workers,
        "budget in seconds": settings.budget,
        "most passes": settings.epochs,
        "latency in ms": 1e3 * links.latency,
        "bandwidth in Gbit/s": links.bandwidth / 1.25e8,
        "clock": links.clock,
        "seed": settings.seed,
        "date": datetime.date.today().isoformat(),
        "machine": machine_text(describe_machine()),
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _bound(dataset: Dataset) -> dict[str, float]:
    """The nearest of the lower bounds of the error: the noise is far below, and in Figure 3."""
    return {name: value for name, value in dataset.floors.items() if name == "bound"}


def _points(rows: Sequence[tables.Row], column: str) -> dict[str, list[tuple[int, Any]]]:
    out: dict[str, list[tuple[int, Any]]] = {}
    for row in rows:
        out.setdefault(row["algorithm"], []).append((row["D"], row[column]))
    return out


def text(
    found: Results,
    settings: ExperimentSettings,
    dataset: Dataset,
    verdicts: Sequence[claims.Verdict],
) -> str:
    """The report."""
    parts = [_opening(settings, dataset), _verdicts(verdicts)]
    if found.convergence:
        parts.append(_convergence(found.convergence, settings, dataset))
    if found.chains:
        parts.append(_chains(found.chains))
    if found.dimension:
        parts.append(_dimension(found.dimension))
    if found.cost:
        parts.append(_cost(found.cost))
    parts.append(_method(found.all(), settings))
    return "\n\n".join(parts) + "\n"


def _opening(settings: ExperimentSettings, dataset: Dataset) -> str:
    about = {row["name"]: row["value"] for row in settings_rows(settings, dataset)}
    return (
        '# The experiments of "Large-Scale Distributed Bayesian Matrix Factorization using '
        'Stochastic Gradient MCMC", run again\n\n'
        f"{about['training ratings']:,} ratings to learn from and {about['test ratings']:,} to "
        f"predict, by {dataset.n_users:,} users of {dataset.n_items:,} items: "
        f"{settings.source.title}. Settings: `{settings.settings}`. {about['date']}, "
        f"{about['machine']}.\n\n"
        "Every number below is in a CSV file beside this one: [runs](runs.csv), "
        "[settings](settings.csv), [claims](claims.csv), and one for each figure."
    )


def _verdicts(verdicts: Sequence[claims.Verdict]) -> str:
    lines = ["## Claims of the paper, and results", "", "| claim | verdict | because |",
             "|---|---|---|"]  # fmt: skip
    lines += [f"| {one.claim} | **{one.verdict}** | {one.because} |" for one in verdicts]
    return "\n".join(lines)


def _convergence(records: Sequence[Record], settings: ExperimentSettings, dataset: Dataset) -> str:
    d = records[0]["plan"]["n_factors"]
    lines = [
        f"## Accuracy against time (Figures 3 and 4), D = {d}",
        "",
        "![RMSE against time](convergence.png)",
        "",
        "Samplers are shown by the average over the last three quarters of all chains' passes so "
        "far, with users integrated out; where there is a fixed burn-in, by one chain up to the "
        f"mark. Seconds are {settings.links.clock}; computing the error is not "
        "counted. Points: [convergence.csv](convergence.csv).",
    ]
    if dataset.floors:
        lines += [
            "",
            f"The ratings' noise is {dataset.floors['noise']:.4f}; an estimator that knows the "
            f"true rows of one side could reach {dataset.floors['bound']:.4f}.",
        ]
    lines += ["", "| algorithm | workers | chains | RMSE | seconds | passes | draws |",
              "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for record in records:
        row = tables.run_row(record)
        lines.append(
            f"| {figures.label(record)} | {row['workers']} | {row['chains']} | "
            f"{_number(row['rmse'], '.4f')} | {_number(row['clock_seconds'], '.2f')} | "
            f"{_number(row['epochs'], '.0f')} | {_number(row['draws'], '.0f')} |"
        )
    lines += [
        f"\n{figures.label(record)} has no result: {record['failed']}."
        for record in records
        if record["failed"]
    ]
    return "\n".join(lines)


def _chains(records: Sequence[Record]) -> str:
    lines = [
        "## Chains and workers (Figure 5)",
        "",
        "![RMSE against time by the number of chains](chains.png)",
        "",
        "Points: [chains.csv](chains.csv).",
        "",
        "| algorithm | workers | chains | RMSE | seconds | MB moved |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for record in records:
        row = tables.run_row(record)
        lines.append(
            f"| {row['algorithm']} | {row['workers']} | {row['chains']} | "
            f"{_number(row['rmse'], '.4f')} | {_number(row['clock_seconds'], '.2f')} | "
            f"{_number(row['megabytes_moved'], '.0f')} |"
        )
    return "\n".join(lines)


def _dimension(records: Sequence[Record]) -> str:
    rows = tables.dimension_rows(records)
    lines = [
        "## Latent features (Figure 6 a, b, and the table)",
        "",
        "![RMSE against D](dimension.png)",
        "",
        "RMSE, and below it the relative improvement RI(x) = (r_d - r_x) / r_d over the better "
        "DSGLD: [dimension.csv](dimension.csv).",
        "",
    ]

    def cell(row: tables.Row) -> str:
        rmse, gain = row["rmse"], row["relative_improvement"]
        same = [r["rmse"] for r in rows if r["D"] == row["D"] and r["rmse"] is not None]
        entry = _number(rmse, ".4f")
        entry = f"**{entry}**" if same and rmse == min(same) else entry
        return entry if gain is None else f"{entry}<br>{gain:+.2%}"

    return "\n".join([*lines, *_by_dimension(rows, cell)])


def _cost(records: Sequence[Record]) -> str:
    rows = tables.cost_rows(records)
    lines = [
        "## Seconds for a draw (Figure 6 c)",
        "",
        "![Seconds for a draw against D](cost.png)",
        "",
        "A draw is one pass or sweep of any chain, ten rounds with the printed settings: "
        "[cost.csv](cost.csv).",
        "",
    ]
    cells = _by_dimension(rows, lambda row: f"{row['seconds_per_draw']:.3g}")
    return "\n".join([*lines, *cells])


def _by_dimension(rows: Sequence[tables.Row], cell: Callable[[tables.Row], str]) -> list[str]:
    """A table with a line for each D and a column for each algorithm."""
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    lines = ["| D | " + " | ".join(names) + " |", "|--:|" + "--:|" * len(names)]
    for d in sorted({row["D"] for row in rows}):
        own = {row["algorithm"]: cell(row) for row in rows if row["D"] == d}
        lines.append(f"| {d} | " + " | ".join(own.get(name, "none") for name in names) + " |")
    return lines


def _method(records: Sequence[Record], settings: ExperimentSettings) -> str:
    until = BURN_IN.get(settings.source.kind)
    end = f"at an RMSE of {until}" if until else "with a fifth of the run"
    how = {
        "paper": "Steps, tau, hyper-priors, mini-batches (in proportion to the ratings), rounds "
        "and thinning are the paper's (Section 4.2, Appendix A); burn-in ends "
        f"{end}.",
        "tuned": "Steps and SGD's regularisation and number of passes were found on a validation "
        "split of the training ratings ([tuned.json](tuned.json), trials in "
        "[search.csv](search.csv)); ratings are scaled to variance one, tau is drawn, and the "
        "noise of a visit is matched to its probability. Samplers were judged by their error "
        "alone, by which long steps win: what they draw can be hotter than the posterior, fit for "
        "an average and not for intervals.",
    }[settings.settings]
    return (
        "## How it was done\n\n"
        f"{how} Gibbs is the paper's, with full covariances, on {GIBBS_CORES} cores of one "
        "machine, from a random start (the paper starts it near a mode). Coordinate Gibbs draws "
        "one number at a time; `bayesmf` is what the library does when nothing is set. Each run "
        "ends with its budget or its passes, whichever comes first: see "
        f"[settings.csv](settings.csv). All have the seed {settings.seed}. Claims hold by "
        "these rules: accuracy from three quarters of the printed gain on, an order of "
        "magnitude from 5 times, two orders from 50 times.\n\n"
        + _settings_of_runs(records, settings.dimensions[0])
    )


def _settings_of_runs(records: Sequence[Record], d: int) -> str:
    """Settings of the mini-batch samplers with the fewest features, as a reader would set them."""
    lines = [
        f"Settings at D = {d}; a pace is times the default step: [runs.csv](runs.csv).",
        "",
        "| algorithm | workers | step | pace | mini-batch | regularisation |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    columns = ("step_size", "pace", "batch_size", "regularization")
    for record in records:
        row = tables.run_row(record)
        if row["D"] == d and any(row[name] is not None for name in columns):
            values = ["" if row[name] is None else f"{row[name]:g}" for name in columns]
            lines.append(f"| {row['algorithm']} | {row['workers']} | {' | '.join(values)} |")
    return "\n".join(dict.fromkeys(lines))


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)
