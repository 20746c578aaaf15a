"""The paper's claims, and verdicts on them from trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments.paper.tables import DISTRIBUTED, Record, cost_rows, dimension_rows, pick
from experiments.paper.trials import shown, time_to

HOLDS, PART, NOT = "holds", "holds in part", "does not hold"
AS_FAST = 1.1  # times as long is still as fast


@dataclass(frozen=True)
class Verdict:
    """A claim, the result and the verdict; `figures` are the numbers that decide it."""

    name: str
    claim: str
    verdict: str
    because: str
    figures: dict[str, float]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"claim": self.name, "verdict": self.verdict, "figure": name, "value": value}
            for name, value in self.figures.items()
        ]


def judge(
    model: str,
    convergence: Sequence[Record],
    chains: Sequence[Record],
    dimension: Sequence[Record],
    cost: Sequence[Record],
) -> list[Verdict]:
    """A verdict on each claim for which there are trials."""
    out = []
    if convergence:
        out += [accuracy(model, convergence), as_fast_as_dsgd(convergence)]
        out.append(sooner_than_gibbs(convergence))
    if dimension:
        out.append(better_with_dimension(dimension))
    if chains:
        out.append(more_chains(chains))
    if convergence:
        out.append(splits(model, convergence))
    if cost:
        out.append(cost_of_gibbs(cost))
    return out


def _best(records: Sequence[Record], names: Sequence[str]) -> Record | None:
    known = [r for r in records if r["plan"]["algorithm"] in names and r["final"] is not None]
    return min(known, key=lambda r: r["final"], default=None)


def accuracy(model: str, records: Sequence[Record]) -> Verdict:
    """DSGLD against DSGD when both have converged."""
    printed = 0.041 if model == "netflix" else 0.018
    claim = "DSGLD's RMSE is 4.1% (Netflix) and 1.8% (Yahoo) below DSGD's"
    best, dsgd = _best(records, DISTRIBUTED), pick(records, "DSGD")
    if best is None or dsgd is None or dsgd["final"] is None:
        return Verdict("accuracy", claim, NOT, "a run has no result", {})
    gain = (dsgd["final"] - best["final"]) / best["final"]
    verdict = HOLDS if gain >= 0.75 * printed else PART if gain > 0.002 else NOT
    name = best["plan"]["algorithm"]
    return Verdict(
        "accuracy", claim, verdict,
        f"{name} ends at {best['final']:.4f}, DSGD at {dsgd['final']:.4f}: {gain:.2%} between them",
        {"dsgld_rmse": best["final"], "dsgd_rmse": dsgd["final"], "gain": gain},
    )  # fmt: skip


def as_fast_as_dsgd(records: Sequence[Record]) -> Verdict:
    """Errors on the way: when each is at a quarter, half and all of DSGD's fall."""
    claim = "DSGLD reduces the prediction error as fast as DSGD"
    best, dsgd = _best(records, DISTRIBUTED), pick(records, "DSGD")
    curve = [] if dsgd is None else [rmse for _, rmse, _ in shown(dsgd["trace"])]
    if best is None or dsgd is None or len(curve) < 2:
        return Verdict("fast", claim, NOT, "a run is missing", {})
    figures: dict[str, float] = {}
    results, ratios = [], []
    for name, share in (("quarter", 0.25), ("half", 0.5), ("all", 1.0)):
        goal = curve[0] - share * (curve[0] - min(curve))
        own, other = time_to(best["trace"], goal), time_to(dsgd["trace"], goal)
        assert other is not None  # it is DSGD's own error
        figures |= {f"{name}_rmse": goal, f"{name}_dsgd_seconds": other}
        figures |= {} if own is None else {f"{name}_dsgld_seconds": own}
        ratios.append(float("inf") if own is None else own / max(other, 1e-9))
        results.append(f"{goal:.4f} after {_seconds(own)} and {_seconds(other)}")
    verdict = HOLDS if max(ratios) <= AS_FAST else PART if min(ratios) <= AS_FAST else NOT
    name = best["plan"]["algorithm"]
    because = f"at a quarter, half and all of DSGD's fall, {name} and DSGD: {'; '.join(results)}"
    return Verdict("fast", claim, verdict, because, figures)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g} s"


