"""Bayesian matrix factorization that is as fast as SGD and says how sure it is."""

import re

__version__ = "0.1.0"

# Public names are imported when first used: `bayesmf --help` need not wait for the compiler. Which
# there are, and where they live, is written down once, in the stub that type checkers read.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _HOMES = {
        name: home for home, name in re.findall(r"(?m)^from (\S+) import (\w+)", _stub.read())
    }

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
