"""One request as a handler sees it, and one answer: plain ASGI, since hot routes must be cheap."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec

from odin.core.ids import DEFAULT_NAMESPACE, check_id, check_run_id
from odin.errors import InvalidArgumentError, OdinError, UnavailableError
from odin.runtime.http import MEDIA_TYPE, problem_of, strict_json
from odin.runtime.http.problem import retry_after_of

from .bodies import Body, Target

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

QUERY_PARAMETERS_MAX: Final = 32
TIMEOUT_MS_DEFAULT: Final = 15_000
_TIMEOUT_SECONDS_MAX: Final = 60.0
MSGPACK: Final = "application/msgpack"
_JSON: Final = b"application/json"

BodyType = TypeVar("BodyType", bound=Body)
Headers: TypeAlias = list[tuple[bytes, bytes]]

_encoder: Final = msgspec.json.Encoder()
_msgpack: Final = msgspec.msgpack.Encoder()


class Answer(msgspec.Struct, frozen=True):
    """What a handler returns."""

    body: bytes
    status: int = 200
    content_type: bytes = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def msgpack_answer(value: object) -> Answer:
    """Return `value` as msgpack."""
    return Answer(_msgpack.encode(value), content_type=MSGPACK.encode())


def json_answer(
    value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    """Return `value` as JSON."""
    return Answer(_encoder.encode(value), status, _JSON, headers)


class Call:
    """One request. `query` holds only parameters that the route names."""

    __slots__ = ("body", "headers", "path", "query")

    def __init__(
        self, path: Mapping[str, str], query: Mapping[str, str], headers: Headers, body: bytes
    ) -> None:
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body

    def header(self, name: bytes) -> str | None:
        """Return the first header of this (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None

    @property
    def namespace(self) -> str:
        """The namespace, checked."""
        return check_id(self.query.get("namespace", DEFAULT_NAMESPACE), "namespace")

    @property
    def target(self) -> Target:
        """The run that path and query name, checked."""
        run_id = self.query.get("run_id")
        return Target(
            self.namespace,
            check_id(self.path["workflow_id"], "workflow_id"),
            None if run_id is None else check_run_id(run_id),
        )

    @property
    def takes_msgpack(self) -> bool:
        """Whether the caller asks for values exactly as they are stored."""
        return MSGPACK in (self.header(b"accept") or "")

    @property
    def timeout_ms(self) -> int:
        """The client's deadline, from the header X-Odin-Timeout (seconds)."""
        given = self.header(b"x-odin-timeout")
        if given is None:
            return TIMEOUT_MS_DEFAULT
        seconds = number(given, "X-Odin-Timeout", 0.001, _TIMEOUT_SECONDS_MAX)
        return math.ceil(seconds * 1_000)

    def decode(self, type_: type[BodyType]) -> BodyType:
        """Return the body; an empty one stands for `{}`.

        Raises:
            InvalidArgumentError: It is not strict JSON or not of this shape; names the field.
        """
        data = self.body or b"{}"
        strict_json(data)
        try:
            return _decoder(type_).decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"the body does not fit: {error}", reason="BAD_BODY"
            ) from error

    def request_id(self, body: Body) -> str:
        """Return the idempotency id: the body's, else the header's, else a new one."""
        given = body.request_id or self.header(b"idempotency-key")
        if given is None:
            return secrets.token_hex(16)
        return check_id(given, "request_id")


Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]

_decoders: dict[type[Body], msgspec.json.Decoder[Any]] = {}


def _decoder(type_: type[BodyType]) -> msgspec.json.Decoder[BodyType]:
    found = _decoders.get(type_)
    if found is None:
        found = _decoders[type_] = msgspec.json.Decoder(type_)
    return found


def number(given: str, what: str, low: float, high: float) -> float:
    """Return a number from a query or header; InvalidArgumentError unless low <= it <= high."""
    try:
        value = float(given) if given.isascii() and len(given) <= 32 else math.nan  # noqa: PLR2004 - any number fits
    except ValueError:
        value = math.nan
    if not low <= value <= high:  # also refuses NaN
        raise InvalidArgumentError(
            f"{what} must be a number between {low:g} and {high:g}, not {given[:40]!r}",
            details={"field": what},
        )
    return value


def integer(given: str, what: str, low: int, high: int) -> int:
    """Return a whole number from a query; InvalidArgumentError unless low <= it <= high."""
    if not (given.isascii() and given.isdigit() and len(given) < 20 and low <= int(given) <= high):  # noqa: PLR2004 - 64 bits
        raise InvalidArgumentError(
            f"{what} must be a whole number between {low} and {high}, not {given[:40]!r}",
            details={"field": what},
        )
    return int(given)


class Endpoint:
    """An ASGI application that serves one route and turns refusals into problem+json."""

    __slots__ = ("_counts", "_handler", "_name", "_query")

    def __init__(
        self, name: str, handler: Handler, query: frozenset[str], counts: dict[tuple[str, int], int]
    ) -> None:
        """Take the route's name (for metrics), its handler, and the parameters that it knows."""
        self._name = name
        self._handler = handler
        self._query = query
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            answer = await self._answer(scope, receive)
        except OdinError as error:
            answer = problem(error, scope["path"])
        except asyncio.CancelledError:  # the server stops and lets nobody finish
            stopping = UnavailableError("this engine is stopping; ask another", retry_after=0.1)
            await send_answer(problem(stopping, scope["path"]), send)
            raise
        key = (self._name, answer.status)
        self._counts[key] = self._counts.get(key, 0) + 1
        await send_answer(answer, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        headers: Headers = scope["headers"]
        query = _query(scope["query_string"], self._query)
        body = b""
        if scope["method"] == "POST":
            body = await _read_body(headers, receive)
        return await self._handler(Call(scope["path_params"], query, headers, body))


async def send_answer(answer: Answer, send: Send) -> None:
    """Send an answer whole."""
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def problem(error: OdinError, instance: str) -> Answer:
    """Return an error as problem+json."""
    status = error.status
    wait = retry_after_of(error, status)
    headers = () if wait is None else ((b"retry-after", str(max(1, math.ceil(wait))).encode()),)
    body = _encoder.encode(problem_of(error, instance, status))
    return Answer(body, status, MEDIA_TYPE.encode(), headers)


def _query(raw: bytes, known: frozenset[str]) -> dict[str, str]:
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=QUERY_PARAMETERS_MAX,
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidArgumentError(f"the query string is malformed: {error}") from error
    query: dict[str, str] = {}
    for key, value in pairs:
        if key not in known:
            raise InvalidArgumentError(
                f"unknown parameter {key[:80]!r}; known: {', '.join(sorted(known)) or 'none'}",
                reason="UNKNOWN_PARAMETER",
                details={"field": key[:80]},
            )
        if key in query:
            raise InvalidArgumentError(f"query parameter {key!r} is given twice")
        query[key] = value
    return query


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    """Return the body; its size and time are bounded further out."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        parts = [body]
        while message.get("more_body", False):
            message = await receive()
            parts.append(message.get("body", b""))
        body = b"".join(parts)
    if body and not _is_json(headers):  # a page of another site may send text, but not this
        raise InvalidArgumentError(
            "the body must be sent as content-type: application/json", reason="BAD_CONTENT_TYPE"
        )
    return body


def _is_json(headers: Headers) -> bool:
    for key, value in headers:
        if key == b"content-type":
            return value.split(b";", 1)[0].strip().lower() == _JSON
    return False
