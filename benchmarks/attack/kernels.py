"""Sound ratings of odd shapes through all kernels: for the modes in which indices are checked."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.attack import plain
from benchmarks.attack.case import Case
from benchmarks.attack.material import answers
from benchmarks.attack.registry import attack


def interpreted() -> bool:
    """Whether kernels are plain Python now; each width would have to be compiled else."""
    return getattr(sys.modules.get("bayesmf.kernels.jit"), "njit", None) is plain.njit


def shaped(case: Case) -> tuple[Any, Any, Any]:
    """Ratings of few or many users, with rows of one rating and rows of all."""
    n_users, n_items = case.rng.choice(((1, 1), (1, 9), (9, 1), (2, 2), (12, 7), (30, 8), (5, 40)))
    share = case.rng.choice((0.1, 0.5, 1.0))
    cells = np.argwhere(case.numbers.random((n_users, n_items)) < share)
    cells = cells if len(cells) > 1 else np.array([[0, 0], [n_users - 1, n_items - 1]])
    levels = case.rng.choice((1, 2, 5, 300))
    ratings = case.numbers.integers(0, levels, len(cells)) / 4 + 1
    return cells[:, 0], cells[:, 1], ratings


@attack("kernels", 3)
def samplers(case: Case) -> None:
    """A short fit by any rule, and all answers."""
    from bayesmf import SGD, SGHMC, SGLD, SGNHT, BayesianMF, Gibbs

    chains = case.rng.choice((1, 2))
    rules: list[Any] = [
        Gibbs(epochs=3, burn_in=1, n_chains=chains), Gibbs(epochs=3, burn_in=1, overrelax=0.0),
        Gibbs(epochs=2, burn_in=1, joint=4), Gibbs(epochs=2, burn_in=1, joint=1),
    ]  # fmt: skip
    width = case.rng.choice((1, 2, 3, 8))
    prior = case.rng.choice(("auto", "gamma", "wishart", "wishart-bias"))
    if interpreted():
        grid = case.rng.choice(((1, 1), (2, 2), (1, 3)))
        rules += [
            SGLD(epochs=2, burn_in=1, grid=grid, batch_size=case.rng.choice((1, 7, 100))),
            SGLD(epochs=2, burn_in=1, minibatch="replacement", batch_size=5),
            SGD(epochs=2), SGHMC(epochs=2, burn_in=1),
            SGNHT(epochs=2, burn_in=1),
        ]  # fmt: skip
        width = case.rng.choice((1, 2, 3, 7, 8, 9, 16, 17))
    rule, data = case.rng.choice(rules), shaped(case)
    case.say(f"{len(data[0])} ratings, {width} factors, {prior}, {rule}")
    model = BayesianMF(
        width, sampler=rule, prior=prior, random_state=1, engine="serial", progress=False
    )
    case.call(lambda: model.fit(data))
    found = case.call(lambda: answers(model))
    if not np.isfinite(found).all():
        case.find("other answers", f"an answer that is not finite: {'; '.join(case.said)}")


@attack("kernels")
def policies(case: Case) -> None:
    """All ways to rank and to judge, of users known and unknown."""
    from bayesmf import BayesianMF

    model = BayesianMF.load(case.material.folder / case.rng.choice(("model", "model_str")))
    users = [*list(model.user_ids_)[: case.rng.choice((1, 3, 40))], "nobody"]
    policy = case.rng.choice(("mean", "ucb", "thompson"))
    n = case.rng.choice((1, 3, 25, 1000))
    case.say(f"{len(users)} users, {policy}, {n} items")
    case.call(lambda: [list(model.recommend(user, n=n, policy=policy)) for user in users])
    known = case.material.folder / ("ratings.csv" if model.user_ids_.kind == "int" else "names.csv")
    case.call(lambda: model.evaluate(known))
