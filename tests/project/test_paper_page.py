"""docs/paper.md: it leaves nothing of the paper out, its functions exist, its programs run."""

import io
import pkgutil
import re
from contextlib import redirect_stdout
from itertools import pairwise

import pytest

from doc_names import ROOT
from experiments.paper.presets import STEPS, grid_and_chains
from pages import blocks, unkept

PAGE = (ROOT / "docs" / "paper.md").read_text("utf-8")
FIRST, *PROGRAMS = blocks(PAGE)
assert len(PROGRAMS) == 5
# What a program prints: its RMSE and the number of draws, here of the samplers among them.
SAID = re.compile(r"= show\(.*\)  # (.*)$", re.M)
KEPT = {"sgld": 6, "dsgld_s": 3 * 8, "dsgld_c": 9 * 6, "gibbs": 12}


def table(title):
    """Cells of the first table of a section, but for its heading."""
    section = re.search(rf"^\*?\*?(## )?{title}.*?\n\n(?=\|)(.*?)\n\n", PAGE, re.M | re.S)[2]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines()]
    return rows[2:]


ROWS = table("Equations and algorithms")


def test_functions_exist():
    """Tests are looked up in test_docs.py."""
    found = [name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])]
    assert len(found) > 50
    for name in found:
        package = "experiments" if name.startswith("paper.") else "bayesmf"
        assert pkgutil.resolve_name(f"{package}.{name}") is not None


def test_every_equation_and_line_is_there():
    equations, lines, algorithm = set(), {}, 0
    for part, *_ in ROWS:
        if part.startswith("("):
            equations.update(int(n) for n in re.findall(r"\((\d+)\)", part))
        started = re.match(r"Algorithm (\d)", part)
        if part and not part.startswith("..."):
            algorithm = int(started[1]) if started else 0
        if algorithm and (named := re.search(r"\blines? (\d(?:, \d|\d)*)", part)):
            lines.setdefault(algorithm, set()).update(map(int, named[1].split(",")))
    assert equations == set(range(1, 34))
    # All but the ends of loops and of functions.
    assert lines == {
        1: {1, 2, 3, 4, 5, 7, 8},
        2: {1, 2, 3, 4, 5, 6, 8, 9, 10},
        3: {1, 2, 3, 4, 5, 6, 9},
    }


def test_every_function_has_a_test():
    for row, after in pairwise([*ROWS, [""] * 3]):
        if "`" in row[1]:
            test = row[2] or (not after[0] and after[2])
            assert test and re.fullmatch(r"test_\w+\.py: test_\w+", test), row


def test_steps_and_splits_are_those_of_the_experiments():
    rows, names = table("Steps"), ("SGD", "DSGD", "SGLD", "DSGLD-C", "DSGLD-S")
    for data, workers, own in (("netflix", 9, rows[:4]), ("yahoo", 16, rows[4:])):
        for name, column in zip(names, [*zip(*own, strict=True)][1:6], strict=True):
            grid, n_chains = grid_and_chains(name, workers)
            assert (float(column[0]), float(column[1])) == STEPS[data][name]
            assert column[2:] == ("{}x{}".format(*grid), str(n_chains))


def test_steps_of_netflix_are_equal_in_units_of_the_gradient():
    """The paper's v, which sums to one over blocks, multiplies it by the blocks of a group."""
    for name, (step, _) in STEPS["netflix"].items():
        assert step * min(grid_and_chains(name, 9)[0]) == pytest.approx(9e-6)


@pytest.fixture(scope="module")
def names():
    """What the first block defines."""
    space = {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(FIRST, "paper.md", "exec"), space)
    assert not unkept(FIRST, printed.getvalue().splitlines())
    return space


@pytest.mark.filterwarnings("ignore::bayesmf.ConvergenceWarning")
@pytest.mark.parametrize("number", range(5), ids=["SGD", "SGLD", "DSGLD-S", "DSGLD-C", "Gibbs"])
def test_a_program_finds_what_it_says(number, names):
    space, program = dict(names), PROGRAMS[number]
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "paper.md", "exec"), space)
    said, found = SAID.findall(program), printed.getvalue().splitlines()
    for (said_rmse, said_kept), (rmse, kept) in zip(
        map(parts, said), map(parts, found), strict=True
    ):
        assert kept == said_kept
        assert rmse == pytest.approx(said_rmse, abs=0.02)  # other processors, other last digits
        # Between the noise, which nobody can predict, and the spread of the ratings.
        assert names["plan"].noise < rmse < 0.95 * names["test"].rating.std()
    for name in set(space) & set(KEPT):
        assert space[name].report_["draws"] == KEPT[name]


def parts(line):
    """RMSE and number of draws."""
    rmse, kept = line.removesuffix(" kept").split(", ")
    return float(rmse), int(kept)
