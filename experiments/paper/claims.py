"""The paper's claims on accuracy and time, and verdicts on all its claims.

Each is judged for one seed, with the printed estimator. The rules are in claims.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from experiments.paper.claims_cost import COST_JUDGES
from experiments.paper.presets import MCMC
from experiments.paper.tables import DISTRIBUTED, PRINTED_DSGLD, Record, n_chains
from experiments.paper.trials import (
    CONVERGED,
    best_rmse,
    burn_in_end,
    by_draws,
    converged,
    reached,
    shown,
    time_to,
)
from experiments.paper.verdicts import (
    HOLDS,
    NOT,
    PART,
    Figures,
    Finding,
    Judge,
    NotTestedError,
    Verdict,
    claims_about,
    of_all,
    of_size,
    verdict_on,
)

if TYPE_CHECKING:
    from experiments.paper.report import Results

NOTICED = 0.002  # a smaller gain is within the range of seeds
AS_FAST = 1.1  # times as long is still as fast
SLIGHTLY = 0.0025  # the paper's difference on Netflix is 0.1%, that on Yahoo 0.6%
ORDER = 5.0  # times as long: half of ten
ALIKE = 2.0  # times as long is a similar rate
STEEP = 2.0  # times the fall of a chain's own error
SPREAD, LARGE_SPREAD = 0.005, 0.02  # an eighth of the gain over DSGD, and half of it
SIMILAR = 0.005  # of the RMSE: the same


def judge(model: str, results: Sequence[Results]) -> list[Verdict]:
    """A verdict on each claim about this data set, from the results of each seed.

    `earlier` are the verdicts of a quarter and of half of the time.
    """
    quarter, half, whole = (
        [verdict_on(row, JUDGES[row["name"]], model, [one.until(share) for one in results])
         for row in claims_about(model)]
        for share in (0.25, 0.5, 1.0)
    )  # fmt: skip
    return [
        replace(last, earlier=(first.verdict, second.verdict))
        for first, second, last in zip(quarter, half, whole, strict=True)
    ]


def _name(record: Record) -> str:
    return str(record["plan"]["algorithm"])


def _key(record: Record) -> str:
    workers = record["plan"]["workers"]
    return f"{_name(record)} on {workers}" if workers > 1 or "-" in _name(record) else _name(record)


def _runs(records: Sequence[Record], *names: str, least: int = 1) -> list[Record]:
    """Trials of these algorithms, by their workers and names; all must have a result."""
    found = [one for one in records if _name(one) in names]
    for name in names:
        if sum(_name(one) == name for one in found) < least:
            raise NotTestedError(
                f"{'no trial' if least == 1 else 'fewer than two trials'} of {name}"
            )
    for one in found:
        if one["final"] is None or not shown(one["trace"]):
            raise NotTestedError(f"{_key(one)}: {one['failed'] or 'no draw within the time'}")
    return sorted(found, key=lambda one: (one["plan"]["workers"], names.index(_name(one))))


def _pair(model: str, records: Sequence[Record], name: str) -> tuple[Record, Record]:
    """The DSGLD that the paper's sentences on this data set are about, and another."""
    return _runs(records, PRINTED_DSGLD[model])[0], _runs(records, name)[0]


def _end(record: Record) -> float:
    """Where the curve ends."""
    return shown(record["trace"])[-1][1]


def _at(record: Record, seconds: float) -> float | None:
    """The error shown at a time, between the points around it; None before the first."""
    times, rmse, _ = zip(*shown(record["trace"]), strict=True)
    return None if seconds < times[0] else float(np.interp(seconds, times, rmse))


def _state_at(record: Record, seconds: float) -> float | None:
    """The error of the first chain's own state at a time, between the points around it."""
    trace = record["trace"]
    columns = (trace[name] for name in ("seconds", "chain", "state"))
    points = [(t, e) for t, chain, e in zip(*columns, strict=True) if chain == 0 and e is not None]
    if not points:
        return None
    times, errors = zip(*points, strict=True)
    return float(np.interp(seconds, times, errors))


def _burn_in_ends(records: Sequence[Record]) -> dict[str, tuple[float, float]]:
    """Seconds and RMSE of the last state before averages are shown, by algorithm and workers."""
    ends = {_key(one): end for one in records if (end := burn_in_end(one["trace"]))}
    if not ends:
        raise NotTestedError("no burn-in that ended")
    return ends


def _times(records: Sequence[Record], goal: float) -> Figures:
    """Seconds to an error, by algorithm and workers."""
    return {_key(one): time_to(one["trace"], goal) for one in records}


def _listed(figures: Figures, form: str, unit: str = "") -> str:
    """Names and values of figures, for a sentence."""
    return ", ".join(f"{name} {{{name}:{form}}}{unit}" for name in figures)


