"""A model's scores on held-out ratings, as `fit --test`, `evaluate` and `diagnose --test` tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesmf.cli.output import bar, count, short

if TYPE_CHECKING:
    from bayesmf.estimator import BayesianMF
    from bayesmf.ratings import Ratings


def score(model: BayesianMF, test: Ratings) -> dict[str, Any]:
    """Scores, and how many ratings have an unseen id."""
    with bar(len(test), "ratings") as progress:
        scores = model.evaluate(test, progress.update).as_dict()
    user = model.user_ids_.lookup(test.user_ids.ids)[test.user] < 0
    item = model.item_ids_.lookup(test.item_ids.ids)[test.item] < 0
    return scores | {
        "unseen_users": int(user.sum()),
        "unseen_items": int(item.sum()),
        "unseen": int((user | item).sum()),
    }


def score_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for people."""
    error = "" if scores["rmse_se"] is None else f" +/- {short(scores['rmse_se'])}"
    levels = [f"{level}%: {100 * share:.1f}%" for level, share in scores["coverage"].items()]
    return [
        ("test", f"{count(scores['n'], 'rating')}, {_unseen(scores)}"),
        ("RMSE", short(scores["rmse"]) + error),
        ("MAE", short(scores["mae"])),
        ("NLL", short(scores["nll"])),
        ("CRPS", short(scores["crps"])),
        ("coverage", "  ".join(levels)),
    ]


def _unseen(scores: dict[str, Any]) -> str:
    if not scores["unseen"]:
        return "all of users and items that were learnt from"
    return f"{scores['unseen']:,} of them with an unseen user or item (predicted from the prior)"
