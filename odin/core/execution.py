"""What a history adds up to: the state of one execution, as its owner holds and its row stores it.

An `Execution` is a value. Decisions copy it and change the copy (`odin.core.decide*`); the row is
the net effect of a group.

The workflow task:   none ──event that the workflow can see──▶ scheduled ──accepted report──▶ none
                                     (or scheduled again) ▲                              │ reported
                                     failure └────────── due ──── backoff ◀─┘
An activity:         scheduled ──claim──▶ started ──end──▶ gone
                         ▲                    │ failure or timeout that the retry policy allows
                         └──── due ─ backoff ◀┘
Each pending thing carries its `due_us`: the instant at which the owner must act if nothing else
happened. `due_us(execution)` is their minimum, and the row's `due_at` a lower bound of it: whatever
is pending has a row that brings it back.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, Literal, TypeAlias

import msgspec

from odin.core.backoff import RetryPolicySpec
from odin.core.events import AttemptRecord, HistoryEvent
from odin.core.payload import Failure, Payload

Status: TypeAlias = Literal[
    "running", "completed", "failed", "canceled", "terminated", "timed_out", "continued_as_new"
]
RUNNING: Final = "running"
STATUSES: Final = (
    "running",
    "completed",
    "failed",
    "canceled",
    "terminated",
    "timed_out",
    "continued_as_new",
)

TASK_DUE_MS: Final = 10_000
"""A published task that nobody takes is published again after this, then with doubled spacing."""
STICKY_DUE_MS: Final = 5_000
"""A pushed workflow task that is not completed by then goes to the shared queue."""
REPUBLISH_CAP_MS: Final = 600_000
ATTEMPTS_KEPT_MAX: Final = 200
"""Attempt records kept per activity; of more, the newest."""
REPORTS_KEPT_MAX: Final = 4
"""Workers whose last accepted report is kept per run; of more, the newest."""


class WorkflowTask(msgspec.Struct, array_like=True):
    """The workflow task of a run.

    `number` counts tasks, `attempt` the tries to get this one done (both from 1).
    `pushed` says that it went to a warm worker without an outbox row; `failures` counts reported
    failures in a row, `failed_report_id` names the newest of them; `last_time_us` is the time that
    the last completed task saw, `last_command_id` the newest command of the run.
    """

    state: Literal["none", "scheduled", "backoff"] = "none"
    number: int = 0
    attempt: int = 0
    due_us: int = 0
    interval_ms: int = TASK_DUE_MS
    pushed: bool = False
    failures: int = 0
    last_failure: Failure | None = None
    last_time_us: int = 0
    last_command_id: int = 0
    failed_report_id: str = ""


class PendingActivity(msgspec.Struct, array_like=True):
    """An activity that has not ended.

    `attempt` counts the attempts begun; the input stands in the scheduling event. `queued_us` is
    when the coming attempt was first published: schedule_to_start counts from there.
    """

    command_id: int
    activity_id: str
    activity_type: str
    task_queue: str
    scheduled_event_id: int
    scheduled_us: int
    retry_policy: RetryPolicySpec
    schedule_to_start_ms: int | None
    start_to_close_ms: int | None
    schedule_to_close_ms: int | None
    heartbeat_ms: int | None
    state: Literal["scheduled", "started", "backoff"] = "scheduled"
    attempt: int = 0
    due_us: int = 0
    interval_ms: int = TASK_DUE_MS
    queued_us: int = 0
    claim_token: str = ""
    worker: str = ""
    started_us: int = 0
    heartbeat_details: tuple[Payload, ...] = ()
    last_failure: Failure | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    cancel_requested: bool = False


class PendingTimer(msgspec.Struct, array_like=True):
    """A timer that has not fired."""

    command_id: int
    fires_at_us: int


class AcceptedReport(msgspec.Struct, frozen=True, array_like=True):
    """The last accepted workflow-task report of one worker: its repeat gets the same answer."""

    worker: str
    report_id: str
    seen: int
    last_event_id: int
    token: int


class Pending(msgspec.Struct, array_like=True):
    """Everything pending, packed into one column of the row."""

    workflow_task: WorkflowTask
    activities: dict[int, PendingActivity]
    timers: dict[int, PendingTimer]
    reports: tuple[AcceptedReport, ...]


class Execution(msgspec.Struct, kw_only=True):
    """One run. Treat it as a value: copy before you change it."""

    shard_id: int
    namespace: str
    workflow_id: str
    run_id: str
    first_run_id: str
    workflow_type: str
    task_queue: str
    origin: str = ""
    build_id: str = ""
    status: Status = "running"
    next_event_id: int = 1
    state_token: int = 0
    task_token: int = 0
    started_us: int
    closed_us: int | None = None
    last_event_us: int = 0
    run_deadline_us: int | None = None
    execution_deadline_us: int | None = None
    task_timeout_ms: int = 10_000
    cancel_requested: bool = False
    last_message_event_id: int = 0
    last_visible_event_id: int = 0
    signal_count: int = 0
    history_bytes: int = 0
    parent: bytes | None = None
    memo: bytes | None = None
    search_attributes: bytes | None = None
    workflow_task: WorkflowTask = msgspec.field(default_factory=WorkflowTask)
    activities: dict[int, PendingActivity] = msgspec.field(default_factory=dict)
    timers: dict[int, PendingTimer] = msgspec.field(default_factory=dict)
    reports: tuple[AcceptedReport, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether something can still happen to the run."""
        return self.status == RUNNING

    @property
    def has_scheduled_task(self) -> bool:
        """Whether a task of the run waits to be taken: a new owner pages through these."""
        if self.status != RUNNING:
            return False
        if self.workflow_task.state == "scheduled":
            return True
        for activity in self.activities.values():  # noqa: SIM110 - once per image: a generator costs more
            if activity.state == "scheduled":
                return True
        return False


