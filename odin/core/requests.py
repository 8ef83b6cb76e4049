"""What clients ask of a workflow's owner, and what the owner answers.

Every request that changes something has a `request_id`: the same id again gets the same acceptance.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from odin.core.payload import Failure, Payload

ALLOW_DUPLICATE: Final = "allow_duplicate"
ALLOW_DUPLICATE_FAILED_ONLY: Final = "allow_duplicate_failed_only"
REJECT_DUPLICATE: Final = "reject_duplicate"
REUSE_POLICIES: Final = (ALLOW_DUPLICATE, ALLOW_DUPLICATE_FAILED_ONLY, REJECT_DUPLICATE)

FAIL: Final = "fail"
USE_EXISTING: Final = "use_existing"
TERMINATE_EXISTING: Final = "terminate_existing"
CONFLICT_POLICIES: Final = (FAIL, USE_EXISTING, TERMINATE_EXISTING)


class _Request(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Base of all requests."""

    namespace: str = "default"
    workflow_id: str
    run_id: str | None = None


class StartWorkflow(_Request, frozen=True, kw_only=True, tag="start"):
    """Start a run of `workflow_id`.

    With `signal_name` it is signalled in the same commit, and an open run only signalled.
    """

    request_id: str
    workflow_type: str
    task_queue: str = "default"
    input: tuple[Payload, ...] = ()
    execution_timeout_ms: int | None = None
    run_timeout_ms: int | None = None
    task_timeout_ms: int = 10_000
    id_reuse_policy: str = ALLOW_DUPLICATE
    id_conflict_policy: str = FAIL
    start_delay_ms: int = 0
    origin: str = ""
    identity: str = ""
    memo: dict[str, Payload] = {}
    search_attributes: dict[str, Payload] = {}
    signal_name: str | None = None
    signal_input: tuple[Payload, ...] = ()


class SignalWorkflow(_Request, frozen=True, kw_only=True, tag="signal"):
    """Tell the open run something."""

    request_id: str
    name: str
    input: tuple[Payload, ...] = ()
    identity: str = ""


class RequestCancelWorkflow(_Request, frozen=True, kw_only=True, tag="cancel"):
    """Ask the open run to stop."""

    request_id: str
    reason: str = ""
    identity: str = ""


class TerminateWorkflow(_Request, frozen=True, kw_only=True, tag="terminate"):
    """End the open run at once."""

    request_id: str
    reason: str = ""
    identity: str = ""


class WaitWorkflow(_Request, frozen=True, kw_only=True, tag="wait"):
    """Answer once the run is closed, or after `wait_ms` that it still runs.

    Without run_id the chain is followed.
    """

    wait_ms: int = 30_000


ClientRequest: TypeAlias = (
    StartWorkflow | SignalWorkflow | RequestCancelWorkflow | TerminateWorkflow | WaitWorkflow
)


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a start leads to.

    `started` is False when it existed (same request, or USE_EXISTING).
    """

    run_id: str
    first_run_id: str
    started: bool
    replayed: bool = False


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The signal, cancel or terminate is in the history of `run_id`, at `event_id`."""

    run_id: str
    event_id: int
    replayed: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: `status` is "running" while it is open.

    `result` or `failure` once it closed with one, `new_run_id` once it continued as new.
    """

    run_id: str
    status: str
    result: Payload | None = None
    failure: Failure | None = None
    new_run_id: str | None = None


ANSWERS: Final = {
    "start": Started,
    "signal": Accepted,
    "cancel": Accepted,
    "terminate": Accepted,
    "wait": Outcome,
}
