"""Examples in the docstrings of public names run, and say what comes out."""

from __future__ import annotations

import doctest
import os

import matplotlib
import pytest

import bayesmf

# What the estimator's parts have is found through it; other classes by themselves.
EXAMPLES = {
    test.name: test
    for name in bayesmf.__all__
    for found in [getattr(bayesmf, name)]
    for base in getattr(found, "__mro__", [found])[:-1]
    if base.__module__.startswith("bayesmf")
    for test in doctest.DocTestFinder(recurse=True).find(base, base.__name__, globs={})
    if test.examples
}


def test_the_estimator_has_examples():
    methods = {name.split(".")[-1] for name in EXAMPLES}
    assert methods >= {
        "fit", "predict", "predict_interval", "predict_table", "score", "evaluate", "calibration",
        "recommend", "recommend_many", "plot_convergence", "plot_calibration", "plot_uncertainty",
        "get_params", "set_params", "save", "load", "diagnose", "to_arviz",
    }  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(EXAMPLES[name], out=told.append, clear_globs=True).failed
    assert failed == 0, "".join(told)
    if "plot" in name:
        from matplotlib import pyplot as plt

        plt.close("all")
    assert os.getcwd() == str(tmp_path)
