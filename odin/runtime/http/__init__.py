"""The HTTP shell that every service with an API stands on.

`install_http_rules` gives a FastAPI app one error shape, limits, a guard and strict headers;
`within_http_rules` puts the same around any ASGI application; `serve_http` runs it as one loop of
`odin.runtime.service.serve`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odin.runtime.http.guard import Guard, SecurityHeaders
from odin.runtime.http.limits import BODY_BYTES_MAX, BODY_SECONDS_MAX, BodyLimits
from odin.runtime.http.problem import (
    MEDIA_TYPE,
    UnforeseenErrors,
    install_error_mapping,
    openapi_problem,
    problem_of,
    problem_response,
)
from odin.runtime.http.protocol import ConnectionLimits
from odin.runtime.http.query import StrictRoute, json_body, refuse_unknown, refuse_unknown_query
from odin.runtime.http.server import bind, serve_http
from odin.runtime.http.strict_json import strict_json
from odin.runtime.ids import SystemIds

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from odin.runtime.ids import Ids


def install_http_rules(
    app: FastAPI,
    *,
    ids: Ids | None = None,
    token: str | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    body_seconds_max: float = BODY_SECONDS_MAX,
) -> None:
    """Put everything around `app` that every odin API has.

    From the inside out: the error mapping, the limits on bodies, the guard (token and origin), the
    security headers. So even a refusal of the guard is problem+json with strict headers, and no
    body is read for somebody who may not come in.

    Args:
        app: The application, before its first request.
        ids: Makes error ids.
        token: The bearer token asked for; None asks for none.
        body_bytes_max: Largest body, in bytes.
        body_seconds_max: Longest time for a body to arrive.
    """
    install_error_mapping(app, ids)
    app.add_middleware(BodyLimits, bytes_max=body_bytes_max, seconds_max=body_seconds_max)
    app.add_middleware(Guard, token=token)
    app.add_middleware(SecurityHeaders)


def within_http_rules(
    app: ASGIApp, *, token: str | None = None, body_bytes_max: int = BODY_BYTES_MAX
) -> ASGIApp:
    """Return `app` inside the same rules, for an application that maps its own OdinErrors.

    Args:
        app: Any ASGI application.
        token: The bearer token asked for; None asks for none.
        body_bytes_max: Largest body, in bytes.
    """
    limited = BodyLimits(UnforeseenErrors(app, SystemIds()), bytes_max=body_bytes_max)
    return SecurityHeaders(Guard(limited, token=token))


__all__ = [
    "BODY_BYTES_MAX",
    "BODY_SECONDS_MAX",
    "MEDIA_TYPE",
    "BodyLimits",
    "ConnectionLimits",
    "Guard",
    "SecurityHeaders",
    "StrictRoute",
    "bind",
    "install_error_mapping",
    "install_http_rules",
    "json_body",
    "openapi_problem",
    "problem_of",
    "problem_response",
    "refuse_unknown",
    "refuse_unknown_query",
    "serve_http",
    "strict_json",
    "within_http_rules",
]
