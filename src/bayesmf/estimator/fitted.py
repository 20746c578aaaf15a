"""What every answer needs: a model that has been fitted, and a line for what takes long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from bayesmf.data.rated import RatedItems
from bayesmf.estimator.sklearn import not_fitted
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior.posterior import Posterior
from bayesmf.storage.verify import Verification
from bayesmf.system.progress import counting
from bayesmf.system.threads import parts

# Pairs between two looks at the line.
AT_ONCE = 1 << 17


class Found(NamedTuple):
    """All that a fit found, or a folder held: replaced as one, so that nobody sees half of two.

    `verification` is under way where it came from a folder.
    """

    posterior: Posterior
    user_ids: IdMap
    item_ids: IdMap
    seen: RatedItems
    history: list[dict[str, Any]]
    report: dict[str, Any]
    verification: Verification | None = None


class Fitted:
    """A model with a posterior, which the parts of `BayesianMF` that answer stand on."""

    n_workers: int | None
    progress: bool | None
    _found: Found

    @property
    def posterior_(self) -> Posterior:
        """The draws, with the units of the ratings."""
        return self._fitted().posterior

    @property
    def user_ids_(self) -> IdMap:
        """Ids of the users, by row number."""
        return self._known().user_ids

    @property
    def item_ids_(self) -> IdMap:
        """Ids of the items, by row number."""
        return self._known().item_ids

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One entry for each epoch of each chain."""
        return self._known().history

    @property
    def report_(self) -> dict[str, Any]:
        """Seconds, ratings per second, epochs, draws, convergence, resolved settings."""
        return self._known().report

    def _known(self) -> Found:
        """What is there, once there is something; what answers need may still be verified."""
        if not hasattr(self, "_found"):
            raise not_fitted()
        return self._found

    def _fitted(self) -> Found:
        """What answers are made of, once every byte of it was verified."""
        found = self._known()
        if found.verification is not None:
            found.verification.wait()
        return found

    def _counting(
        self, what: str, total: int, unit: str, progress: Callable[[int], Any] | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        """Who is told how many are done: the caller, or a line where there is one to look at."""
        return nullcontext(progress) if progress else counting(what, total, unit, self.progress)

    def _in_parts(self, what: str, total: int, unit: str, answer: Callable[[slice], Any]) -> None:
        """Answer by parts, and show between them how far it is where that takes long."""
        with self._counting(what, total, unit) as done:
            for part in parts(total, AT_ONCE):
                answer(part)
                done(part.stop - part.start)
