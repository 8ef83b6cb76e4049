"""The bodies of requests, and how they become the core's requests: the verdict falls at the door.

User values keep their exact bytes: none is encoded anew on its way into a history.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from odin.core.ids import check_id
from odin.core.payload import JSON, PAYLOAD_BYTES_MAX, Payload, clean_text
from odin.core.requests import (
    RequestCancelWorkflow,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
)
from odin.errors import InvalidArgumentError, PayloadError

ARGUMENTS_MAX: Final = 64
KEYS_MAX: Final = 64
_TEXT_CHARS_MAX: Final = 1_000
_DAYS_MAX_SECONDS: Final = 10 * 366 * 86_400

Seconds = Annotated[float, msgspec.Meta(ge=0, le=_DAYS_MAX_SECONDS, description="Seconds.")]
ID_SCHEMA: Final = {"pattern": "^[A-Za-z0-9._:@-]{1,200}$"}  # shown here, judged by check_id
Id = Annotated[str, msgspec.Meta(examples=["order-7"], extra_json_schema=ID_SCHEMA)]
Arguments = Annotated[
    list[msgspec.Raw],
    msgspec.Meta(
        max_length=ARGUMENTS_MAX, description="The positional arguments, any JSON values."
    ),
]
Values = Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=KEYS_MAX)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies. Without `request_id` the Idempotency-Key header serves, or a new one."""

    request_id: Id | None = None
    identity: str = ""


class SignalPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signal that a start carries, in the same commit; an open run is only signalled."""

    name: Id
    input: Arguments = []


class StartBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a workflow execution. Durations are seconds."""

    workflow_id: Id
    workflow_type: Id
    task_queue: Id = "default"
    input: Arguments = []
    execution_timeout: Seconds | None = None
    run_timeout: Seconds | None = None
    task_timeout: Annotated[float, msgspec.Meta(gt=0, le=120, description="Seconds.")] = 10.0
    start_delay: Seconds = 0.0
    id_reuse_policy: Literal[
        "allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate"
    ] = "allow_duplicate"
    id_conflict_policy: Literal["fail", "use_existing", "terminate_existing"] = "fail"
    origin: str = ""
    memo: Values = {}
    search_attributes: Values = {}
    signal: SignalPart | None = None


class SignalBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tell the open run something."""

    input: Arguments = []


class ReasonBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cancel or terminate the open run."""

    reason: Annotated[str, msgspec.Meta(max_length=_TEXT_CHARS_MAX)] = ""


class Target(msgspec.Struct, frozen=True):
    """Which run a request is about."""

    namespace: str
    workflow_id: str
    run_id: str | None


BodyType = TypeVar("BodyType", bound=Body)


def start_request(body: StartBody, namespace: str, request_id: str, origin: str) -> StartWorkflow:
    """Return the start that `body` asks for.

    Args:
        body: As decoded.
        namespace: Checked already.
        request_id: Checked already.
        origin: What the request's headers say; the body's own wins.

    Raises:
        InvalidArgumentError: An id or a value cannot be kept.
    """
    signal = body.signal
    return StartWorkflow(
        namespace=namespace,
        workflow_id=check_id(body.workflow_id, "workflow_id"),
        request_id=request_id,
        workflow_type=check_id(body.workflow_type, "workflow_type"),
        task_queue=check_id(body.task_queue, "task_queue"),
        input=payloads(body.input, "input"),
        execution_timeout_ms=milliseconds(body.execution_timeout),
        run_timeout_ms=milliseconds(body.run_timeout),
        task_timeout_ms=milliseconds(body.task_timeout) or 1,
        id_reuse_policy=body.id_reuse_policy,
        id_conflict_policy=body.id_conflict_policy,
        start_delay_ms=milliseconds(body.start_delay) or 0,
        origin=_origin(body.origin or origin),
        identity=text(body.identity, "identity"),
        memo=_named(body.memo, "memo"),
        search_attributes=_named(body.search_attributes, "search_attributes"),
        signal_name=check_id(signal.name, "signal.name") if signal else None,
        signal_input=payloads(signal.input, "signal.input") if signal else (),
    )


def signal_request(body: SignalBody, target: Target, name: str, request_id: str) -> SignalWorkflow:
    """Return the signal that `body` asks for; raises like `start_request`."""
    return SignalWorkflow(
        namespace=target.namespace,
        workflow_id=target.workflow_id,
        run_id=target.run_id,
        request_id=request_id,
        name=check_id(name, "signal name"),
        input=payloads(body.input, "input"),
        identity=text(body.identity, "identity"),
    )


def cancel_request(body: ReasonBody, target: Target, request_id: str) -> RequestCancelWorkflow:
    """Return the cancellation that `body` asks for; raises like `start_request`."""
    return RequestCancelWorkflow(
        namespace=target.namespace,
        workflow_id=target.workflow_id,
        run_id=target.run_id,
        request_id=request_id,
        reason=text(body.reason, "reason"),
        identity=text(body.identity, "identity"),
    )


def terminate_request(body: ReasonBody, target: Target, request_id: str) -> TerminateWorkflow:
    """Return the termination that `body` asks for; raises like `start_request`."""
    return TerminateWorkflow(
        namespace=target.namespace,
        workflow_id=target.workflow_id,
        run_id=target.run_id,
        request_id=request_id,
        reason=text(body.reason, "reason"),
        identity=text(body.identity, "identity"),
    )


def payloads(values: list[msgspec.Raw], what: str) -> tuple[Payload, ...]:
    """Return user values as payloads of their own bytes; errors name the position, from 1."""
    return tuple(payload(value, f"{what} {place}") for place, value in enumerate(values, 1))


def payload(value: msgspec.Raw, what: str) -> Payload:
    """Return one user value as a payload of its own bytes.

    Raises:
        PayloadError: It could be stored and then not be read again, or it is more than 256 KiB.
    """
    data = bytes(value)
    if len(data) > PAYLOAD_BYTES_MAX:
        raise PayloadError(
            f"{what} is {len(data)} bytes of JSON, more than the {PAYLOAD_BYTES_MAX} allowed;"
            " store it elsewhere and pass a reference",
            reason="PAYLOAD_TOO_LARGE",
        )
    try:
        msgspec.json.decode(data)  # what a worker cannot read must not enter a history
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PayloadError(f"{what} cannot be read back: {error}") from error
    return Payload(JSON, data)


def milliseconds(seconds: float | None) -> int | None:
    """Return a duration in whole milliseconds, rounded up: a timeout must not become none."""
    return None if seconds is None else math.ceil(round(seconds * 1_000, 6))


def text(value: str, what: str) -> str:
    """Return free text that every store can hold; InvalidArgumentError if it is too long."""
    if len(value) > _TEXT_CHARS_MAX:
        raise InvalidArgumentError(f"{what} is longer than {_TEXT_CHARS_MAX} characters")
    return clean_text(value)


def _origin(value: str) -> str:
    return check_id(value, "origin") if value else ""


def _named(values: dict[str, msgspec.Raw], what: str) -> dict[str, Payload]:
    return {
        check_id(key, f"key of {what}"): payload(one, f"{what}.{key}")
        for key, one in values.items()
    }
