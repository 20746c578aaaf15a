"""Gibbs against NUTS on the whole posterior: `python -m benchmarks.nuts --nuts-python PYTHON`.

A problem of 40 x 30 with 500 planted ratings. NumPyro's NUTS draws rows, the parameters of their
priors and tau by gradients, from a model written down a second time (nuts_worker.py); ours are long
chains of Gibbs of which one side's draws are kept. Compared are, for all 1,200 pairs, the posterior
mean of the prediction and its variance without noise, and the mean of tau. Errors are those of
Monte Carlo: by the effective number of draws for NUTS, by the spread over chains for ours.

PYTHON is that of an environment of its own, with benchmarks/nuts-requirements.txt in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF, ConvergenceWarning, Gibbs, InputError
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.posterior.posterior import Posterior
from benchmarks.arguments import Parser

ROOT = Path(__file__).resolve().parents[1]
N_USERS, N_ITEMS, N_RATINGS, FACTORS = 40, 30, 500, 2
PRIORS = ("gamma", "wishart-bias")
KEEPS = ("items", "users", "both")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """Estimates of the pairs' means and variances and of tau's mean, and their errors squared."""

    value: dict[str, Floats]
    error: dict[str, Floats]


def make_parser() -> Parser:
    """The options."""
    parser = Parser("nuts", __doc__)
    add = parser.add_argument
    add("--nuts-python", metavar="PYTHON", required=True, help="interpreter that has NumPyro")
    add("--priors", nargs="+", choices=PRIORS, default=list(PRIORS))
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
    return user, item, mean + 0.7 * rng.normal(size=N_RATINGS)


def by_gibbs(data: Any, prior: str, keep: str, sweeps: int, seed: int) -> BayesianMF:
    """Twenty long chains, of which every fourth state is kept."""
    sampler = Gibbs(epochs=sweeps, burn_in=sweeps // 10, thin=4, n_chains=20)
    model = BayesianMF(
        FACTORS, sampler=sampler, prior=prior, keep=keep, max_draws=20 * sweeps,
        random_state=seed, progress=False,
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
        parts.append((mean, std**2 - own.noise(), own.draws.tau.mean(keepdims=True)))
    names = ("mean", "variance", "tau")
    columns = {n: np.array(c) for n, c in zip(names, zip(*parts, strict=True), strict=True)}
    # A chain's variance is around its own mean: what the chains' means differ by is missing.
    between = columns["mean"].var(0)
    value = {name: column.mean(0) for name, column in columns.items()}
    value["variance"] = value["variance"] + between
    error = {name: column.var(0, ddof=1) / len(column) for name, column in columns.items()}
    return Found(value, error)


def by_nuts(posterior: Posterior, prior: str, args: Any) -> tuple[dict[str, Any], Found]:
    """The same from NumPyro, given the ratings in the chains' units."""
    user, item, value = posterior.ratings.triples()
    with tempfile.TemporaryDirectory() as folder:
        data, out = f"{folder}/data.npz", f"{folder}/draws.npz"
        np.savez(
            data, user=user, item=item, value=value.astype(float),
            n_users=N_USERS, n_items=N_ITEMS,
        )  # fmt: skip
        job = {
            "data": data, "out": out, "factors": FACTORS, "prior": prior, "warmup": 1000,
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
            prediction, tau = file["prediction"], file["tau"][..., None]
    prediction = prediction.reshape(*prediction.shape[:2], -1)
    about["rhat"] = float(np.max(split_rhat(prediction)))
    about["ess"] = float(np.min(effective_sample_size(prediction)))
    squares = (prediction - prediction.mean((0, 1))) ** 2
    draws = {"mean": prediction, "variance": squares, "tau": tau}
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
    ratio = np.sqrt(ours.value["variance"] / theirs.value["variance"])
    cells = []
    for name in ("mean", "variance"):
        for which in (~rated, rated):
            cells.append(f"{np.abs(z[name][which]).max():.2f} ({z[name][which].std():.2f})")
    cells += [f"{ratio.mean():.4f}", f"{ratio.min():.3f}-{ratio.max():.3f}"]
    cells += [f"{ours.value['tau'][0]:.4f} / {theirs.value['tau'][0]:.4f}", f"{z['tau'][0]:+.2f}"]
    return " | ".join(cells)


def main() -> None:
    """Run all, and print a table."""
    args = make_parser().parse_args()
    data = planted(args.seed)
    print(
        "| prior | kept | worst z of means, unrated (std) | rated | of variances, unrated | rated "
        "| mean ratio of std | range | tau: Gibbs / NUTS | z |"
    )
    print("|" + 10 * "---|")
    for prior in args.priors:
        theirs = None
        for keep in args.keep:
            model = by_gibbs(data, prior, keep, args.sweeps, args.seed)
            posterior = model.posterior_
            if theirs is None:
                about, theirs = by_nuts(posterior, prior, args)
                print(json.dumps(about), file=sys.stderr)
            rated = posterior.seen.rated(*all_pairs())
            print(f"| {prior} | {keep} | {compare(of_chains(posterior), theirs, rated)} |")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"nuts: {error}", file=sys.stderr)
        raise SystemExit(2) from None
