from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from odin.runtime.clock import Clock
from odin.runtime.telemetry import (
    HAPPENINGS_KEPT,
    HAPPENINGS_KEY,
    KEY_PREFIX,
    Snapshot,
    Telemetry,
    read_happenings,
    read_telemetry,
)
from odin.runtime.valkey import (
    Breaker,
    BucketAnswer,
    ValkeyClient,
    ValkeyDownError,
    quota_key,
    take_token,
)

Tell = Callable[..., Telemetry]


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def boottime(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.Handle:
        self.now += seconds
        return asyncio.get_running_loop().call_soon(callback)


@pytest.fixture
def node() -> str:
    return f"node-{secrets.token_hex(4)}"


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[ValkeyClient]:
    made = ValkeyClient(valkey_url, call_seconds_max=5.0)
    yield made
    await made.close()


@pytest.fixture
async def telling(valkey_url: str) -> AsyncIterator[Callable[..., Telemetry]]:
    made: list[Telemetry] = []

    def tell(node: str, url: str = valkey_url, clock: Clock | None = None) -> Telemetry:
        made.append(Telemetry(url, "engine", node, clock=clock))
        return made[-1]

    yield tell
    for one in made:
        await one.close()


async def written(telemetry: Telemetry) -> None:
    """Flush until it succeeds: the first call also connects, which may take over 50 ms here."""
    async with asyncio.timeout(10):
        while not await telemetry.flush():
            await asyncio.sleep(0.05)


async def snapshot_of(url: str, node: str) -> Snapshot:
    (found,) = [one for one in await read_telemetry(url) if one.node == node]
    return found


async def test_totals_and_values_are_read_back_with_their_age(
    telling: Tell, valkey_url: str, node: str
) -> None:
    telemetry = telling(node)
    telemetry.count("commits", 2)
    telemetry.count("commits")
    telemetry.gauge("outbox_depth", 7)
    await written(telemetry)
    found = await snapshot_of(valkey_url, node)
    assert (found.service, found.counts, found.gauges) == (
        "engine",
        {"commits": 3},
        {"outbox_depth": 7.0},
    )
    assert 0 <= found.age_seconds < 15
    assert found.is_stale == (found.age_seconds > 3)


async def test_what_a_process_tells_goes_after_fifteen_seconds(
    telling: Tell, valkey_url: str, node: str, client: ValkeyClient
) -> None:
    await written(telling(node))
    async with client.call() as valkey:
        left_ms = await valkey.pttl(f"{KEY_PREFIX}engine:{node}")
    assert 0 < left_ms <= 15_000


async def test_a_new_process_leaves_nothing_of_the_old_one(
    telling: Tell, valkey_url: str, node: str
) -> None:
    old, new = telling(node), telling(node)
    old.count("old")
    await written(old)
    new.count("new")
    await written(new)
    assert (await snapshot_of(valkey_url, node)).counts == {"new": 1}


async def test_happenings_are_told_once_newest_first(
    telling: Tell, valkey_url: str, node: str
) -> None:
    telemetry = telling(node)
    telemetry.happening("shard_acquired", shard_id=3)
    telemetry.happening("shard_lost", shard_id=3, odd=object())
    await written(telemetry)
    await written(telemetry)
    told = [one for one in await read_happenings(valkey_url) if one.node == node]
    assert [one.kind for one in told] == ["shard_lost", "shard_acquired"]
    assert told[1].fields == {"shard_id": 3}


async def test_the_stream_of_happenings_stays_short(
    telling: Tell, valkey_url: str, node: str, client: ValkeyClient
) -> None:
    telemetry = telling(node)
    for _ in range(6):
        for number in range(400):
            telemetry.happening("noise", number=number)
        await written(telemetry)
    async with client.call() as valkey:
        assert await valkey.xlen(HAPPENINGS_KEY) < 2 * HAPPENINGS_KEPT


async def test_without_valkey_telling_costs_memory_bounds_and_no_error(telling: Tell) -> None:
    telemetry = telling("engine-1", "valkey://127.0.0.1:1", HandClock())
    for number in range(2_000):
        telemetry.happening("noise", number=number)
        telemetry.count(f"name-{number}")
        telemetry.gauge(f"name-{number}", 1)
    assert telemetry.dropped_count == 3 * 1_500
    for _ in range(3):
        assert not await telemetry.flush()
    assert telemetry.is_lost


async def test_with_no_url_everything_is_dropped_and_said_to_be() -> None:
    telemetry = Telemetry(None, "engine", "engine-1")
    telemetry.happening("noise")
    assert (telemetry.dropped_count, telemetry.is_lost) == (1, True)
    assert not await telemetry.flush()
    stop = asyncio.Event()
    stop.set()
    await telemetry.run(stop)


async def test_the_loop_writes_once_more_when_told_to_stop(
    telling: Tell, valkey_url: str, node: str
) -> None:
    telemetry, stop = telling(node), asyncio.Event()
    await written(telemetry)
    telemetry.count("last_words")
    stop.set()
    await telemetry.run(stop)
    assert (await snapshot_of(valkey_url, node)).counts == {"last_words": 1}


async def test_a_valkey_that_does_not_answer_costs_little_and_then_nothing(telling: Tell) -> None:
    accepted = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await reader.read()
        writer.close()

    clock = HandClock()
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        telemetry = telling("engine-1", f"valkey://127.0.0.1:{port}", clock)
        loop = asyncio.get_running_loop()
        before = loop.time()
        for _ in range(3):
            assert not await telemetry.flush()
        assert loop.time() - before < 2
        assert telemetry.is_lost
        tried = accepted
        for _ in range(10):
            assert not await telemetry.flush()
        assert accepted == tried
        clock.now += 1.0
        assert not await telemetry.flush()
        assert accepted == tried + 1


async def test_reading_from_a_valkey_that_is_away_is_a_typed_error() -> None:
    with pytest.raises(ValkeyDownError):
        await read_telemetry("valkey://127.0.0.1:1")


async def test_a_bucket_gives_its_tokens_and_then_says_when(client: ValkeyClient) -> None:
    origin = f"visitor {secrets.token_hex(4)}"
    answers = [
        await take_token(client, origin, capacity=3, refill_per_second=0.01) for _ in range(4)
    ]
    assert [one.allowed for one in answers] == [True, True, True, False]
    assert answers[0] == BucketAnswer(allowed=True, tokens_left=2, retry_after_ms=0)
    assert 90_000 < answers[3].retry_after_ms <= 100_000


async def test_a_bucket_fills_again_with_time(client: ValkeyClient) -> None:
    origin = secrets.token_hex(4)
    assert (await take_token(client, origin, capacity=1, refill_per_second=20)).allowed
    refused = await take_token(client, origin, capacity=1, refill_per_second=20)
    if not refused.allowed:
        assert 0 < refused.retry_after_ms <= 50
    async with asyncio.timeout(5):
        while not (await take_token(client, origin, capacity=1, refill_per_second=20)).allowed:
            await asyncio.sleep(0.01)


async def test_many_at_once_never_get_more_than_the_bucket_holds(client: ValkeyClient) -> None:
    origin = secrets.token_hex(4)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(take_token(client, origin, capacity=5, refill_per_second=0.001))
            for _ in range(8)
        ]
    assert sum(task.result().allowed for task in tasks) == 5


