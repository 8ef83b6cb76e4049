"""Dead letters of a real broker: each reaches the engine, and none goes round for ever."""

import asyncio
from collections.abc import Callable, Sequence

import aio_pika
import pytest

from cluster.servers import RabbitmqServer
from odin.core.tasks import encode_message
from odin.core.topology import DEAD_LETTERS, DELIVERY_LIMIT, queue_of
from odin.core.wire import TaskEntry
from odin.runtime.clock import SystemClock
from odin.runtime.rabbitmq import PublisherConnection
from relay.dead_letters import DeadLetters, reason_of

from .support import running, until

ENTRY = TaskEntry("w", 3, 7, "run-1", 2, 1)


class Engine:
    def __init__(self, failures: int = 0) -> None:
        self._failures = failures
        self.dead: list[tuple[list[TaskEntry], str]] = []

    async def record(self, entries: Sequence[TaskEntry], reason: str) -> None:
        if self._failures:
            self._failures -= 1
            raise ConnectionError("the database is away")
        self.dead.append((list(entries), reason))


async def refuse_until(gone: Callable[[], object], url: str, queue: str) -> int:
    """Take and refuse a queue's only message until the broker gives it up; return how often.

    No call is cut short: one that is cancelled on its way closes its channel, and closing that once
    more may wait for ever.
    """
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        found = await channel.get_queue(queue)
        times = 0
        while not gone():
            message = await found.get(fail=False)
            if message is None:
                await asyncio.sleep(0.01)
            else:
                await message.reject(requeue=True)
                times += 1
        return times


async def test_a_message_delivered_too_often_is_handed_to_the_engine(
    own_broker: RabbitmqServer,
) -> None:
    destination, engine = "w:dead", Engine()
    publisher = PublisherConnection(own_broker.url)
    letters = DeadLetters(own_broker.url, engine.record, SystemClock())
    async with running(publisher.run, letters.run):
        await publisher.publish(destination, encode_message("w", [ENTRY]), "id-1")
        queue = queue_of(destination).name
        times = await refuse_until(lambda: engine.dead, own_broker.url, queue)
    assert times == DELIVERY_LIMIT + 1
    assert engine.dead == [([ENTRY], "delivery_limit")]
    assert await left_in_dead_letters(own_broker.url) == 0


async def test_a_letter_stays_until_the_engine_has_recorded_it(own_broker: RabbitmqServer) -> None:
    engine = Engine(failures=1)
    letters = DeadLetters(own_broker.url, engine.record, SystemClock())
    async with running(letters.run):
        await until(lambda: letters.healthy)
        await put_dead_letter(own_broker.url, encode_message("w", [ENTRY]))
        await until(lambda: letters.handed_over == 1)
    assert engine.dead == [([ENTRY], "unknown")]
    assert await left_in_dead_letters(own_broker.url) == 0


async def test_a_letter_that_names_no_tasks_is_counted_and_goes(
    own_broker: RabbitmqServer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    letters = DeadLetters(own_broker.url, engine.record, SystemClock())
    async with running(letters.run):
        await until(lambda: letters.healthy)
        await put_dead_letter(own_broker.url, b"not a message")
        await until(lambda: letters.damaged == 1)
    assert engine.dead == []
    assert "names no tasks" in caplog.text
    assert await left_in_dead_letters(own_broker.url) == 0


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-first-death-reason": "delivery_limit"}, "delivery_limit"),
        ({"x-death": [{"reason": "expired", "count": 1}]}, "expired"),
        ({"x-death": []}, "unknown"),
        ({"x-death": "?"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_reason_is_the_broker_s_first(headers: dict[str, object], reason: str) -> None:
    assert reason_of(headers) == reason


async def put_dead_letter(url: str, body: bytes) -> None:
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        await channel.default_exchange.publish(aio_pika.Message(body), DEAD_LETTERS)


async def left_in_dead_letters(url: str) -> int:
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        found = await channel.declare_queue(DEAD_LETTERS, passive=True)
        return found.declaration_result.message_count or 0
