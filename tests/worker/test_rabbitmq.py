"""A worker that takes its tasks from a real RabbitMQ."""

import secrets
from collections.abc import AsyncIterator

import aio_pika
import pytest

from odin.core import wire
from odin.core.tasks import encode_message
from odin.core.topology import queue_name
from tests.worker.peer import SHARD, History, peer
from tests.worker.scene import ended, first, until, worker_of


@pytest.fixture
async def task_queue(rabbitmq_url: str) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(6)}"
    yield name
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        for kind in "wa":
            await channel.queue_delete(queue_name(kind, name))


async def publish(url: str, queue: str, body: bytes) -> None:
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        await channel.default_exchange.publish(aio_pika.Message(body), queue)


async def depth(url: str, queue: str) -> int:
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        found = await channel.declare_queue(queue, passive=True)
        return found.declaration_result.message_count or 0


async def test_a_packed_message_is_claimed_and_acknowledged_before_its_activities_end(
    rabbitmq_url: str, task_queue: str
) -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        worker = worker_of(engine, broker="rabbitmq", amqp_url=rabbitmq_url, task_queue=task_queue)
        async with worker:
            await engine.hear(wire.Inventory)
            history = History("greeting", "you")
            queue = queue_name("a", task_queue)
            await _consuming(rabbitmq_url, queue)
            entries = [history.task(number, "a") for number in (1, 2, 3)]
            await publish(rabbitmq_url, queue, encode_message("a", entries))
            await publish(rabbitmq_url, queue, b"no task at all")
            for number in (1, 2, 3):
                claim = await engine.hear(wire.ClaimActivityTask, seconds=15)
                assert claim.command_id == number
                name, arguments = ("endless", ()) if number < 3 else ("greet", ("you",))
                engine.say(history.activity(claim, name, *arguments))
            assert first((await ended(engine)).result) == "hello you"
            await until(lambda: worker.desk.book.running == 2)
        assert await depth(rabbitmq_url, queue) == 0


async def test_a_message_of_a_task_that_is_not_wanted_is_gone(
    rabbitmq_url: str, task_queue: str
) -> None:
    async with peer() as engine:
        engine.owns(SHARD)
        worker = worker_of(engine, broker="rabbitmq", amqp_url=rabbitmq_url, task_queue=task_queue)
        async with worker:
            await engine.hear(wire.Inventory)
            queue = queue_name("w", task_queue)
            await _consuming(rabbitmq_url, queue)
            message = encode_message("w", [History("greeting", "you").task()])
            await publish(rabbitmq_url, queue, message)
            claim = await engine.hear(wire.ClaimWorkflowTask, seconds=15)
            engine.say(wire.NotWanted(claim.seq))
            await until(lambda: worker.telemetry.counts["not_wanted"] == 1)  # type: ignore[attr-defined] # a Tally
        assert await depth(rabbitmq_url, queue) == 0


async def _consuming(url: str, queue: str) -> None:
    """Return once the worker has declared the queue and consumes it."""
    connection = await aio_pika.connect(url)
    async with connection:
        while True:
            channel = await connection.channel()
            try:
                found = await channel.declare_queue(queue, passive=True)
            except aio_pika.exceptions.ChannelNotFoundEntity:
                continue
            if found.declaration_result.consumer_count:
                return
