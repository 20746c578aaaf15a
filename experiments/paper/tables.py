"""Tables of the experiments, as rows that are written to CSV; the report shows no other numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.storage.atomic import replacing
from experiments.paper.trials import best_rmse, reached, shown

Record = Mapping[str, Any]
Row = dict[str, Any]
DISTRIBUTED = ("DSGLD-S", "DSGLD-C")
PRINTED_DSGLD = {"netflix": "DSGLD-C", "yahoo": "DSGLD-S"}  # of Table 3 and the text


@dataclass(frozen=True)
class Span:
    """Values of a quantity over `seeds` seeds, of those for which it is known."""

    values: tuple[float, ...]
    seeds: int = 1

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def __format__(self, form: str) -> str:
        def one(value: float) -> str:
            return format(value, ",.0f" if form.endswith("g") and abs(value) >= 1000 else form)

        known = len(self.values)
        low, high = one(self.low), one(self.high)
        notes = [] if low == high else [f"{low} to {high}"]
        notes += [] if known == self.seeds else [f"{known} of {self.seeds} seeds"]
        return f"{one(self.mean)} ({'; '.join(notes)})" if notes else one(self.mean)


def over_seeds(
    groups: Iterable[Iterable[Row]], by: Sequence[str], values: Sequence[str] = ()
) -> list[Row]:
    """One row for the rows of all seeds that agree in `by`; the others become a Span, or None.

    `groups` are the rows of each seed, `values` the others that are wanted, by default all.
    """
    groups = list(groups)
    found: dict[tuple[Any, ...], list[Row]] = {}
    for group in groups:
        for row in group:
            found.setdefault(tuple(row[name] for name in by), []).append(row)
    out = []
    for rows in found.values():
        values = values or [name for name in rows[0] if name not in by]
        known = {name: tuple(r[name] for r in rows if r[name] is not None) for name in values}
        spans = {k: Span(v, len(groups)) if v else None for k, v in known.items()}
        out.append({name: rows[0][name] for name in by} | spans)
    return out


def run_row(record: Record) -> Row:
    """The row of a trial in runs.csv."""
    plan, engine = record["plan"], record.get("engine") or {}
    sampler, burn_in = plan["sampler"] or {}, record.get("burn_in") or {}
    own = plan["algorithm"] in ("SGD", "DSGD", "bayesmf")  # they have one estimator
    idle = engine.get("idle") or [None]
    return {
        "key": record["key"],
        "algorithm": plan["algorithm"],
        "D": plan["n_factors"],
        "workers": plan["workers"],
        "grid": str(sampler.get("grid", "")),
        "chains": n_chains(record),
        **{name: sampler.get(name) for name in ("step_size", "batch_size", "regularization")},
        "seed": record["seed"],
        "rmse": record["final"],
        "lowest_rmse": best_rmse(record["trace"]),
        "exact_rmse": None if own else record.get("final_exact"),
        "same_rmse": None if own else record.get("final_same"),
        "exact_draws": None if own else record.get("exact_draws"),
        "clock_seconds": record.get("clock_seconds"),
        "printed_seconds": _last(record, "printed_seconds"),
        "exact_seconds": _last(record, "exact_seconds"),
        "computed_seconds": record.get("real_seconds"),
        **{name: record.get(name) for name in ("compile_seconds", "peak_mb", "epochs")},
        "draws": record.get("n_draws"),
        "burn_in": burn_in.get("rule"),
        "burn_in_ended": burn_in.get("ended"),
        "burn_in_by": burn_in.get("by"),
        "idle": None if idle[0] is None else sum(idle) / len(idle),
        "server_megabytes": _sum(engine, 1e6, "bytes_sent", "bytes_received"),
        "node_megabytes": _sum(engine, 1e6, "node_bytes"),
        "failed": record["failed"] or "",
    }


def n_chains(record: Record) -> int:
    """Chains of a trial; `auto` runs two."""
    sampler = record["plan"]["sampler"]
    return int(sampler.get("n_chains", 1)) if sampler else 2


def _last(record: Record, column: str) -> float | None:
    known = [value for value in record["trace"].get(column, ()) if value is not None]
    return known[-1] if known else None


def _sum(engine: Mapping[str, Any], unit: float, *names: str) -> float | None:
    values = [engine[name] for name in names if engine.get(name) is not None]
    return sum(sum(v) if isinstance(v, list) else v for v in values) / unit if values else None


def curve_rows(records: Iterable[Record]) -> list[Row]:
    """Every point of every curve, by both estimators."""
    return [
        {
            "key": record["key"],
            "seed": record["seed"],
            "algorithm": record["plan"]["algorithm"],
            "D": record["plan"]["n_factors"],
            "workers": record["plan"]["workers"],
            "estimator": estimator,
            "seconds": seconds,
            "rmse": rmse,
            "burning": int(burning),
        }
        for record in records
        for estimator in ("printed", "exact")
        for seconds, rmse, burning in shown(record["trace"], estimator)
    ]


def dimension_rows(model: str, records: Sequence[Record]) -> list[Row]:
    """The table of the paper: RMSE and RI(x) = (r_d - r_x) / r_d, r_d that of the table's DSGLD.

    The RMSE of SGD and DSGD is their lowest: the paper's DSGD has not overfitted either.
    """
    out = []
    for d in sorted({record["plan"]["n_factors"] for record in records}):
        group = [record for record in records if record["plan"]["n_factors"] == d]
        best = next(
            (r["final"] for r in group if r["plan"]["algorithm"] == PRINTED_DSGLD[model]), None
        )
        for record in group:
            rmse = reached(record)
            out.append(
                {
                    "D": d,
                    "algorithm": record["plan"]["algorithm"],
                    "rmse": rmse,
                    "relative_improvement": (best - rmse) / best if best and rmse else None,
                    "clock_seconds": record.get("clock_seconds"),
                }
            )
    return out


def paper_rows(model: str) -> list[Row]:
    """Table 3 and the samples of Section 4.3.3; RI is over the DSGLD that the table shows."""
    with Path(__file__).with_name("printed.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("data") == model]
    out: list[Row] = [
        {
            k: value if k == "algorithm" else float(value) if value else None
            for k, value in row.items()
        }
        for row in rows
    ]
    for row in out:
        row["D"] = int(row["D"])
        row["relative_improvement"] = row.pop("percent") / 100
        row["seconds_per_draw"] = row["seconds"] / row["draws"] if row["draws"] else None
    return out


def cost_rows(records: Sequence[Record]) -> list[Row]:
    """Seconds for a draw: of a pass for those who keep one a pass, of ten rounds as printed."""
    out = []
    for record in records:
        if record["failed"]:
            continue
        plan, sampler = record["plan"], record["plan"]["sampler"] or {}
        seconds, passes = _after_start(record)
        thin = sampler.get("thin") or 1.0
        out.append(
            {
                "D": plan["n_factors"],
                "algorithm": plan["algorithm"],
                "seconds_per_draw": seconds / max(passes / thin, 1e-9),
                "seconds": seconds,
                "passes": passes,
            }
        )
    return out


def _after_start(record: Record) -> tuple[float, float]:
    """Seconds from the first pass's end on, and passes of all chains in them; else the whole run.

    The start, as of Gibbs by SGD, is no part of a draw. Chains run side by side: all of them count.
    """
    ends: dict[int, dict[float, float]] = {}
    columns = (record["trace"][name] for name in ("chain", "epoch", "seconds"))
    for chain, epoch, seconds in zip(*columns, strict=True):
        if epoch is not None:
            ends.setdefault(chain, {})[epoch] = seconds
    passes = sum(max(one) - min(one) for one in ends.values())
    if not passes:
        return record["clock_seconds"], (record["epochs"] or 0) * n_chains(record)
    first = min(one[min(one)] for one in ends.values())
    return max(one[max(one)] for one in ends.values()) - first, passes


def rows_of_round(
    grid: Sequence[int], chains: int, users: int, items: int, group_size: int | None = None
) -> tuple[float, float]:
    """Rows that the paper's protocol sends in a round, of one chain and of all, by enumeration.

    A block's worker is sent the rows of its users and items, as in Section 3.3.
    """
    cells = Grid.parse([int(n) for n in grid])
    parts = [[len(part) for part in np.array_split(np.arange(n), cuts)]
             for n, cuts in ((users, cells.rows), (items, cells.cols))]  # fmt: skip
    rows = [
        sum(parts[0][block // cells.cols] + parts[1][block % cells.cols] for block in group)
        for group in cells.groups(group_size)
    ]
    one = sum(rows) / len(rows)
    return one, chains * one


def packet_rows(records: Sequence[Record]) -> list[Row]:
    """Rows of a round by the paper's protocol, and MB that the engine moved, of trials on grids."""
    out = []
    for record in records:
        plan, sizes, engine = record["plan"], record.get("sizes"), record.get("engine") or {}
        sampler, chains = plan["sampler"] or {}, n_chains(record)
        if not sizes or "grid" not in sampler:
            continue
        users, items = sizes["users"], sizes["items"]
        one, every = rows_of_round(sampler["grid"], chains, users, items, sampler.get("group_size"))
        printed = {"DSGLD-S": users + items, "DSGLD-C": users + chains * items}
        # The engine counts rounds of one chain. A row has its features and a bias, of 32 bits.
        turns = 1e6 * engine.get("rounds", 0) / chains
        server = engine.get("bytes_sent", 0) + engine.get("bytes_received", 0)
        out.append(
            {
                "algorithm": plan["algorithm"],
                "workers": plan["workers"],
                "chains": chains,
                "rows_one_chain": one,
                "rows_all_chains": every,
                "printed_rows": printed.get(plan["algorithm"]),
                "printed_megabytes": 2 * every * 4 * (plan["n_factors"] + 1) / 1e6,
                "server_megabytes": server / turns if turns else None,
                "node_megabytes": sum(engine.get("node_bytes") or [0]) / turns if turns else None,
            }
        )
    return out


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a CSV file, all of them or none; a Span has three columns."""
    spans = {k for row in rows for k, value in row.items() if isinstance(value, Span)}
    names = [f"{k}{end}" for k in (rows[0] if rows else ["nothing"])
             for end in (("", "_low", "_high") if k in spans else ("",))]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        flat = {k: value for k, value in row.items() if not isinstance(value, Span)}
        for k, span in row.items():
            if isinstance(span, Span):
                flat |= {k: span.mean, f"{k}_low": span.low, f"{k}_high": span.high}
        writer.writerow(flat)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with replacing(path) as file:
        file.write(text.encode())
