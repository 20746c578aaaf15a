"""What documentation names is there, its lines can be read, and its list of rooms is the test's."""

import ast
import re

import pytest

from doc_names import PAGES, ROOT, SOURCE, unresolved

WIDEST = 120
DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_resolves(page):
    assert not list(unresolved(page.read_text("utf-8"), page.parent))


@pytest.mark.parametrize("wrong", [
    "`chains/nowhere.py`", "as chains/nowhere.py says", "`samplers.registry.SGDX`",
    "`stopping.SETTLEX`", "`bayesmf.nowhere_else`", "`BayesianMG`", "`model.repport_`",
    "`recommend_most()`", "`fit(valid=test)`", "`SGLD(grids=(2, 2))`", '`prio="wishart"`',
    '`prior="wishart_biased"`', '`report_["convergent"]`', "`n_chainz`", "`--max-secondz`",
    "`bayesmf fitt`", "`predict --outt`", "    bayesmf fit ratings.csv --outt model",
    "```sh\nbayesmf fit ratings.csv --outt model\n```", "`make tests`",
    "`python -m benchmarks nowhere`", "| likelihood | test_nowhere |",
    "| Figure 2 | test_blocks.py: test_figure_2 |",
    "```python\nfrom bayesmf import NMF\n```\n", "```python\nmodel = BayesianMF(factors=3)\n```\n",
])  # fmt: skip
def test_a_planted_name_is_found(wrong):
    assert list(unresolved(f"A page.\n\n{wrong}\n\nand more `fit`."))


def test_names_that_are_there_are_not_found_fault_with():
    right = """
`chains/retention.py`, `samplers.schedules.StepSize`, `BayesianMF`, `Params.U`, `model.report_`,
`recommend()`, `SGLD(grid=(2, 2))`, `prior="wishart-bias"`, `report_["convergence"]`, `n_chains`,
`--max-seconds`, `bayesmf fit`, `predict --out`, `make test`, test_imports, `ray start --head`,
test_grid.py: test_figure_2,
`python -m benchmarks scale --only linear`.

    bayesmf fit ratings.csv --out model --max-seconds 5
"""
    assert not list(unresolved(right))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_no_line_is_too_wide_to_read(page):
    wide = [line for line in page.read_text("utf-8").splitlines() if len(line) > WIDEST]
    assert not wide


def rooms_of_the_import_test():
    tree = ast.parse((ROOT / "tests" / "project" / "test_imports.py").read_text("utf-8"))
    found = [n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "ROOMS"]
    return list(ast.literal_eval(found[0].value))


def listed_rooms():
    """(names, text) of each entry in the list of rooms of docs/design.md."""
    section = re.search(r"^## The rooms.*?(?=^## )", DESIGN, re.M | re.S)[0]
    entries = re.findall(r"^    (\S.*?)  +(\S.*(?:\n {8,}\S.*)*)", section, re.M)
    return section, [(re.findall(r"\w+", names), text) for names, text in entries]


def test_the_list_of_rooms_is_in_the_order_of_the_test():
    section, entries = listed_rooms()
    assert [room for names, _ in entries for room in names] == rooms_of_the_import_test()
    lines = section.splitlines()
    assert len(lines) <= 45, "the list fits on one screen"
    assert max(map(len, lines)) <= 100


def test_files_of_the_list_are_in_their_rooms():
    _, entries = listed_rooms()
    files = [(room, file) for (room, *_), text in entries for file in re.findall(r"\w+\.py", text)]
    assert len(files) > 20
    assert not [f"{room}/{file}" for room, file in files if not (SOURCE / room / file).exists()]
