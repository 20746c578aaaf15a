"""Public names and their methods, and what numpydoc finds wrong with their docstrings.

`make lint` runs this file. Which checks there are, and which names they leave out, is said in
pyproject.toml, [tool.numpydoc_validation].
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
from pathlib import Path

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

import bayesmf

# Parts of the package with public names of their own.
PARTS = ("web", "integrations.mlflow", "integrations.vectors")
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def public_names():
    """Names that users may write: "Ratings", "Ratings.split", ... and what they stand for.

    Methods that a class inherits are listed with it; those of other libraries are left out.
    """
    for name, found in _names():
        yield name, found
        for member in dir(found) if isinstance(found, type) else ():
            if not member.startswith("_") and _is_ours(inspect.getattr_static(found, member)):
                yield f"{name}.{member}", getattr(found, member)


def _names():
    """Names of the package, then those of parts that need an extra, such as "web.create_app"."""
    for name in bayesmf.__all__:
        yield name, getattr(bayesmf, name)
    for part in PARTS:
        try:
            module = importlib.import_module(f"bayesmf.{part}")
            found = {name: getattr(module, name) for name in module.__all__}
        except (ImportError, bayesmf.InputError):  # the extra is not installed
            continue
        yield from ((f"{part}.{name}", value) for name, value in found.items())


def _is_ours(member):
    """Whether a member of a class is a method or a property that is written in this project."""
    function = getattr(member, "__func__", getattr(member, "fget", member))
    return inspect.isfunction(function) and function.__module__.startswith("bayesmf")


class PublicName(Validator):
    """A public name; a class whose objects users only read is described by its attributes."""

    def __init__(self, obj_name):
        super().__init__(get_doc_object(self._load_obj(obj_name)))

    @property
    def doc_all_parameters(self):
        given = super().doc_all_parameters
        if given or not inspect.isclass(self.obj):
            return given
        attributes = self._doc_parameters(["Attributes"])
        return {name: attributes[name] for name in attributes if name in self.signature_parameters}


def mistakes(name, checks):
    """What is wrong with the docstring of a public name, as "code: sentence"."""
    found = validate(f"bayesmf.{name}", PublicName)
    # The example of a property is that of its class.
    waived = {"EX01"} if found["type"] == "property" else set()
    return [f"{code}: {said}" for code, said in found["errors"] if code in checks - waived]


def all_mistakes():
    """Mistakes by public name, for those names that have any."""
    settings = tomllib.loads(PROJECT.read_text())["tool"]["numpydoc_validation"]
    checks, exclude = set(settings["checks"]), settings["exclude"]
    names = [n for n, _ in public_names() if not any(re.search(e, n) for e in exclude)]
    return {name: found for name in names if (found := mistakes(name, checks))}


if __name__ == "__main__":
    wrong = all_mistakes()
    for name, sentences in wrong.items():
        print(f"bayesmf.{name}", *sentences, sep="\n    ")
    sys.exit(bool(wrong))
