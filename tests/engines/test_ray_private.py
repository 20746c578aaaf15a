"""Private parts of Ray are where we think they are; one module alone touches them."""

from pathlib import Path

import pytest

import bayesmf
from bayesmf.engines.ray import private

ROOT = Path(bayesmf.__file__).parent


def test_the_parts_are_where_they_were():
    pytest.importorskip("ray")
    assert not private.missing_parts(), "; ".join(private.missing_parts())


def test_a_part_that_moved_is_named(monkeypatch):
    pytest.importorskip("ray")
    name = "ray._private.services.Elsewhere"
    monkeypatch.setitem(private.PARTS, name, "something works")
    (told,) = private.missing_parts()
    assert f"has no {name}, by which something works: find" in told


def test_one_module_touches_them():
    found = [path.name for path in ROOT.rglob("*.py") if "ray._private" in path.read_text()]
    assert found == ["private.py"]
