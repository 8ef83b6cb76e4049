"""The OpenAPI document, made from the routes and the structs that serve them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.errors import Code

from .bodies import ID_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .routes import Parameter, Route

_REFERENCE: Final = "#/components/schemas/{name}"
_PLACE: Final = re.compile(r"{(\w+)}")
_MEANINGS: Final = {
    400: "The input is wrong, or the state forbids it",
    401: "No token, or a wrong one",
    403: "The caller may not do this",
    404: "There is no such thing",
    409: "Something is in the way, or somebody else was faster",
    422: "The request id came before with another body",
    429: "A limit refused the request; nothing was changed",
    500: "A fault of odin itself",
    503: "The same call may succeed a moment later, here or elsewhere",
    504: "The deadline passed; what was asked may still happen",
}
_MSGPACK: Final = {
    "history": "[run_id, [[event_id, type, recorded_at_us, attributes]], next]",
    "wait": "{run_id, status, result: [encoding, data], failure, new_run_id}",
}
_HEADERS: Final = (
    ("Idempotency-Key", {"type": "string"}, "The request id, where the body has none."),
    ("X-Odin-Origin", {"type": "string"}, "Who asks (visitors, synthetic, benchmark, ...)."),
    ("X-Odin-Timeout", {"type": "number"}, "The caller's deadline in seconds; 15 if absent."),
)


class Problem(msgspec.Struct, kw_only=True):
    """An error. Branch on `code` and `reason`, never on the text."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    reason: str
    retryable: bool
    retry_after_ms: int | msgspec.UnsetType = msgspec.UNSET
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def document(routes: Sequence[Route], title: str, version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `routes`."""
    types: list[Any] = [Problem]
    for route in routes:
        types.extend(route.answers.values())
        if route.body is not None:
            types.append(route.body)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    known = dict(zip(map(repr, types), schemas, strict=True))
    components["Problem"]["properties"]["code"] = {"enum": [code.name for code in Code]}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(route.path, {})
        operations[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": "Durable execution."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route, known: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            str(status): _response(_title(status), _content(route, known[repr(answer)]))
            for status, answer in route.answers.items()
        },
    }
    for status in route.refusals:
        content = {"application/problem+json": {"schema": known[repr(Problem)]}}
        operation["responses"][str(status)] = _response(_MEANINGS[status], content)
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.name == "start",
            "content": {"application/json": {"schema": known[repr(route.body)]}},
        }
    if route.is_open:
        operation["security"] = []
    return operation


def _title(status: int) -> str:
    return {200: "Done", 201: "Started", 503: "Not ready"}[status]


def _content(route: Route, schema: dict[str, Any]) -> dict[str, Any]:
    if route.name == "metrics":
        return {"text/plain": {"schema": schema}}
    content = {"application/json": {"schema": schema}}
    if route.name in _MSGPACK:
        content["application/msgpack"] = {"schema": {"description": _MSGPACK[route.name]}}
    return content


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": content}


def _parameters(route: Route) -> list[dict[str, Any]]:
    places = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **ID_SCHEMA}}
        for name in _PLACE.findall(route.path)
    ]
    headers = [
        {"name": name, "in": "header", "schema": schema, "description": description}
        for name, schema, description in (_HEADERS if route.body is not None else ())
    ]
    return [*places, *(_query(one) for one in route.query), *headers]


def _query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "schema": parameter.schema,
        "description": parameter.description,
    }
