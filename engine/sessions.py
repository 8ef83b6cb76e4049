"""The workers linked to this engine.

One session per connection, the newest connection of a worker counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from odin.core.tasks import parse_destination
from odin.core.wire import Hello, NotWanted
from odin.errors import InvalidArgumentError
from odin.runtime.links import Link, Message

log = logging.getLogger(__name__)


class Session:
    """One worker's connection.

    Attributes:
        worker: The incarnation of the worker's process.
        held: The runs whose workflow task this worker holds a claim of, run id to shard.
        workflow_free, activity_free: Free slots as last announced, less what was pushed since.
    """

    __slots__ = (
        "activity_free",
        "connected_at",
        "held",
        "hello",
        "link",
        "worker",
        "workflow_free",
    )

    def __init__(self, link: Link, hello: Hello, connected_at: float) -> None:
        self.link = link
        self.hello = hello
        self.worker = hello.worker
        self.connected_at = connected_at
        self.held: dict[str, int] = {}
        self.workflow_free = 0
        self.activity_free = 0

    def send(self, message: Message) -> None:
        """Queue a message; lost if the link has ended.

        One that no frame can carry is a fault of the engine: whoever waits for it is told "not
        wanted", which lets it go on.
        """
        try:
            self.link.send(message)
        except InvalidArgumentError as error:
            log.error(  # noqa: TRY400 - the stack tells nothing that the error does not
                "message not sent", extra={"worker": self.worker, "detail": str(error)}
            )
            if seq := getattr(message, "seq", 0):
                self.link.send(NotWanted(seq))

    def serves(self, kind: str, task_queue: str) -> bool:
        """Return whether the worker takes tasks of this kind from this queue."""
        return any(
            queue.task_queue == task_queue
            and (queue.workflows if kind == "w" else queue.activities)
            for queue in self.hello.queues
        )


class Sessions:
    """All linked workers, by incarnation."""

    def __init__(self) -> None:
        self._by_worker: dict[str, Session] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_worker.values()))

    def __len__(self) -> int:
        return len(self._by_worker)

    def add(self, session: Session) -> None:
        """Take a new connection.

        An older one of the same worker is closed, its frames are discarded.
        """
        old = self._by_worker.get(session.worker)
        self._by_worker[session.worker] = session
        if old is not None:
            session.held.update(old.held)
            old.link.close("superseded by a newer connection of the same worker")

    def remove(self, session: Session) -> bool:
        """Forget a connection; return whether it was the worker's newest."""
        if self._by_worker.get(session.worker) is not session:
            return False
        del self._by_worker[session.worker]
        return True

    def get(self, worker: str) -> Session | None:
        """Return the worker's session, if its link is open."""
        return self._by_worker.get(worker)

    def is_current(self, session: Session) -> bool:
        """Return whether frames of this connection still count."""
        return self._by_worker.get(session.worker) is session

    def is_linked(self, worker: str) -> bool:
        """Return whether the worker's link is open."""
        return worker in self._by_worker

    def count(self, destination: str) -> int:
        """Return how many linked workers serve an outbox destination."""
        where = parse_destination(destination)
        return sum(one.serves(where.kind, where.task_queue) for one in self._by_worker.values())

    def with_room(self, kind: str, task_queue: str, wanted: int) -> tuple[Session, int] | None:
        """Return a worker with free slots for tasks, taking turns, and how many it may get.

        None: nobody.
        """
        sessions = list(self._by_worker.values())
        for offset in range(len(sessions)):
            session = sessions[(self._turn + offset) % len(sessions)]
            free = session.workflow_free if kind == "w" else session.activity_free
            if free > 0 and session.serves(kind, task_queue):
                self._turn += offset + 1
                return session, min(free, wanted)
        return None
