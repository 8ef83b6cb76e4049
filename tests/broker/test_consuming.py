"""The consumer against a real broker: nothing taken is lost, and it always comes back."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest

from cluster.servers import RabbitmqServer
from odin.core.topology import queue_of
from odin.runtime.rabbitmq import Consumer, Delivery, PublisherConnection

from .support import Proxy, delete_queue, messages_in, running, until


@pytest.fixture
async def publisher(rabbitmq_url: str) -> AsyncIterator[PublisherConnection]:
    publisher = PublisherConnection(rabbitmq_url)
    async with running(publisher.run):
        await publisher.until_ready()
        yield publisher


class Taken:
    """Deliveries as they come."""

    def __init__(self, *, ack: bool) -> None:
        self._ack = ack
        self.deliveries: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self._ack:
            delivery.ack()

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.deliveries]


async def test_what_a_dead_worker_had_taken_is_delivered_again(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    first, second = Taken(ack=False), Taken(ack=True)
    await publisher.publish(destination, b"task", "id-1")
    async with Proxy(rabbitmq_url) as proxy:
        consumer = Consumer(proxy.url, [queue_of(destination)], 10, first)
        async with running(consumer.run):
            await until(lambda: first.deliveries)
            proxy.refusing = True
            proxy.cut()
            other = Consumer(rabbitmq_url, [queue_of(destination)], 10, second)
            async with running(other.run):
                await until(lambda: second.deliveries)
    (again,) = second.deliveries
    assert (again.body, again.message_id, again.redelivered) == (b"task", "id-1", True)
    assert again.delivery_count == 1
    first.deliveries[0].ack()  # too late, and harmless


async def test_acknowledged_out_of_order_nothing_comes_again(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=False)
    for number in range(20):
        await publisher.publish(destination, b"%d" % number, f"id-{number}")
    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 100, taken)
    async with running(consumer.run):
        await until(lambda: len(taken.deliveries) == 20)
        for delivery in taken.deliveries[1::2]:
            delivery.ack()
        await asyncio.sleep(0)
        for delivery in taken.deliveries[2::2]:
            delivery.ack()
            delivery.ack()  # twice is once
    (left,) = await messages_in(rabbitmq_url, queue_of(destination).name, 1)
    assert left.body == b"0"


async def test_a_queue_that_is_deleted_is_consumed_again(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=True)
    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 10, taken)
    async with running(consumer.run):
        await publisher.publish(destination, b"before", "id-1")
        await until(lambda: taken.bodies == [b"before"])
        # Two that declare one queue at once can cost one of them its connection (541).
        before = consumer.connections_count
        await delete_queue(rabbitmq_url, queue_of(destination).name)
        async with asyncio.timeout(5):  # told by the broker, long before the watchdog looks
            await publisher.publish(destination, b"after", "id-2")
            await until(lambda: taken.bodies == [b"before", b"after"])
        assert consumer.connections_count == before


async def test_a_queue_deleted_and_made_anew_at_once_is_consumed_again(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=True)
    queue = queue_of(destination)
    consumer = Consumer(rabbitmq_url, [queue], 10, taken)
    consumer.watchdog_seconds = 0.2
    connection = await aio_pika.connect(rabbitmq_url)
    async with running(consumer.run), connection, connection.channel() as channel:
        await until(lambda: consumer.healthy)
        await channel.queue_delete(queue.name)
        await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))
        await publisher.publish(destination, b"task", "id-1")
        await until(lambda: taken.bodies == [b"task"])


async def test_the_window_holds_and_can_be_widened(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=False)
    for number in range(30):
        await publisher.publish(destination, b"", f"id-{number}")
    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 2, taken)
    async with running(consumer.run):
        await until(lambda: len(taken.deliveries) == 2)
        consumer.set_prefetch(5)
        await until(lambda: len(taken.deliveries) == 7)  # the first two stay where they are
        for delivery in taken.deliveries:
            delivery.ack()
        await until(lambda: len(taken.deliveries) == 12)
    assert not any(one.redelivered for one in taken.deliveries)


async def test_a_window_that_is_widened_while_consuming_begins_is_wide(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=False)
    for number in range(30):
        await publisher.publish(destination, b"", f"id-{number}")

    def widened(delivery: Delivery) -> None:  # before the consumer knows that it consumes
        if not taken.deliveries:
            consumer.set_prefetch(5)
        taken(delivery)

    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 2, widened)
    async with running(consumer.run):
        await until(lambda: len(taken.deliveries) >= 5)


async def test_after_each_of_five_outages_the_consumer_is_back(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=True)
    async with Proxy(rabbitmq_url) as proxy:
        consumer = Consumer(proxy.url, [queue_of(destination)], 10, taken)
        async with running(consumer.run):
            for number in range(5):
                await until(lambda: consumer.healthy)
                proxy.refusing = True
                proxy.cut()
                await until(lambda: not consumer.healthy)
                await publisher.publish(destination, b"%d" % number, f"id-{number}")
                proxy.refusing = False
                # Its own message: one whose acknowledgement was cut off comes a second time.
                await until(lambda: b"%d" % number in taken.bodies)  # noqa: B023 - used at once
        assert consumer.connections_count == 6


async def test_a_consumer_that_the_broker_forgot_is_noticed(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=True)
    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 10, taken)
    consumer.watchdog_seconds = 2
    async with running(consumer.run):
        await until(lambda: consumer.healthy)
        (subscription,) = consumer._subscriptions.values()  # noqa: SLF001 - no other way to lose it
        channel, tag = subscription._channel, subscription._consumer_tag  # noqa: SLF001 - as above
        assert channel is not None
        await channel.basic_cancel(tag)
        await publisher.publish(destination, b"task", "id-1")
        async with asyncio.timeout(5):  # by the first check, not for want of deliveries
            await until(lambda: taken.bodies == [b"task"])


async def test_a_message_whose_handler_fails_comes_again(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    attempts: list[Delivery] = []

    def handle(delivery: Delivery) -> None:
        attempts.append(delivery)
        if len(attempts) == 1:
            raise ValueError("the handler's own fault")
        delivery.ack()

    await publisher.publish(destination, b"task", "id-1")
    consumer = Consumer(rabbitmq_url, [queue_of(destination)], 10, handle)
    async with running(consumer.run):
        await until(lambda: len(attempts) == 2)
    assert attempts[1].redelivered


async def test_a_queue_in_trouble_does_not_stop_another(
    rabbitmq_url: str, destination: str, publisher: PublisherConnection
) -> None:
    taken = Taken(ack=True)
    foreign = queue_of(destination + "-foreign")
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        blocked = await channel.declare_queue(foreign.name, exclusive=True)
        consumer = Consumer(rabbitmq_url, [foreign, queue_of(destination)], 10, taken)
        async with running(consumer.run):
            await publisher.publish(destination, b"task", "id-1")
            await until(lambda: taken.bodies == [b"task"])
            assert not consumer.healthy
            await blocked.delete()
            await until(lambda: consumer.healthy)
    await delete_queue(rabbitmq_url, foreign.name)


async def test_a_broker_that_restarts_loses_no_message_and_no_consumer(
    own_broker: RabbitmqServer,
) -> None:
    taken = Taken(ack=True)
    kept, consumed = "w:restart-kept", "w:restart-consumed"
    publisher = PublisherConnection(own_broker.url)
    consumer = Consumer(own_broker.url, [queue_of(consumed)], 10, taken)
    async with running(publisher.run, consumer.run):
        await publisher.publish(kept, b"kept", "id-1")
        await until(lambda: consumer.healthy)
        await own_broker.control("stop_app")
        await until(lambda: not consumer.connected and not publisher.healthy)
        await own_broker.control("start_app")
        await until(lambda: consumer.healthy and publisher.healthy)
        await publisher.publish(consumed, b"after", "id-2")
        await until(lambda: taken.bodies == [b"after"])
    found = await messages_in(own_broker.url, queue_of(kept).name, 1)
    assert [one.body for one in found] == [b"kept"]
