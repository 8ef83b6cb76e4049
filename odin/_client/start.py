"""The body of a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Required, TypedDict

import msgspec

from odin.common import duration_ms
from odin.core.definition import WorkflowDefinition
from odin.core.ids import check_id
from odin.core.payload import encode

from .handle import raw_arguments, signal_name


class StartOptions(TypedDict, total=False):
    """How a workflow is started. Only `id` is required.

    Attributes:
        id: The workflow id: names what the workflow is about ("order-7"); one open run at a time.
        task_queue: Which workers run it; "default" when absent.
        execution_timeout: How long the whole chain of runs may take.
        run_timeout: How long one run may take.
        task_timeout: How long one workflow task may take; 10 s when absent.
        id_reuse_policy: Whether an id whose last run is closed may be used again.
        id_conflict_policy: What happens when a run of the id is open.
        memo: Values shown with the execution.
        search_attributes: Values by which executions are found.
        start_delay: How long the first task waits.
        start_signal: A signal in the same commit; an open run is then only signalled.
        start_signal_args: Its arguments.
        request_id: Repeat a call whose outcome is unknown with the same id.
        origin: Who asks, for quotas.
    """

    id: Required[str]
    task_queue: str
    execution_timeout: timedelta | None
    run_timeout: timedelta | None
    task_timeout: timedelta | None
    id_reuse_policy: str
    id_conflict_policy: str
    memo: Mapping[str, Any] | None
    search_attributes: Mapping[str, Any] | None
    start_delay: timedelta | None
    start_signal: str | None
    start_signal_args: Sequence[Any]
    request_id: str | None
    origin: str


_PLAIN = ("task_queue", "id_reuse_policy", "id_conflict_policy", "origin")
_DURATIONS = ("execution_timeout", "run_timeout", "task_timeout", "start_delay")
_VALUES = ("memo", "search_attributes")


def type_of(workflow: object) -> tuple[str, Any]:
    """Return the workflow type's name and what its result decodes to.

    Raises:
        InvalidArgumentError: It is neither a name nor a decorated workflow.
    """
    if isinstance(workflow, str):
        return check_id(workflow, "workflow type"), Any
    definition = WorkflowDefinition.of(workflow)
    return definition.name, definition.signature().returns


def start_body(
    workflow_type: str,
    values: Sequence[Any],
    options: StartOptions,
    request_id: str,
    identity: str,
) -> bytes:
    """Return the JSON body of a start.

    Raises:
        PayloadError: A value cannot be kept exactly.
        TypeError: An option is unknown, or `id` is missing.
    """
    unknown = options.keys() - StartOptions.__annotations__.keys()
    if unknown or "id" not in options:
        raise TypeError(f"unknown options {sorted(unknown)}" if unknown else "id is missing")
    body: dict[str, Any] = {
        "workflow_id": check_id(options["id"], "id"),
        "workflow_type": workflow_type,
        "request_id": request_id,
        "identity": identity,
        "input": raw_arguments(values),
    }
    given: Mapping[str, Any] = {key: value for key, value in options.items() if value is not None}
    body.update({name: str(given[name]) for name in _PLAIN if name in given})
    for name in _DURATIONS:
        milliseconds = duration_ms(given.get(name))
        if milliseconds is not None:
            body[name] = milliseconds / 1_000
    for name in _VALUES:
        if name in given:
            body[name] = {key: _raw(one, f"{name}.{key}") for key, one in given[name].items()}
    if "start_signal" in given:
        signal = given["start_signal"]
        body["signal"] = {
            "name": signal if isinstance(signal, str) else signal_name(signal),
            "input": raw_arguments(given.get("start_signal_args", ())),
        }
    return msgspec.json.encode(body)


def _raw(value: object, what: str) -> msgspec.Raw:
    return msgspec.Raw(encode(value, what).data)
