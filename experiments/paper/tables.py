"""Tables of the experiments, as rows that are written to CSV; the report shows no other numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmf.storage.atomic import replacing
from experiments.paper.trials import shown

Record = Mapping[str, Any]
Row = dict[str, Any]
DISTRIBUTED = ("DSGLD-S", "DSGLD-C")


def run_row(record: Record) -> Row:
    """The row of a trial in runs.csv."""
    plan = record["plan"]
    sampler = plan["sampler"] or {}
    idle = record.get("engine", {}).get("idle") or [None]
    return {
        "key": record["key"],
        "algorithm": plan["algorithm"],
        "D": plan["n_factors"],
        "workers": plan["workers"],
        "grid": str(sampler.get("grid", "")),
        "chains": sampler.get("n_chains", 1 if sampler else 2),
        "step_size": sampler.get("step_size"),
        "pace": sampler.get("pace"),
        "batch_size": sampler.get("batch_size"),
        "regularization": sampler.get("regularization"),
        "seed": record["seed"],
        "rmse": record["final"],
        "clock_seconds": record.get("clock_seconds"),
        "computed_seconds": record.get("real_seconds"),
        "epochs": record.get("epochs"),
        "draws": record.get("n_draws"),
        "repairs": record.get("repairs"),
        "idle": None if idle[0] is None else sum(idle) / len(idle),
        "megabytes_moved": record.get("engine")
        and (record["engine"]["bytes_sent"] + record["engine"]["bytes_received"]) / 1e6,
        "failed": record["failed"] or "",
    }


def curve_rows(records: Sequence[Record]) -> list[Row]:
    """Every point of every curve."""
    return [
        {
            "key": record["key"],
            "algorithm": record["plan"]["algorithm"],
            "D": record["plan"]["n_factors"],
            "workers": record["plan"]["workers"],
            "seconds": seconds,
            "rmse": rmse,
            "burning": int(burning),
        }
        for record in records
        for seconds, rmse, burning in shown(record["trace"])
    ]


def dimension_rows(records: Sequence[Record]) -> list[Row]:
    """The table of the paper: RMSE and RI(x) = (r_d - r_x) / r_d, r_d that of the better DSGLD."""
    out = []
    for d in sorted({record["plan"]["n_factors"] for record in records}):
        group = [record for record in records if record["plan"]["n_factors"] == d]
        best = best_distributed(group)
        for record in group:
            rmse = record["final"]
            known = rmse is not None and best is not None
            out.append(
                {
                    "D": d,
                    "algorithm": record["plan"]["algorithm"],
                    "rmse": rmse,
                    "relative_improvement": (best - rmse) / best if known else None,
                    "clock_seconds": record.get("clock_seconds"),
                    "key": record["key"],
                }
            )
    return out


def best_distributed(group: Sequence[Record]) -> float | None:
    """The lower RMSE of DSGLD-S and DSGLD-C."""
    known = [r["final"] for r in group if r["plan"]["algorithm"] in DISTRIBUTED and r["final"]]
    return min(known, default=None)


def cost_rows(records: Sequence[Record]) -> list[Row]:
    """Seconds for a draw: of a pass for those who keep one a pass, of ten rounds as printed."""
    out = []
    for record in records:
        if record["failed"]:
            continue
        plan, sampler = record["plan"], record["plan"]["sampler"] or {"n_chains": 2}
        passes = (record["epochs"] or 0) * sampler.get("n_chains", 1)
        thin = sampler.get("thin") or 1.0
        seconds = record["clock_seconds"] / max(passes / thin, 1e-9)
        # Chains run side by side: a draw of any of them counts.
        out.append(
            {
                "D": plan["n_factors"],
                "algorithm": plan["algorithm"],
                "seconds_per_draw": seconds,
                "clock_seconds": record["clock_seconds"],
                "passes": passes,
                "passes_per_draw": thin,
                "key": record["key"],
            }
        )
    return out


def pick(records: Sequence[Record], algorithm: str, **of_plan: Any) -> Record | None:
    """The record of an algorithm's trial with these values in its plan."""
    for record in records:
        plan = record["plan"]
        if plan["algorithm"] == algorithm and all(plan[k] == v for k, v in of_plan.items()):
            return record
    return None


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a CSV file, all of them or none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["nothing"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with replacing(path) as file:
        file.write(text.encode())