def accuracy(model: str, found: Results) -> Finding:
    """DSGLD at its end against the lowest error of DSGD, by both estimators."""
    own, other = _pair(model, found.convergence, "DSGD")
    best, dsgd, end = _end(own), reached(other) or 0.0, _end(other)
    figures: Figures = {"dsgld": best, "dsgd": dsgd, "gain": (dsgd - best) / best, "end": end}
    because = (
        f"{_name(own)} ends at {{dsgld:.4f}}, DSGD's lowest error is {{dsgd:.4f}}, its last "
        "{end:.4f}: {gain:.2%}"
    )
    if own["final_exact"]:
        figures["exact"] = (dsgd - own["final_exact"]) / own["final_exact"]
        because += "; {exact:.2%} with users integrated out"
    goal = 0.75 * (0.041 if model == "netflix" else 0.018)
    verdict = of_size(figures["gain"], goal, NOTICED)
    return (*_of_converged(other, verdict, because), figures)


def _of_converged(dsgd: Record, verdict: str, because: str) -> tuple[str, str]:
    """At most in part where DSGD has not converged."""
    if converged(dsgd["trace"]):
        return verdict, because
    return PART if verdict == HOLDS else verdict, f"{because}; DSGD has not converged"


def at_convergence(model: str, found: Results) -> Finding:
    """DSGLD against DSGD at the time when DSGD is near its lowest error."""
    own, dsgd = _pair(model, found.convergence, "DSGD")
    seconds = time_to(dsgd["trace"], CONVERGED * (best_rmse(dsgd["trace"]) or 0.0)) or 0.0
    best, other = (_at(one, seconds) for one in (own, dsgd))
    gain = None if best is None or other is None else (other - best) / best
    verdict = of_size(gain, 0.75 * (0.037 if model == "netflix" else 0.011), NOTICED)
    because = (
        f"after {{seconds:.3g}} s DSGD is at {{dsgd:.4f}}, {_name(own)} at {{dsgld:.4f}}: "
        "{gain:.2%}"
    )
    figures = {"seconds": seconds, "dsgd": other, "dsgld": best, "gain": gain}
    return (*_of_converged(dsgd, verdict, because), figures)


def as_fast_as_dsgd(model: str, found: Results) -> Finding:
    """Errors on the way: when each is at a quarter, half and all of DSGD's fall."""
    pair = _pair(model, found.convergence, "DSGD")
    first, lowest = pair[1]["trace"]["start"], CONVERGED * (best_rmse(pair[1]["trace"]) or 0.0)
    figures: Figures = {}
    fast, parts = [], []
    for name, share in (("quarter", 0.25), ("half", 0.5), ("all", 1.0)):
        goal = first - share * (first - lowest)
        own, other = (time_to(one["trace"], goal) for one in pair)
        figures |= {f"{name}_rmse": goal, f"{name}_dsgld": own, f"{name}_dsgd": other}
        fast.append(own is not None and other is not None and own <= AS_FAST * other)
        parts.append(f"{{{name}_rmse:.4f}} after {{{name}_dsgld:.3g}} and {{{name}_dsgd:.3g}} s")
    because = (
        f"to a quarter, half and all of DSGD's fall, {_name(pair[0])} and DSGD: {'; '.join(parts)}"
    )
    return of_all(*fast), because, figures


def sooner(name: str, model: str, found: Results) -> Finding:
    """Time to the RMSE that the worse of the two ends with, within 0.1%."""
    pair = _pair(model, found.convergence, name)
    goal = CONVERGED * max(map(_end, pair))
    own, other = (time_to(one["trace"], goal) or 0.0 for one in pair)
    figures: Figures = {"rmse": goal, "dsgld": own, "other": other, "ratio": other / max(own, 1e-9)}
    because = (
        f"{{rmse:.4f}} takes {_name(pair[0])} {{dsgld:.3g}} s and {name} {{other:.3g}} s, "
        "{ratio:.2g} times as long"
    )
    return of_size(figures["ratio"], ORDER, 1.0), because, figures


def level_with_gibbs(model: str, found: Results) -> Finding:
    """The final errors: Gibbs's slightly lower on Netflix, higher on Yahoo."""
    pair = _pair(model, found.convergence, "Gibbs")
    best, gibbs = map(_end, pair)
    above = (gibbs - best) / best
    if model == "yahoo":
        verdict = of_size(above, 0.0, -SLIGHTLY)
    else:
        verdict = HOLDS if -SLIGHTLY <= above <= 0 else PART if abs(above) <= SLIGHTLY else NOT
    because = f"{_name(pair[0])} ends at {{dsgld:.4f}}, Gibbs at {{gibbs:.4f}}: {{above:+.2%}}"
    return verdict, because, {"dsgld": best, "gibbs": gibbs, "above": above}


