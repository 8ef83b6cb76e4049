"""What workers are shown: only what has committed. Looked at where an engine sends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from engine.sessions import Session
from odin.core.wire import PushWorkflowTask, WorkflowTaskGranted
from tests.simulation.process import here


@contextmanager
def watched() -> Iterator[None]:
    """Run the block with a look at everything that engines send to workers."""
    send = Session.send

    def look(session: Session, message: Any) -> None:  # noqa: ANN401 - any message of a link
        if isinstance(message, PushWorkflowTask | WorkflowTaskGranted):
            _judge(message)
        send(session, message)

    with patch.object(Session, "send", look):
        yield


def _judge(message: PushWorkflowTask | WorkflowTaskGranted) -> None:
    world, header = here().world, message.header
    stored = world.database.tables.event.get((header.shard_id, header.run_id), {})
    for event in message.events:
        row = stored.get(event.event_id)
        if row is None or (row.type, row.attributes) != (event.type, event.attributes):
            kind = type(message).__name__
            world.complain(f"{kind} of {header.run_id} shows event {event.event_id}, uncommitted")
