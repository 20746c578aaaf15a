"""The HTTP service and its page: `create_app` makes the application, `deployment` one for Ray.

app       the application, a thread that watches for a new model
routes    addresses and the threads that compute answers
schemas   requests and responses
answers   answers of the library as plain dicts
card      the model card
problems  errors in one shape
served    the model that is served, and its replacement
items     titles of items, and the search by name
guard     host, token, size, time and concurrency of requests; metrics
run       uvicorn in one process or several, Ray Serve
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesmf.web.app import create_app as create_app
    from bayesmf.web.guard import Limits as Limits
    from bayesmf.web.run import deployment as deployment

_HOMES = {"create_app": "app", "deployment": "run", "Limits": "guard"}
__all__ = ["Limits", "create_app", "deployment"]


def __getattr__(name: str) -> object:
    from bayesmf.errors import InputError

    if name not in _HOMES:
        raise AttributeError(f"module 'bayesmf.web' has no attribute {name!r}")
    try:
        return getattr(import_module(f"bayesmf.web.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "bayesmf":
            raise
        raise InputError(
            f"the HTTP service needs {error.name}, which is not installed: pip install fastapi "
            "uvicorn prometheus-client"
        ) from None
