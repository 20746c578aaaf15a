"""What all answers share: the result of a fit, and a progress line where they take long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from bayesmf.data.rated import RatedItems
from bayesmf.data.tabular import html_table
from bayesmf.estimator.facts import fit_facts
from bayesmf.estimator.sklearn import not_fitted
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.process import counting, parts
from bayesmf.storage.verify import Verification

# Pairs that are put in order together, some 60 bytes each.
AT_ONCE = 1 << 23


class Found(NamedTuple):
    """All that a fit found, or a folder held; replaced as a whole: no answer mixes two fits.

    `verification` is under way where it came from a folder.
    """

    posterior: Posterior
    user_ids: IdMap
    item_ids: IdMap
    history: list[dict[str, Any]]
    report: dict[str, Any]
    verification: Verification | None = None

    @property
    def seen(self) -> RatedItems:
        """Which items each user has rated."""
        return self.posterior.seen

    @property
    def left_out(self) -> bool:
        """Whether the model was saved without its users."""
        return not self.posterior.ratings.has_users


class Fitted:
    """A model with a posterior: base of the parts of `BayesianMF` that answer questions."""

    n_workers: int | None
    progress: bool | None
    _found: Found

    @property
    def posterior_(self) -> Posterior:
        """The draws that were kept, and what they predict."""
        return self._fitted().posterior

    @property
    def user_ids_(self) -> IdMap:
        """Ids of users by row number."""
        return self._known().user_ids

    @property
    def item_ids_(self) -> IdMap:
        """Ids of items by row number."""
        return self._known().item_ids

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The `Event` of each epoch of each chain, as dicts."""
        return self._known().history

    @property
    def report_(self) -> dict[str, Any]:
        """Seconds, ratings per second, epochs, draws, convergence, resolved settings."""
        return self._known().report

    def _repr_html_(self) -> str:
        """Table of how the model was fitted, for notebooks."""
        if not hasattr(self, "_found"):
            return html_table(("", "not fitted"), [], repr(self))
        return html_table(("", "as fitted"), fit_facts(self._found.report, shell=False), repr(self))

    def _known(self) -> Found:
        """Result of the fit, parts of which may still be under verification."""
        if not hasattr(self, "_found"):
            raise not_fitted()
        return self._found

    def _fitted(self) -> Found:
        """Result of the fit, once every byte of it is verified: what answers are made of."""
        found = self._known()
        if found.verification is not None:
            found.verification.wait()
        return found

    def _counting(
        self, what: str, total: int, unit: str, progress: Callable[[int], Any] | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        """Called with how many are done: the caller's `progress`, or a progress line."""
        return nullcontext(progress) if progress else counting(what, total, unit, self.progress)

    def _answers(self, user: Index, item: Index, ask: Callable[..., Any]) -> list[Floats]:
        """All results of a function of pairs, with a progress line if that takes long."""
        out: list[tuple[Floats, ...]] = []
        with self._counting("predicting", len(user), "pairs") as done:
            for part in parts(len(user), AT_ONCE) or [slice(0, 0)]:
                found = ask(user[part], item[part], threads=self.n_workers, progress=done)
                out.append(found if isinstance(found, tuple) else (found,))
        return [np.concatenate(column) for column in zip(*out, strict=True)]
