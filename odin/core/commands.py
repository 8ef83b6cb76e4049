"""What a workflow asks for: the commands that a workflow task brings back to the owner.

Commands are imperative and numbered per run (`command_id`, from 1, in the order in which the code
issued them). The owner turns each into its event; replay holds each against that event (kind, id,
name).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from odin.core.backoff import RetryPolicySpec
from odin.core.payload import Failure, Payload


class _Command(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="c"):
    """Base of all commands."""


class ScheduleActivity(_Command, frozen=True, kw_only=True, tag="schedule_activity"):
    """Run an activity."""

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


class RequestCancelActivity(_Command, frozen=True, kw_only=True, tag="request_cancel_activity"):
    """Stop the activity that `command_id` scheduled.

    With `wait` the activity's own end resolves it; without, the owner records it as canceled at
    once.
    """

    command_id: int
    wait: bool = False


class StartTimer(_Command, frozen=True, kw_only=True, tag="start_timer"):
    """Wake the workflow after `duration_ms`, counted from the workflow task's time."""

    command_id: int
    duration_ms: int
    summary: str = ""


class CancelTimer(_Command, frozen=True, kw_only=True, tag="cancel_timer"):
    """Forget the timer that `command_id` started."""

    command_id: int


class CompleteWorkflow(_Command, frozen=True, kw_only=True, tag="complete_workflow"):
    """The workflow returned."""

    result: Payload


class FailWorkflow(_Command, frozen=True, kw_only=True, tag="fail_workflow"):
    """The workflow raised a failure."""

    failure: Failure


class CancelWorkflow(_Command, frozen=True, kw_only=True, tag="cancel_workflow"):
    """The workflow ended by its requested cancellation."""

    details: tuple[Payload, ...] = ()


class ContinueAsNew(_Command, frozen=True, kw_only=True, tag="continue_as_new"):
    """End this run and start its successor; what is None stays as it is."""

    input: tuple[Payload, ...] = ()
    workflow_type: str | None = None
    task_queue: str | None = None
    run_timeout_ms: int | None = None
    memo: dict[str, Payload] | None = None


Command: TypeAlias = (
    ScheduleActivity
    | RequestCancelActivity
    | StartTimer
    | CancelTimer
    | CompleteWorkflow
    | FailWorkflow
    | CancelWorkflow
    | ContinueAsNew
)

CLOSING_COMMANDS = (CompleteWorkflow, FailWorkflow, CancelWorkflow, ContinueAsNew)
"""The commands that close the run; at most one, and the last of its task."""
