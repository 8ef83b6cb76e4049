"""Foreign, damaged, oversized, repeated and reordered messages on the queues of a live cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence

import aio_pika
import msgspec
import pytest

from odin.core.tasks import decode_message, encode_message
from odin.core.topology import dead_letter_queue, queue_of
from odin.core.wire import TaskEntry
from odin.errors import InvalidArgumentError
from odin.runtime.clock import SystemClock
from relay.dead_letters import DeadLetters
from tests.conftest import _execute, database_url
from tests.door.flows import ACTIVITIES, WORKFLOWS
from tests.engine.bed import Bed, running_bed

RUN = "018bcfe5-6801-726b-b2a7-4de452e6b438"
GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "bytes": bytes(range(256)),
    "text": b"hello",
    "null": b"null",
    "other version": b'{"v":2,"kind":"w","tasks":[]}',
    "far version": b'{"v":99999999999999999999999,"kind":"w","tasks":[[1,1,"x",1,1]]}',
    "no tasks": b'{"v":1,"kind":"w","tasks":[]}',
    "other kind": b'{"v":1,"kind":"x","tasks":[[1,1,"x",1,1]]}',
    "negative": b'{"v":1,"kind":"w","tasks":[[-1,1,"x",1,1]]}',
    "beyond 32 bits": json.dumps({"v": 1, "kind": "a", "tasks": [[1, 1, RUN, 2**40, 1]]}).encode(),
    "beyond 64 bits": json.dumps({"v": 1, "kind": "a", "tasks": [[1, 2**70, RUN, 1, 1]]}).encode(),
    "a name with NUL": b'{"v":1,"kind":"w","tasks":[[1,1,"\\u0000",1,1]]}',
    "a long name": json.dumps({"v": 1, "kind": "w", "tasks": [[1, 1, "x" * 300, 1, 1]]}).encode(),
    "deep": b"[" * 50_000,
    "oversized": b'{"v":1,"kind":"w","tasks":[' + b"[1,1,1]," * 20_000,
    "unknown run": encode_message("w", [TaskEntry("w", 1, 1, RUN, 1, 1)]),
    "no run id": encode_message("w", [TaskEntry("w", 1, 1, "not-a-run", 1, 1)]),
    "no such shard": encode_message("a", [TaskEntry("a", 2**31 - 1, 1, RUN, 1, 1)]),
    "msgpack": msgspec.msgpack.encode({"v": 1, "kind": "w", "tasks": [[1, 1, RUN, 1, 1]]}),
}


@pytest.fixture(scope="module")
async def cluster(
    postgres_server: str, template_database: str, rabbitmq_url: str
) -> AsyncIterator[tuple[Bed, str]]:
    """An engine and a worker over RabbitMQ, on a task queue of their own."""
    name = f"odin_queues_{secrets.token_hex(4)}"
    task_queue = f"door-{secrets.token_hex(4)}"
    await _execute(postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
    async with running_bed(database_url(postgres_server, name), amqp_url=rabbitmq_url) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES, task_queue=task_queue)
        yield bed, task_queue
    await _execute(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


async def publish(url: str, queue: str, bodies: list[bytes], **headers: str) -> None:
    """Put messages on a queue as a stranger would."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        for body in bodies:
            message = aio_pika.Message(body, headers=dict(headers) or None)
            await channel.default_exchange.publish(message, queue, mandatory=True)


async def until_drained(url: str, queue: str, seconds: float = 15.0) -> None:
    """Return once nothing of the queue waits or is in anybody's hands."""
    connection = await aio_pika.connect(url)
    async with connection, asyncio.timeout(seconds):
        channel = await connection.channel()
        while True:
            declared = await channel.declare_queue(queue, passive=True)
            if declared.declaration_result.message_count == 0:
                return
            await asyncio.sleep(0.05)


async def run_one(bed: Bed, task_queue: str, key: str) -> None:
    async with asyncio.timeout(15):
        said = await bed.client.execute_workflow(
            "one_activity", args=["length", key], id=f"after-{key}", task_queue=task_queue
        )
    assert said == f"kept: {len(key)}"


@pytest.mark.parametrize("kind", ["w", "a"])
async def test_whatever_lies_on_a_task_queue_the_work_behind_it_is_done(
    cluster: tuple[Bed, str], rabbitmq_url: str, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    bed, task_queue = cluster
    queue = queue_of(f"{kind}:{task_queue}").name
    await run_one(bed, task_queue, f"before-{kind}")
    caplog.set_level(logging.WARNING)
    await publish(rabbitmq_url, queue, list(GARBAGE.values()))
    await run_one(bed, task_queue, f"behind-{kind}")
    await until_drained(rabbitmq_url, queue)
    told = [one for one in caplog.records if one.getMessage() == "message names no task"]
    assert len(told) == len(GARBAGE) - 3


async def test_repeated_and_reordered_messages_do_nothing_twice(
    cluster: tuple[Bed, str], rabbitmq_url: str
) -> None:
    bed, task_queue = cluster
    handle = await bed.client.start_workflow("Waits", id="often", task_queue=task_queue)
    await bed.until(
        "SELECT count(*) = 2 FROM event JOIN execution USING (shard_id, run_id)"
        " WHERE workflow_id = 'often'"
    )
    row = (
        await bed.fetch("SELECT shard_id, run_id::text FROM execution WHERE workflow_id='often'")
    )[0]
    bodies = [
        encode_message(kind, [TaskEntry(kind, row[0], 1, row[1], number, attempt)])
        for number in (3, 1, 2, 1)
        for attempt in (2, 1, 7)
        for kind in ("w", "a")
    ]
    assert all(decode_message(body) for body in bodies)
    for kind in ("w", "a"):
        await publish(rabbitmq_url, queue_of(f"{kind}:{task_queue}").name, bodies)
    await handle.signal("finish")
    assert await handle.result() == 0
    assert (await bed.history("often")).count("workflow_task_completed") == 2


async def test_whatever_lies_on_the_dead_letter_queue_the_letters_behind_it_are_recorded(
    cluster: tuple[Bed, str], rabbitmq_url: str
) -> None:
    bed, _ = cluster
    queue = dead_letter_queue().name
    real = encode_message("w", [TaskEntry("w", 5, 1, RUN, 77, 3)])
    evil = "x\0y" * 200
    await publish(rabbitmq_url, queue, [*GARBAGE.values(), real], **{"x-first-death-reason": evil})
    await bed.until("SELECT count(*) >= 1 FROM dead_letter WHERE number = 77", seconds=30)
    await until_drained(rabbitmq_url, queue)


async def test_a_dead_letter_that_can_never_be_recorded_holds_up_none_behind_it() -> None:
    tried: list[int] = []

    async def dead(entries: Sequence[TaskEntry], _: str) -> None:
        tried.append(entries[0].number)
        if entries[0].number == 1:
            raise InvalidArgumentError("never")

    letters = DeadLetters("amqp://u:p@127.0.0.1:1/", dead, _Hurried())
    for number in (1, 2):
        await letters._tell([TaskEntry("w", 1, 1, RUN, number, 1)], "x")  # noqa: SLF001 - one step
    assert (tried[-1], letters.handed_over, letters.damaged) == (2, 1, 1)


class _Hurried(SystemClock):
    """A clock whose waits are over at once."""

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - the clock's interface
        await asyncio.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.Handle:  # noqa: ARG002 - the clock's interface
        return asyncio.get_running_loop().call_soon(callback)
