"""Strict reading of requests: unknown parameters and other media types are refused, not ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from odin.errors import InvalidArgumentError
from odin.runtime.http.strict_json import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from starlette.responses import Response


async def refuse_unknown_query(request: HTTPConnection) -> None:
    """Refuse query parameters that the route does not declare; a dependency for a whole app.

    A misspelt filter that is silently ignored shows everything as if it had matched. (Async, since
    FastAPI would run a plain function in a thread, for every request.)

    Raises:
        InvalidArgumentError: names the parameters and those that there are.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    fields = get_flat_params(route.dependant)
    known = (field.alias for field in fields if isinstance(field.field_info, Query))
    refuse_unknown(request.query_params, known)


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse any of `given` names that is not among the `known` ones.

    Raises:
        InvalidArgumentError: names the parameters and those that there are.
    """
    allowed = sorted(set(known))
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise InvalidArgumentError(
            f"unknown query parameter {', '.join(map(repr, unknown))}; "
            f"there {'are' if allowed else 'is'} {', '.join(allowed) or 'none'}",
            reason="UNKNOWN_PARAMETER",
            details={"unknown": unknown, "known": allowed},
        )


async def json_body(request: Request) -> object:
    """Return the request's body, read strictly.

    Raises:
        InvalidArgumentError: it is not announced as JSON, or `strict_json` refuses it.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise InvalidArgumentError(
            "send the body as Content-Type: application/json", reason="BAD_CONTENT_TYPE"
        )
    return strict_json(await request.body())


class StrictRequest(Request):
    """A request whose `json()` is `strict_json`; for routes that let FastAPI read the body."""

    async def json(self) -> Any:  # noqa: ANN401 - the signature of the base class
        """Return the body, read strictly."""
        return strict_json(await self.body())


class StrictRoute(APIRoute):
    """A route of an `APIRouter(route_class=StrictRoute)`: bodies are read by `strict_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, given a `StrictRequest`."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly
