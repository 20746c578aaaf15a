"""Convergence of chains: two numbers, a verdict and advice.

Both numbers are split R-hats, near 1 if chains with different starts, and the halves of each chain,
agree. `rhat` is the 95% quantile over the predictions of 400 pairs of user and item. `rhat_noise`
is the largest of the noise's parameters, on which intervals depend. `fit`,
`report_["convergence"]`, `diagnose` and the plots show these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.model.noise import PARAMETERS
from bayesmf.process import short_count
from bayesmf.wording import count, short

# A chain's distance from its limit falls about as t^-p exp(-t / u), t in passes: measured with 8 to
# 12 chains on four data sets (docs/sampler.md). These are pairs of p and 1 / u, also powers alone,
# of 1 and more: lower ones hardly fall. Each is weighted by its fit.
POWERS, TIMES = np.arange(0.0, 3.01, 0.25), (3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 22.0, 32.0)
LAWS = [(p, 1.0 / u) for p in POWERS for u in TIMES] + [(p, 0.0) for p in POWERS if p >= 1.0]
# Effective number of independent quantities among hundreds of correlated ones.
INDEPENDENT = 30
# Minimum number of passes: a law has two parameters, and its residual variance needs more.
LEAST_PASSES = 4

Floats = NDArray[np.float64]

# Limit of R-hat if the target has none.
AGREE = 1.1
# Split R-hat halves each chain, and the variance of a half takes two draws.
LEAST_DRAWS = 4
# With fewer passes after burn-in, of a single chain and of each of several, R-hat is above AGREE
# even for independent draws and does not show whether chains agree. R-hat minus 1 falls with the
# number of passes, so a stricter limit needs more.
ENOUGH_PASSES, ENOUGH_OF_EACH = 40, 20
LARGEST_RHAT = 1e6
# Note shown beside R-hats of other quantities, which may be larger.
DECIDED_BY = (
    "The verdict is that of predictions, 95% of 400 watched pairs, and of the noise, whose "
    "differences count as far as they matter for intervals"
)
OPTIMISERS = ("SGD",)
# Factors on the epochs of a run that was too short: with its sampler, and beyond the last target.
MORE, MUCH_MORE = 2, 4

Convergence = Mapping[str, Any]
State = Literal["optimiser", "still", "too few", "converged", "not converged"]


class ChainTrace(NamedTuple):
    """Quantities of a chain, (passes, quantities); the round of each pass, from 1; draws kept."""

    values: NDArray[Any]
    rounds: NDArray[Any]
    kept: NDArray[np.int64]


def error_of_averages(chains: Sequence[ChainTrace]) -> float:
    """Mean squared error of the averages over the kept draws of all chains.

    The sum of the squared bias of the start, a trend common to all chains, and the variance between
    chains' averages (or those of the halves of a single chain) without that trend. Laws of
    the trend are fitted to all passes, and to those from the first that is kept: the mean of both
    errors is more accurate than either. NaN with fewer than 2 draws of one chain, or 4 passes.
    """
    n = min(len(chain.rounds) for chain in chains)
    fewest = min(len(chain.kept) for chain in chains)
    if n < LEAST_PASSES or fewest < (2 if len(chains) == 1 else 1):
        return float("nan")
    late = min(min(int(chain.kept[0]) for chain in chains), n - LEAST_PASSES)
    return (_error(chains, 0, n) + _error(chains, late, n)) / 2


def _error(chains: Sequence[ChainTrace], begin: int, end: int) -> float:
    """The error by laws that are fitted to the passes from `begin` to `end`; axes: law, ..."""
    rounds = np.asarray(chains[0].rounds[begin:end], np.float64)
    values = np.array([chain.values[begin:end] for chain in chains], np.float64)
    values -= values.mean(axis=1, keepdims=True)
    moved = float((values.mean(axis=0) ** 2).sum(axis=0).mean())
    # A pass of a rule that takes its ratings in parts is many rounds.
    length = float(np.median(np.diff(rounds)))
    powers, rates = np.array(LAWS).T[:, :, None]

    def laws(at: NDArray[Any]) -> Floats:
        past = np.asarray(at, np.float64)
        found: Floats = np.exp(-rates * (past - rounds[0]) / length)
        found *= (past / rounds[0]) ** -powers
        return found

    x, n = laws(rounds), len(rounds)
    last = x[:, 0] - x[:, -1]
    x -= x.mean(axis=1, keepdims=True)
    squares = (x**2).sum(axis=1)
    trends = np.einsum("kt,ctq->kcq", x, values) / squares[:, None, None]
    common = trends.mean(axis=1)
    misfits = np.maximum(moved - squares * (common**2).mean(axis=1), 0.0) / n
    parts = _averaged(chains)
    left = np.array([laws(part.rounds).mean(axis=1) for part in parts])
    # At most the observed decrease: for a late start of the trace the law is unreliable.
    still = np.minimum(left.mean(axis=0), last)
    start = _start(trends, misfits * n / (n - 2) / squares)
    means = [part.mean - own[:, None] * common for part, own in zip(parts, left, strict=True)]
    chance = np.var(means, axis=0, ddof=1).mean(axis=1) / len(parts)
    # No bias if all passes are equal.
    fit = -0.5 * INDEPENDENT * n * np.log(np.maximum(misfits, 1e-300))
    weights = np.exp(fit - fit.max())
    return float(weights @ (start * still**2 + chance) / weights.sum())


class _Part(NamedTuple):
    """Draws averaged together: their mean, and their rounds."""

    mean: Floats
    rounds: NDArray[Any]


def _averaged(chains: Sequence[ChainTrace]) -> list[_Part]:
    """The kept draws of each chain, or the halves of a single one's."""
    kept = [chain.kept for chain in chains]
    if len(chains) == 1:
        half = len(kept[0]) // 2
        chains, kept = [chains[0]] * 2, [kept[0][:half], kept[0][-half:]]
    return [
        _Part(np.asarray(chain.values[own], np.float64).mean(axis=0), chain.rounds[own])
        for chain, own in zip(chains, kept, strict=True)
    ]


