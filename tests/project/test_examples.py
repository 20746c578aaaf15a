"""Notebooks in examples/ run, say what is true, and show the outputs of the source that they have.

Run as a program, this stores outputs anew, of all of them or of some:

    python tests/project/test_examples.py [films] [shop] [cluster]
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # before what pytest would have found by itself
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import json
import re

import numpy as np
import pytest

from bayesmf.estimator.evaluating import spread_by_row
from notebooks import (
    ABSOLUTE,
    NAMES,
    code_cells,
    path_of,
    printed,
    prose,
    read,
    run_notebook,
    source_digest,
    store_outputs,
)

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 500_000  # bytes of a notebook with its pictures


@pytest.fixture(params=NAMES)
def named(request):
    """Name and contents of every notebook, one after the other."""
    return request.param, read(request.param)


def run_here(name, folder, monkeypatch):
    """Run a notebook in an empty folder, without anybody's ratings; nothing is left behind."""
    monkeypatch.delenv("BAYESMF_RATINGS", raising=False)
    monkeypatch.chdir(folder)
    space, outputs = run_notebook(read(name))
    assert not list(folder.iterdir()), "something was left behind"
    return space, outputs


# films.ipynb


def check_films(space):
    """What the text says, of made-up films and of MovieLens alike."""
    assert space["report"]["convergence"]["converged"]
    # 9,000 held-out ratings: 0.9 has a standard error of 0.003.
    assert 0.885 <= space["scores"].coverage["90"] <= 0.915
    assert space["calibration"].calibrated
    assert space["scores"].rmse < 0.9 * space["constant"]
    _check_uncertainty(space)
    _check_new_people(space)
    assert space["adds_up"]
    _check_policies(space)
    assert space["sizes"]["without users"] < 0.6 * space["sizes"]["with users"]
    assert space["same"], "the service answers otherwise than the model"
    assert space["stopped"] == 0
    many, one = space["results"]["many draws"], space["results"]["one point"]
    assert many.rmse < one.rmse and one.coverage["90"] < 0.885


def _check_uncertainty(space):
    """What is not known falls with the number of ratings."""
    posterior = space["model"].posterior_
    for side in ("item", "user"):
        found = spread_by_row(posterior, side)
        assert np.corrcoef(np.log(found.n_ratings), found.std)[0, 1] < -0.4
        rare, busy = np.quantile(found.n_ratings, (0.1, 0.9))
        known = found.std[found.n_ratings >= busy].mean()
        assert known < 0.8 * found.std[found.n_ratings <= rare].mean(), side


def _check_new_people(space):
    """Ratings that are sent narrow intervals, which hold about what they promise."""
    for name, share in (("widths", 0.95), ("unknown", 0.8), ("errors", 0.95)):
        assert space[name][-1] < share * space[name][0], name
    # 900 ratings of 60 people: a standard error of 0.01, some more as a person's go together.
    assert all(0.87 < share < 0.96 for share in space["held"])


def _check_policies(space):
    tops, count = space["tops"], space["count_of"]
    rare = {name: np.median([count[i] for i in top.items.flat]) for name, top in tops.items()}
    assert rare["lcb"] > rare["mean"] > rare["ucb"]
    assert all(top.mean.mean() <= tops["mean"].mean.mean() for top in tops.values())
    kinds = {name: len(np.unique(top.items)) for name, top in tops.items()}
    assert max(kinds, key=kinds.get) == "thompson"


def test_films(tmp_path, monkeypatch):
    space, _ = run_here("films", tmp_path, monkeypatch)
    check_films(space)
    assert 0.65 < space["scores"].rmse < 0.8  # the planted noise is 0.6, and stars are whole


# cluster.ipynb


def check_cluster(space):
    assert space["same_when_resumed"] and space["killed"]
    assert 2 < min(space["passes"]) <= 9 and max(space["passes"]) == 16


@pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.*:FutureWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_cluster(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    space, _ = run_here("cluster", tmp_path, monkeypatch)
    check_cluster(space)
    assert space["same_on_ray"] and space["same_after_kill"] and len(space["faults"]) == 1


def test_cluster_where_ray_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    space, outputs = run_here("cluster", tmp_path, monkeypatch)
    check_cluster(space)
    assert space["same_on_ray"] is None and space["same_after_kill"] is None
    told = json.dumps(outputs)
    assert "Ray is not installed, so this part is left out" in told


# shop.ipynb


def test_shop(tmp_path, monkeypatch):
    space, _ = run_here("shop", tmp_path, monkeypatch)
    total = {name: sold.sum() for name, sold in space["earned"].items()}
    assert total["oracle"] > max(total["mean"], total["ucb"])
    assert min(total["mean"], total["ucb"]) > total["thompson"] > 1.3 * total["random"]
    assert space["hoped"] > space["true"]
    strangers = {name: sold.mean() for name, sold in space["from_strangers"].items()}
    assert strangers["thompson-items"] > 1.1 * strangers["thompson"]
    assert strangers["thompson-items"] < 1.1 * strangers["mean"]  # no lead yet, says the text


# All of them


def test_outputs_belong_to_the_source(named):
    name, notebook = named
    assert notebook["metadata"]["bayesmf"]["outputs_of"] == source_digest(notebook), (
        f"the code has changed: `python tests/project/test_examples.py {name}` stores its outputs"
    )
    numbers = [cell["execution_count"] for cell in code_cells(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert path_of(name).stat().st_size < LARGEST


def test_what_is_stored_says_what_the_text_says():
    """Outputs belong to the source, so this is a run of it that need not be made again."""
    films, cluster = (printed(read(name)) for name in ("films", "cluster"))
    assert "these are synthetic ratings" in films and "Converged: " in films
    assert "Intervals hold what they promise" in films and "it adds up: True" in films
    assert "the same as asked in this program: True" in films and "with code 0" in films
    assert cluster.count("the same bits: True") == 3 and "the same bits: False" not in cluster
    assert "workers lost: 1" in cluster


def test_no_trace_of_a_machine(named):
    _, notebook = named
    assert set(notebook["metadata"]) == {"bayesmf", "kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert (notebook["nbformat"], notebook["nbformat_minor"], len(set(ids))) == (4, 5, len(ids))
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        texts = [cell["source"]]
        for out in cell.get("outputs", []):
            texts += [out.get("text", []), out.get("data", {}).get("text/plain", [])]
        found = [ABSOLUTE.search("".join(text)) for text in texts]
        assert not any(found), (cell["id"], found)


def test_links_lead_somewhere(named):
    name, notebook = named
    for target in re.findall(r"\]\(([^)#]+)\)", prose(notebook)):
        if "://" not in target:
            assert (path_of(name).parent / target).exists(), target
    assert f"({name}.ipynb)" in (path_of(name).parent / "README.md").read_text()


if __name__ == "__main__":
    for asked in sys.argv[1:] or NAMES:
        store_outputs(asked)
