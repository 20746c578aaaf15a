"""What NUTS finds for `benchmarks nuts`, kept in files so that it is drawn once.

A file is one posterior, drawn with one seed: means and variances of all predictions and of the
logarithms of all precisions of noise, and their Monte Carlo errors.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import InputError
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat

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
class Case:
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
    """Where NUTS runs, how long, and where what it finds is kept."""

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


def reference(case: Case, nuts: Nuts, seed: int) -> tuple[dict[str, Any], Found]:
    """How NUTS went and what it has found, from its file if there is one.

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


def _run(case: Case, nuts: Nuts, seed: int) -> tuple[dict[str, Any], Found]:
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
