"""Notebooks that are run without Jupyter: their code in one namespace, their outputs as stored."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import logging
import os
import re
import tempfile
import warnings
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path

import matplotlib

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# What a sentence or a link would not hold: /home/me, (/tmp/x), C:\data, but ../docs and https://.
ABSOLUTE = re.compile(r"(?<![\w.:/<])/\w[\w.-]*/|\b[A-Za-z]:\\|file://")


def path_of(name):
    return FOLDER / f"{name}.ipynb"


def read(name):
    return json.loads(path_of(name).read_text("utf-8"))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def prose(notebook):
    """All text between the code, as one."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def source_digest(notebook):
    """Of all code: outputs belong to it, or are out of date."""
    sources = "\n\n".join("".join(cell["source"]) for cell in code_cells(notebook))
    return hashlib.sha256(sources.encode()).hexdigest()


def run_notebook(notebook):
    """Run all code in one namespace; return that, and the outputs of each cell."""
    matplotlib.use("Agg")
    space, outputs = {"__name__": "__main__"}, []
    with matplotlib.rc_context(), unchanged():
        for number, cell in enumerate(code_cells(notebook), 1):
            outputs.append(run_cell("".join(cell["source"]), number, space))
    return space, outputs


@contextmanager
def unchanged():
    """Leave settings of this process as they were: a notebook may change them for itself."""
    log, environment = logging.getLogger("bayesmf"), dict(os.environ)
    level = log.level
    try:
        with warnings.catch_warnings():
            yield
    finally:
        log.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)


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


def printed(notebook):
    """All that is stored as text, as one."""
    texts = []
    for cell in code_cells(notebook):
        for out in cell["outputs"]:
            texts += out.get("text", []) + out.get("data", {}).get("text/plain", [])
    return "".join(texts)


def store_outputs(name):
    """Run a notebook on synthetic ratings: what is stored is made of nobody's data."""
    os.environ.pop("BAYESMF_RATINGS", None)
    notebook = read(name)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        _, outputs = run_notebook(notebook)
    for number, (cell, out) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell |= {"execution_count": number, "outputs": out, "metadata": {}}
    notebook["metadata"]["bayesmf"] = {"outputs_of": source_digest(notebook)}
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path_of(name).write_text(text + "\n", "utf-8")
