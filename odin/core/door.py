"""What may come in from a worker or another engine, beyond the shapes that the decoder judges.

The library of a worker refuses most of this earlier, with a source line. This is the owner's own
look, before a decision is taken: what passes can be stored, fits a frame on its way back out, and
can be shown. What an attempt brings is never refused, since nobody would learn of it: it becomes
a failure that says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from odin.core import requests
from odin.core.ids import check_id, check_run_id
from odin.core.payload import (
    MESSAGE_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    STACK_CHARS_MAX,
    Failure,
    Payload,
    clean_text,
    encode,
)
from odin.core.wire import ActivityOutcome
from odin.errors import InvalidArgumentError

INPUT_BYTES_MAX: Final = 1024 * 1024
"""All values of one command or request together: they stand in one event, which fits a frame."""
DETAILS_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""All details of one failure or heartbeat together."""
CAUSES_MAX: Final = 10
KEPT_DETAILS_BYTES_MAX: Final = 2_048
KEPT_STACK_CHARS_MAX: Final = 2_048
KEPT_CAUSES_MAX: Final = 2
_NAME_CHARS_MAX: Final = 200
_REASON_CHARS_MAX: Final = 4_000
_ENCODING_CHARS_MAX: Final = 64
_HOWS: Final = frozenset({"completed", "failed", "canceled"})


def size_of(values: Iterable[Payload]) -> int:
    """Return the bytes of all values together."""
    return sum(len(value.data) + len(value.encoding) for value in values)


def why_too_large(values: Iterable[Payload], what: str, limit: int = INPUT_BYTES_MAX) -> str | None:
    """Return why these values cannot stand in one event, or None if they can."""
    total = 0
    for position, value in enumerate(values, 1):
        size = len(value.data)
        total += size + len(value.encoding)
        if size > PAYLOAD_BYTES_MAX:
            return (
                f"{what} {position} has {size} bytes, more than the {PAYLOAD_BYTES_MAX} of one"
                " value; store it elsewhere and pass a reference"
            )
        if len(value.encoding) > _ENCODING_CHARS_MAX:
            return f"the encoding of {what} {position} has a name of more than 64 characters"
    if total > limit:
        return (
            f"all of {what} together has {total} bytes, more than the {limit} of one event;"
            " store it elsewhere and pass a reference"
        )
    return None


def fit_failure(failure: Failure, depth: int = 0) -> Failure:
    """Return the failure as every store can hold it: texts cut and clean, details bounded."""
    cause = failure.cause
    return msgspec.structs.replace(
        failure,
        message=clean_text(failure.message, MESSAGE_CHARS_MAX),
        kind=clean_text(failure.kind, _NAME_CHARS_MAX),
        type=clean_text(failure.type, _NAME_CHARS_MAX),
        details=fit_details(failure.details),
        stack_trace=clean_text(failure.stack_trace, STACK_CHARS_MAX),
        timeout_type=clean_text(failure.timeout_type, _NAME_CHARS_MAX),
        source=clean_text(failure.source, MESSAGE_CHARS_MAX),
        cause=None if cause is None or depth >= CAUSES_MAX else fit_failure(cause, depth + 1),
    )


def fit_details(details: tuple[Payload, ...]) -> tuple[Payload, ...]:
    """Return the details, or a note in their place if they are too large."""
    if not details:
        return details
    why = why_too_large(details, "detail", DETAILS_BYTES_MAX)
    return details if why is None else (encode(f"details were dropped: {why}"),)


def kept_failure(failure: Failure, depth: int = 0) -> Failure:
    """Return what the row of a run keeps of a failure that is followed by another attempt.

    A run may have 2,000 such activities, and its row is written with every step.
    """
    cause = failure.cause
    return msgspec.structs.replace(
        failure,
        details=failure.details if size_of(failure.details) <= KEPT_DETAILS_BYTES_MAX else (),
        stack_trace=clean_text(failure.stack_trace, KEPT_STACK_CHARS_MAX),
        cause=None if cause is None or depth >= KEPT_CAUSES_MAX else kept_failure(cause, depth + 1),
    )


def fit_outcome(outcome: ActivityOutcome) -> ActivityOutcome:
    """Return what is recorded of an attempt's end: a result too large is a failure for good."""
    if outcome.how not in _HOWS:
        return _refused(f"the worker reported an end of kind {outcome.how!r:.80}", "BadOutcome")
    if outcome.how == "completed":
        why = None if outcome.result is None else why_too_large((outcome.result,), "result")
        return outcome if why is None else _refused(why, "PayloadTooLarge")
    if outcome.failure is None and not outcome.details:
        return outcome
    return ActivityOutcome(
        outcome.how,
        failure=None if outcome.failure is None else fit_failure(outcome.failure),
        details=fit_details(outcome.details),
    )


def check_request(request: requests.ClientRequest) -> None:
    """Refuse a forwarded request that the HTTP door of a sound engine would not have let in.

    Raises:
        InvalidArgumentError: It names what is wrong.
    """
    check_id(request.namespace, "namespace")
    check_id(request.workflow_id, "workflow_id")
    if request.run_id is not None:
        check_run_id(request.run_id)
    match request:
        case requests.StartWorkflow():
            _check_start(request)
        case requests.SignalWorkflow():
            check_id(request.request_id, "request_id")
            check_id(request.name, "signal name")
            _check_values(request.input, "input")
        case requests.WaitWorkflow():
            _check_span(request.wait_ms, "wait")
        case _:
            check_id(request.request_id, "request_id")
            if len(request.reason) > _REASON_CHARS_MAX:
                raise InvalidArgumentError(f"reason has more than {_REASON_CHARS_MAX} characters")


def _check_start(request: requests.StartWorkflow) -> None:
    for what in ("request_id", "workflow_type", "task_queue"):
        check_id(getattr(request, what), what)
    for what in ("origin", "signal_name"):
        if given := getattr(request, what):
            check_id(given, what)
    _check_values(request.input, "input")
    _check_values(request.signal_input, "signal input")
    for what, values in (("memo", request.memo), ("search_attributes", request.search_attributes)):
        for key in values:
            check_id(key, f"key of {what}")
        _check_values(values.values(), what)
    if not (
        request.id_conflict_policy in requests.CONFLICT_POLICIES
        and request.id_reuse_policy in requests.REUSE_POLICIES
        and 0 < request.task_timeout_ms <= _TASK_TIMEOUT_MS_MAX
    ):
        raise InvalidArgumentError("an unknown policy, or a task_timeout out of bounds")
    for what in ("execution_timeout_ms", "run_timeout_ms", "start_delay_ms"):
        _check_span(getattr(request, what) or 0, what)


def _check_values(values: Iterable[Payload], what: str) -> None:
    why = why_too_large(values, what)
    if why is not None:
        raise InvalidArgumentError(why, reason="PAYLOAD_TOO_LARGE")


def _check_span(span_ms: int, what: str) -> None:
    if not 0 <= span_ms <= _SPAN_MS_MAX:
        raise InvalidArgumentError(f"{what} of {span_ms} ms is no span of time from 0 on")


_TASK_TIMEOUT_MS_MAX: Final = 120_000
_SPAN_MS_MAX: Final = 10 * 366 * 86_400 * 1_000


def _refused(message: str, type_name: str) -> ActivityOutcome:
    failure = Failure(clean_text(message), "application", type_name, non_retryable=True)
    return ActivityOutcome("failed", failure=failure)
