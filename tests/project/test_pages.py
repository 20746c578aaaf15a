"""Pages of the site: their code runs, from the first block to the last, and prints what it says.

`make docs` runs all of them before it builds; tests/long.txt names what `make test` leaves out.
"""

from __future__ import annotations

import re

import matplotlib
import pytest

from doc_names import ROOT
from pages import missing_packages, pieces, run_page, unkept

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    DOCS / "serving.md",
    *(DOCS / name for name in ("index.md", "getting-started.md", "coming-from.md", "answers.md")),
    *sorted(DOCS.glob("guide/*.md")),
    *sorted(DOCS.glob("recipes/*.md")),
]
RUNNING = [page for page in PAGES if pieces(page.read_text("utf-8"))]


def name(page):
    return str(page.relative_to(ROOT if page.parent == ROOT else DOCS))


@pytest.mark.parametrize("page", RUNNING, ids=name)
def test_the_page_runs(page, tmp_path, monkeypatch):
    text = page.read_text("utf-8")
    if missing := missing_packages(text):
        pytest.skip(f"{name(page)} needs {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    try:
        assert not run_page(text, name(page))
    finally:
        if "plot" in text:
            from matplotlib import pyplot as plt

            plt.close("all")


def test_most_pages_have_code():
    # An edit that hides blocks from this file would pass unseen.
    bare = {name(page) for page in PAGES} - {name(page) for page in RUNNING}
    assert bare <= {"guide/index.md", "recipes/index.md", "recipes/docker.md"}
    for page in PAGES:
        text = page.read_text("utf-8")
        found = [piece for piece in pieces(text) if piece.kind == "python"]
        assert len(found) == text.count("```python"), name(page)
        assert not re.search(r"/tmp/|/home/|/work/", text), name(page)


PAGE = """
```python
count = 3
print(count)  # -> 3
```
and

    bayesmf synth --users 30 --items 20 --ratings 300 --out ratings.csv

```sh
pip install something
bayesmf fit ratings.csv --out model --target fast \\
    --factors 2
```
```py
shown()
```
```python
print("a", count + 1)  # a ...
```
"""


def test_a_page_is_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [piece.kind for piece in pieces(PAGE)] == ["python", "command", "command", "python"]
    assert run_page(PAGE, "a page") == []
    assert (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("-> 3", "-> 4"), ("# a ...", "# b ..."), ("--out ratings.csv", "--outt ratings.csv")],
)
def test_what_is_not_so_is_found(right, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.replace(right, wrong)
    assert any(line in " ".join(run_page(text, "a page")) for line in (wrong[3:], wrong[2:-4]))


def test_a_package_that_is_not_there_is_named():
    text = "```python\nimport os\nimport nowhere.at_all\nfrom numpy import array\n```\n"
    assert missing_packages(text) == ["nowhere"]


def test_promises_are_read():
    assert unkept("print(1)  # -> 2\nprint(3)  # 3 of ...\n", ["1", "3 of 4"]) == ["2"]
