"""SHA-256 digests of draws and answers on small ratings: a change that must not change a bit.

    python tests/helpers/digests.py --write before.json     # with the code as it was
    python tests/helpers/digests.py --check before.json     # with the code as it is

Digests depend on the processor, as floating-point code does: compare them on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bayesmf
from bayesmf import SGD, SGHMC, SGLD, SGNHT, BayesianMF, Gibbs, Ratings, Synthetic

SAMPLERS = {
    "gibbs": Gibbs(epochs=6, n_chains=2),
    "gibbs-joint": Gibbs(epochs=6, joint=1),
    "gibbs-plain": Gibbs(epochs=6, overrelax=0),
    "sgd": SGD(epochs=6, grid=(2, 2)),
    "sgld": SGLD(epochs=8, burn_in=2, grid=(2, 2), n_chains=2),
    "sgld-columns": SGLD(epochs=8, burn_in=2, grid=(2, 1), minibatch="replacement"),
    "sgld-paper": SGLD(epochs=8, burn_in=2, grid=(2, 2), noise="paper", n_chains=2),
    "sghmc": SGHMC(epochs=8, burn_in=2, grid=(2, 2), n_chains=2),
    "sghmc-replacement": SGHMC(epochs=8, burn_in=2, minibatch="replacement"),
    "sgnht": SGNHT(epochs=8, burn_in=2, grid=(2, 1)),
}
PRIORS = "gamma", "wishart", "wishart-bias"
NOISES = None, "user", "item", "both"
POLICIES = "mean", "ucb", "lcb", "thompson", "thompson-items"


def digest(value: Any) -> str:
    """Digest of arrays, numbers, ids, and lists and dicts of these."""
    sha = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, dict):
            for key in sorted(x):
                sha.update(str(key).encode())
                add(x[key])
        elif isinstance(x, list | tuple):
            sha.update(f"{len(x)}".encode())
            for part in x:
                add(part)
        elif isinstance(x, np.ndarray) and x.dtype != object and x.dtype.kind not in "UT":
            sha.update(f"{x.dtype}{x.shape}".encode())
            sha.update(np.ascontiguousarray(x).tobytes())
        elif isinstance(x, np.ndarray):
            add(x.tolist())
        else:
            sha.update(repr(x.item() if isinstance(x, np.generic) else x).encode())

    add(value)
    return sha.hexdigest()[:32]


def ratings(kind: str = "half") -> Ratings:
    """Small ratings with ids of text; of stars in halves, or of any number."""
    made = Synthetic(50, 30, 700, random_state=3).ratings()
    value = np.asarray(made.rating, np.float64)
    value = np.round(2 * value) / 2 if kind == "half" else value + 0.001 * np.arange(len(value))
    users = [f"u{row}" for row in np.asarray(made.user_rows)]
    return Ratings.from_data((users, np.asarray(made.item_rows) + 100, value))


def answers(model: BayesianMF) -> dict[str, str]:
    """Digests of what a model answers."""
    users = [f"u{row % 53}" for row in range(200)]  # three of them are not known
    items = [100 + (7 * row) % 32 for row in range(200)]
    sent = {103: 4.0, 107: 1.5, 111: 5.0}
    table = model.predict_table(users, items, level=0.8)
    columns = table.to_polars()
    out = {
        "predict": model.predict(users, items, return_std=True),
        "interval": model.predict_interval(users, items, level=0.9),
        "table": [columns[name].to_numpy() for name in ("mean", "std", "low", "high")],
        "new user": model.predict_interval(None, [104, 105], ratings=sent),
        "new user std": model.predict(None, [103, 104, 999], return_std=True, ratings=sent),
        "known user sent": model.predict("u3", [104, 105], return_std=True, ratings=sent),
        "explain": explained(model.explain("u3", 105)),
        "explain sent": explained(model.explain(item=105, ratings=sent)),
        "similar items": neighbours(model.similar_items(105)),
        "similar users": neighbours(model.similar_users("u3")),
        "rows": model.rows(items=[103, 104], draw=0),
        "user rows": model.rows(users=["u3", "u4"], draw=0),
    }
    for policy in POLICIES:
        out[f"recommend {policy}"] = [
            [tuple(one) for one in model.recommend(*who, 5, policy=policy, random_state=1, **sent)]
            for who, sent in ((("u3",), {}), ((None,), {"ratings": sent}))
        ]
        many = model.recommend_many([f"u{i}" for i in range(9)], 4, policy=policy, random_state=2)
        out[f"many {policy}"] = [many.to_polars()[name].to_list() for name in ("item", "mean")]
        out[f"many {policy} std"] = many.to_polars()["std"].to_list()
    if model.report_.get("levels", True) and hasattr(model, "rating_levels_"):
        try:
            out["proba"] = model.predict_proba(users, items)
            out["levels"] = list(model.predict_levels(users, items))
            out["edges"] = [model.rating_levels_, model.predict_proba(None, [104], ratings=sent)]
        except bayesmf.InputError:
            pass  # more than 256 levels
    return {name: digest(value) for name, value in out.items()}


def explained(found: Any) -> list[Any]:
    """Numbers of an explanation."""
    return [found.prediction, found.rest, found.items, found.shares, found.effects]


def neighbours(found: Any) -> list[Any]:
    """Ids and correlations of neighbours."""
    table = found.to_polars()
    return [table[name].to_list() for name in table.columns]


def fits() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every sampler with every prior and noise that it can have."""
    for (name, sampler), prior, noise in itertools.product(SAMPLERS.items(), PRIORS, NOISES):
        yield f"{name} {prior} {noise}", {"sampler": sampler, "prior": prior, "noise_by": noise}
    for keep in "items", "users", "both":
        yield f"gibbs keep={keep}", {"sampler": SAMPLERS["gibbs"], "keep": keep}
    for sampler in "gibbs", "sgld", "sghmc", "sgnht", "auto":
        yield f"{sampler} by default", {"sampler": sampler, "target": "fast"}
    for size in 24, 40:
        yield f"gibbs {size} factors", {"sampler": SAMPLERS["gibbs"], "n_factors": size}
        yield f"sgld {size} factors", {"sampler": SAMPLERS["sgld"], "n_factors": size}
    yield "auto balanced", {"sampler": "auto", "target": "balanced"}
    yield "plain columns", {"sampler": SAMPLERS["gibbs"], "standardize": False, "tau": 1.5}