_PENDING_ENCODER: Final = msgspec.msgpack.Encoder()
_PENDING_DECODER: Final = msgspec.msgpack.Decoder(Pending)
_VALUES_DECODER: Final = msgspec.msgpack.Decoder(dict[str, Payload])


def pack_pending(execution: Execution) -> bytes:
    """Return the row's `pending` column."""
    return _PENDING_ENCODER.encode(
        (execution.workflow_task, execution.activities, execution.timers, execution.reports)
    )


def unpack_pending(packed: bytes) -> Pending:
    """Return what `pack_pending` packed."""
    return _PENDING_DECODER.decode(packed)


def pack_values(values: dict[str, Payload]) -> bytes | None:
    """Return named values as a column of the row; None for none."""
    return _PENDING_ENCODER.encode(values) if values else None


def unpack_values(packed: bytes | None) -> dict[str, Payload]:
    """Return what `pack_values` packed."""
    return {} if packed is None else _VALUES_DECODER.decode(packed)


def copy_of(execution: Execution) -> Execution:
    """Return a copy whose workflow task, activities and timers may be changed.

    The pending activities themselves are shared: replace them (`msgspec.structs.replace`), never
    change them in place.
    """
    after = msgspec.structs.replace(execution)
    after.workflow_task = msgspec.structs.replace(execution.workflow_task)
    after.activities = execution.activities.copy()
    after.timers = execution.timers.copy()
    return after


def due_us(execution: Execution) -> int | None:
    """Return the earliest instant at which the owner must act, or None for a closed run.

    0 stands for "at once".
    """
    if execution.status != RUNNING:
        return None
    task = execution.workflow_task
    earliest = task.due_us if task.state != "none" else None
    for activity in execution.activities.values():
        if earliest is None or activity.due_us < earliest:
            earliest = activity.due_us
    for timer in execution.timers.values():
        if earliest is None or timer.fires_at_us < earliest:
            earliest = timer.fires_at_us
    for deadline_us in (execution.run_deadline_us, execution.execution_deadline_us):
        if deadline_us is not None and (earliest is None or deadline_us < earliest):
            earliest = deadline_us
    return earliest


def next_token(token: int, events: tuple[HistoryEvent, ...], batch_random: int) -> int:
    """Return the state token after a batch: a running hash over ids, types and a random of it.

    Args:
        token: The token before.
        events: The batch, not empty.
        batch_random: 64 random bits, new for every batch.
    """
    digest = hashlib.blake2b(
        struct.pack("<qQI", token, batch_random, events[0].event_id), digest_size=8
    )
    for event in events:
        digest.update(event.type.encode())
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
