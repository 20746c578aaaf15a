"""Our samplers compared with NUTS on the whole posterior.

A problem of 40 x 30 with 500 planted ratings, of users and items that differ in their noise.
NumPyro's NUTS draws rows, the parameters of their priors and all precisions of noise by gradients,
from a model written down a second time (nuts_worker.py); ours are long chains of which one side's
draws are kept. Compared are, for all 1,200 pairs, the posterior mean of the prediction and its
variance without noise; and of the logarithms of all precisions of noise, their shapes and rates,
means and variances. Errors are those of Monte Carlo: by the effective number of draws for NUTS
(numbers of which it has fewer than 100 are left out), by the spread over chains for ours.

A line is the worst |z| of up to 2,548 numbers, and the chance of one as large if nothing is wrong
(at most: numbers times the tail). Where it is above 4, both draw again with new random numbers, and
`again` is the z of that one number: of a bias it would be as large as before, of chance it is
normal. A line is right if |z| <= 4, or at most 4 again, and standard deviations are within 2%.

PYTHON is that of an environment of its own, with benchmarks/nuts-requirements.txt in it. Its
estimates are stored in --references and reused.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from bayesmf import SGHMC, SGLD, SGNHT, BayesianMF, ConvergenceWarning, Gibbs, InputError
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.model.draws import Draws
from bayesmf.posterior.posterior import Posterior
from benchmarks.options import BenchParser, command

ROOT = Path(__file__).resolve().parents[2]
N_USERS, N_ITEMS, N_RATINGS, FACTORS = 40, 30, 500, 2
NAMES = ("mean", "variance", "noise", "noise variance")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """Estimates of means and variances of pairs and of the noise, and their errors squared."""

    value: dict[str, Floats]
    error: dict[str, Floats]


@dataclass(frozen=True)
class NutsCase:
    """A posterior: ratings by their seed, the prior of rows, and whose the noise is."""

    seed: int
    prior: str
    noise: str

    @property
    def noise_by(self) -> str | None:
        """As `BayesianMF` takes it."""
        return None if self.noise == "none" else self.noise


@dataclass(frozen=True)
class Nuts:
    """Settings of NUTS: interpreter, chains, draws, and the folder of its estimates."""

    python: str | None
    folder: Path | None
    chains: int
    draws: int
    warmup: int


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


def reference(case: NutsCase, nuts: Nuts, seed: int) -> tuple[dict[str, Any], Found]:
    """Facts about a run of NUTS and its estimates, from its file if there is one.

    Raises
    ------
    InputError
        If there is no file and NUTS cannot be run.
    """
    name = f"{case.prior}-{case.noise}-ratings-{case.seed}-seed-{seed}.npz"
    path = None if nuts.folder is None else nuts.folder / name
    if path is not None and path.exists():
        with np.load(path) as file:
            found = Found(
                {name: file[name] for name in NAMES},
                {name: file[f"{name} error"] ** 2 for name in NAMES},
            )
            return json.loads(str(file["about"])), found
    if nuts.python is None:
        raise InputError(f"there is no file {path}: give --nuts-python to make it")
    about, found = _run(case, nuts, seed)
    about |= {"chains": nuts.chains, "draws": nuts.draws}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        errors = {f"{name} error": np.sqrt(x) for name, x in found.error.items()}
        np.savez_compressed(path, about=json.dumps(about), **found.value, **errors)
    return about, found


def _run(case: NutsCase, nuts: Nuts, seed: int) -> tuple[dict[str, Any], Found]:
    """NUTS in its own environment, on ratings of mean zero and variance one, as chains see them."""
    user, item, value = planted(case.seed)
    with tempfile.TemporaryDirectory() as folder:
        data, out = f"{folder}/data.npz", f"{folder}/draws.npz"
        np.savez(
            data, user=user, item=item, value=(value - value.mean()) / value.std(),
            n_users=N_USERS, n_items=N_ITEMS,
        )  # fmt: skip
        job = {
            "data": data, "out": out, "factors": FACTORS, "prior": case.prior,
            "noise_by": case.noise_by, "warmup": nuts.warmup,
            "draws": nuts.draws, "chains": nuts.chains, "seed": seed,
        }  # fmt: skip
        about = _call(str(nuts.python), job)
        with np.load(out) as file:
            draws = {name: file[name] for name in ("prediction", "noise")}
    found = _moments(
        draws["prediction"].reshape(*draws["prediction"].shape[:2], -1), draws["noise"]
    )
    return about | found[0], found[1]


def _call(python: str, job: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-m", "benchmarks.accuracy.nuts_worker"], cwd=ROOT,
            input=json.dumps(job), capture_output=True, text=True, check=True,
        )  # fmt: skip
    except OSError as error:
        raise InputError(f"{python} cannot be run: {error}") from None
    except subprocess.CalledProcessError as error:
        raise InputError(f"NUTS failed: {error.stderr[-2000:]}") from None
    about: dict[str, Any] = json.loads(done.stdout)
    if "missing" in about:
        raise InputError(f"{python} lacks a package: {about['missing']}")
    return about


def _moments(prediction: Floats, noise: Floats) -> tuple[dict[str, float], Found]:
    """Of draws by chain; errors by the effective number of draws of each quantity."""
    about = {}
    for name, x in (("", prediction), ("_noise", noise)):
        about[f"rhat{name}"] = float(np.max(split_rhat(x)))
        about[f"ess{name}"] = float(np.min(effective_sample_size(x)))
        about[f"median_ess{name}"] = float(np.median(effective_sample_size(x)))
    squares = [(x - x.mean((0, 1))) ** 2 for x in (prediction, noise)]
    draws = dict(zip(NAMES, (prediction, squares[0], noise, squares[1]), strict=True))
    value = {name: x.mean((0, 1)) for name, x in draws.items()}
    error = {name: x.var((0, 1)) / effective_sample_size(x) for name, x in draws.items()}
    return about, Found(value, error)


PRIORS = ("gamma", "wishart", "wishart-bias")
KEEPS = ("items", "users", "both")
NOISE = ("none", "user", "item", "both")
SAMPLERS: dict[str, Any] = {
    "rows": Gibbs(n_stripes=1),
    "columns": Gibbs(n_stripes=1, joint=1),
    "plain": Gibbs(n_stripes=1, overrelax=0.0),
    "sgld": SGLD(),
    "sghmc": SGHMC(),
    "sgnht": SGNHT(),
    # As blocks of more than 512 ratings have them.
    "sghmc-4": SGHMC(batch_size=N_RATINGS // 4),
    "sgnht-4": SGNHT(batch_size=N_RATINGS // 4),
}
N_CHAINS = 20
LEAST_DRAWS = 100  # effective ones of NUTS, below which errors are not estimated
AGAIN = 4.0  # |z| from which a number is drawn again, by itself
HEAD = (
    "prior", "noise", "sampler", "kept", "numbers", "worst z", "chance", "again",
    "std of z: means", "variances", "noise", "ratio of std (range)", "of the noise's",
)  # fmt: skip


@dataclass(frozen=True)
class NutsLine:
    """One sampler, its kept side, and one posterior against NUTS."""

    numbers: int
    worst: float
    where: tuple[str, int]
    spread: dict[str, float]
    ratio: Floats
    noise_ratio: Floats

    @property
    def chance(self) -> float:
        """Upper bound of the probability that one of these numbers is as far off by chance."""
        return min(1.0, 2.0 * self.numbers * float(norm.sf(self.worst)))

    def cells(self) -> list[str]:
        """Of the table, but for `again`."""
        spreads = [f"{self.spread[name]:.2f}" for name in ("mean", "variance", "noise")]
        ratios = [
            f"{x.mean():.3f} ({x.min():.2f}-{x.max():.2f})" for x in (self.ratio, self.noise_ratio)
        ]
        return [str(self.numbers), f"{self.worst:.2f}", f"{self.chance:.2g}", *spreads, *ratios]


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("nuts", __doc__)
    add = parser.add_argument
    add("--nuts-python", metavar="PYTHON", help="interpreter that has NumPyro")
    add("--references", type=Path, metavar="FOLDER", help="folder for the estimates of NUTS")
    add("--priors", nargs="+", choices=PRIORS, default=list(PRIORS))
    add("--noise", nargs="+", choices=NOISE, default=list(NOISE), help="whose noise (all)")
    add("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    add("--keep", nargs="+", choices=KEEPS, default=list(KEEPS), help="kept sides (all)")
    add("--chains", type=int, default=8, help="chains of NUTS (8)")
    add("--draws", type=int, default=500, help="draws of a chain of NUTS (500)")
    add("--warmup", type=int, default=500, help="draws before that (500)")
    add("--sweeps", type=int, default=500, help=f"passes of each of our {N_CHAINS} chains (500)")
    add("--seed", type=int, default=0, help="of the ratings")
    return parser


def by_ours(case: NutsCase, how: str, keep: str, sweeps: int, seed: int) -> Posterior:
    """Twenty long chains, of which every other state is kept after a fifth."""
    return fitted(planted(case.seed), case, how, keep, sweeps, seed)


def fitted(
    ratings: tuple[Any, Any, Any], case: NutsCase, how: str, keep: str, sweeps: int, seed: int
) -> Posterior:
    """The same, of given ratings."""
    sampler = replace(SAMPLERS[how], epochs=sweeps, burn_in=sweeps // 5, thin=2, n_chains=N_CHAINS)
    model = BayesianMF(
        FACTORS, sampler=sampler, prior=case.prior, noise_by=case.noise_by, keep=keep,
        max_draws=N_CHAINS * sweeps, random_state=seed, progress=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(ratings).posterior_


def all_pairs() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and items of all pairs, user by user."""
    user, item = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return user, item


