"""The tutorial runs, says what is true, and shows the outputs of the source that it has.

Run as a program, this stores the outputs anew, always those of synthetic ratings:

    python tests/project/test_examples.py
"""

import ast
import base64
import hashlib
import io
import json
import os
import re
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from bayesmf.estimator.plot import spread_by_row

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "tutorial.ipynb"
MOVIELENS = Path(__file__).resolve().parents[3] / "shared" / "data" / "ml-100k"
# What a sentence or a link would not hold: /home/me, (/tmp/x), C:\data, but ../docs and https://.
ABSOLUTE = re.compile(r"(?<![\w.:/<])/\w[\w.-]*/|\b[A-Za-z]:\\|file://")


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_digest(notebook):
    """Of all code: outputs belong to it, or are out of date."""
    sources = "\n\n".join("".join(cell["source"]) for cell in code_cells(notebook))
    return hashlib.sha256(sources.encode()).hexdigest()


def run_notebook(notebook):
    """Run all code in one namespace; give that, and the outputs of each cell."""
    matplotlib.use("Agg")
    space = {"__name__": "__main__"}
    with matplotlib.rc_context():
        outputs = [
            run_cell("".join(cell["source"]), number, space)
            for number, cell in enumerate(code_cells(notebook), 1)
        ]
    return space, outputs


def run_cell(source, number, space):
    """What a cell prints, the value of its last line unless a semicolon hides it, its figures."""
    name = f"cell {number}"
    tree, last, value = ast.parse(source, name), None, None
    if isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            value = eval(compile(last, name, "eval"), space)
    outputs = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(text)})
    if value is not None:
        told = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append(told | {"data": {"text/plain": _lines(repr(value))}})
    return outputs + [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": png}}
        for png in _take_figures()
    ]


def _take_figures():
    """All open figures as PNG in base64; they are closed."""
    from matplotlib import pyplot as plt

    found = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, dpi=90, metadata={"Software": None})
        found.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return found


def _lines(text):
    return text.splitlines(keepends=True)


def store_outputs():
    """Run the notebook on synthetic ratings: what is stored is made of nobody's data."""
    os.environ.pop("BAYESMF_RATINGS", None)
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        _, outputs = run_notebook(notebook)
    for number, (cell, out) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell |= {"execution_count": number, "outputs": out, "metadata": {}}
    notebook["metadata"]["bayesmf"] = {"outputs_of": source_digest(notebook)}
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    NOTEBOOK.write_text(text + "\n", "utf-8")


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text("utf-8"))


def check_claims(space):
    """What the text says, of synthetic ratings and of MovieLens alike."""
    # 10,000 held-out ratings: 0.9 has a standard error of 0.003.
    assert 0.885 <= space["scores"].coverage["90"] <= 0.915
    assert space["calibration"].calibrated
    assert space["scores"].rmse < 0.9 * space["constant"]
    _check_uncertainty(space)
    _check_policies(space)
    assert space["same"], "the loaded model predicts otherwise"
    assert space["same_bits"], "the resumed run has other draws"
    for name, scores in space["results"].items():
        low, high = (0.80, 0.88) if name in ("SGD, one point", "DSGD") else (0.88, 0.925)
        assert low <= scores.coverage["90"] <= high, name
    assert space["results"]["Gibbs"].rmse < space["results"]["SGD, one point"].rmse


def _check_uncertainty(space):
    """What is not known falls with the number of ratings, and is small beside the noise."""
    posterior = space["model"].posterior_
    for side in ("item", "user"):
        found = spread_by_row(posterior, side)
        assert np.corrcoef(np.log(found.n_ratings), found.std)[0, 1] < -0.4
        busiest = found.std[found.n_ratings >= np.quantile(found.n_ratings, 0.9)]
        assert busiest.mean() < 0.5 * np.sqrt(posterior.noise())


def _check_policies(space):
    mean, ucb, thompson = (space["tops"][name] for name in ("mean", "ucb", "thompson"))
    assert mean.mean.mean() > ucb.mean.mean() > thompson.mean.mean()
    assert mean.std.mean() < ucb.std.mean() < thompson.std.mean()
    kinds = [len(np.unique(top.items)) for top in (mean, ucb, thompson)]
    assert kinds[0] < kinds[2] > kinds[1]


def test_on_synthetic_ratings(notebook, tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESMF_RATINGS", raising=False)
    monkeypatch.chdir(tmp_path)
    space, outputs = run_notebook(notebook)
    check_claims(space)
    assert 0.85 < space["scores"].rmse < 0.95  # the planted noise is 0.85
    stored = [cell["outputs"] for cell in code_cells(notebook)]
    kinds = [[[out["output_type"] for out in cell] for cell in each] for each in (outputs, stored)]
    assert kinds[0] == kinds[1]
    assert not list(tmp_path.iterdir()), "something was left behind"


@pytest.mark.data
@pytest.mark.skipif(not MOVIELENS.exists(), reason="MovieLens 100K is not here")
@pytest.mark.skipif("BAYESMF_LONG" not in os.environ, reason="long: set BAYESMF_LONG to run it")
def test_on_movielens(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESMF_RATINGS", str(MOVIELENS))
    monkeypatch.chdir(tmp_path)
    space, _ = run_notebook(notebook)
    assert (space["ratings"].n_users, space["ratings"].n_items) == (943, 1682)
    check_claims(space)
    assert space["scores"].rmse < 0.89


def test_outputs_belong_to_the_source(notebook):
    assert notebook["metadata"]["bayesmf"]["outputs_of"] == source_digest(notebook), (
        "the code has changed: `python tests/project/test_examples.py` stores its outputs"
    )
    numbers = [cell["execution_count"] for cell in code_cells(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "these are synthetic ratings" in json.dumps(code_cells(notebook)[0]["outputs"])
    assert NOTEBOOK.stat().st_size < 400_000


def test_no_trace_of_a_machine(notebook):
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


if __name__ == "__main__":
    store_outputs()
