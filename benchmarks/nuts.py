"""Samplers against NUTS on the whole posterior: `python -m benchmarks.nuts --nuts-python PYTHON`.

A problem of 40 x 30 with 500 planted ratings, of users and items who differ in their noise.
NumPyro's NUTS draws rows, the parameters of their priors and all precisions of noise by gradients,
from a model written down a second time (nuts_worker.py); ours are long chains of which one side's
draws are kept. Compared are, for all 1,200 pairs, the posterior mean of the prediction and its
variance without noise; and of the logarithms of all precisions of noise, their shapes and rates,
means and variances. Errors are those of Monte Carlo: by the effective number of draws for NUTS, by
the spread over chains for ours.

PYTHON is that of an environment of its own, with benchmarks/nuts-requirements.txt in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF, ConvergenceWarning, Gibbs, InputError
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.model.draws import Draws
from bayesmf.posterior.posterior import Posterior
from benchmarks.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]
N_USERS, N_ITEMS, N_RATINGS, FACTORS = 40, 30, 500, 2
PRIORS = ("gamma", "wishart", "wishart-bias")
KEEPS = ("items", "users", "both")
NOISE = {"none": None, "user": "user", "item": "item", "both": "both"}
SAMPLERS: dict[str, dict[str, Any]] = {
    "rows": {},
    "columns": {"joint": 4},
    "plain": {"overrelax": 0.0},
}
N_CHAINS = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """Estimates of means and variances of pairs and of the noise, and their errors squared."""

    value: dict[str, Floats]
    error: dict[str, Floats]


def make_parser() -> Parser:
    """The options."""
    parser = Parser("nuts", __doc__)
    add = parser.add_argument
    add("--nuts-python", metavar="PYTHON", required=True, help="interpreter that has NumPyro")
    add("--priors", nargs="+", choices=PRIORS, default=list(PRIORS))
    add("--noise", nargs="+", choices=list(NOISE), default=list(NOISE), help="whose noise (all)")
    add("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    add("--save", metavar="FILE", help="write what NUTS has found: arrays of NumPy")
    add(
        "--keep",
        nargs="+",
        choices=KEEPS,
        default=["items", "users"],
        help="kept sides (items users)",
    )
    add("--chains", type=int, default=2, help="chains of NUTS (2)")
    add("--draws", type=int, default=1500, help="draws of a chain of NUTS (1500)")
    add("--sweeps", type=int, default=1500, help="sweeps of each of 20 chains of Gibbs (1500)")
    add("--seed", type=int, default=0)
    return parser


def planted(seed: int) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Ratings of random cells, by planted rows."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(N_USERS * N_ITEMS, N_RATINGS, replace=False)
    user, item = np.divmod(cells, N_ITEMS)
    U, V = rng.normal(size=(N_USERS, FACTORS)), rng.normal(size=(N_ITEMS, FACTORS))
    a, b = 0.5 * rng.normal(size=N_USERS), 0.5 * rng.normal(size=N_ITEMS)
    mean = a[user] + b[item] + (U[user] * V[item]).sum(1)
    sd = 0.7 * np.exp(0.4 * rng.normal(size=N_USERS)[user] + 0.2 * rng.normal(size=N_ITEMS)[item])
    return user, item, mean + sd * rng.normal(size=N_RATINGS)


def by_gibbs(
    data: Any, case: tuple[str, str | None], how: str, keep: str, sweeps: int, seed: int
) -> BayesianMF:
    """Twenty long chains, of which every fourth state is kept."""
    sampler = Gibbs(epochs=sweeps, burn_in=sweeps // 10, thin=4, n_chains=N_CHAINS, **SAMPLERS[how])
    model = BayesianMF(
        FACTORS, sampler=sampler, prior=case[0], noise_by=case[1], keep=keep,
        max_draws=N_CHAINS * sweeps, random_state=seed, progress=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(data)


def all_pairs() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and items of all pairs, user by user."""
    user, item = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return user, item


def of_chains(posterior: Posterior) -> Found:
    """What each chain says by itself, and what all say together, in the chains' units."""
    draws, parts = posterior.draws, []
    for chain in np.unique(draws.chain):
        own = replace(
            posterior, draws=draws.select(np.flatnonzero(draws.chain == chain)),
            center=0.0, scale=1.0, low=-np.inf, high=np.inf,
        )  # fmt: skip
        mean, std = own.mean_std(*all_pairs())
        noise = noise_of(own.draws)
        variance = std**2 - variances_of_noise(own.draws).mean(0)
        parts.append((mean, variance, noise.mean(0), noise.var(0)))
    columns = {n: np.array(c) for n, c in zip(NAMES, zip(*parts, strict=True), strict=True)}
    # A chain's variance is around its own mean: what the chains' means differ by is missing.
    value = {name: column.mean(0) for name, column in columns.items()}
    for name, of in (("variance", "mean"), ("noise variance", "noise")):
        value[name] = value[name] + columns[of].var(0)
    error = {name: column.var(0, ddof=1) / len(column) for name, column in columns.items()}
    return Found(value, error)


NAMES = ("mean", "variance", "noise", "noise variance")


