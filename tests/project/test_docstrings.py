"""Public names document themselves: docstrings are whole, and their examples run."""

from __future__ import annotations

import doctest
import os
import warnings

import matplotlib
import pytest

import bayesmf
from public_names import all_mistakes, mistakes, public_names

# A method that several classes inherit is run once.
EXAMPLES = {
    test.docstring: test
    for name, found in public_names()
    for test in doctest.DocTestFinder(recurse=False).find(found, name, globs={})
    if test.examples
}


def test_docstrings_are_whole():
    """Summary, Parameters, Returns, Examples, by numpydoc's validation."""
    assert not all_mistakes()


@pytest.mark.parametrize(("docstring", "found"), [
    (None, "GL08"),
    ("Fit a model.", "PR01"),
    ("Fit a model.\n\nParameters\n----------\nX : Ratings\n    Ratings.\n", "RT01"),
    ("Fit a model.\n\nReturns\n-------\nBayesianMF\n    Itself.\n", "EX01"),
])  # fmt: skip
def test_what_is_missing_is_found(docstring, found, monkeypatch):
    monkeypatch.setattr(bayesmf.BayesianMF.fit, "__doc__", docstring)
    assert found in " ".join(mistakes("BayesianMF.fit", {"GL08", "PR01", "RT01", "EX01"}))


@pytest.mark.parametrize("test", EXAMPLES.values(), ids=lambda test: test.name)
def test_examples_run(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    if "mlflow" in test.name:
        warnings.simplefilter("ignore")  # it warns of itself, in many words
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(test, out=told.append, clear_globs=True).failed
    assert failed == 0, "".join(told)
    if "plot" in test.name:
        from matplotlib import pyplot as plt

        plt.close("all")
    assert os.getcwd() == str(tmp_path)
