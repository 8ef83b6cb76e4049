"""The transport without a broker: the worker's receipt is the confirm."""

import asyncio
from collections.abc import Sequence

import pytest

from odin.core.wire import TaskEntry
from odin.errors import NotPublishedError
from odin.runtime.clock import SystemClock
from relay.embedded import EmbeddedTransport
from relay.publisher import Publisher

from .support import EngineEnd, row, running, settle, until

ENTRIES = [TaskEntry("a", 1, 1, "r", 1, 1)]


async def test_a_receipt_is_a_confirm() -> None:
    pushed: list[tuple[str, str, Sequence[TaskEntry]]] = []

    async def push(task_queue: str, kind: str, entries: Sequence[TaskEntry]) -> bool:
        pushed.append((task_queue, kind, entries))
        return True

    await EmbeddedTransport(push).publish("a:eu:fast", ENTRIES)
    assert pushed == [("eu:fast", "a", ENTRIES)]


async def test_no_free_slot_is_surely_not_published() -> None:
    async def push(_task_queue: str, _kind: str, _entries: Sequence[TaskEntry]) -> bool:
        return False

    with pytest.raises(NotPublishedError) as caught:
        await EmbeddedTransport(push).publish("a:q", ENTRIES)
    assert not caught.value.maybe_sent


async def test_a_lost_link_leaves_the_fate_open() -> None:
    async def push(_task_queue: str, _kind: str, _entries: Sequence[TaskEntry]) -> bool:
        raise ConnectionResetError

    with pytest.raises(NotPublishedError) as caught:
        await EmbeddedTransport(push).publish("a:q", ENTRIES)
    assert caught.value.maybe_sent


async def test_a_receipt_that_does_not_come_is_not_waited_for() -> None:
    async def push(_task_queue: str, _kind: str, _entries: Sequence[TaskEntry]) -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(NotPublishedError) as caught:
        await EmbeddedTransport(push, receipt_seconds=0.05).publish("a:q", ENTRIES)
    assert caught.value.maybe_sent


async def test_rows_go_out_as_soon_as_slots_are_announced() -> None:
    free = 0
    engine = EngineEnd()

    async def push(_task_queue: str, _kind: str, entries: Sequence[TaskEntry]) -> bool:
        nonlocal free
        if free <= 0:
            return False
        free -= len(entries)
        return True

    publisher = Publisher(EmbeddedTransport(push), engine.callables, SystemClock())
    async with running(publisher.run):
        publisher.offer([row(number, "a:q") for number in range(100)])
        await settle()
        assert engine.confirmed == []
        for _ in range(20):
            free = 10
            publisher.wake("a:q")
            await settle()
            if not publisher.depth:
                break
        await until(lambda: publisher.depth == 0)
    # What had no chance of a slot was not rewritten for every announcement.
    assert len(engine.delayed) <= 100
    assert sorted(engine.confirmed) == list(range(100))