def of_chains(posterior: Posterior) -> Found:
    """Estimates of each chain, and of all together, in the chains' units."""
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
    # A chain's variance is around its own mean: the variance between the chains' means is missing.
    value = {name: column.mean(0) for name, column in columns.items()}
    for name, of in (("variance", "mean"), ("noise variance", "noise")):
        value[name] = value[name] + columns[of].var(0)
    error = {name: column.var(0, ddof=1) / len(column) for name, column in columns.items()}
    return Found(value, error)


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


def z_scores(ours: Found, theirs: Found) -> dict[str, Floats]:
    """Differences over their errors, as normal numbers.

    Our error is that of few chains, so a difference is as Student's t of some degrees of freedom
    (Welch 1947); z is the normal number of the same tail. NaN where NUTS itself has not mixed.
    """
    out = {}
    for name in NAMES:
        own, other = ours.error[name], theirs.error[name]
        far = np.abs(ours.value[name] - theirs.value[name]) / np.sqrt(own + other)
        freedom = (N_CHAINS - 1) * (1.0 + other / own) ** 2
        sign = np.sign(ours.value[name] - theirs.value[name])
        z = sign * norm.isf(t.sf(far, freedom))
        mean = name.replace("variance", "").strip() or "mean"
        variance = theirs.value["noise variance" if mean == "noise" else "variance"]
        out[name] = np.where(variance > LEAST_DRAWS * theirs.error[mean], z, np.nan)
    return out


