"""The publishing connection against a real broker: a confirm is a message in a queue."""

import asyncio
import time
from contextlib import suppress
from itertools import count

import aio_pika
import pytest

from cluster.servers import RabbitmqServer
from odin.core.topology import DEAD_LETTERS, queue_of
from odin.errors import NotPublishedError
from odin.runtime.rabbitmq import PublisherConnection

from .support import Proxy, delete_queue, messages_in, running, until


async def test_a_confirmed_message_is_in_the_queue_and_persistent(
    rabbitmq_url: str, destination: str
) -> None:
    publisher = PublisherConnection(rabbitmq_url)
    async with running(publisher.run):
        await publisher.publish(destination, b"body", "id-1")
    (message,) = await messages_in(rabbitmq_url, queue_of(destination).name, 1)
    assert (message.body, message.message_id) == (b"body", "id-1")
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


async def test_the_broker_returns_what_has_no_queue(rabbitmq_url: str, destination: str) -> None:
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel(on_return_raises=True) as channel:
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(
                aio_pika.Message(b""), queue_of(destination).name, mandatory=True
            )


async def test_messages_for_a_queue_that_was_deleted_are_not_lost(
    rabbitmq_url: str, destination: str
) -> None:
    publisher = PublisherConnection(rabbitmq_url)
    queue = queue_of(destination).name
    async with running(publisher.run):
        await publisher.publish(destination, b"before", "id-0")
        await delete_queue(rabbitmq_url, queue)
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(publisher.publish(destination, b"after", f"id-{number + 1}"))
    assert len(await messages_in(rabbitmq_url, queue, 50)) == 50


async def test_a_queue_with_other_arguments_is_refused_and_holds_up_no_other(
    rabbitmq_url: str, destination: str
) -> None:
    publisher = PublisherConnection(rabbitmq_url)
    foreign = destination + "-foreign"
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        await channel.declare_queue(queue_of(foreign).name, exclusive=True)
        async with running(publisher.run):
            with pytest.raises(NotPublishedError) as caught:
                await publisher.publish(foreign, b"", "id-1")
            assert not caught.value.maybe_sent
            await publisher.publish(destination, b"", "id-2")
            assert publisher.connections_count == 1


async def test_publishing_declares_the_queue_of_dead_letters_first(
    own_broker: RabbitmqServer,
) -> None:
    connection = await aio_pika.connect(own_broker.url)
    async with connection, connection.channel() as channel:
        await channel.exchange_delete(DEAD_LETTERS)
        await channel.queue_delete(DEAD_LETTERS)
        publisher = PublisherConnection(own_broker.url)
        async with running(publisher.run):
            await publisher.publish("w:declares", b"", "id-1")
        await channel.declare_exchange(DEAD_LETTERS, passive=True)
        await channel.declare_queue(DEAD_LETTERS, passive=True)


async def test_without_a_broker_a_publish_fails_in_bounded_time_and_surely_unsent(
    rabbitmq_url: str, destination: str
) -> None:
    async with Proxy(rabbitmq_url) as proxy:
        proxy.refusing = True
        publisher = PublisherConnection(proxy.url, publish_seconds=0.3)
        async with running(publisher.run):
            with pytest.raises(NotPublishedError) as caught:
                await publisher.publish(destination, b"", "id-1")
            assert not caught.value.maybe_sent
            assert not publisher.healthy
            proxy.refusing = False
            await until(lambda: publisher.healthy)
            await publisher.publish(destination, b"", "id-2")


async def test_a_connection_cut_under_a_message_leaves_its_fate_open(
    rabbitmq_url: str, destination: str
) -> None:
    async with Proxy(rabbitmq_url) as proxy:
        publisher = PublisherConnection(proxy.url)
        fates: list[bool | None] = []

        async def publish(number: int) -> None:
            for _ in range(number // 20):
                await asyncio.sleep(0)  # so that many come while the connection is ending
            try:
                await publisher.publish(destination, b"", f"id-{number}")
            except NotPublishedError as error:
                fates.append(error.maybe_sent)
            else:
                fates.append(None)

        async with running(publisher.run):
            await publisher.publish(destination, b"", "id-first")
            # Far less than a publish may take: whoever waits is told at once.
            async with asyncio.timeout(3), asyncio.TaskGroup() as group:
                for number in range(500):
                    group.create_task(publish(number))
                proxy.cut()
            # Some were on their way; those still without a place went over the next connection.
            assert True in fates
            await publisher.publish(destination, b"", "id-last")
            assert publisher.connections_count == 2


async def test_whoever_publishes_is_told_at_once_that_the_connection_was_cut(
    rabbitmq_url: str, destination: str
) -> None:
    spans: list[float] = []
    numbers = count()

    async def publish_on(stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = time.perf_counter()
            with suppress(NotPublishedError):
                await publisher.publish(destination, b"x" * 20_000, f"id-{next(numbers)}")
            spans.append(time.perf_counter() - began)

    async with Proxy(rabbitmq_url) as proxy:
        publisher = PublisherConnection(proxy.url, publish_seconds=4)
        async with running(publisher.run), running(*[publish_on] * 64):
            for connections in range(1, 5):
                await until(lambda: publisher.connections_count == connections)  # noqa: B023 - at once
                await until(lambda: publisher.healthy)
                reached = len(spans) + 100
                await until(lambda: len(spans) > reached)  # noqa: B023 - used at once
                proxy.cut()
    assert max(spans) < 3


async def test_a_password_appears_in_no_log(
    rabbitmq_url: str, destination: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    password = rabbitmq_url.partition("@")[0].rpartition(":")[2]
    async with Proxy(rabbitmq_url) as proxy:
        publisher = PublisherConnection(proxy.url)
        async with running(publisher.run):
            await publisher.publish(destination, b"", "id-1")
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not publisher.connected)
    assert caplog.text
    assert password not in caplog.text
