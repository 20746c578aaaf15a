"""Base of the estimator: scikit-learn's interface, the result of a fit, progress lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from bayesmf.checks import did_you_mean
from bayesmf.data.tabular import html_table
from bayesmf.data.training import RatedItems
from bayesmf.diagnostics.convergence import fit_facts
from bayesmf.errors import InputError, NotFittedError
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.process import counting, parts
from bayesmf.samplers.registry import as_sampler
from bayesmf.storage.verification import Verification

SAMPLER = "sampler__"


class SklearnMixin:
    """Methods that scikit-learn's tools call on an estimator whose `sampler` is a parameter."""

    _estimator_type = "regressor"  # as scikit-learn before 1.6 asks for it

    sampler: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Also return the settings of a sampler object, as `sampler__<name>`.

        Returns
        -------
        dict
            Values by name.

        Examples
        --------
        >>> from bayesmf import SGLD, BayesianMF
        >>> BayesianMF(sampler=SGLD(n_chains=2)).get_params()["sampler__n_chains"]
        2
        """
        out = {name: getattr(self, name) for name in self._defaults()}
        if deep and not isinstance(self.sampler, str):
            out |= {f"{SAMPLER}{k}": v for k, v in vars(self.sampler).items()}
        return out

    def set_params(self, **params: Any) -> Self:
        """Set the constructor's arguments, or `sampler__<name>` of the sampler.

        A sampler given by name becomes an object when one of its settings is set.

        Parameters
        ----------
        **params : any
            Values by name.

        Returns
        -------
        BayesianMF
            The model itself.

        Raises
        ------
        InputError
            If a name is not among those of `get_params`.

        Examples
        --------
        >>> from bayesmf import BayesianMF
        >>> BayesianMF(sampler="sgld").set_params(n_factors=8, sampler__n_chains=2)
        BayesianMF(n_factors=8, sampler=SGLD(n_chains=2))
        """
        # The sampler first: its own settings may come with it.
        for name in sorted(params, key=lambda name: name.startswith(SAMPLER)):
            if name.startswith(SAMPLER) and isinstance(self.sampler, str):
                self.sampler = as_sampler(self.sampler)
            known = self.get_params()
            if name not in known:
                raise InputError(
                    f"{name!r} is not a parameter of {type(self).__name__}: choose from "
                    f"{', '.join(known)}{did_you_mean(name, known)}"
                )
            if name.startswith(SAMPLER):
                self.sampler = replace(self.sampler, **{name[len(SAMPLER) :]: params[name]})
            else:
                setattr(self, name, params[name])
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [
            f"{name}={_settings_text(value)}"
            for name, value in self.get_params(deep=False).items()
            if not _same(value, defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _defaults(cls) -> Mapping[str, Any]:
        parameters = inspect.signature(cls).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_found")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(string=True),
            regressor_tags=RegressorTags(),
        )


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _settings_text(value: Any) -> str:
    """Text of a setting: of a sampler or engine the non-default values, else its repr."""
    if not is_dataclass(value):
        return repr(value)
    changed = [
        f"{field.name}={given!r}"
        for field in fields(value)
        if not _same(given := getattr(value, field.name), _default(field))
    ]
    return f"{type(value).__name__}({', '.join(changed)})"


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def not_fitted() -> NotFittedError:
    """An error that is scikit-learn's NotFittedError as well, where that is installed."""
    return _not_fitted_class()("this model has not been fitted: call fit or BayesianMF.load first")


@cache
def _not_fitted_class() -> type[NotFittedError]:
    try:
        from sklearn.exceptions import NotFittedError as Theirs
    except ImportError:
        return NotFittedError
    return type("NotFittedError", (NotFittedError, Theirs), {"__doc__": NotFittedError.__doc__})


# Pairs sorted together, some 60 bytes each.
AT_ONCE = 1 << 23


class FitResult(NamedTuple):
    """Result of a fit or of loading; replaced atomically, so that no answer mixes two fits.

    `verification` may still be running after loading; `base` is the result into which ratings of a
    query were folded.
    """

    posterior: Posterior
    user_ids: IdMap
    item_ids: IdMap
    history: list[dict[str, Any]]
    report: dict[str, Any]
    verification: Verification | None = None
    base: FitResult | None = None

    @property
    def seen(self) -> RatedItems:
        """Which items each user has rated."""
        return self.posterior.seen

    @property
    def left_out(self) -> bool:
        """Whether the model was saved without its users."""
        return not self.fitted.posterior.ratings.has_users

    @property
    def fitted(self) -> FitResult:
        """This result without the ratings of a query."""
        return self.base or self


class Fitted:
    """A model with a posterior: base of the methods of `BayesianMF` that need a fit."""

    n_workers: int | None
    progress: bool | None
    _found: FitResult

    @property
    def posterior_(self) -> Posterior:
        """The kept draws and their predictions."""
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

    def _known(self) -> FitResult:
        """Result of the fit, perhaps still under verification."""
        if not hasattr(self, "_found"):
            raise not_fitted()
        return self._found

    def _fitted(self) -> FitResult:
        """Result of the fit, once every byte is verified."""
        found = self._known()
        if found.verification is not None:
            found.verification.wait()
        return found

    def _counting(
        self, what: str, total: int, unit: str, progress: Callable[[int], Any] | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        """A callback for the number done: the caller's `progress`, or a progress line."""
        return nullcontext(progress) if progress else counting(what, total, unit, self.progress)

    def _answers(self, user: Index, item: Index, ask: Callable[..., Any]) -> list[Floats]:
        """Results of a function of pairs, with a progress line."""
        out: list[tuple[Floats, ...]] = []
        with self._counting("predicting", len(user), "pairs") as done:
            for part in parts(len(user), AT_ONCE) or [slice(0, 0)]:
                found = ask(user[part], item[part], threads=self.n_workers, progress=done)
                out.append(found if isinstance(found, tuple) else (found,))
        return [np.concatenate(column) for column in zip(*out, strict=True)]
