"""What every answer needs: a model that has been fitted, and a line for what takes long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from bayesmf.habits import not_fitted
from bayesmf.ids import IdMap
from bayesmf.parallel import parts
from bayesmf.posterior import Posterior
from bayesmf.progress import counting
from bayesmf.seen import Seen
from bayesmf.verifying import Verification

# Pairs between two looks at the line.
AT_ONCE = 1 << 17


class Found(NamedTuple):
    """What belongs together of a fit: replaced as one, so that an answer never mixes two fits."""

    posterior: Posterior
    user_ids: IdMap
    item_ids: IdMap
    seen: Seen


class Fitted:
    """A model with a posterior, which the parts of `BayesianMF` that answer stand on."""

    user_ids_: IdMap
    item_ids_: IdMap
    history_: list[dict[str, Any]]
    report_: dict[str, Any]
    n_workers: int | None
    progress: bool | None
    _seen: Seen
    _found: Found
    _verification: Verification | None

    @property
    def posterior_(self) -> Posterior:
        """The draws, with the units of the ratings."""
        return self._fitted().posterior

    @posterior_.setter
    def posterior_(self, posterior: Posterior) -> None:
        """The last of what a fit or a load sets: from now on answers come from it."""
        self._verification = None
        self._found = Found(posterior, self.user_ids_, self.item_ids_, self._seen)

    def _fitted(self) -> Found:
        """What answers are made of, once every byte of it was verified."""
        if not hasattr(self, "_found"):
            raise not_fitted()
        verification = self._verification
        if verification is not None:
            verification.wait()
            self._verification = None
        return self._found

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
