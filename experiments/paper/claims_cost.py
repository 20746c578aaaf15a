"""The paper's claims on cost, communication and the number of features. Rules: claims.csv."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from experiments.paper.presets import OPTIMISERS
from experiments.paper.tables import (
    DISTRIBUTED,
    PRINTED_DSGLD,
    cost_rows,
    dimension_rows,
    packet_rows,
)
from experiments.paper.trials import converged
from experiments.paper.verdicts import (
    HOLDS,
    NOT,
    PART,
    Figures,
    Finding,
    NotTestedError,
    of_all,
    of_size,
)

if TYPE_CHECKING:
    from experiments.paper.report import Results

LEAST_GAIN, NOTICED = {"netflix": 0.036, "yahoo": 0.018}, 0.002
TWO_ORDERS, PART_OF_THEM = 50.0, 5.0  # times as long: half of a hundred and of ten
LINEAR, CUBIC, APART = 1.25, 2.5, 0.5  # exponents of D
PAPER_SIZES = {"netflix": (480_000, 18_000), "yahoo": (1_800_000, 136_000)}


def packets(model: str, found: Results) -> Finding:
    """The formulas of both splits, against the rows of one chain and of all."""
    rows = {row["algorithm"]: row for row in packet_rows(found.convergence)}
    if not set(DISTRIBUTED) <= set(rows):
        raise NotTestedError("DSGLD-S or DSGLD-C has no counts")
    square, column = (rows[name] for name in DISTRIBUTED)
    every = [_same(row["rows_all_chains"], row["printed_rows"]) for row in (square, column)]
    larger = column["rows_all_chains"] > square["rows_all_chains"]
    figures: Figures = {f"{name}_{key}": row[key] for name, row in (("S", square), ("C", column))
                        for key in row if key not in ("algorithm", "workers")}  # fmt: skip
    users, items = PAPER_SIZES[model]
    figures["S_paper"] = square["chains"] * (users + items)
    figures["C_paper"] = users + column["chains"] * items
    because = (
        "a round of DSGLD-S sends {S_rows_one_chain:,.0f} rows for one chain (L + M is "
        "{S_printed_rows:,.0f}) and {S_rows_all_chains:,.0f} for its {S_chains:.0f} chains, one of "
        "DSGLD-C {C_rows_one_chain:,.0f} and {C_rows_all_chains:,.0f} for its {C_chains:.0f} (L + "
        "SM is {C_printed_rows:,.0f}); with the paper's sizes all chains send {S_paper:,.0f} and "
        "{C_paper:,.0f}"
    )
    if square["server_megabytes"] is not None:
        because += (
            "; here rows of one side stay with workers: a round of all chains of DSGLD-S moves "
            "{S_server_megabytes:.3g} MB over the server's link and {S_node_megabytes:.3g} MB over "
            "the workers', one of DSGLD-C {C_server_megabytes:.3g} and {C_node_megabytes:.3g} MB"
        )
    return of_all(*every, larger), because, figures


def _same(count: float, formula: float) -> bool:
    return abs(count / formula - 1) < 1e-9


def constant_packets(model: str, found: Results) -> Finding:
    """Rows of a round of DSGLD-S as the number of workers grows."""
    rows = [row for row in packet_rows(found.chains) if row["algorithm"] == "DSGLD-S"]
    if len(rows) < 2:
        raise NotTestedError("fewer than two numbers of workers have counts")
    few, many = (pick(rows, key=lambda row: row["workers"]) for pick in (min, max))
    kinds = ("rows_one_chain", "rows_all_chains")
    figures: Figures = {f"{name}_{kind}": row[kind] for kind in kinds
                        for name, row in (("few", few), ("many", many))}  # fmt: skip
    because = (
        f"from {few['workers']} to {many['workers']} workers the rows of a chain go from "
        "{few_rows_one_chain:,.0f} to {many_rows_one_chain:,.0f}, those of all chains from "
        "{few_rows_all_chains:,.0f} to {many_rows_all_chains:,.0f}"
    )
    return of_all(*(_same(few[kind], many[kind]) for kind in kinds)), because, figures


def _curve(model: str, found: Results, name: str) -> list[float]:
    """RMSE by D, of two or more."""
    rows = [row for row in dimension_rows(model, found.dimension) if row["algorithm"] == name]
    if len(rows) < 2 or any(row["rmse"] is None for row in rows):
        raise NotTestedError(f"{name} has no results for two D or more")
    return [row["rmse"] for row in rows]


def better_with_dimension(model: str, found: Results) -> Finding:
    """RMSE from the smallest to the largest D."""
    curves = {name: _curve(model, found, name) for name in ("SGD", "DSGD", "SGLD", *DISTRIBUTED)}
    falls = {name: all(b < a for a, b in pairwise(c)) for name, c in curves.items()}
    optimisers = [falls.pop(name) for name in ("SGD", "DSGD")]
    verdict = of_all(*falls.values(), *([False] if all(optimisers) else []))
    parts = ", ".join(f"{name} {{{name}:+.2%}}" for name in curves)
    figures: Figures = {name: curve[-1] / curve[0] - 1 for name, curve in curves.items()}
    return verdict, f"from the smallest D to the largest: {parts}", figures


def gibbs_with_dimension(model: str, found: Results) -> Finding:
    """Gibbs's RMSE against D."""
    curve = _curve(model, found, "Gibbs")
    verdict = of_all(*(b > a for a, b in pairwise(curve)))
    figures: Figures = {"first": curve[0], "last": curve[-1], "change": curve[-1] / curve[0] - 1}
    return verdict, "from {first:.4f} to {last:.4f}: {change:+.2%}", figures


