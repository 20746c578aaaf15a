"""The model card: data, settings, convergence and calibration."""

from __future__ import annotations

import math
from typing import Any

from bayesmf import __version__
from bayesmf.data.ratings import Ratings
from bayesmf.diagnostics.convergence import advice, fit_facts
from bayesmf.errors import InputError, captured_warnings
from bayesmf.estimator.evaluating import burn_in_end
from bayesmf.web.served import Served

N_PAIRS = 200
# Most points of a curve on the page.
_MOST_EPOCHS = 400
KINDS = {
    "prediction": f"{N_PAIRS} predictions at random",
    "tau": "noise precision",
    "lambda_U": "precisions of user factors",
    "lambda_V": "precisions of item factors",
    "lambda_a": "precision of user biases",
    "lambda_b": "precision of item biases",
}


def compute_diagnostics(served: Served, test: Ratings | None) -> None:
    """Compute R-hat of each kind of quantity, and calibration on held-out ratings."""
    served.computed["diagnostics"] = [
        {"name": KINDS.get(name, name), "rhat": _number(x["rhat"]), "ess": _number(x["ess_min"])}
        for name, x in served.model.diagnose(N_PAIRS).items()
    ]
    if test is None:
        return
    try:
        with captured_warnings():
            found = served.model.calibration(test)
    except InputError as error:  # ratings of another model
        served.computed["uncalibrated"] = f"calibration cannot be computed: {error}"
        return
    groups = [("", "", found.overall.n, found.observed)]
    groups += [(group.label, group.span, group.n, group.observed) for group in found.groups]
    served.computed["calibration"] = {
        "calibrated": found.calibrated,
        "verdict": found.verdict,
        "n": found.overall.n,
        "rmse": found.overall.rmse,
        "levels": list(found.levels),
        "curves": [
            {"group": name, "range": span, "n": n, "observed": [float(x) for x in observed]}
            for name, span, n, observed in groups
        ],
        "pit": [int(x) for x in found.pit],
    }


def card(served: Served, tested: bool) -> dict[str, Any]:
    """Return the model card; `tested` is whether there are held-out ratings."""
    model, computed = served.model, served.computed
    posterior, report = model.posterior_, model.report_
    judged = report["convergence"]
    notes = [*served.notes]
    state = _calibration_state(tested, computed)
    if state == "pending":
        notes.append("calibration is being computed: reload in a few seconds")
    elif state == "failed":
        notes.append(computed["uncalibrated"])
    if "noise" not in computed:
        computed["noise"] = math.sqrt(posterior.noise())
    return {
        "model_version": served.version,
        "notes": notes,
        "name": served.name,
        "has_titles": served.items.has_titles,
        "columns": served.items.columns,
        "loaded_at": served.loaded_at,
        "bayesmf": __version__,
        "data": {
            "ratings": report["ratings"],
            "users": report["users"],
            "items": report["items"],
            "low": posterior.low,
            "high": posterior.high,
            "mean": posterior.center,
            "levels": served.levels,
            "holds_users": bool(len(model.user_ids_)),
            "some_users": [model.user_ids_[row] for row in range(min(3, len(model.user_ids_)))],
        },
        "settings": [list(fact) for fact in fit_facts(report, shell=False)],
        "draws": len(posterior.draws),
        "factors": posterior.n_factors,
        "noise": computed["noise"],
        "convergence": {
            "converged": judged["converged"],
            "verdict": judged["verdict"],
            "advice": advice(judged, shell=False),
            **{name: _number(judged[name]) for name in ("rhat", "rhat_noise", "limit")},
            "chains": _curves(model.history_, burn_in_end(model.report_, model.history_)),
            "diagnostics": computed.get("diagnostics", []),
        },
        "calibration": computed.get("calibration"),
        "calibration_state": state,
    }


def _calibration_state(tested: bool, computed: dict[str, Any]) -> str:
    """State of the calibration."""
    if not tested:
        return "none"
    if "calibration" in computed:
        return "done"
    return "failed" if "uncalibrated" in computed else "pending"


def _curves(history: list[dict[str, Any]], burnt: float | None) -> list[dict[str, Any]]:
    """Epochs of each chain as columns, thinned if there are many."""
    out = []
    for chain in sorted({event["chain"] for event in history}):
        own = [event for event in history if event["chain"] == chain]
        own = own[:: -(-len(own) // _MOST_EPOCHS)]
        out.append(
            {
                "chain": int(chain),
                "epoch": [float(event["epoch"]) for event in own],
                "seconds": [float(event["seconds"]) for event in own],
                "train_rmse": [_number(event["train_rmse"]) for event in own],
                "validation_rmse": [_number(event["rmse"]) for event in own],
                "tau": [_number(event["tau"]) for event in own],
                "burn_in": [event["epoch"] <= (burnt or 0) for event in own],
            }
        )
    return out


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None
