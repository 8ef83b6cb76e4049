"""What a worker knows of one run, and the workflow task that it has been given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odin.core.events import HistoryEvent
    from odin.core.instance import Instance
    from odin.core.wire import PushWorkflowTask, RunHeader, TaskEntry, WorkflowTaskGranted


class Job:
    """A workflow task that this worker has been given."""

    __slots__ = ("events", "next_id", "number", "task_token", "time_us", "upper")

    def __init__(self, task: WorkflowTaskGranted | PushWorkflowTask, next_id: int) -> None:
        self.number = task.number
        self.task_token = task.task_token
        self.time_us = task.time_us
        self.upper = task.upper_event_id
        self.next_id = next_id
        self.events: list[HistoryEvent] = []

    def feed(self, events: Sequence[HistoryEvent]) -> bool:
        """Take the events that come next, skip those held already. Returns whether any was new."""
        before = self.next_id
        if events and events[0].event_id == before and events[-1].event_id <= self.upper:
            self.events.extend(events)
            self.next_id = events[-1].event_id + 1
            return True
        for event in events:
            if event.event_id == self.next_id and event.event_id <= self.upper:
                self.events.append(event)
                self.next_id += 1
        return self.next_id > before

    @property
    def complete(self) -> bool:
        """Whether all events of the task are here."""
        return self.next_id > self.upper


class RunState:
    """What this worker knows of one run."""

    __slots__ = (
        "deferred", "done_number", "header", "held", "instance", "job", "reported_at", "token",
    )  # fmt: skip

    def __init__(self, header: RunHeader) -> None:
        self.header = header
        self.instance: Instance | None = None
        self.held = 0
        self.token: int | None = None
        self.job: Job | None = None
        self.reported_at: float | None = None
        self.done_number = 0
        self.deferred: TaskEntry | None = None