def sooner_than_gibbs(records: Sequence[Record]) -> Verdict:
    """Time to the RMSE that the worse of the two ends with."""
    claim = "DSGLD reaches Gibbs's accuracy an order of magnitude sooner"
    best, gibbs = _best(records, DISTRIBUTED), pick(records, "Gibbs")
    if best is None or gibbs is None or gibbs["final"] is None:
        return Verdict("sooner", claim, NOT, "a run is missing", {})
    goal = max(best["final"], gibbs["final"])
    figures = {"rmse": goal}
    for name, record in (
        ("dsgld_seconds", best),
        ("gibbs_seconds", gibbs),
        ("coordinate_gibbs_seconds", pick(records, "coordinate Gibbs")),
        ("bayesmf_seconds", pick(records, "bayesmf")),
    ):
        seconds = None if record is None else time_to(record["trace"], goal)
        if seconds is not None:
            figures[name] = seconds
    ratio = figures["gibbs_seconds"] / figures["dsgld_seconds"]
    figures["ratio"] = ratio
    verdict = HOLDS if ratio >= 5 else PART if ratio > 1 else NOT
    name = best["plan"]["algorithm"]
    because = (
        f"an RMSE of {goal:.4f} takes {name} {figures['dsgld_seconds']:.3g} s and Gibbs on "
        f"{gibbs['plan']['workers']} cores {figures['gibbs_seconds']:.3g} s: {ratio:.2g} times as "
        "long"
    )
    if verdict is NOT:
        because += "; today's Gibbs changes the verdict"
    if "bayesmf_seconds" in figures:
        because += f". Our default takes {figures['bayesmf_seconds']:.3g} s"
    if "coordinate_gibbs_seconds" in figures:
        because += f", coordinate Gibbs {figures['coordinate_gibbs_seconds']:.3g} s"
    return Verdict("sooner", claim, verdict, because, figures)


def better_with_dimension(records: Sequence[Record]) -> Verdict:
    """RMSE from the smallest to the largest D."""
    claim = "SG-MCMC improves as D grows, SGD and DSGD do not consistently"
    rows = dimension_rows(records)
    figures, falls = {}, {}
    for name in ("SGD", "DSGD", "SGLD", "DSGLD-S", "DSGLD-C"):
        curve = [r["rmse"] for r in rows if r["algorithm"] == name and r["rmse"] is not None]
        if len(curve) < 2:
            continue
        figures[f"{name}_change"] = curve[-1] / curve[0] - 1
        falls[name] = all(b <= a * 1.0005 for a, b in pairwise(curve))
    mcmc = [falls[n] for n in ("SGLD", "DSGLD-S", "DSGLD-C") if n in falls]
    sgd = [falls[n] for n in ("SGD", "DSGD") if n in falls]
    verdict = NOT
    if mcmc and all(mcmc):
        verdict = HOLDS if not all(sgd) else PART
    elif any(mcmc):
        verdict = PART
    results = ", ".join(f"{k.removesuffix('_change')} {v:+.2%}" for k, v in figures.items())
    return Verdict(
        "dimension", claim, verdict, f"from the smallest D to the largest: {results}", figures
    )


