"""Bayesian matrix factorization that is as fast as SGD and says how sure it is."""

import re

__version__ = "0.2.0"

# Public names are imported when first used: `bayesmf --help` need not wait for the compiler. Which
# there are, and where they live, is written down once, in the stub that type checkers read.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _HOMES = {
        name: home for home, name in re.findall(r"(?m)^from (\S+) import (\w+)", _stub.read())
    }

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name[:1].isupper():  # perhaps a sampler that was registered
        for rule in import_module("bayesmf.samplers.registry").REGISTRY.values():
            if rule.__name__ == name:
                return rule
    raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