def fit(settings: dict[str, Any], **more: Any) -> BayesianMF | None:
    """The fitted model; None where a sampler refuses a prior or noise."""
    model = BayesianMF(**({"n_factors": 3, "random_state": 5} | settings | more))
    try:
        return model.fit(ratings())
    except bayesmf.InputError:
        return None


def draws(model: BayesianMF) -> str:
    """Digest of all arrays of draws."""
    return digest({name: np.asarray(a) for name, a in model.posterior_.draws.arrays().items()})


def collect(ray: bool, quick: bool) -> dict[str, str]:
    """All digests by name; with `quick` those of a fifth of the fits."""
    out: dict[str, str] = {}
    for name, settings in list(fits())[:: 5 if quick else 1]:
        model = fit(settings, engine="serial")
        if model is None:
            out[name] = "refused"
            continue
        out[f"{name}: draws"] = draws(model)
        for what, value in answers(model).items():
            out[f"{name}: {what}"] = value
        threads = fit(settings, engine="threads", n_workers=3)
        assert threads is not None
        if draws(threads) != out[f"{name}: draws"]:
            out[f"{name}: draws"] = "differs between serial and threads"
        usual = settings.get("prior") in (None, "wishart-bias")
        if "sgd" not in name and (usual or not quick):
            more = (["u3", "new", "new"], [105, 106, 999], [2.0, 4.5, 3.0])
            model.partial_fit(more)
            out[f"{name}: partial_fit"] = draws(model)
            out[f"{name}: partial_fit predict"] = digest(model.predict(["new", "u3"], [105, 999]))
            known = model.predict_interval(["new", "u3", "u4"], [105, 106, 107])
            out[f"{name}: partial_fit interval"] = digest(known)
    model = BayesianMF(2, sampler=SAMPLERS["gibbs"], random_state=1).fit(ratings("any"))
    for what, value in answers(model).items():
        out[f"any number: {what}"] = value
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in {
            "all": {},
            "no users": {"users": False},
            "few": {"max_draws": 2},
        }.items():
            path = Path(folder) / f"{name.replace(' ', '')}.bayesmf"
            model.save(path, **settings)
            same = BayesianMF.load(path)
            out[f"saved {name}"] = draws(same)
            out[f"saved {name}: new user"] = digest(
                same.predict(None, [104, 105], ratings={103: 4})
            )
        packed = Path(folder) / "packed.bayesmf"
        held = ratings()
        table = held.to_polars()
        table.write_csv(Path(folder) / "ratings.csv")
        bayesmf.pack(Path(folder) / "ratings.csv", packed)
        model = BayesianMF(3, sampler=SAMPLERS["gibbs"], random_state=5, engine="serial")
        out["packed"] = draws(model.fit(packed))
    if ray:
        out |= on_ray(out)
    return out


def on_ray(serial: dict[str, str]) -> dict[str, str]:
    """Draws of every sampler on Ray that differ from those of the serial engine, by name."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=40)
    out = {}
    try:
        for name, settings in fits():
            if serial.get(name) == "refused":
                continue
            model = fit(settings, engine="ray", n_workers=2)
            assert model is not None
            if draws(model) != serial[f"{name}: draws"]:
                out[f"{name}: draws"] = "differs between serial and Ray"
    finally:
        ray.shutdown()
    return out


def main() -> int:
    """Write digests to a file, or compare with those in one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--no-ray", action="store_true", help="leave out the engine ray")
    parser.add_argument("--quick", action="store_true", help="a fifth of the fits, without ray")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = collect(not options.no_ray and not options.quick, options.quick)
    print(f"{len(found)} digests, {sum(v == 'refused' for v in found.values())} fits refused")
    if options.write:
        options.write.write_text(json.dumps(found, indent=1))
    if not options.check:
        return 0
    known = json.loads(options.check.read_text())
    names = known.keys() & found.keys() if options.quick else known.keys()
    wrong = [name for name in sorted(names) if known[name] != found.get(name)]
    print(f"{len(names)} compared, {len(found.keys() - known.keys())} not in {options.check}")
    print(f"{len(wrong)} differ" + "".join(f"\n  {name}" for name in wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
