"""The vocabulary of event histories: everything that can have happened to a workflow execution.

Events are written once and never changed. A class is CamelCase here; its `type` on disk and in the
API is the snake_case form. Fields are only ever added, with a default: old histories must stay
readable.

Ids inside a run: `event_id` counts events from 1; `command_id` counts the run's commands from 1 and
ties what was asked for (ActivityTaskScheduled, TimerStarted) to how it ended. Instants are integer
microseconds since 1970 UTC (`_us`), durations integer milliseconds (`_ms`).
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, cast

import msgspec

from odin.core.backoff import RetryPolicySpec
from odin.core.payload import Failure, Payload


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of all events."""


class ParentRef(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that started this one as its child."""

    namespace: str
    workflow_id: str
    run_id: str
    command_id: int


class AttemptRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attempt of an activity, as its closing event lists it: evidence for the checker.

    `how` is completed, failed, canceled, timed_out:<timeout type>, or lost (an offer that was never
    confirmed).
    """

    attempt: int
    claim_token: str
    worker: str
    started_us: int
    ended_us: int
    how: str


class WorkflowExecutionStarted(_Event, frozen=True, kw_only=True):
    """A run began. `input` holds the positional arguments."""

    workflow_type: str
    task_queue: str
    input: tuple[Payload, ...] = ()
    execution_timeout_ms: int | None = None
    run_timeout_ms: int | None = None
    task_timeout_ms: int = 10_000
    first_run_id: str
    continued_from_run_id: str | None = None
    origin: str = ""
    identity: str = ""
    memo: dict[str, Payload] = {}
    search_attributes: dict[str, Payload] = {}
    parent: ParentRef | None = None
    seed: int = 0


class WorkflowTaskCompleted(_Event, frozen=True, kw_only=True):
    """A worker has moved the workflow on.

    `seen` is the newest event id that it had applied, `time_us` the time that the workflow saw;
    replay uses both.
    """

    seen: int
    time_us: int
    worker: str
    build_id: str = ""
    task_number: int = 0


class WorkflowExecutionSignaled(_Event, frozen=True, kw_only=True):
    """A signal arrived."""

    name: str
    input: tuple[Payload, ...] = ()
    request_id: str = ""
    identity: str = ""


class WorkflowExecutionCancelRequested(_Event, frozen=True, kw_only=True):
    """Somebody asked the run to stop; the workflow decides how."""

    reason: str = ""
    request_id: str = ""
    identity: str = ""


class ActivityTaskScheduled(_Event, frozen=True, kw_only=True):
    """The workflow asked for an activity."""

    command_id: int
    activity_id: str
    activity_type: str
    task_queue: str
    input: tuple[Payload, ...] = ()
    retry_policy: RetryPolicySpec = RetryPolicySpec()
    schedule_to_start_ms: int | None = None
    start_to_close_ms: int | None = 60_000
    schedule_to_close_ms: int | None = None
    heartbeat_ms: int | None = None
    summary: str = ""


class ActivityTaskCompleted(_Event, frozen=True, kw_only=True):
    """The activity returned."""

    command_id: int
    result: Payload
    attempts: tuple[AttemptRecord, ...] = ()


class ActivityTaskFailed(_Event, frozen=True, kw_only=True):
    """The activity failed for good.

    `retry_state` is non_retryable, max_attempts, timeout (the next attempt would not fit) or
    cancel_requested.
    """

    command_id: int
    failure: Failure
    retry_state: str = ""
    attempts: tuple[AttemptRecord, ...] = ()


class ActivityTaskTimedOut(_Event, frozen=True, kw_only=True):
    """The activity ran out of time for good.

    `failure.cause` is what an attempt had failed of before, if one had.
    """

    command_id: int
    timeout_type: str
    failure: Failure
    retry_state: str = ""
    attempts: tuple[AttemptRecord, ...] = ()


class ActivityTaskCancelRequested(_Event, frozen=True, kw_only=True):
    """The workflow asked the activity to stop."""

    command_id: int


class ActivityTaskCanceled(_Event, frozen=True, kw_only=True):
    """The activity was cancelled before it had ended."""

    command_id: int
    details: tuple[Payload, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()


class TimerStarted(_Event, frozen=True, kw_only=True):
    """The workflow asked to be woken."""

    command_id: int
    duration_ms: int
    fires_at_us: int
    summary: str = ""


class TimerFired(_Event, frozen=True, kw_only=True):
    """The timer's time has come."""

    command_id: int


class TimerCanceled(_Event, frozen=True, kw_only=True):
    """The workflow no longer wants the timer."""

    command_id: int


class WorkflowExecutionCompleted(_Event, frozen=True, kw_only=True):
    """The workflow returned."""

    result: Payload


class WorkflowExecutionFailed(_Event, frozen=True, kw_only=True):
    """The workflow raised a failure."""

    failure: Failure


class WorkflowExecutionCanceled(_Event, frozen=True, kw_only=True):
    """The workflow ended by its cancellation."""

    details: tuple[Payload, ...] = ()


class WorkflowExecutionTerminated(_Event, frozen=True, kw_only=True):
    """Somebody ended the run; no code of it ran."""

    reason: str = ""
    request_id: str = ""
    identity: str = ""


class WorkflowExecutionTimedOut(_Event, frozen=True, kw_only=True):
    """The run was not done in time; `timeout_type` is execution or run."""

    timeout_type: str


class WorkflowExecutionContinuedAsNew(_Event, frozen=True, kw_only=True):
    """The run ended and its successor began, in the same commit."""

    new_run_id: str
    workflow_type: str
    task_queue: str
    input: tuple[Payload, ...] = ()


Event: TypeAlias = (
    WorkflowExecutionStarted
    | WorkflowTaskCompleted
    | WorkflowExecutionSignaled
    | WorkflowExecutionCancelRequested
    | ActivityTaskScheduled
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskTimedOut
    | ActivityTaskCancelRequested
    | ActivityTaskCanceled
    | TimerStarted
    | TimerFired
    | TimerCanceled
    | WorkflowExecutionCompleted
    | WorkflowExecutionFailed
    | WorkflowExecutionCanceled
    | WorkflowExecutionTerminated
    | WorkflowExecutionTimedOut
    | WorkflowExecutionContinuedAsNew
)

CLOSING: Final = (
    WorkflowExecutionCompleted,
    WorkflowExecutionFailed,
    WorkflowExecutionCanceled,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
    WorkflowExecutionContinuedAsNew,
)
"""The events after which nothing follows."""


class HistoryEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event as it is stored and sent: its place, its type, and its attributes as msgpack."""

    event_id: int
    type: str
    recorded_at_us: int
    attributes: bytes


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


EVENT_TYPES: Final[dict[str, type[_Event]]] = {_snake(cls.__name__): cls for cls in Event.__args__}
TYPE_NAMES: Final[dict[type[_Event], str]] = {cls: name for name, cls in EVENT_TYPES.items()}
_DECODERS: Final = {name: msgspec.msgpack.Decoder(cls) for name, cls in EVENT_TYPES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()


def type_name(event: Event) -> str:
    """Return the event's `type` on disk and in the API."""
    return TYPE_NAMES[type(event)]


def to_history(event: Event, event_id: int, recorded_at_us: int) -> HistoryEvent:
    """Return `event` as it is stored."""
    return HistoryEvent(event_id, TYPE_NAMES[type(event)], recorded_at_us, _ENCODER.encode(event))


def from_history(stored: HistoryEvent) -> Event:
    """Return the event that `stored` holds.

    Raises:
        KeyError: The type is not known to this version of the code.
        msgspec.ValidationError: The attributes are damaged.
    """
    decoder = _DECODERS[stored.type]
    return cast("Event", decoder.decode(stored.attributes))


class _Input(msgspec.Struct, frozen=True):
    input: tuple[Payload, ...] = ()


_INPUT_DECODER: Final = msgspec.msgpack.Decoder(_Input)


def input_of(stored: HistoryEvent) -> tuple[Payload, ...]:
    """Return the input that an event carries, without reading the rest of it.

    Raises:
        msgspec.ValidationError: The attributes are damaged.
    """
    return _INPUT_DECODER.decode(stored.attributes).input