def compare(ours: Found, theirs: Found) -> NutsLine:
    """The worst of all numbers, how z is spread, and ratios of standard deviations."""
    z = z_scores(ours, theirs)
    largest = {name: int(np.nanargmax(np.abs(x))) for name, x in z.items()}
    name = max(largest, key=lambda name: float(np.abs(z[name][largest[name]])))
    return NutsLine(
        numbers=sum(int(np.isfinite(x).sum()) for x in z.values()),
        worst=float(np.abs(z[name][largest[name]])),
        where=(name, largest[name]),
        spread={name: float(np.sqrt(np.nanmean(x**2))) for name, x in z.items()},
        ratio=np.sqrt(ours.value["variance"] / theirs.value["variance"]),
        noise_ratio=np.sqrt(ours.value["noise variance"] / theirs.value["noise variance"]),
    )


def once(case: NutsCase, how: str, keep: str, args: Any, seed: int) -> tuple[Found, Found]:
    """Estimates of our chains and of NUTS, with one seed."""
    nuts = Nuts(args.nuts_python, args.references, args.chains, args.draws, args.warmup)
    about, theirs = reference(case, nuts, seed)
    result = json.dumps({"prior": case.prior, "noise": case.noise, "seed": seed} | about)
    print(result, file=sys.stderr, flush=True)
    return of_chains(by_ours(case, how, keep, args.sweeps, seed)), theirs


def line(case: NutsCase, how: str, keep: str, args: Any) -> str:
    """A line of the table."""
    found = compare(*once(case, how, keep, args, 0))
    cells, again = found.cells(), ""
    if found.worst > AGAIN:
        name, number = found.where
        z = z_scores(*once(case, how, keep, args, 1))[name][number]
        again = f"{abs(z):.2f}"
    cells.insert(HEAD.index("again") - 4, again)
    return " | ".join([case.prior, case.noise, how, keep, *cells])


@command
def main(options: Sequence[str] | None = None) -> None:
    """Run all, and print a table."""
    args = make_parser().parse_args(options)
    print(f"| {' | '.join(HEAD)} |\n|{len(HEAD) * '---|'}")
    for prior, noise in product(args.priors, args.noise):
        for how, keep in product(args.samplers, args.keep):
            print(f"| {line(NutsCase(args.seed, prior, noise), how, keep, args)} |", flush=True)