async def test_a_bucket_always_has_an_end_and_its_key_no_text_of_a_user(
    client: ValkeyClient,
) -> None:
    origin = f"<script>{secrets.token_hex(4)}"
    await take_token(client, origin, capacity=5, refill_per_second=1)
    key = quota_key(origin)
    assert "script" not in key
    async with client.call() as valkey:
        assert 0 < await valkey.pttl(key) <= 6_000


async def test_a_bucket_that_can_never_give_is_refused(client: ValkeyClient) -> None:
    for numbers in ((0, 1.0, 1), (5, 0.0, 1), (5, 1.0, 6)):
        capacity, rate, cost = numbers
        with pytest.raises(ValueError, match="no bucket"):
            await take_token(client, "x", capacity=capacity, refill_per_second=rate, cost=cost)


def test_a_breaker_opens_after_three_failures_and_probes_one_at_a_time() -> None:
    clock = HandClock()
    breaker = Breaker(clock)
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    assert [breaker.is_open, breaker.allows()] == [True, False]
    clock.now += 1.0
    assert breaker.allows()
    assert not breaker.allows()
    breaker.failed()
    clock.now += 1.9
    assert not breaker.allows()
    clock.now += 0.1
    assert breaker.allows()
    breaker.abandoned()
    assert breaker.allows()
    breaker.succeeded()
    assert [breaker.is_open, breaker.allows()] == [False, True]


def test_a_success_between_failures_keeps_a_breaker_closed() -> None:
    breaker = Breaker(HandClock())
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert not breaker.is_open


async def test_a_caller_s_own_error_does_not_count_against_valkey(client: ValkeyClient) -> None:
    for _ in range(5):
        with pytest.raises(KeyError):
            async with client.call():
                raise KeyError
    assert not client.breaker.is_open
