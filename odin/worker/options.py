"""What a worker is told when it is made, checked."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from odin.core.ids import DEFAULT_NAMESPACE, DEFAULT_TASK_QUEUE, check_id
from odin.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RABBITMQ = "rabbitmq"
EMBEDDED = "embedded"


def default_identity() -> str:
    """Return process and host, as other tools name a worker."""
    return f"{os.getpid()}@{socket.gethostname()}"


class WorkerFields(TypedDict, total=False):
    """The keywords of a worker: the fields of `WorkerOptions`."""

    task_queue: str
    namespace: str
    build_id: str
    identity: str
    broker: str
    amqp_url: str | None
    max_concurrent_activities: int
    max_concurrent_workflow_tasks: int
    max_cached_workflows: int
    graceful_shutdown_timeout: timedelta
    token: str | None
    route: Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The settings of one worker.

    Attributes:
        task_queue: Whose tasks it takes.
        namespace: Where its workflows live.
        build_id: Which build of the code it runs; stands in histories.
        identity: How people tell this worker from others.
        broker: "rabbitmq", or "embedded": the engines hand tasks out themselves.
        amqp_url: Where RabbitMQ listens; needed for "rabbitmq".
        max_concurrent_activities: Attempts at once.
        max_concurrent_workflow_tasks: Claims for workflow tasks under way at once.
        max_cached_workflows: Runs kept in memory between their tasks; 0: none.
        graceful_shutdown_timeout: How long running activities may take once told to stop.
        token: Sent to the engines that ask for one.
        route: Translates an engine's advertised address into the one to dial.
    """

    task_queue: str = DEFAULT_TASK_QUEUE
    namespace: str = DEFAULT_NAMESPACE
    build_id: str = ""
    identity: str = field(default_factory=default_identity)
    broker: str = RABBITMQ
    amqp_url: str | None = None
    max_concurrent_activities: int = 100
    max_concurrent_workflow_tasks: int = 100
    max_cached_workflows: int = 1_000
    graceful_shutdown_timeout: timedelta = timedelta(seconds=5)
    token: str | None = None
    route: Callable[[str], str] = str

    def __post_init__(self) -> None:
        """Refuse settings that contradict themselves.

        Raises:
            ConfigurationError: The broker is unknown or has no address.
            InvalidArgumentError: A name is not an id, or a limit is not above 0.
        """
        check_id(self.task_queue, "task_queue")
        check_id(self.namespace, "namespace")
        if self.broker not in {RABBITMQ, EMBEDDED}:
            raise ConfigurationError(f"broker is rabbitmq or embedded, not {self.broker!r}")
        if self.broker == RABBITMQ and not self.amqp_url:
            raise ConfigurationError(
                "the worker takes its tasks from RabbitMQ and does not know where it is: give"
                " amqp_url, or broker='embedded' for a cluster without RabbitMQ"
            )
        for name in ("max_concurrent_activities", "max_concurrent_workflow_tasks"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.max_cached_workflows < 0 or self.graceful_shutdown_timeout < timedelta(0):
            raise InvalidArgumentError("cache size and grace must not be below 0")

    def headers(self) -> Mapping[str, str]:
        """Return what is sent with each connection."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}