def _start(trends: Floats, noise: Floats) -> Floats:
    """Mean square of the common trend, by law; `noise` is the variance that chance adds to one.

    Trends of different chains are multiplied, because their errors are independent.
    """
    n, mean = trends.shape[1], (trends.mean(axis=1) ** 2).mean(axis=1)
    left: Floats = mean - noise
    if n > 1:
        left = (n * mean - (trends**2).mean(axis=(1, 2))) / (n - 1)
    return np.maximum(left, np.zeros_like(left))


def with_verdict(found: Convergence) -> dict[str, Any]:
    """Add what follows from R-hat: `state`, `converged`, `verdict` and `advice`.

    `found` has `rule` and `chains`; `rhat`, `rhat_noise` and the `slowest` parameter of the noise,
    `limit`, `loss` and `passes` after burn-in; `draws`; `epochs`, `ended_by` and `target`;
    `burn_in` is a sentence about a burn-in that did not end by its rule, or empty.
    `converged` is None if unknown; `advice` is empty if none is needed.
    """
    state = state_of(found)
    known = {"converged": True, "not converged": False}.get(state)
    sentence = f"{found.get('burn_in', '')} {verdict(found)}".lstrip()
    out = {**found, "state": state, "converged": known, "verdict": sentence}
    return {**out, "advice": advice(out, shell=False)}


def state_of(found: Convergence) -> State:
    """State of convergence: the only place where it is decided."""
    if found["rule"] in OPTIMISERS:
        return "optimiser"
    if found["rhat"] is None:
        return "too few" if found["passes"] < LEAST_DRAWS else "still"
    if worst(found) <= found["limit"]:
        return "converged"
    enough = enough_passes(found["chains"], found["limit"])
    return "too few" if found["passes"] < enough else "not converged"


def worst(found: Convergence) -> float:
    """The larger R-hat, of predictions or of the noise."""
    return float(max(found["rhat"], found["rhat_noise"] or 0.0))


def enough_passes(chains: int, limit: float) -> int:
    """Passes of each chain for which R-hat of independent draws is mostly below the limit."""
    at_usual = ENOUGH_PASSES if chains == 1 else ENOUGH_OF_EACH
    return math.ceil(at_usual * (AGREE - 1) / (limit - 1) - 1e-9)


def verdict(found: Convergence) -> str:
    """Whether chains have converged, in a sentence."""
    state = state_of(found)
    if state == "optimiser":
        return (
            f"{found['rule']} is an optimiser: no draws, no convergence; its intervals contain "
            "the noise of ratings, not the uncertainty of the parameters."
        )
    if state == "still":
        return "Convergence is unknown: no prediction changed between draws."
    if state == "too few":
        number = "" if found["rhat"] is None else f" (R-hat {worst(found):.3f})"
        passes = "1 pass" if found["passes"] == 1 else f"{found['passes']} passes"
        are = "is" if found["passes"] == 1 else "are"
        enough = enough_passes(found["chains"], found["limit"])
        return (
            f"Convergence is unknown: {passes} after burn-in {are} too few{number}; "
            f"{enough} are needed."
        )
    number = f"(R-hat {found['rhat']:.3f}, limit {found['limit']:g})"
    alone = found["chains"] == 1
    if state == "not converged":
        who = "the halves of the chain" if alone else f"the {found['chains']} chains"
        if found["rhat"] <= found["limit"]:
            slowest = PARAMETERS.get(found["slowest"], "the noise")
            return (
                f"Not converged: {who} predict alike {number}, but {slowest} has not mixed (R-hat "
                f"{found['rhat_noise']:.3f}); intervals of another fit may differ."
            )
        return (
            f"Not converged: {who} do not predict alike yet {number}; another fit may give other "
            "answers."
        )
    if alone:
        return (
            f"Converged as far as one chain shows: its halves predict alike {number}; more "
            "chains, with different starts, would show more."
        )
    noise = found["rhat_noise"]
    both = "" if noise is None else f" and agree on the noise (R-hat {noise:.3f})"
    return f"Converged: the {found['chains']} chains predict alike {number}{both}{_gain(found)}."


