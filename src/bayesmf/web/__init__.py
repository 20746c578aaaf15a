"""The HTTP service and its page: `create_app` makes the application, `deployment` one for Ray.

schemas      what requests look like; responses, what answers do
answers      what the library says, as plain dicts
served       the model that is served, and how another takes its place
items        titles of items, and the search by name
guard        host, token, size and time of requests
connection   size and time of what comes before a request is understood
routes, app  which address asks what, and the application around it
run          the server process, or several
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
