"""Errors on the wire: one shape for all of them, application/problem+json (RFC 9457).

The standard members `type`, `title`, `status`, `detail`, `instance`, and odin's own: `code` (the
gRPC name), `reason` (the specific one), `retryable`, `retry_after_ms` and `details`.
"""

from __future__ import annotations

import json
import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from odin.errors import (
    Code,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OdinError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from odin.runtime.ids import Ids, SystemIds
from odin.runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER_SECONDS_DEFAULT = 1.0
_FAULTS_SHOWN_MAX = 10
_ALWAYS_RETRY_AFTER = (429, 503)

log = logging.getLogger(__name__)


def problem_of(error: OdinError, instance: str, status: int | None = None) -> dict[str, object]:
    """Return the body that stands for `error`.

    Args:
        error: The error.
        instance: The path of the request that met it.
        status: The HTTP status, where it is not the error's own (404, 405, 413 of the HTTP layer).
    """
    status = status or error.status
    body: dict[str, object] = {
        "type": f"urn:odin:error:{error.reason.lower().replace('_', '-')}",
        "title": error.reason.replace("_", " ").capitalize(),
        "status": status,
        "detail": redact(str(error)),
        "instance": instance,
        "code": error.code.name,
        "reason": error.reason,
        "retryable": error.retryable,
    }
    retry_after = retry_after_of(error, status)
    if retry_after is not None:
        body["retry_after_ms"] = math.ceil(retry_after * 1_000)
    if error.details:
        body["details"] = error.details
    return body


def retry_after_of(error: OdinError, status: int) -> float | None:
    """Return the seconds after which to ask again; None if no such time is known or useful."""
    if error.retry_after is not None:
        return error.retry_after
    return _RETRY_AFTER_SECONDS_DEFAULT if status in _ALWAYS_RETRY_AFTER else None


def problem_response(
    error: OdinError,
    instance: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response that stands for `error`; Retry-After is whole seconds, rounded up."""
    status = status or error.status
    every = dict(headers or {})
    retry_after = retry_after_of(error, status)
    if retry_after is not None:
        every["Retry-After"] = str(max(1, math.ceil(retry_after)))
    if error.code is Code.UNAUTHENTICATED:
        every.setdefault("WWW-Authenticate", 'Bearer realm="odin"')
    body = json.dumps(problem_of(error, instance, status), default=str).encode()
    return Response(body, status, every, MEDIA_TYPE)


def install_error_mapping(app: FastAPI, ids: Ids | None = None) -> None:
    """Answer every error of `app` as problem+json, those of FastAPI and the unforeseen included.

    An unforeseen exception is logged with its stack under an error id, and only that id is told.
    Call it before other middleware is added: what is added later runs further outside.
    """

    @app.exception_handler(OdinError)
    async def of_odin(request: Request, error: OdinError) -> Response:
        if error.code is Code.INTERNAL:
            log.error("internal error", extra={"reason": error.reason}, exc_info=error)
        return problem_response(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> Response:
        return problem_response(from_validation(error), request.url.path)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, OdinError):  # raised while FastAPI was reading the body
            return problem_response(error.__cause__, request.url.path)
        mapped = from_status(error.status_code, str(error.detail))
        return problem_response(
            mapped, request.url.path, status=error.status_code, headers=error.headers
        )

    app.add_middleware(UnforeseenErrors, ids=ids or SystemIds())


class UnforeseenErrors:
    """Turns an exception that nobody expected into a 500 that tells an id and nothing else."""

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        """Wrap `app`; `ids` makes the error ids."""
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app; answer for it if it raises before it has begun to answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # the last resort of a request: said in the log, hidden outside
            error_id = self._ids.report_id()
            log.exception("request failed", extra={"error_id": error_id, "path": scope["path"]})
            if started:
                raise
            hidden = InternalError(
                f"something unforeseen happened; the log tells more under error id {error_id}",
                details={"error_id": error_id},
            )
            hidden.__cause__ = error
            await problem_response(hidden, scope["path"])(scope, receive, send)


def from_validation(error: RequestValidationError) -> InvalidArgumentError:
    """Return FastAPI's refusal of a request as odin's; the values themselves are not repeated."""
    faults = [
        {"at": ".".join(str(part) for part in fault["loc"]), "what": str(fault["msg"])}
        for fault in error.errors()[:_FAULTS_SHOWN_MAX]
    ]
    said = "; ".join(f"{fault['at']}: {fault['what']}" for fault in faults)
    return InvalidArgumentError(said, reason="BAD_REQUEST", details={"faults": faults})


def from_status(status: int, text: str) -> OdinError:
    """Return the odin error that says what an HTTP status of the framework says."""
    known: dict[int, tuple[type[OdinError], str]] = {
        401: (UnauthenticatedError, "UNAUTHENTICATED"),
        403: (PermissionDeniedError, "PERMISSION_DENIED"),
        404: (NotFoundError, "NO_SUCH_ROUTE"),
        405: (InvalidArgumentError, "METHOD_NOT_ALLOWED"),
        408: (DeadlineExceededError, "REQUEST_TOO_SLOW"),
        412: (FailedPreconditionError, "FAILED_PRECONDITION"),
        413: (InvalidArgumentError, "BODY_TOO_LARGE"),
        415: (InvalidArgumentError, "BAD_CONTENT_TYPE"),
        429: (ResourceExhaustedError, "RESOURCE_EXHAUSTED"),
        503: (UnavailableError, "UNAVAILABLE"),
    }
    fallback: tuple[type[OdinError], str] = (
        (InternalError, "INTERNAL")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR
        else (InvalidArgumentError, "BAD_REQUEST")
    )
    kind, reason = known.get(status, fallback)
    return kind(text, reason=reason)


def openapi_problem() -> dict[int | str, dict[str, Any]]:
    """Return the `responses` entry that documents the error shape of a route."""
    schema = {"type": "object", "required": ["type", "title", "status", "code", "reason"]}
    return {"default": {"description": "Any error", "content": {MEDIA_TYPE: {"schema": schema}}}}