def headline(found: Convergence) -> str:
    """Short verdict, for the title of a figure."""
    state = state_of(found)
    if state == "optimiser":
        return f"{found['rule']}: optimiser, no draws"
    if state == "still":
        return "Convergence unknown: no prediction changed"
    if state == "too few":
        return "Convergence unknown: too few passes"
    word = "Converged" if state == "converged" else "Not converged"
    return f"{word}: R-hat {worst(found):.3f}, limit {found['limit']:g}"


def _gain(found: Convergence) -> str:
    """Clause on the gain from more sampling."""
    if found["loss"] is None:
        return ""
    return f"; more sampling would lower the RMSE by about {100 * found['loss']:.2g}%"


def advice(found: Convergence, shell: bool) -> str:
    """Advice, in terms of Python or of the shell; empty if none is needed."""
    state, rule = state_of(found), found["rule"]
    if state in ("optimiser", "converged"):
        return ""
    if state == "still":
        return "Its steps are too short: use longer ones, or the default sampler."
    if found["ended_by"] == "max_seconds":
        longer = "a longer --max-seconds" if shell else "a larger max_seconds"
        return f"The time limit stopped it: fit with {longer}, or without."
    if found["ended_by"] == "callback":
        return "A callback stopped it: let it run longer."
    further = {"fast": "balanced", "balanced": "accurate"}.get(found["target"] or "")
    if further is not None:
        word = f"--target {further}" if shell else f'target="{further}"'
        return f"Sample longer, with {word}."
    last, chains = found["target"] is not None, found["chains"]
    times = MUCH_MORE if last else MORE
    if state == "too few":
        times = max(
            times, math.ceil(enough_passes(chains, found["limit"]) / max(found["passes"], 1))
        )
    epochs = math.ceil(found["epochs"]) * times
    if not last:
        longer = f"--epochs {epochs}" if shell else f"epochs={epochs} in {rule}(...)"
        return f"Sample longer, with {longer}."
    longer, target = f"sampler=Auto(n_chains={chains}, epochs={epochs})", "target"
    if shell:
        longer, target = f"--chains {chains} --epochs {epochs}", "--target"
    return f"Sample longer than any target, with {longer} instead of {target}."


NOISE_BY = {
    "user": "each user has its own",
    "item": "each item has its own",
    "both": "users and items have their own",
}


def fit_facts(report: Mapping[str, Any], shell: bool) -> list[tuple[str, str]]:
    """Names and texts of the facts of a report; advice in terms of the shell or of Python."""
    settings = dict(report["sampler"])
    rule = settings.pop("rule")
    options = [f"{name} {_text(value)}" for name, value in settings.items() if value is not None]
    sizes = count(report["users"], "user"), count(report["items"], "item")
    speed = f"{short_count(report['ratings_per_second'])} ratings/s"
    chains = count(settings.get("n_chains", 1), "chain")
    by, size = report["noise_by"], short(report["noise_std"])
    noise = f"tau {report['tau']:.4g}, a standard deviation of {size}"
    if by is not None:
        noise = f"{NOISE_BY[by]}, a standard deviation of {size} on average"
    facts = {
        "ratings": f"{report['ratings']:,} by {sizes[0]} of {sizes[1]}",
        "model": f"{count(report['factors'], 'factor')}, {report['prior']} prior",
        "sampler": f"{rule}: {', '.join(options)}",
        "seed": str(report["seed"]),
        "time": f"{report['seconds']:.1f} s, {speed}",
        "draws": f"{report['draws']} from {chains} of {round(report['epochs'], 1):g} epochs",
    }
    found = report["convergence"]
    facts["converged"] = f"{found['verdict']} {advice(found, shell)}".rstrip()
    return list((facts | {"noise": noise}).items())


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
