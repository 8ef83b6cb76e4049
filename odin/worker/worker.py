"""The worker's life: it links to the engines, takes tasks until told to stop, and ends in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Unpack

from odin._client.transport import addresses_of
from odin.core.tasks import ACTIVITY, WORKFLOW
from odin.core.wire import LINK_VERSION, Hello, QueueSpec
from odin.runtime.clock import Clock, SystemClock, every
from odin.runtime.ids import Ids, SystemIds
from odin.runtime.link_keeper import LinkKeeper
from odin.runtime.link_sockets import WORKER_PATH, connect_socket, new_session
from odin.runtime.links import ENGINE_TO_WORKER
from odin.worker.attempts import STOP_SHUTDOWN
from odin.worker.desk import Desk
from odin.worker.engines import Engines
from odin.worker.options import EMBEDDED, WorkerFields, WorkerOptions
from odin.worker.registry import Registry
from odin.worker.sources import EmbeddedSource, RabbitmqSource, Source
from odin.worker.telemetry import Tally, WorkerTelemetry
from odin.worker.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    import aiohttp

_TICK_SECONDS: Final = 0.1
_SLOW_TICKS: Final = 10
_CANCEL_SECONDS: Final = 0.3
_FAREWELL_SECONDS: Final = 0.6

log = logging.getLogger(__name__)


class Connected(Protocol):
    """A client, as far as a worker takes its settings from it."""

    addresses: tuple[str, ...]
    namespace: str
    api_key: str | None


class Worker:
    """Runs workflows and activities of one task queue.

        worker = Worker("127.0.0.1:7300", workflows=[order], activities=[charge], amqp_url=url)
        await worker.run()

    Args:
        target: Addresses of engines (one is enough, the others are learnt), or a Client.
        workflows: Decorated classes or functions.
        activities: Decorated functions, or bound methods.
        activity_executor: Where plain functions run; a thread pool of the worker's own when None.
        telemetry: Takes the worker's numbers; they are kept in memory when None.
        clock: For tests and simulations.
        ids: For tests and simulations.
        **fields: The fields of `WorkerOptions`.

    Raises:
        DefinitionError: A workflow or activity is declared wrongly, or two have one name.
        ConfigurationError: The settings contradict themselves.
    """

    def __init__(  # noqa: PLR0913 - everything but the first has a default
        self,
        target: str | Sequence[str] | Connected,
        *,
        workflows: Sequence[object] = (),
        activities: Sequence[Callable[..., Any]] = (),
        activity_executor: Executor | None = None,
        telemetry: WorkerTelemetry | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        **fields: Unpack[WorkerFields],
    ) -> None:
        self._addresses, self.options = _settled(target, fields)
        self.registry = Registry(workflows, activities)
        self.telemetry = telemetry or Tally()
        self._clock = clock or SystemClock()
        ids = ids or SystemIds(self._clock)
        self.incarnation = ids.incarnation()
        self._dice = Random(ids.batch_random())  # noqa: S311 - jitter is no secret
        self._executor = activity_executor
        self._own_executor: ThreadPoolExecutor | None = None
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._life: asyncio.TaskGroup | None = None
        self.desk = Desk(
            self.options,
            self.registry,
            self.telemetry,
            ids,
            now=self._clock.boottime,
            executor=self._threads,
        )

    @property
    def linked(self) -> int:
        """How many engines this worker is linked to."""
        return 0 if self.desk.engines is None else self.desk.engines.linked

    def stop(self) -> None:
        """Begin to stop; called again, stop without waiting for activities."""
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until `stop` is set (or `stop()` is called), then end in order.

        Ending takes at most the grace and 2 s, whether or not engines and broker are there. A
        cancelled `run` ends at once.
        """
        links_end = asyncio.Event()
        watch = Watch(self._clock.boottime, lambda: self.desk.runs.running_run_id)
        watch.start()
        try:
            async with new_session() as session, asyncio.TaskGroup() as group:
                keeper = self._keeper(session)
                source = self._source()
                group.create_task(keeper.run(links_end), name="links")
                sourcing = group.create_task(source.run(self._stop), name="tasks")
                group.create_task(self._ticks(links_end, watch), name="ticks")
                outer = group.create_task(self._stop_with(stop or self._stop), name="stop")
                self.desk.attempts.begin(group)
                log.info("worker started", extra=self._about())
                await self._stop.wait()
                await self._end_work(sourcing)
                outer.cancel()
                links_end.set()
        finally:
            self._stop.set()
            watch.stop()
            if self._own_executor is not None:
                self._own_executor.shutdown(wait=False, cancel_futures=True)
        log.info("worker stopped", extra={"worker": self.incarnation})

    async def __aenter__(self) -> Self:
        self._life = asyncio.TaskGroup()
        await self._life.__aenter__()
        self._life.create_task(self.run(), name="worker")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        self.stop()
        if self._life is not None:
            await self._life.__aexit__(kind, error, stack)

    # Its parts.

    def _keeper(self, session: aiohttp.ClientSession) -> LinkKeeper:
        desk, options = self.desk, self.options

        def connect(address: str) -> Coroutine[Any, Any, Any]:
            return connect_socket(session, address, WORKER_PATH, options.headers)

        engines = desk.engines = Engines(self._hello(), self._addresses, options.route, desk)
        keeper = LinkKeeper(connect, ENGINE_TO_WORKER, engines, clock=self._clock, rng=self._dice)
        engines.begin(keeper.want)
        return keeper

    def _hello(self) -> Hello:
        options, registry = self.options, self.registry
        return Hello(
            LINK_VERSION,
            self.incarnation,
            options.identity,
            options.build_id,
            options.namespace,
            (QueueSpec(options.task_queue, bool(registry.workflows), bool(registry.activities)),),
            tuple(sorted(registry.workflows)),
            tuple(sorted(registry.activities)),
            options.max_concurrent_workflow_tasks,
            options.max_concurrent_activities,
        )

    def _source(self) -> Source:
        desk, options = self.desk, self.options
        if options.broker == EMBEDDED or options.amqp_url is None:
            desk.embedded = EmbeddedSource(desk.book, self._links, desk, self._clock)
            return desk.embedded
        kinds = [WORKFLOW] if self.registry.workflows else []
        if self.registry.activities:
            kinds.append(ACTIVITY)
        budget = max(options.max_concurrent_activities, options.max_concurrent_workflow_tasks)
        return RabbitmqSource(
            options.amqp_url,
            options.task_queue,
            kinds,
            desk,
            id_budget=budget,
            name=f"odin-worker {options.identity}",
            clock=self._clock,
        )

    def _links(self) -> list[Any]:
        return [] if self.desk.engines is None else self.desk.engines.links

    def _threads(self) -> Executor:
        if self._executor is None:
            self._executor = self._own_executor = ThreadPoolExecutor(
                self.options.max_concurrent_activities, thread_name_prefix="odin-activity"
            )
        return self._executor

    def _about(self) -> dict[str, object]:
        return {
            "worker": self.incarnation,
            "task_queue": self.options.task_queue,
            "workflows": sorted(self.registry.workflows),
            "activities": sorted(self.registry.activities),
        }

    # Its loops.

    async def _stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop.set()

    async def _ticks(self, end: asyncio.Event, watch: Watch) -> None:
        count = 0

        def tick() -> None:
            nonlocal count
            watch.turned()
            self.desk.tick()
            count += 1
            if count % _SLOW_TICKS == 0:
                self.desk.tick_slowly()

        await every(self._clock, end, _TICK_SECONDS, tick)

    async def _end_work(self, sourcing: asyncio.Task[None]) -> None:
        """Give back what is not begun, let activities finish, and have the results answered."""
        desk = self.desk
        desk.stop_taking()
        await self._unless_forced(
            desk.attempts.wait_empty(), self.options.graceful_shutdown_timeout.total_seconds()
        )
        desk.attempts.stop_all(STOP_SHUTDOWN)
        await _within(_CANCEL_SECONDS, desk.attempts.wait_empty())
        await _within(_FAREWELL_SECONDS, self._answers())
        desk.tick_slowly()
        sourcing.cancel()

    async def _answers(self) -> None:
        """Return once nothing is unanswered that somebody could answer."""
        while len(self.desk.postbox) and self.linked:
            await self._clock.sleep(0.01)

    async def _unless_forced(self, waiting: Coroutine[Any, Any, None], seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_within(seconds, waiting), name="grace")
            forced = group.create_task(self._force.wait(), name="forced")
            await asyncio.wait({work, forced}, return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
            forced.cancel()


async def _within(seconds: float, waiting: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return


def _settled(
    target: str | Sequence[str] | Connected, fields: WorkerFields
) -> tuple[tuple[str, ...], WorkerOptions]:
    """Return the engines' addresses and the settings; a client brings what is not given."""
    options = WorkerOptions(**fields)
    if isinstance(target, str):
        return addresses_of((target,)), options
    if isinstance(target, Sequence):
        return addresses_of(target), options
    namespace = fields.get("namespace", target.namespace)
    token = fields.get("token", target.api_key)
    return tuple(target.addresses), replace(options, namespace=namespace, token=token)
