"""What scikit-learn's tools call on an estimator: parameters by name, tags, whether it is fitted.

scikit-learn itself is imported only where it asks (tags) or where it would be missed (its
NotFittedError): without it everything works.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np

from bayesmf.checks import did_you_mean
from bayesmf.errors import InputError, NotFittedError
from bayesmf.samplers.registry import as_sampler

SAMPLER = "sampler__"


class EstimatorHabits:
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

        A sampler that was given by its name becomes an object when one of its settings is set.

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
                    f"{name!r} is no parameter of {type(self).__name__}: choose from "
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
    """Text of a setting: of a sampler or engine what differs from its defaults, else its repr."""
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


def r_squared(rating: Any, mean: Any) -> float:
    """Coefficient of determination, as scikit-learn's regressors define it."""
    rating = np.asarray(rating, np.float64)
    rest = float(((rating - mean) ** 2).sum())
    total = float(((rating - rating.mean()) ** 2).sum())
    if total == 0.0:
        return 1.0 if rest == 0.0 else 0.0
    return 1.0 - rest / total