def rates_of_burn_in(model: str, found: Results) -> Finding:
    """Seconds of all but Gibbs to the error that ends burn-in: similar, on Yahoo two are ahead."""
    runs = _runs(found.convergence, "SGD", "DSGD", *MCMC)
    goal = max(rmse for _, rmse in _burn_in_ends(runs).values())
    times = _times(runs, goal)
    because = f"to {{rmse:.4f}}: {_listed(times, '.3g', ' s')}"
    known = {_name(r): float("inf") if (t := times[_key(r)]) is None else t for r in runs}
    ahead = [known.pop(name) for name in ("DSGD", "DSGLD-S") if model == "yahoo" and name in known]
    if model == "yahoo":
        verdict = of_all(*(one < min(known.values(), default=0.0) for one in ahead))
    else:
        verdict = of_size(-max(known.values()) / max(min(known.values()), 1e-9), -ALIKE, -ORDER)
    return verdict, because, {"rmse": goal, **times}


def spread_of_chains(model: str, found: Results) -> Finding:
    """Standard deviation of the chains' RMSE after the same rounds of burn-in: the median."""
    spreads: Figures = {}
    for one in _runs(found.convergence, *DISTRIBUTED):
        errors: dict[int, list[float]] = {}  # of each chain, in the order of its rounds
        columns = (one["trace"][name] for name in ("chain", "burning", "rmse"))
        for chain, burning, rmse in zip(*columns, strict=True):
            if burning and rmse is not None:
                errors.setdefault(chain, []).append(rmse)
        every = list(zip(*errors.values(), strict=False)) if len(errors) > 1 else []
        if every:
            ratios = [np.std(values, ddof=1) / np.mean(values) for values in every]
            spreads[_name(one)] = float(np.median(ratios))
    if not spreads:
        raise NotTestedError("no errors of several chains during burn-in")
    worst = max(value or 0.0 for value in spreads.values())
    because = f"standard deviation over RMSE: {_listed(spreads, '.2%')}"
    return of_size(-worst, -SPREAD, -LARGE_SPREAD), because, spreads


def fall_after_burn_in(model: str, found: Results) -> Finding:
    """How far averages and the state of a chain fall in as much time again as burn-in took."""
    falls: dict[str, float] = {}
    states: Figures = {}
    runs = _runs(found.convergence, *MCMC)
    ends = _burn_in_ends(runs)
    for one in runs:
        if _key(one) in ends:
            seconds, rmse = ends[_key(one)]
            average, state = _at(one, 2 * seconds), _state_at(one, 2 * seconds)
            if average is not None and state is not None:
                falls[_name(one)] = 1 - average / rmse
                states[f"{_name(one)} state"] = 1 - state / rmse
    if not set(DISTRIBUTED) <= set(falls):
        raise NotTestedError("DSGLD-S or DSGLD-C has no errors after the end of burn-in")
    steep = [falls[n] > max(STEEP * (states[f"{n} state"] or 0.0), 0.0) for n in DISTRIBUTED]
    rivals = [fall for name, fall in falls.items() if name == "SGLD" or model == "netflix"]
    because = f"averages fall by {_listed({**falls}, '.2%')}; a chain by {_listed(states, '.2%')}"
    largest = falls["DSGLD-C"] >= max(rivals, default=0.0)
    return of_all(*steep, largest), because, {**falls, **states}


def overfit(model: str, found: Results) -> Finding:
    """The rise of DSGD's error from its lowest point; the other algorithms' beside it."""
    runs = _runs(found.convergence, "SGD", "DSGD", *MCMC)
    rises = {_name(one): _end(one) / (best_rmse(one["trace"]) or 1.0) - 1 for one in runs}
    risen = HOLDS if rises["DSGD"] >= CONVERGED - 1 else NOT
    return risen, f"above the lowest error: {_listed({**rises}, '.2%')}", {**rises}


def many_chains(model: str, found: Results) -> Finding:
    """SGLD's draws, and as many of DSGLD-C's C chains: every C-th of each chain, and the first."""
    one, many = (_runs(found.convergence, name)[0] for name in ("SGLD", "DSGLD-C"))
    kinds = ((one, False), (many, True), (many, False))
    curves = [np.array(by_draws(run["trace"], thinned)) for run, thinned in kinds]
    if not all(len(curve) for curve in curves):
        raise NotTestedError("no draws of one chain and of several")
    draws = min(curve[-1, 0] for curve in curves)
    own, spread, first = (float(np.interp(draws, curve[:, 0], curve[:, 1])) for curve in curves)
    figures: Figures = {"draws": draws, "one": own, "many": spread, "gain": own / spread - 1}
    figures |= {"first": first, "gain_first": own / first - 1}
    because = (
        f"after {{draws:.0f}} draws SGLD's chain is at {{one:.4f}}; as many of "
        f"{n_chains(many)} chains give {{many:.4f}} if spread over about the same time "
        "({gain:+.2%}), and {first:.4f} if they are the first ones ({gain_first:+.2%})"
    )
    return of_all(*(CONVERGED * error <= own for error in (spread, first))), because, figures


