"""A queue that the broker forgot half of is made anew; one that is refused for a reason is not."""

import os
from pathlib import Path

import pytest

from cluster.servers import RabbitmqServer
from odin.core.topology import queue_of
from odin.runtime.amqp import BrokerError
from odin.runtime.rabbitmq import Consumer, Delivery, PublisherConnection
from odin.runtime.rabbitmq_dead import REFUSALS, REFUSED_SECONDS, DeadQueues

from .support import ManualClock, running, until


async def test_a_queue_whose_broker_was_killed_right_after_its_first_declaration_serves_again(
    servers_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("odin.runtime.rabbitmq_consumer.RPC_SECONDS", 1.0)
    monkeypatch.setattr("odin.runtime.rabbitmq_dead.REFUSED_SECONDS", 1.0)
    destination, taken = "w:dead-queue", list[Delivery]()
    async with RabbitmqServer(servers_folder / "killed-rabbitmq", os.environ) as server:
        await server.control("eval", "mnesia:sync_log().")  # all but the queue outlives the kill
        publisher = PublisherConnection(server.url)
        async with running(publisher.run):
            await publisher.until_ready()
            await publisher.publish(destination, b"lost with its queue", "id-1")
            await server.kill()
        await server.start()
        consumer = Consumer(server.url, [queue_of(destination)], 10, taken.append)
        publisher = PublisherConnection(server.url)
        async with running(publisher.run, consumer.run):
            await until(lambda: consumer.healthy)
            await publisher.until_ready()
            await publisher.publish(destination, b"published again", "id-1")
            await until(lambda: taken)
    assert [one.body for one in taken] == [b"published again"]
    assert "queue is dead, made anew" in caplog.text


def refusal(cause: Exception) -> BrokerError:
    error = BrokerError("consuming q")
    error.__cause__ = cause
    return error


async def test_a_queue_is_dead_only_after_several_refusals_over_some_time() -> None:
    clock = ManualClock()
    queues = DeadQueues(clock)
    for _ in range(REFUSALS):
        queues.refused("q", refusal(TimeoutError()))
    assert not queues.is_dead("q")
    await clock.advance(REFUSED_SECONDS)
    assert queues.is_dead("q")
    assert not queues.is_dead("another")
    queues.served("q")
    assert not queues.is_dead("q")


async def test_a_long_wait_between_two_refusals_is_not_enough() -> None:
    clock = ManualClock()
    queues = DeadQueues(clock)
    for _ in range(REFUSALS - 1):
        queues.refused("q", refusal(TimeoutError()))
        await clock.advance(REFUSED_SECONDS)
    assert not queues.is_dead("q")


async def test_who_may_not_consume_deletes_nothing() -> None:
    clock = ManualClock()
    queues = DeadQueues(clock)
    for _ in range(2 * REFUSALS):
        queues.refused("q", refusal(PermissionError("ACCESS_REFUSED")))
        await clock.advance(REFUSED_SECONDS)
    assert not queues.is_dead("q")