def noise_of(draws: Draws) -> Floats:
    """Logarithms of shape and rate, and of all precisions: users', then items'."""
    if draws.user_tau_prior is None and draws.item_tau_prior is None:
        return np.log(draws.tau)[:, None]
    sides = (draws.user_tau_prior, draws.user_tau), (draws.item_tau_prior, draws.item_tau)
    parts = [part for side in sides if side[0] is not None for part in side if part is not None]
    return np.log(np.concatenate(parts, axis=1).astype(np.float64))


def variances_of_noise(draws: Draws) -> Floats:
    """Of all pairs, by draw."""
    if draws.user_tau_prior is None and draws.item_tau_prior is None:
        return 1.0 / draws.tau[:, None]
    user, item = all_pairs()
    tau = np.ones((len(draws), len(user)))
    if draws.user_tau is not None:
        tau *= draws.user_tau[:, user]
    if draws.item_tau is not None:
        tau *= draws.item_tau[:, item]
    return 1.0 / tau


def by_nuts(
    posterior: Posterior, case: tuple[str, str | None], args: Any
) -> tuple[dict[str, Any], Found]:
    """The same from NumPyro, given the ratings in the chains' units."""
    user, item, value = posterior.ratings.triples()
    with tempfile.TemporaryDirectory() as folder:
        data, out = f"{folder}/data.npz", f"{folder}/draws.npz"
        np.savez(
            data, user=user, item=item, value=value.astype(float),
            n_users=N_USERS, n_items=N_ITEMS,
        )  # fmt: skip
        job = {
            "data": data, "out": out, "factors": FACTORS, "prior": case[0], "noise_by": case[1],
            "warmup": 1000,
            "draws": args.draws, "chains": args.chains, "seed": args.seed,
        }  # fmt: skip
        try:
            done = subprocess.run(
                [args.nuts_python, "-m", "benchmarks.nuts_worker"], cwd=ROOT,
                input=json.dumps(job), capture_output=True, text=True, check=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{args.nuts_python} cannot be run: {error}") from None
        except subprocess.CalledProcessError as error:
            raise InputError(f"NUTS failed: {error.stderr[-2000:]}") from None
        about = json.loads(done.stdout)
        if "missing" in about:
            raise InputError(f"{args.nuts_python} lacks a package: {about['missing']}")
        with np.load(out) as file:
            prediction, noise = file["prediction"], file["noise"]
    prediction = prediction.reshape(*prediction.shape[:2], -1)
    for name, x in (("", prediction), ("_noise", noise)):
        about[f"rhat{name}"] = float(np.max(split_rhat(x)))
        about[f"ess{name}"] = float(np.min(effective_sample_size(x)))
    squares = [(x - x.mean((0, 1))) ** 2 for x in (prediction, noise)]
    draws = dict(zip(NAMES, (prediction, squares[0], noise, squares[1]), strict=True))
    value_of = {name: x.mean((0, 1)) for name, x in draws.items()}
    error_of = {name: x.var((0, 1)) / effective_sample_size(x) for name, x in draws.items()}
    return about, Found(value_of, error_of)


def compare(ours: Found, theirs: Found, rated: NDArray[np.bool_]) -> str:
    """A line of the table."""
    z = {
        name: (ours.value[name] - theirs.value[name])
        / np.sqrt(ours.error[name] + theirs.error[name])
        for name in ours.value
    }
    cells = []
    for name in ("mean", "variance"):
        for which in (~rated, rated):
            cells.append(f"{np.abs(z[name][which]).max():.2f} ({z[name][which].std():.2f})")
    cells += [f"{np.abs(z[name]).max():.2f} ({z[name].std():.2f})" for name in NAMES[2:]]
    for name in (NAMES[1], NAMES[3]):
        ratio = np.sqrt(ours.value[name] / theirs.value[name])
        cells.append(f"{ratio.mean():.4f} ({ratio.min():.3f}-{ratio.max():.3f})")
    return " | ".join(cells)


def main() -> None:
    """Run all, and print a table."""
    args = make_parser().parse_args()
    data = planted(args.seed)
    print(
        "| prior | noise | sampler | kept | worst z of means, unrated (std) | rated "
        "| of variances, unrated | rated | of the noise's means | variances "
        "| ratio of std, mean (range) | of the noise's |"
    )
    print("|" + 12 * "---|")
    saved: dict[str, Any] = {}
    for prior, noise in product(args.priors, args.noise):
        case, theirs = (prior, NOISE[noise]), None
        for how, keep in product(args.samplers, args.keep):
            model = by_gibbs(data, case, how, keep, args.sweeps, args.seed)
            posterior = model.posterior_
            if theirs is None:
                about, theirs = by_nuts(posterior, case, args)
                print(json.dumps(about), file=sys.stderr)
                for name in NAMES:
                    saved[f"{prior} {noise} {name}"] = theirs.value[name]
                    saved[f"{prior} {noise} {name} error"] = np.sqrt(theirs.error[name])
                if args.save:
                    np.savez_compressed(
                        args.save, **{k: v.astype(np.float32) for k, v in saved.items()}
                    )
            rated = posterior.seen.rated(*all_pairs())
            line = compare(of_chains(posterior), theirs, rated)
            print(f"| {prior} | {noise} | {how} | {keep} | {line} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"nuts: {error}", file=sys.stderr)
        raise SystemExit(2) from None
