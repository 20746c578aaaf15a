"""Scores of ranked lists by their definitions, one user and one place at a time."""

import math


def plain_scores(ranked, liked, k):
    """Scores of one user: `ranked` items, best first, and the set of those `liked`."""
    hits = [item in liked for item in ranked[:k]]
    gains = [1 / math.log2(place + 1) for place, hit in enumerate(hits, 1) if hit]
    ideal = [1 / math.log2(place + 1) for place in range(1, min(k, len(liked)) + 1)]
    places = [place for place, hit in enumerate(hits, 1) if hit]
    return {
        "ndcg": sum(gains) / sum(ideal),
        "recall": len(places) / len(liked),
        "precision": len(places) / k,
        "mrr": 1 / places[0] if places else 0.0,
        "map": sum(n / place for n, place in enumerate(places, 1)) / len(liked),
        "hit_rate": float(bool(places)),
    }


def plain_means(lists, k):
    """Means over users, of pairs of ranked items and liked ones."""
    scores = [plain_scores(ranked, liked, k) for ranked, liked in lists]
    return {name: sum(one[name] for one in scores) / len(scores) for name in scores[0]}


def library_means(library, lists, k):
    """The same by trec_eval: `library` is the module pytrec_eval."""
    names = {
        "ndcg": "ndcg_cut", "recall": "recall", "precision": "P", "map": "map_cut",
        "hit_rate": "success",
    }  # fmt: skip
    asked = {f"{name}.{k}" for name in names.values()} | {"recip_rank"}
    wanted = {f"u{u}": {f"i{item}": 1 for item in liked} for u, (_, liked) in enumerate(lists)}
    judge = library.RelevanceEvaluator(wanted, asked)
    # A user without a list is left out by trec_eval: an item that nobody likes stands for none.
    run = {
        f"u{u}": {f"i{item}": float(-n) for n, item in enumerate(ranked[:k])} or {"none": 0.0}
        for u, (ranked, _) in enumerate(lists)
    }
    found = judge.evaluate(run).values()
    assert len(found) == len(lists)
    told = {"mrr": "recip_rank"} | {name: f"{theirs}_{k}" for name, theirs in names.items()}
    return {name: sum(one[key] for one in found) / len(found) for name, key in told.items()}
