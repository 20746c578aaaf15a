"""The benchmark against NUTS without NUTS: what it makes of numbers, and of files."""

import json

import numpy as np
import pytest

from bayesmf import InputError
from benchmarks.accuracy.nuts import (
    HEAD,
    N_CHAINS,
    NAMES,
    Found,
    Nuts,
    NutsCase,
    by_ours,
    compare,
    main,
    of_chains,
    reference,
    z_scores,
)


def _found(shift=0.0, wide=1.0, seed=0):
    """Ours and theirs of 1,200 independent pairs of variance one, errors of 1% each."""
    rng = np.random.default_rng(seed)
    true = {"mean": np.zeros(1200), "variance": np.ones(1200)}
    true |= {"noise": np.zeros(10), "noise variance": np.ones(10)}
    moved = {"mean": true["mean"] + shift, "variance": true["variance"] * wide**2}
    ours = {
        name: (true | moved)[name] + 0.01 * N_CHAINS**0.5 * rng.normal(size=(N_CHAINS, len(x)))
        for name, x in true.items()
    }
    return (
        Found(
            {name: x.mean(0) for name, x in ours.items()},
            {name: x.var(0, ddof=1) / N_CHAINS for name, x in ours.items()},
        ),
        Found(
            {name: x + 0.01 * rng.normal(size=len(x)) for name, x in true.items()},
            {name: np.full(len(x), 1e-4) for name, x in true.items()},
        ),
    )


def test_z_of_what_is_right_is_normal():
    """Of 2,420 numbers: 1.96 for 5% (error .4%), and none of 5 (once in 700 times)."""
    z = np.concatenate(list(z_scores(*_found()).values()))
    assert 0.035 < np.mean(np.abs(z) > 1.96) < 0.065
    assert compare(*_found()).worst < 5
    assert compare(*_found()).numbers == 2420


@pytest.mark.parametrize("wrong", [{"shift": 0.05}, {"wide": 1.025}])
def test_a_small_mistake_is_seen(wrong):
    line = compare(*_found(**wrong))
    assert line.worst > 5 and line.chance < 2e-3
    assert max(line.spread.values()) > 2
    assert line.ratio.mean() == pytest.approx(wrong.get("wide", 1.0), abs=0.002)


def test_what_nuts_has_found_is_read_from_its_file(tmp_path, capsys):
    """Here Gibbs with other random numbers is in the place of NUTS: nothing is far off."""
    case, theirs = NutsCase(0, "gamma", "none"), {}
    found = of_chains(by_ours(case, "columns", "users", 30, seed=5))
    for name in NAMES:
        theirs[name], theirs[f"{name} error"] = found.value[name], found.error[name] ** 0.5
    about = json.dumps({"chains": 1})
    np.savez(tmp_path / "gamma-none-ratings-0-seed-0.npz", about=about, **theirs)
    np.savez(tmp_path / "gamma-none-ratings-0-seed-1.npz", about=about, **theirs)
    few = ["--priors", "gamma", "--noise", "none", "--samplers", "rows", "--keep", "items"]
    main(["--references", str(tmp_path), "--sweeps", "30", *few])
    table = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in capsys.readouterr().out.split("\n")[:3]
    ]
    assert table[0] == list(HEAD)
    row = dict(zip(HEAD, table[2], strict=True))
    assert row["kept"] == "items" and float(row["worst z"]) < 6
    assert float(row["ratio of std (range)"].split()[0]) == pytest.approx(1, abs=0.03)


def test_without_a_file_nuts_must_be_there(tmp_path):
    with pytest.raises(InputError, match="give --nuts-python to make it"):
        reference(NutsCase(0, "gamma", "none"), Nuts(None, tmp_path, 1, 1, 1), 0)
