"""Save a model elsewhere where its own folder fails: a fit of hours must not be lost."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.storage.writer import Standing


def save(model: BayesianMF, out: str, instead_of: Standing | None = None, **how: Any) -> None:
    """Save a model; where that fails, save it elsewhere and say where it is.

    Not where another process has replaced what stood there: moved from elsewhere it would undo
    what that has done.
    """
    from bayesmf.estimator.folder import save_model
    from bayesmf.storage.writer import Overtaken

    try:
        save_model(model, out, instead_of=instead_of, **how)
    except Overtaken:
        raise
    except InputError as error:
        found = _saved_elsewhere(model, how)
        if found is None:
            raise
        raise InputError(
            f"{str(error).rstrip('.')}; the model is saved in {found}: move it from there"
        ) from None


def _saved_elsewhere(model: BayesianMF, how: dict[str, Any]) -> Path | None:
    for folder in _folders():
        found = folder / f"bayesmf-model-{secrets.token_hex(4)}"
        with contextlib.suppress(InputError):
            model.save(found, **how)
            return found
    return None


def _folders() -> Iterator[Path]:
    """Folders in which there may be room."""
    for find in (Path.cwd, Path.home, lambda: Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError, RuntimeError):
            yield find()
