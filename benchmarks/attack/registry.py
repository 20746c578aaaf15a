"""The attacks by name, and which of them a seed stands for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.attack.case import Case

# Of about a hundred: those that need a process of their own take seconds, others milliseconds.
SHARES = {
    "text": 30, "binary": 9, "typed": 14, "arguments": 9, "artefacts": 13, "forged": 19, "forks": 1,
    "threads": 1.5, "kernels": 1, "full disks": 1.5, "limits": 0.6, "streams": 0.6,
}  # fmt: skip
MODULES = (
    "text", "binary", "typed", "arguments", "artefacts", "sharing", "processes", "kernels",
)  # fmt: skip


class Attack(NamedTuple):
    """One way to do harm."""

    kind: str
    name: str
    run: Callable[[Case], None]
    weight: float
    quick: bool
    """Whether it needs no process of its own, and so milliseconds."""


ATTACKS: dict[str, Attack] = {}


def attack(
    kind: str, weight: float = 1.0, quick: bool = True
) -> Callable[..., Callable[..., None]]:
    """Register a function as an attack; of its kind, those of more weight come more often."""

    def register(run: Callable[[Case], None]) -> Callable[[Case], None]:
        name = f"{kind}.{run.__name__}"
        ATTACKS[name] = Attack(kind, name, run, weight, quick)
        return run

    return register


def load_all() -> dict[str, Attack]:
    """All attacks, whose modules register them when they are imported."""
    for name in MODULES:
        import_module(f"benchmarks.attack.{name}")
    return ATTACKS


def chosen(n: int, seed: int, kinds: Sequence[str] | None, quick: bool) -> list[str]:
    """The seeds of n attacks, such as `text.damaged:1000017`: a name and a number."""
    of = [
        a for a in load_all().values()
        if (not kinds or a.kind in kinds or a.name in kinds) and (a.quick or not quick)
    ]  # fmt: skip
    rng = random.Random(f"attacks {seed}")
    total: dict[str, float] = dict.fromkeys(SHARES, 0.0)
    for a in of:
        total[a.kind] += a.weight
    weights = [SHARES[a.kind] * a.weight / total[a.kind] for a in of]
    names = rng.choices([a.name for a in of], weights, k=n)
    return [f"{name}:{seed * 1_000_000 + k}" for k, name in enumerate(names)]


def known(seed: str) -> bool:
    """Whether a seed names an attack."""
    name, _, number = seed.rpartition(":")
    return name in load_all() and number.isdecimal()


def kinds() -> list[str]:
    """Names of all kinds."""
    return list(dict.fromkeys(a.kind for a in load_all().values()))
