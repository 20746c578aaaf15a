"""SGLD and SGD by the definition of their updates: nothing is compiled for a number of factors."""

from __future__ import annotations

from dataclasses import dataclass

from bayesmf import SGD, SGLD


@dataclass(frozen=True)
class PlainSGLD(SGLD):
    """SGLD by its definition, `GradientRule.update`."""

    kind_of_rounds = "update"


@dataclass(frozen=True)
class PlainSGD(SGD):
    """SGD by its definition."""

    kind_of_rounds = "update"