def improvement(model: str, found: Results) -> Finding:
    """The optimisers' RI at each D."""
    rows = dimension_rows(model, found.dimension)
    rows = [row for row in rows if row["algorithm"] in ("SGD", "DSGD")]
    gains = [-r["relative_improvement"] for r in rows if r["relative_improvement"] is not None]
    if not gains or len(gains) < len(rows):
        raise NotTestedError("DSGLD or an optimiser has no result")
    verdict = of_size(min(gains), 0.75 * LEAST_GAIN[model], NOTICED)
    because = "SGD and DSGD are {least:.2%} to {most:.2%} behind DSGLD"
    figures: Figures = {"least": min(gains), "most": max(gains)}
    still = [one["plan"] for one in found.dimension
             if one["plan"]["algorithm"] in OPTIMISERS and not converged(one["trace"])]  # fmt: skip
    if still:
        names = ", ".join(f"{plan['algorithm']} with D = {plan['n_factors']}" for plan in still)
        verdict = PART if verdict == HOLDS else verdict
        because += f"; not converged: {names}"
    return PART if min(gains) <= NOTICED < max(gains) else verdict, because, figures


def lowest_of_table(model: str, found: Results) -> Finding:
    """DSGLD against SGLD, and against Gibbs where the table has it behind."""
    own = PRINTED_DSGLD[model]
    curves = {name: _curve(model, found, name) for name in (own, "SGLD", "Gibbs")}
    first = 1 if model == "netflix" else 0
    ahead = {
        name: all(a < b for a, b in list(zip(curves[own], curves[name], strict=True))[k:])
        for name, k in (("SGLD", 0), ("Gibbs", first))
    }
    figures: Figures = {
        f"{name}{k}": rmse for name, curve in curves.items() for k, rmse in enumerate(curve)
    }
    said = "; ".join(
        f"{name} {', '.join(f'{{{name}{k}:.4f}}' for k in range(len(curve)))}"
        for name, curve in curves.items()
    )
    return of_all(*ahead.values()), f"by D: {said}", figures


def samples(model: str, found: Results) -> Finding:
    """Draws of all chains in the same time, with the most factors."""
    names = ("SGLD", "DSGLD-S", "Gibbs")
    most = max((one["plan"]["n_factors"] for one in found.dimension), default=0)
    draws: Figures = {
        one["plan"]["algorithm"]: one["n_draws"]
        for one in found.dimension
        if one["plan"]["n_factors"] == most and one["final"] is not None
    }
    if not set(names) <= set(draws):
        raise NotTestedError("SGLD, DSGLD-S or Gibbs has no result")
    few = [draws[name] or 0.0 for name in names]
    because = f"with D = {most}: {', '.join(f'{name} {{{name}:.0f}}' for name in names)}"
    return of_all(few[0] > few[1], few[1] > few[2]), because, {name: draws[name] for name in names}


def _costs(found: Results, name: str) -> dict[int, float]:
    rows = cost_rows(found.cost)
    return {row["D"]: row["seconds_per_draw"] for row in rows if row["algorithm"] == name}


def cost_of_gibbs(model: str, found: Results) -> Finding:
    """Seconds for a draw at the largest D."""
    costs = {name: _costs(found, name) for name in ("SGLD", "DSGLD-S", "Gibbs", "bayesmf")}
    d = max((d for cost in costs.values() for d in cost), default=0)
    last: Figures = {name: cost[d] for name, cost in costs.items() if d in cost}
    sgld, gibbs = last.get("SGLD"), last.get("Gibbs")
    if sgld is None or gibbs is None:
        raise NotTestedError("SGLD or Gibbs was not timed")
    parts = ", ".join(f"{name} {{{name}:.3g}} s" for name in last)
    because = f"at D = {{D:.0f}} a draw takes {parts}; Gibbs over SGLD is {{ratio:.2g}}"
    figures: Figures = {"D": d, "ratio": gibbs / sgld, **last}
    return of_size(gibbs / sgld, TWO_ORDERS, PART_OF_THEM), because, figures


def growth_of_cost(model: str, found: Results) -> Finding:
    """Exponents of D in the seconds for a draw, by least squares of logarithms."""
    costs = [_costs(found, name) for name in ("SGLD", "Gibbs")]
    if min(map(len, costs)) < 2:
        raise NotTestedError("fewer than two D were timed")
    sgld, gibbs = (
        float(np.polyfit(np.log(list(c)), np.log(list(c.values())), 1)[0]) for c in costs
    )
    as_printed = sgld <= LINEAR and gibbs >= CUBIC
    verdict = HOLDS if as_printed else PART if gibbs >= sgld + APART else NOT
    because = "a draw of SGLD takes D to the power {SGLD:.2f}, one of Gibbs {Gibbs:.2f}"
    return verdict, because, {"SGLD": sgld, "Gibbs": gibbs}


COST_JUDGES = (
    packets, constant_packets, better_with_dimension, improvement, gibbs_with_dimension,
    lowest_of_table, samples, cost_of_gibbs, growth_of_cost,
)  # fmt: skip
