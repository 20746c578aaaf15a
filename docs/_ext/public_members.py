"""Which methods and properties of a public class have an entry in the reference.

The same names as tests/project/test_docstrings.py holds to numpydoc's rules: what users may call.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

from public_names import PROJECT, public_names


def public_members() -> dict[str, dict[str, list[str]]]:
    """Methods and attributes by the full name of their class, in the order of the alphabet."""
    settings = tomllib.loads(Path(PROJECT).read_text("utf-8"))["tool"]["numpydoc_validation"]
    classes: dict[str, type] = {}
    found: dict[str, dict[str, list[str]]] = {}
    for name, value in public_names():
        owner, _, member = name.rpartition(".")
        if isinstance(value, type):
            classes[name] = value
            found[f"bayesmf.{name}"] = {"methods": [], "attributes": []}
        elif owner in classes and not any(re.search(rule, name) for rule in settings["exclude"]):
            held = inspect.getattr_static(classes[owner], member)
            kind = "attributes" if isinstance(held, property) else "methods"
            found[f"bayesmf.{owner}"][kind].append(member)
    return found
