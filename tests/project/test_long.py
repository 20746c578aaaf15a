"""What `make test` leaves out is there: a test that was renamed would come back unseen."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LINES = (TESTS / "long.txt").read_text().splitlines()
NAMES = [line for line in LINES if line and not line.startswith("#")]


@cache
def functions(path):
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", NAMES)
def test_a_name(name):
    path, _, test = name.partition("::")
    assert test.partition("[")[0] in functions(path)


def test_each_once():
    assert len(set(NAMES)) == len(NAMES)
