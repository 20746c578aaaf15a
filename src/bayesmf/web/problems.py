"""Errors of the service in one shape (RFC 9457), with a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from bayesmf.wording import cut, printable

MEDIA_TYPE = "application/problem+json"
# Longest sentence and name of a field, which may quote the request.
_LONGEST, _FIELD = 600, 120
# pydantic's names of the two kinds of ids.
_BRANCHES = ("constrained-int", "constrained-str", "int", "str")
# Examples of parts of a request, by name and whether it is the whole list.
_SHAPES = {
    ("", False): '{"user": 17}',
    ("ratings", True): '[{"item": 50, "rating": 5}]',
    ("ratings", False): '{"item": 50, "rating": 5}',
    ("pairs", True): '[{"user": 17, "item": 50}]',
    ("pairs", False): '{"user": 17, "item": 50}',
    ("items", True): "[50, 181]",
    ("exclude", True): "[50, 181]",
}


class ProblemError(Exception):
    """An exception that ends a request with a status and a sentence.

    `field` is the part of the request that is wrong, `headers` are added to the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field, self.headers = status, detail, field, headers

    def response(self) -> Response:
        """The answer to the client."""
        content = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": _short(self.detail, _LONGEST),
        }
        if self.field:
            content["field"] = _short(self.field, _FIELD)
        body = to_json(content)
        return Response(body, self.status, dict(self.headers or {}), MEDIA_TYPE)


def _short(text: str, most: int) -> str:
    """Printable text of limited length; cut first, since the request may be long."""
    return cut(printable(text[: 4 * most]), most)


def of_validation(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    """The first of pydantic's errors as a sentence, without the value that was sent."""
    if not errors:
        return ProblemError(422, "the request cannot be used: see /openapi.json")
    where, field = _field(errors[0])
    sentence = _sentence(errors[0], field)
    others = {_field(error) for error in errors} - {(where, field)}
    if others:
        sentence += f" (and {len(others)} more)"
    return ProblemError(422, sentence, field or where)


def _field(error: Mapping[str, Any]) -> tuple[str, str]:
    """Part and name of the value, without the branches of a union."""
    where, *path = (str(part) for part in error["loc"])
    return where, ".".join(part for part in path if part not in _BRANCHES and "[" not in part)


def _sentence(error: Mapping[str, Any], field: str) -> str:
    kind, name = str(error["type"]), field or "the body"
    if kind == "extra_forbidden":
        return f"{name} is not a field of this request: see /openapi.json"
    if kind == "missing":
        return f"{name} is missing: see /openapi.json for what the request needs"
    if kind in ("int_type", "string_type") and error["loc"][-1] in _BRANCHES:
        return f"{name} must be a whole number or text, as ids are"
    if kind in ("list_type", "model_attributes_type", "model_type", "dict_type"):
        what = "a list" if kind == "list_type" else "an object"
        shape = _SHAPES.get((field.partition(".")[0], kind == "list_type"))
        return f"{name} must be {what}" + (f" such as {shape}" if shape else "")
    message = str(error["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"