def more_chains(records: Sequence[Record]) -> Verdict:
    """DSGLD-C: seconds until the RMSE that one chain ends with."""
    claim = "more chains bring the error down faster"
    runs = [r for r in records if r["plan"]["algorithm"] == "DSGLD-C" and r["final"] is not None]
    runs.sort(key=lambda r: r["plan"]["workers"])
    if len(runs) < 2:
        return Verdict("chains", claim, NOT, "a run is missing", {})
    goal = runs[0]["final"]
    figures = {"rmse": goal}
    times = []
    for record in runs:
        seconds = time_to(record["trace"], goal)
        if seconds is not None:
            times.append(seconds)
            figures[f"seconds_{record['plan']['workers']}_chains"] = seconds
        figures[f"rmse_{record['plan']['workers']}_chains"] = record["final"]
    faster = len(times) == len(runs) and times[-1] < times[0]
    steadily = faster and all(b <= a for a, b in pairwise(times))
    lower = runs[-1]["final"] < goal
    verdict = HOLDS if steadily and lower else PART if faster or lower else NOT
    results = ", ".join(
        f"{k.split('_')[1]}: {v:.3g} s" for k, v in figures.items() if k.startswith("seconds")
    )
    return Verdict(
        "chains", claim, verdict,
        f"to the {goal:.4f} that one chain ends with, by chains: {results}; the most chains end at "
        f"{runs[-1]['final']:.4f}",
        figures,
    )  # fmt: skip


def splits(model: str, records: Sequence[Record]) -> Verdict:
    """DSGLD-S against DSGLD-C on data of this size."""
    claim = "column splits win on the smaller data (Netflix), square splits on the larger (Yahoo)"
    square, column = pick(records, "DSGLD-S"), pick(records, "DSGLD-C")
    if not square or not column or square["final"] is None or column["final"] is None:
        return Verdict("splits", claim, NOT, "a run is missing", {})
    goal = max(square["final"], column["final"])
    figures = {"square_rmse": square["final"], "column_rmse": column["final"], "rmse": goal}
    for name, record in (("square", square), ("column", column)):
        seconds = time_to(record["trace"], goal)
        assert seconds is not None
        figures[f"{name}_seconds"] = seconds
    lower = "column" if column["final"] < square["final"] else "square"
    sooner = "column" if figures["column_seconds"] < figures["square_seconds"] else "square"
    should, size = ("column", "smaller") if model == "netflix" else ("square", "larger")
    verdict = {2: HOLDS, 1: PART, 0: NOT}[(lower == should) + (sooner == should)]
    return Verdict(
        "splits", claim, verdict,
        f"here (taken for the {size} data) the {lower} split ends lower "
        f"({square['final']:.4f} square, {column['final']:.4f} column), and {goal:.4f} takes the "
        f"square split {figures['square_seconds']:.3g} s, the column split "
        f"{figures['column_seconds']:.3g} s",
        figures,
    )  # fmt: skip


def cost_of_gibbs(records: Sequence[Record]) -> Verdict:
    """Seconds for a draw at the largest D."""
    claim = "a draw of Gibbs costs almost two orders of magnitude more than one of SGLD at D = 100"
    rows = cost_rows(records)
    d = max(row["D"] for row in rows)
    cost = {row["algorithm"]: row["seconds_per_draw"] for row in rows if row["D"] == d}
    if not {"SGLD", "Gibbs"} <= set(cost):
        return Verdict("cost", claim, NOT, "a run is missing", {})
    ratio = cost["Gibbs"] / cost["SGLD"]
    figures = {"D": float(d), "ratio": ratio}
    figures |= {f"{name}_seconds": value for name, value in cost.items()}
    verdict = HOLDS if ratio >= 50 else PART if ratio >= 5 else NOT
    results = ", ".join(f"{name} {value:.3g} s" for name, value in cost.items())
    gibbs = pick(records, "Gibbs", n_factors=d)
    assert gibbs is not None
    cores = gibbs["plan"]["workers"]
    because = (
        f"at D = {d}, seconds for a draw: {results}; Gibbs on {cores} cores over SGLD on one is "
        f"{ratio:.2g}"
    )
    if verdict is not HOLDS:
        because += ". Today's Gibbs changes the verdict"
    return Verdict("cost", claim, verdict, because, figures)
