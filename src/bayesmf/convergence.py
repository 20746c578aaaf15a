"""Did it converge? One number decides, one sentence says it, and one more says what to do.

The number is the split R-hat of predictions: where chains that began apart, and the halves of each
chain, predict alike, it is near 1. 400 pairs of user and item are followed, and it is what 95% of
them stay below. `fit`, `report_["convergence"]`, `diagnose` and the pictures all tell this number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where no target says another one.
AGREE = 1.1
# Split R-hat halves each chain, and a variance takes two.
LEAST_DRAWS = 4
OPTIMISERS = ("SGD",)

Found = Mapping[str, Any]


def converged(found: Found) -> bool | None:
    """Whether R-hat is within its limit; None where it cannot be known."""
    if found["rule"] in OPTIMISERS or found["rhat"] is None:
        return None
    return bool(found["rhat"] <= found["limit"])


def verdict(found: Found) -> str:
    """What is known, in a sentence."""
    if found["rule"] in OPTIMISERS:
        return (
            f"{found['rule']} looks for one best point and draws nothing, so there is nothing to "
            "converge; its intervals hold the noise of ratings, not what is unknown of them."
        )
    if found["rhat"] is None:
        return (
            f"Whether it converged is not known: a chain kept fewer than {LEAST_DRAWS} draws, and "
            "how sure predictions are is not known either."
        )
    number = f"(R-hat {found['rhat']:.3f}, limit {found['limit']:g})"
    who = f"the {found['chains']} chains" if found["chains"] > 1 else "the halves of the chain"
    if converged(found):
        return f"Converged: {who} predict alike {number}{_gain(found)}."
    return (
        f"Not converged: {who} do not predict alike yet {number}{_gain(found)}; another fit may "
        "give other answers."
    )


def headline(found: Found) -> str:
    """The same in few words, for a picture's title."""
    if found["rule"] in OPTIMISERS:
        return f"{found['rule']}: one point, nothing to converge"
    if found["rhat"] is None:
        return "Too few draws to know whether it converged"
    word = "Converged" if converged(found) else "Not converged"
    return f"{word}: R-hat {found['rhat']:.3f}, limit {found['limit']:g}"


def _gain(found: Found) -> str:
    if found["loss"] is None:
        return ""
    return f"; endless sampling would take about {100 * found['loss']:.2g}% off the RMSE"


def advice(found: Found, shell: bool) -> str:
    """What to do about it, in Python's words or the shell's; nothing where all is well."""
    if found["converged"] or found["rule"] in OPTIMISERS:
        return ""
    if found["ended_by"] == "max_seconds":
        longer = "a longer --max-seconds" if shell else "a larger max_seconds"
        return f"it was stopped by the clock: fit with {longer}, or without"
    if found["ended_by"] == "callback":
        return "a callback ended it: let it run longer"
    if found["target"] is None:
        longer = "more --epochs" if shell else f"{found['rule']}(epochs=...) of more epochs"
        return f"sample longer, with {longer}"
    further = {"fast": "balanced", "balanced": "accurate"}.get(found["target"])
    if further is not None:
        word = f"--target {further}" if shell else f'target="{further}"'
        return f"sample longer, with {word}"
    longer = "--sampler gibbs --epochs 2000" if shell else "sampler=Gibbs(epochs=2000)"
    return f"sample longer than any target does, with {longer}"
