"""Did it converge? Two numbers decide, one sentence says it, and one more says what to do.

They are split R-hats, near 1 where chains that began apart, and the halves of each chain, agree.
`rhat` is that of predictions: 400 pairs of user and item are followed, and 95% of them stay below
it. `rhat_noise` is the largest of the noise's parameters, on which intervals depend. `fit`,
`report_["convergence"]`, `diagnose` and the pictures all tell these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from bayesmf.model.noise import PARAMETERS

# Limit of R-hat where the target has none of its own.
AGREE = 1.1
# Split R-hat halves each chain, and the variance of a half takes two draws.
LEAST_DRAWS = 4
# With fewer passes after burn-in, of a single chain and of each of several, R-hat is above AGREE
# even where draws are independent: then it shows how few they are, not whether chains agree. R-hat
# minus 1 falls with the number of passes, so a closer limit takes more of them.
ENOUGH_PASSES, ENOUGH_OF_EACH = 40, 20
LARGEST_RHAT = 1e6
# Said beside R-hats of other quantities, which may be larger.
DECIDED_BY = (
    "The verdict is that of predictions, 95% of 400 watched pairs, and of the noise, whose "
    "differences count as far as they matter for intervals"
)
OPTIMISERS = ("SGD",)
# Times as many epochs as a run that was too short: with its sampler, and beyond the last target.
MORE, MUCH_MORE = 2, 4

Convergence = Mapping[str, Any]
State = Literal["optimiser", "still", "too few", "converged", "not converged"]


def told(found: Convergence) -> dict[str, Any]:
    """Add what follows from R-hat: whether it converged, in a word and a sentence, and advice.

    Parameters
    ----------
    found : mapping
        `rule` and `chains`; `rhat`, `rhat_noise` and the name of the `slowest` of the noise's
        parameters, `limit`, `loss` and `passes` after burn-in; `draws` that were kept; `epochs`,
        `ended_by` and `target`, for the advice.

    Returns
    -------
    dict
        The same with `state`, `converged` (None where that cannot be known), `verdict`, and
        `advice` in Python's words, empty where all is well.
    """
    state = state_of(found)
    known = {"converged": True, "not converged": False}.get(state)
    out = {**found, "state": state, "converged": known, "verdict": verdict(found)}
    return {**out, "advice": advice(out, shell=False)}


def state_of(found: Convergence) -> State:
    """Decide whether chains have converged; nothing else decides it."""
    if found["rule"] in OPTIMISERS:
        return "optimiser"
    if found["rhat"] is None:
        return "too few" if found["passes"] < LEAST_DRAWS else "still"
    if worst(found) <= found["limit"]:
        return "converged"
    enough = enough_passes(found["chains"], found["limit"])
    return "too few" if found["passes"] < enough else "not converged"


def worst(found: Convergence) -> float:
    """The larger R-hat; models of earlier versions have none of the noise."""
    return float(max(found["rhat"], found.get("rhat_noise") or 0.0))


def enough_passes(chains: int, limit: float) -> int:
    """Passes of each chain from which on R-hat of independent draws is mostly below the limit."""
    at_usual = ENOUGH_PASSES if chains == 1 else ENOUGH_OF_EACH
    return math.ceil(at_usual * (AGREE - 1) / (limit - 1) - 1e-9)


def verdict(found: Convergence) -> str:
    """Whether chains have converged, in a sentence."""
    state = state_of(found)
    if state == "optimiser":
        return (
            f"{found['rule']} looks for one best point and draws nothing, so there is nothing to "
            "converge; its intervals hold the noise of ratings, not what is unknown of them."
        )
    if state == "still":
        return "Whether it converged is not known: no prediction moved from draw to draw."
    if state == "too few":
        number = "" if found["rhat"] is None else f" (R-hat {worst(found):.3f})"
        passes = "1 pass" if found["passes"] == 1 else f"{found['passes']} passes"
        are = "is" if found["passes"] == 1 else "are"
        enough = enough_passes(found["chains"], found["limit"])
        return (
            f"Whether it converged is not known: {passes} after burn-in {are} too few to tell"
            f"{number}; it takes {enough}."
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
            f"Converged as far as one chain can tell: its halves predict alike {number}; more "
            "chains, each begun elsewhere, would tell more."
        )
    noise = found.get("rhat_noise")
    both = "" if noise is None else f" and agree on the noise (R-hat {noise:.3f})"
    return f"Converged: the {found['chains']} chains predict alike {number}{both}{_gain(found)}."


def headline(found: Convergence) -> str:
    """Whether chains have converged, in few words, for a picture's title."""
    state = state_of(found)
    if state == "optimiser":
        return f"{found['rule']}: one point, nothing to converge"
    if state == "still":
        return "Not known whether it converged: no prediction moved"
    if state == "too few":
        return "Too few passes to know whether it converged"
    word = "Converged" if state == "converged" else "Not converged"
    return f"{word}: R-hat {worst(found):.3f}, limit {found['limit']:g}"


def _gain(found: Convergence) -> str:
    """What more sampling would gain, of the average over the draws that were kept."""
    if found["loss"] is None:
        return ""
    return f"; endless sampling would take about {100 * found['loss']:.2g}% off the RMSE"


def advice(found: Convergence, shell: bool) -> str:
    """What to do about it, in Python's words or the shell's; empty where all is well."""
    state, rule = state_of(found), found["rule"]
    if state in ("optimiser", "converged"):
        return ""
    if state == "still":
        return "Its steps are too short to be seen: use longer ones, or the default sampler."
    if found["ended_by"] == "max_seconds":
        longer = "a longer --max-seconds" if shell else "a larger max_seconds"
        return f"The clock stopped it: fit with {longer}, or without."
    if found["ended_by"] == "callback":
        return "A callback ended it: let it run longer."
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
    return f"Sample longer than any target does, with {longer} in place of {target}."
