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
# Of fewer passes, of one chain and of each of several, R-hat is above 1.1 even where draws are
# independent: then it tells how few they are, not whether chains agree (simulated: 400 pairs).
ENOUGH_PASSES, ENOUGH_OF_EACH = 40, 20
LARGEST_RHAT = 1e6
OPTIMISERS = ("SGD",)

Found = Mapping[str, Any]


def converged(found: Found) -> bool | None:
    """Whether R-hat is within its limit; None where it cannot be known."""
    if found["rule"] in OPTIMISERS or found["rhat"] is None:
        return None
    if found["rhat"] <= found["limit"]:
        return True
    return None if _too_few(found) else False


def _too_few(found: Found) -> bool:
    return bool(found["passes"] < (ENOUGH_PASSES if found["chains"] == 1 else ENOUGH_OF_EACH))


def verdict(found: Found) -> str:
    """What is known, in a sentence."""
    if found["rule"] in OPTIMISERS:
        return (
            f"{found['rule']} looks for one best point and draws nothing, so there is nothing to "
            "converge; its intervals hold the noise of ratings, not what is unknown of them."
        )
    who = f"the {found['chains']} chains" if found["chains"] > 1 else "the halves of the chain"
    state = converged(found)
    if state is None:
        number = "" if found["rhat"] is None else f" (R-hat {found['rhat']:.3f})"
        passes = f"{found['passes']} pass{'' if found['passes'] == 1 else 'es'}"
        if found["rhat"] is None and found["passes"] >= LEAST_DRAWS:
            return "Whether it converged is not known: no prediction moved from draw to draw."
        return (
            f"Whether it converged is not known: {passes} after burn-in are too few to tell"
            f"{number}."
        )
    number = f"(R-hat {found['rhat']:.3f}, limit {found['limit']:g})"
    if state:
        return f"Converged: {who} predict alike {number}{_gain(found)}."
    return (
        f"Not converged: {who} do not predict alike yet {number}; another fit may give other "
        "answers."
    )


def headline(found: Found) -> str:
    """The same in few words, for a picture's title."""
    if found["rule"] in OPTIMISERS:
        return f"{found['rule']}: one point, nothing to converge"
    if converged(found) is None:
        return "Too few draws to know whether it converged"
    word = "Converged" if converged(found) else "Not converged"
    return f"{word}: R-hat {found['rhat']:.3f}, limit {found['limit']:g}"


def _gain(found: Found) -> str:
    if found["loss"] is None:
        return ""
    # An estimate on the safe side: long runs gain less than this, or nothing.
    return f"; more sampling would take at most about {100 * found['loss']:.2g}% off the RMSE"


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
