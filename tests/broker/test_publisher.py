"""The publisher with a real broker: every row is confirmed, in few messages under load."""

import asyncio
import time

import aio_pika
import pytest

from cluster.servers import RabbitmqServer
from odin.core.tasks import PACK_MAX, decode_message
from odin.core.topology import queue_of
from odin.runtime.clock import SystemClock
from odin.runtime.rabbitmq import Consumer, Delivery, PublisherConnection
from relay.publisher import Publisher
from relay.rabbit import RabbitTransport

from .support import EngineEnd, Proxy, delete_queue, messages_in, row, running, until

ROWS = 5_000


def relay_over(connection: PublisherConnection, engine: EngineEnd) -> Publisher:
    publisher = Publisher(RabbitTransport(connection, "test"), engine.callables, SystemClock())
    connection.on_ready = publisher.wake
    return publisher


async def test_a_lone_row_travels_alone_and_at_once(rabbitmq_url: str, destination: str) -> None:
    engine, connection = EngineEnd(), PublisherConnection(rabbitmq_url)
    publisher = relay_over(connection, engine)
    async with running(connection.run, publisher.run):
        for number in range(1, 6):
            publisher.offer([row(number, destination)])
            await until(lambda: number in engine.confirmed)  # noqa: B023 - used at once
    packs = [decode_message(one.body) for one in await _taken(rabbitmq_url, destination, 5)]
    assert [[entry.number for entry in pack] for pack in packs] == [[1], [2], [3], [4], [5]]
    assert engine.delayed == []


async def test_under_load_rows_of_one_destination_share_messages(
    rabbitmq_url: str, destination: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, connection = EngineEnd(), PublisherConnection(rabbitmq_url)
    publisher = relay_over(connection, engine)
    async with running(connection.run, publisher.run):
        await connection.until_ready()
        began, began_cpu = time.perf_counter(), time.process_time()
        publisher.offer([row(number, destination) for number in range(ROWS)])
        await until(lambda: len(engine.confirmed) == ROWS)
        span, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    with capsys.disabled():
        _report("packed", span, cpu)
    messages = await _taken(rabbitmq_url, destination, publisher.counters.messages)
    packs = [decode_message(one.body) for one in messages]
    assert max(map(len, packs)) == PACK_MAX
    assert len(packs) == publisher.counters.messages < ROWS / 40
    assert sorted(entry.number for pack in packs for entry in pack) == list(range(ROWS))


async def test_with_workers_enough_every_row_travels_alone(
    rabbitmq_url: str, destination: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, connection = EngineEnd(workers=ROWS), PublisherConnection(rabbitmq_url)
    publisher = relay_over(connection, engine)
    in_flight_max = 0
    async with running(connection.run, publisher.run):
        await connection.until_ready()
        began, began_cpu = time.perf_counter(), time.process_time()
        publisher.offer([row(number, destination) for number in range(ROWS)])
        async with asyncio.timeout(15):
            while len(engine.confirmed) < ROWS:
                in_flight_max = max(in_flight_max, publisher.in_flight)
                await asyncio.sleep(0.001)
        span, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    with capsys.disabled():
        _report("alone", span, cpu)
    assert publisher.counters.messages == ROWS
    assert 0 < in_flight_max <= 100


async def test_rows_are_confirmed_in_the_end_whatever_happens_to_the_connection(
    rabbitmq_url: str, destination: str
) -> None:
    engine = EngineEnd(workers=1_000)
    async with Proxy(rabbitmq_url) as proxy:
        connection = PublisherConnection(proxy.url)
        publisher = relay_over(connection, engine)
        async with running(connection.run, publisher.run):
            publisher.offer([row(number, destination) for number in range(2_000)])
            for confirmed in (200, 600, 1_200):
                await until(lambda: len(engine.confirmed) > confirmed)  # noqa: B023 - used at once
                proxy.cut()
            await until(lambda: publisher.depth == 0)
    assert sorted(engine.confirmed) == list(range(2_000))
    assert connection.connections_count > 1
    taken = await _taken(rabbitmq_url, destination, 2_000)
    assert {entry.number for one in taken for entry in decode_message(one.body)} == set(
        range(2_000)
    )


async def test_rows_for_a_queue_that_vanishes_are_not_lost(
    rabbitmq_url: str, destination: str
) -> None:
    engine, connection = EngineEnd(), PublisherConnection(rabbitmq_url)
    publisher = relay_over(connection, engine)
    async with running(connection.run, publisher.run):
        publisher.offer([row(0, destination)])
        await until(lambda: engine.confirmed == [0])
        await delete_queue(rabbitmq_url, queue_of(destination).name)
        publisher.offer([row(number, destination) for number in range(1, 500)])
        await until(lambda: publisher.depth == 0)
    taken = await _taken(rabbitmq_url, destination, 8)
    found = {entry.number for one in taken for entry in decode_message(one.body)}
    assert found == set(range(1, 500))


async def test_a_memory_alarm_delays_rows_and_holds_up_no_acknowledgement(
    own_broker: RabbitmqServer,
) -> None:
    engine = EngineEnd()
    destination, consumed = "w:alarm", "a:alarm"
    connection = PublisherConnection(own_broker.url, publish_seconds=0.5)
    publisher = relay_over(connection, engine)
    held: list[Delivery] = []
    consumer = Consumer(own_broker.url, [queue_of(consumed)], 1, held.append)
    async with running(connection.run, publisher.run, consumer.run):
        publisher.offer([row(1, consumed), row(2, consumed), row(3, destination)])
        await until(lambda: publisher.depth == 0 and held)
        await own_broker.control("set_vm_memory_high_watermark", "0.0000001")
        try:
            publisher.offer([row(4, destination)])
            await until(lambda: engine.delayed and connection.blocked)
            assert 4 not in engine.confirmed
            assert not connection.healthy
            # The window is one message wide: the next comes only if the acknowledgement flowed.
            held[0].ack()
            await until(lambda: len(held) == 2)
        finally:
            await own_broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
        await until(lambda: 4 in engine.confirmed)
        held[1].ack()
    assert engine.confirmed.count(4) == 1
    # It went out before the alarm was known and arrived after all: twice, which is harmless.
    taken = [decode_message(one.body) for one in await _taken(own_broker.url, destination, 2)]
    assert {entry.number for pack in taken for entry in pack} == {3, 4}


async def _taken(
    url: str, destination: str, at_least: int
) -> list[aio_pika.abc.AbstractIncomingMessage]:
    return await messages_in(url, queue_of(destination).name, at_least)


def _report(how: str, span: float, cpu: float) -> None:
    figures = f"{ROWS / span:,.0f}/s, {cpu / ROWS * 1e6:.1f} us CPU a row"
    print(f"\n{ROWS} rows {how}: {figures}")  # noqa: T201 - a measurement, to be read
