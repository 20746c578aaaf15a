"""What every answer needs: a model that has been fitted, and a line for what takes long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bayesmf.habits import not_fitted
from bayesmf.ids import IdMap
from bayesmf.posterior import Posterior
from bayesmf.progress import counting
from bayesmf.seen import Seen
from bayesmf.verifying import Verification


class Fitted:
    """A model with a posterior, which the parts of `BayesianMF` that answer stand on."""

    user_ids_: IdMap
    item_ids_: IdMap
    history_: list[dict[str, Any]]
    report_: dict[str, Any]
    n_workers: int | None
    progress: bool | None
    _seen: Seen
    _posterior: Posterior
    _verification: Verification | None

    @property
    def posterior_(self) -> Posterior:
        """The draws, with the units of the ratings."""
        return self._fitted()

    @posterior_.setter
    def posterior_(self, posterior: Posterior) -> None:
        self._posterior, self._verification = posterior, None

    def _fitted(self) -> Posterior:
        """What answers are made of, once every byte of it was verified."""
        if not hasattr(self, "_posterior"):
            raise not_fitted()
        if self._verification is not None:
            self._verification.wait()
            self._verification = None
        return self._posterior

    def _counting(
        self, what: str, total: int, unit: str, progress: Callable[[int], Any] | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        """Who is told how many are done: the caller, or a line where there is one to look at."""
        return nullcontext(progress) if progress else counting(what, total, unit, self.progress)
