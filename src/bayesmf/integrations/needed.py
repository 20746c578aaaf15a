"""Packages that only one integration needs, or a sentence where one is absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bayesmf.errors import InputError


def needed(module: str, install: str) -> Any:
    """Import a module of another package.

    Parameters
    ----------
    module
        Its full name.
    install
        What pip is asked for where it is absent.

    Returns
    -------
    module
        The module.

    Raises
    ------
    InputError
        If it is not installed.

    Examples
    --------
    >>> from bayesmf.integrations.needed import needed
    >>> needed("json", "json").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed: pip install {install}") from None


def mlflow_part(part: str = "") -> Any:
    """Import MLflow, or a part of it such as ".pyfunc"."""
    return needed(f"mlflow{part}", "'bayesmf[mlflow]'")
