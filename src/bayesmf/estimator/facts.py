"""How a model was fitted, in words: for the command line and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesmf.diagnostics.convergence import advice
from bayesmf.wording import count, short

NOISE_BY = {
    "user": "each user has its own",
    "item": "each item has its own",
    "both": "users and items have their own",
}
NOT_JUDGED = "not told by the version that fitted it"


def fit_facts(report: Mapping[str, Any], shell: bool) -> list[tuple[str, str]]:
    """Names and texts of what a report says; advice is in the shell's words or in Python's."""
    settings = dict(report["sampler"])
    rule = settings.pop("rule")
    told = [f"{name} {_text(value)}" for name, value in settings.items() if value is not None]
    sizes = count(report["users"], "user"), count(report["items"], "item")
    speed = f"{report['ratings_per_second'] / 1e6:.2f}M ratings/s"
    chains = count(settings.get("n_chains", 1), "chain")
    by, size = report.get("noise_by"), short(report.get("noise_std", report["tau"] ** -0.5))
    noise = f"tau {report['tau']:.4g}, a standard deviation of {size}"
    if by is not None:
        noise = f"{NOISE_BY[by]}, a standard deviation of {size} on average"
    facts = {
        "ratings": f"{report['ratings']:,} by {sizes[0]} of {sizes[1]}",
        "model": f"{count(report['factors'], 'factor')}, {report['prior']} prior",
        "sampler": f"{rule}: {', '.join(told)}",
        "seed": str(report["seed"]),
        "time": f"{report['seconds']:.1f} s, {speed}",
        "draws": f"{report['draws']} from {chains} of {round(report['epochs'], 1):g} epochs",
    }
    if found := report.get("convergence"):
        judged = "state" in found  # not so in models of earlier versions
        verdict = f"{found['verdict']} {advice(found, shell)}".rstrip() if judged else NOT_JUDGED
        facts["converged"] = verdict
    return list((facts | {"noise": noise}).items())


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
