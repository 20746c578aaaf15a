"""The site of the documentation: nothing public is missing, and what it says of itself is so."""

import ast
import re

import pytest

import bayesmf
from doc_names import ROOT, SOURCE

DOCS = ROOT / "docs"


def listed():
    """Names in the tables of the reference, as often as they stand there."""
    text = (DOCS / "reference" / "index.md").read_text("utf-8")
    tables = re.findall(r"^\.\. autosummary::\n(.*?)^```$", text, re.M | re.S)
    return re.findall(r"^   ([\w.]+)$", "\n".join(tables), re.M)


def test_every_public_name_is_in_the_reference_once():
    assert sorted(name for name in listed() if "." not in name) == bayesmf.__all__


@pytest.mark.parametrize(
    "module", ["web/__init__.py", "integrations/mlflow.py", "integrations/vectors.py"]
)
def test_every_name_of_a_module_for_other_tools_is_in_the_reference(module):
    source = (SOURCE / module).read_text("utf-8")
    names = ast.literal_eval(re.search(r"^__all__ = (\[.*?\])$", source, re.M | re.S)[1])
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert {name for name in listed() if name.startswith(f"{dotted}.")} == {
        f"{dotted}.{name}" for name in names
    }


def test_what_is_fetched_from_elsewhere_is_found(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    from offline import fetched

    assert not fetched('<a href="https://example.org">a link</a><script src="_static/a.js">')
    assert fetched('<script async src="https://example.org/a.js">') == ["https://example.org/a.js"]
    assert fetched("<link rel=a href='//example.org/a.css'>") == ["//example.org/a.css"]
    assert fetched("@font-face { src: url(https://example.org/f.woff) }")
