"""What the simulated cluster has to do: workflows with effects that can be counted, and clients.

Every effect goes to the ledger under the idempotency key of its activity, as at a service that
honours it; the services fail, refuse and forget to answer by the dice. Clients start, signal and
cancel until each call has a definite answer, so that at the end everything can be judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from odin import activity, workflow
from odin.common import RetryPolicy
from odin.core.payload import encode
from odin.core.requests import (
    ALLOW_DUPLICATE,
    ClientRequest,
    Outcome,
    RequestCancelWorkflow,
    SignalWorkflow,
    Started,
    StartWorkflow,
    WaitWorkflow,
)
from odin.errors import NotFoundError, OdinError, RunClosedError
from odin.exceptions import ActivityError, ApplicationError
from tests.simulation.clients import Answer, Call, Client

if TYPE_CHECKING:
    from tests.simulation.process import HostProcess
    from tests.simulation.world import World

ATTEMPT: Final = timedelta(seconds=4)
RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=300), maximum_interval=timedelta(seconds=2)
)
CHUNK: Final = 4
WAIT_MS: Final = 5_000
AGAIN_SECONDS: Final = 0.5
SIGNALS_MAX: Final = 40


@dataclass(slots=True)
class Effect:
    """One effect at a service."""

    key: str
    label: str
    at: float


@dataclass
class Ledger:
    """What the services have done, and which attempts they have seen begin.

    Attributes:
        effects: By idempotency key.
        begun: (key, attempt) → processes that began it.
        returned: (key, attempt) → how far the database was when it returned its result, and the
            seconds that this took.
        pace: How much longer than usual a service takes.
    """

    world: World
    effects: dict[str, Effect] = field(default_factory=dict)
    begun: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    returned: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    pace: float = 1.0

    async def do(self, label: str, process: HostProcess) -> str:
        """Have the effect of the activity that runs, once per key, and say so, or not."""
        info = activity.info()
        dice, began = self.world.services_dice, self.world.loop.time()
        self.begun.setdefault((info.idempotency_key, info.attempt), []).append(process.name)
        seconds = dice.choice((0.005, 0.02, 0.1, 0.4)) * dice.uniform(0.5, 1.5)
        await asyncio.sleep(seconds * self.pace)
        odds = self.world.shape.service_faults
        if dice.random() < odds:
            raise ApplicationError("the service is busy", type="Busy")
        if info.idempotency_key not in self.effects:
            now = self.world.loop.time()
            self.effects[info.idempotency_key] = Effect(info.idempotency_key, label, now)
            self.world.note("effect", label)
        if dice.random() < odds:
            raise ApplicationError("the answer was lost", type="Lost")
        if dice.random() < odds / 4:
            await asyncio.sleep(dice.uniform(1.0, 6.0))
        took = self.world.loop.time() - began
        self.returned[info.idempotency_key, info.attempt] = (self.world.database.txid, took)
        return label


class Services:
    """The activities of one worker process."""

    def __init__(self, world: World, process: HostProcess) -> None:
        self._world = world
        self._process = process

    @activity.defn(name="do")
    async def do(self, label: str) -> str:
        """Have an effect."""
        return await self._world.ledger.do(label, self._process)

    @activity.defn(name="refuse")
    async def refuse(self, label: str) -> str:
        """Refuse for good, sometimes after something else had gone wrong."""
        await self._world.ledger.do(label, self._process)
        raise ApplicationError("refused", type="Refused", non_retryable=True)


async def _do(label: str, name: str = "do") -> str:
    done: str = await workflow.execute_activity(
        name,
        label,
        result_type=str,
        start_to_close_timeout=ATTEMPT,
        retry_policy=RETRIES,
    )
    return done


@workflow.defn(name="Steps")
class Steps:
    """Some steps one after another, then some side by side."""

    @workflow.run
    async def run(self, order: dict[str, Any]) -> list[str]:
        name, count = order["name"], order["count"]
        done = [await _do(f"{name}/{step}") for step in range(count)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_do(f"{name}/par{step}")) for step in range(count)]
        return done + [task.result() for task in tasks]


@workflow.defn(name="Saga")
class Saga:
    """Steps that are undone in reverse when the last one is refused."""

    @workflow.run
    async def run(self, order: dict[str, Any]) -> list[str]:
        name = order["name"]
        done: list[str] = []
        try:
            for step in ("reserve", "charge"):
                done.append(step)
                await _do(f"{name}/{step}")
            await _do(f"{name}/ship", "refuse" if order["refused"] else "do")
        except ActivityError:
            for step in reversed(done):
                await _do(f"{name}/undo-{step}")
            return ["undone", *reversed(done)]
        return ["done", *done]


@workflow.defn(name="Collector")
class Collector:
    """Collects numbers that are signalled, and begins anew after every few."""

    def __init__(self) -> None:
        self._new: list[int] = []

    @workflow.signal
    def add(self, number: int) -> None:
        """Take a number."""
        self._new.append(number)

    @workflow.run
    async def run(self, state: dict[str, Any]) -> list[int]:
        before, total = state["got"], state["total"]

        def enough() -> bool:
            return len(self._new) >= CHUNK or len(before) + len(self._new) >= total

        await workflow.wait_condition(enough)
        if len(before) + len(self._new) < total:
            await _do(f"{state['name']}/chunk{len(before)}")
        got = before + self._new
        if len(got) >= total:
            return list(got)
        return workflow.continue_as_new({**state, "got": got})


@workflow.defn(name="Sleeper")
class Sleeper:
    """Sleeps in naps, until it is over or somebody wants it to stop; then it tidies up."""

    @workflow.run
    async def run(self, order: dict[str, Any]) -> int:
        name, slept = order["name"], 0
        try:
            for nap in range(order["naps"]):
                await workflow.sleep(order["seconds"])
                await _do(f"{name}/nap{nap}")
                slept += 1
        except asyncio.CancelledError:
            await _do(f"{name}/tidy")
            raise
        return slept


@workflow.defn(name="Listener")
class Listener:
    """Does its steps, and returns what it was told meanwhile."""

    def __init__(self) -> None:
        self._heard: list[int] = []

    @workflow.signal
    def add(self, number: int) -> None:
        """Take a number."""
        self._heard.append(number)

    @workflow.run
    async def run(self, order: dict[str, Any]) -> list[int]:
        for step in range(order["count"]):
            await _do(f"{order['name']}/{step}")
        return self._heard


@dataclass(slots=True)
class Order:
    """One workflow, and how it went for the client that wanted it.

    Attributes:
        heard: The signals that were acknowledged.
        is_watched: Whether a client waits for its end; else nobody asks the engines about it
            before it has ended.
    """

    name: str
    kind: str
    argument: dict[str, Any]
    signals: int = 0
    is_cancelled: bool = False
    is_watched: bool = True
    heard: list[int] = field(default_factory=list)
    outcome: Outcome | None = None

    def expected(self) -> list[tuple[str, Any]]:
        """Return the outcomes that are right, each as (status, result)."""
        name, argument = self.name, self.argument
        match self.kind:
            case "Steps":
                steps = [f"{name}/{step}" for step in range(argument["count"])]
                side = [f"{name}/par{step}" for step in range(argument["count"])]
                return [("completed", steps + side)]
            case "Saga" if argument["refused"]:
                return [("completed", ["undone", "charge", "reserve"])]
            case "Saga":
                return [("completed", ["done", "reserve", "charge"])]
            case "Collector":
                return [("completed", list(range(argument["total"])))]
            case "Listener":
                return [("completed", self.heard)]
            case _:
                slept = ("completed", argument["naps"])
                return [slept, ("canceled", None)] if self.is_cancelled else [slept]


class Workload:
    """Draws the orders and drives them."""

    workflows: Sequence[type] = (Steps, Saga, Collector, Sleeper, Listener)

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = world.loop.dice_for("workload")
        self.calls: list[Call] = []
        self.orders = [self._draw(number) for number in range(world.shape.orders)]

    def activities(self, process: HostProcess) -> list[Callable[..., Any]]:
        """Return the activities of a worker process."""
        services = Services(self._world, process)
        return [services.do, services.refuse]

    def _draw(self, number: int) -> Order:
        dice = self._dice
        kind = dice.choice(("Steps", "Saga", "Collector", "Sleeper", "Listener"))
        name = f"{kind.lower()}-{number}"
        match kind:
            case "Steps":
                return Order(name, kind, {"name": name, "count": dice.randint(1, 3)})
            case "Saga":
                return Order(name, kind, {"name": name, "refused": dice.random() < 0.5})
            case "Collector":
                total = dice.randint(3, 14)
                return Order(name, kind, {"name": name, "total": total, "got": []}, signals=total)
            case "Listener":
                return Order(
                    name, kind, {"name": name, "count": dice.randint(1, 4)}, signals=SIGNALS_MAX
                )
            case _:
                shape = self._world.shape
                seconds = dice.randint(*shape.nap_seconds)
                naps = {"name": name, "naps": dice.randint(1, shape.naps), "seconds": seconds}
                at = dice.random()
                return Order(name, kind, naps, is_cancelled=at < 0.4, is_watched=at < 0.4)

    async def run(self) -> None:
        """Place every order and see it through; in a client's process."""
        addresses = [engine.address for engine in self._world.engines]
        async with asyncio.TaskGroup() as group:
            for order in self.orders:
                client = Client(self._world.network, addresses, self.calls)
                wait = self._dice.uniform(0.0, self._world.shape.order_seconds)
                group.create_task(self._follow(order, client, wait), name=order.name)

    async def _follow(self, order: Order, client: Client, wait: float) -> None:
        await asyncio.sleep(wait)
        start = StartWorkflow(
            workflow_id=order.name,
            request_id=f"start-{order.name}",
            workflow_type=order.kind,
            input=(encode(order.argument),),
            id_reuse_policy=ALLOW_DUPLICATE,
        )
        started = await self._until_answered(client, start)
        assert isinstance(started, Started), started
        await self._unless(RunClosedError, self._signal(order, client))
        if order.is_cancelled:
            await asyncio.sleep(self._dice.uniform(0.0, 6.0))
            cancel = RequestCancelWorkflow(
                workflow_id=order.name, request_id=f"cancel-{order.name}"
            )
            await self._unless(RunClosedError, self._until_answered(client, cancel))
        while not order.is_watched and self._is_open(order):
            await asyncio.sleep(AGAIN_SECONDS)
        order.outcome = await self._closed(order, client)
        self._world.note("closed", order.name, order.outcome.status)

    async def _signal(self, order: Order, client: Client) -> None:
        """Send all signals, one after another; those to a Listener until it has closed."""
        for number in range(order.signals):
            pauses = (0.0, 0.01, 0.2, 1.0) if order.kind == "Collector" else (0.0, 0.01, 0.05)
            await asyncio.sleep(self._dice.choice(pauses))
            signal = SignalWorkflow(
                workflow_id=order.name,
                request_id=f"signal-{order.name}-{number}",
                name="add",
                input=(encode(number),),
            )
            await self._until_answered(client, signal)
            order.heard.append(number)

    def _is_open(self, order: Order) -> bool:
        """Look into the database whether an order has an open run."""
        rows = self._world.database.tables.execution.values()
        return any(row.workflow_id == order.name and row.status == "running" for row in rows)

    async def _until_answered(self, client: Client, request: ClientRequest) -> Answer:
        """Ask the same again until somebody answers, with yes or a definite no."""
        while True:
            try:
                return await client.ask(request)
            except OdinError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def _unless(self, kind: type[OdinError], asking: Coroutine[Any, Any, object]) -> None:
        try:
            await asking
        except kind:
            return

    async def _closed(self, order: Order, client: Client) -> Outcome:
        wait = WaitWorkflow(workflow_id=order.name, wait_ms=WAIT_MS)
        while True:
            outcome = await self._until_answered(client, wait)
            assert isinstance(outcome, Outcome), outcome
            if outcome.status not in {"running", "continued_as_new"}:
                return outcome


__all__ = ["Ledger", "NotFoundError", "Order", "Workload"]