def together(experiment: str, names: Sequence[str], model: str, found: Results) -> Finding:
    """Whether the errors end near each other, and nearer than at half the time."""
    runs = _runs(getattr(found, experiment), *names, least=1 if len(names) > 1 else 2)
    ends = [_end(one) for one in runs]
    half = min(shown(one["trace"])[-1][0] for one in runs) / 2
    then = [rmse for one in runs if (rmse := _at(one, half)) is not None] or [1.0]
    gap, before = (max(values) / min(values) - 1 for values in (ends, then))
    because = "they end within {gap:.2%} of each other; at half of the time it is {half:.2%}"
    similar = gap <= SIMILAR and gap <= max(before, CONVERGED - 1)
    return (
        HOLDS if similar else PART if gap < before else NOT,
        because,
        {"gap": gap, "half": before},
    )


def quickest_burn_in(model: str, found: Results) -> Finding:
    """Seconds of one chain and of more to the highest error that ends a burn-in."""
    runs = _runs(found.chains, "DSGLD-C", least=2)
    goal = max(rmse for _, rmse in _burn_in_ends(runs).values())
    times = _times(runs, goal)
    one, *others = (float("inf") if seconds is None else seconds for seconds in times.values())
    because = f"to {{rmse:.4f}}, by chains: {_listed(times, '.3g', ' s')}"
    return of_all(*(one <= other for other in others)), because, {"rmse": goal, **times}


def more(name: str, model: str, found: Results) -> Finding:
    """Seconds until the RMSE that the fewest workers, or chains, end with, by their number."""
    runs = _runs(found.chains, name, least=2)
    goal, last = CONVERGED * _end(runs[0]), _end(runs[-1])
    times = _times(runs, goal)
    known = [float("inf") if seconds is None else seconds for seconds in times.values()]
    steadily = all(b <= a for a, b in pairwise(known)) and known[-1] < known[0]
    because = (
        f"to {{rmse:.4f}}, as the first ends: {_listed(times, '.3g', ' s')}; the last ends at "
    )
    figures = {"rmse": goal, "last": last, **times}
    return of_all(steadily, last < _end(runs[0])), because + "{last:.4f}", figures


def _against(better: Record, other: Record) -> Finding:
    """Whether a trial ends lower, and is sooner at the error that both reach."""
    ends = {_name(one): _end(one) for one in (better, other)}
    goal = CONVERGED * max(ends.values())
    times = _times((better, other), goal)
    own, its = (seconds or 0.0 for seconds in times.values())
    because = (
        f"at the end {_listed({**ends}, '.4f')}; to {{rmse:.4f}} {_listed(times, '.3g', ' s')}"
    )
    return (
        of_all(CONVERGED * _end(better) <= _end(other), own < its),
        because,
        {"rmse": goal, **ends, **times},
    )


def splits(model: str, found: Results) -> Finding:
    """DSGLD-S against DSGLD-C on data of this size."""
    names = DISTRIBUTED[::-1] if model == "netflix" else DISTRIBUTED
    better, other = (_runs(found.convergence, name)[0] for name in names)
    return _against(better, other)


def group_size(model: str, found: Results) -> Finding:
    """The same squares: orthogonal groups, or a chain for each block."""
    (single,) = _runs(found.chains, "DSGLD-1")[:1]
    squares = _runs([*found.convergence, *found.chains], "DSGLD-S")
    same = [r for r in squares if r["plan"]["workers"] == single["plan"]["workers"]]
    if not same:
        raise NotTestedError("no trial of DSGLD-S on as many workers")
    return _against(single, same[0]) if model == "netflix" else _against(same[0], single)


JUDGES: dict[str, Judge] = {
    **{one.__name__: one for one in (
        accuracy, at_convergence, as_fast_as_dsgd, level_with_gibbs, rates_of_burn_in,
        spread_of_chains, fall_after_burn_in, overfit, many_chains, quickest_burn_in, splits,
        group_size, *COST_JUDGES,
    )},
    "sooner_than_gibbs": partial(sooner, "Gibbs"),  # as in the paper
    "sooner_than_default": partial(sooner, "bayesmf"),  # as the library is today
    "approach": partial(together, "convergence", MCMC),
    "similar_end": partial(together, "chains", ("DSGLD-C",)),
    "more_chains": partial(more, "DSGLD-C"),
    "more_workers": partial(more, "DSGLD-S"),
}  # fmt: skip
