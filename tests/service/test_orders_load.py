"""The load generator against an HTTP server that stands in for the engines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cluster.client_log import ClientLog, Entry, read, starts
from cluster.load import ASKED_AGAIN_COUNT, Load
from cluster.load_settings import LoadSettings
from odin.client import Client
from odin.runtime.clock import SystemClock
from odin.runtime.ids import SeededIds
from odin.runtime.settings import load

STARTED = {"run_id": "run", "first_run_id": "run", "started": True, "replayed": False}
ACCEPTED = {"run_id": "run", "event_id": 5, "replayed": False}
EXHAUSTED = {
    "code": "RESOURCE_EXHAUSTED",
    "reason": "RESOURCE_EXHAUSTED",
    "detail": "quota",
    "retryable": True,
    "retry_after_ms": 10_000,
}

Answer = Callable[[str], Awaitable[tuple[int, dict[str, Any]]]]


@dataclass
class Engines:
    """What was asked of the engines, and how they answer a start."""

    answer: Answer
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.path.endswith("/cancel"):
            self.cancelled.append(request.path.split("/")[-2])
            return web.json_response(ACCEPTED)
        self.asked.append(body)
        status, answer = await self.answer(body["workflow_id"])
        return web.json_response(answer, status=status)


@asynccontextmanager
async def engines(answer: Answer) -> AsyncIterator[Engines]:
    end = Engines(answer)
    app = web.Application()
    app.router.add_post("/{path:.*}", end.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    end.url = f"http://{host}:{port}"
    try:
        yield end
    finally:
        await runner.cleanup()


async def generate(
    end: Engines, path: Path, *, patience_seconds: float = 2.0, **given: object
) -> tuple[Load, list[Entry]]:
    asked = {"engines": end.url, "client_log": path, "load_run": "t", "load_subscriptions": 0}
    settings = load(LoadSettings, **{**asked, **given})
    clock, stop = SystemClock(), asyncio.Event()
    with ClientLog(path, clock) as client_log:
        patience = timedelta(seconds=patience_seconds)
        async with Client([end.url], timeout=patience) as client:
            generator = Load(settings, client, client_log, clock, SeededIds(7))
            await generator(stop)
    assert stop.is_set()
    return generator, read(path)


async def at_once(_: str) -> tuple[int, dict[str, Any]]:
    return 200, STARTED


async def test_orders_come_at_their_rate_and_the_load_ends_by_itself(tmp_path: Path) -> None:
    async with engines(at_once) as end:
        generator, entries = await generate(
            end, tmp_path / "log", demo_seconds=0.5, load_rate=40, load_subscriptions=2
        )

    orders = [one for one in end.asked if one["workflow_type"] == "Order"]
    assert sorted(one["workflow_id"] for one in orders) == sorted(f"order-t-{n}" for n in range(20))
    assert {one["origin"] for one in end.asked} == {"synthetic"}
    assert {one["run_timeout"] for one in orders} == {300.0}
    assert sorted(end.cancelled) == ["subscription-t-0", "subscription-t-1"]
    assert generator.counts == {"accepted": 22, "cancelled": 2}
    assert {one.outcome for one in starts(entries)} == {"ok"}
    told = [one for one in starts(entries) if one.workflow_id == "order-t-0"]
    asked = next(one for one in orders if one["workflow_id"] == "order-t-0")
    assert told[0].amount_cents == asked["input"][0]["amount_cents"]


async def test_the_same_seed_buys_the_same_and_some_cards_decline(tmp_path: Path) -> None:
    bought = []
    for run in ("a", "b"):
        async with engines(at_once) as end:
            given = {"demo_seconds": 0.3, "load_rate": 100, "load_decline_share": 0.3}
            await generate(end, tmp_path / run, load_seed=11, **given)
            # Each request has a connection of its own, so one may come before an earlier one.
            bought.append({one["workflow_id"]: one["input"] for one in end.asked})
            assert len(bought[-1]) == len(end.asked) == 30

    assert bought[0] == bought[1]
    cards = [purchase["card"] for (purchase,) in bought[0].values()]
    assert 0 < sum(card.startswith("declined") for card in cards) < len(cards)


async def test_a_refusal_is_counted_and_never_taken_for_a_start(tmp_path: Path) -> None:
    async def refuse(_: str) -> tuple[int, dict[str, Any]]:
        return 429, EXHAUSTED

    async with engines(refuse) as end:
        generator, entries = await generate(
            end, tmp_path / "log", patience_seconds=0.2, demo_seconds=0.1, load_rate=20
        )

    assert generator.counts == {"refused": 2}
    ends = [(one.operation, one.reason) for one in entries if one.operation != "invoke"]
    assert ends == [("fail", "RESOURCE_EXHAUSTED")] * 2


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["OUTCOME_UNKNOWN"], "unknown"),
        (["OUTCOME_UNKNOWN", "SHARD_MOVING"], "unknown"),
        (["SHARD_MOVING"], "fail"),
    ],
    ids=["unknown", "once unknown", "refused"],
)
async def test_an_unanswered_start_is_asked_again_under_its_request_id(
    tmp_path: Path, reasons: list[str], said: str
) -> None:
    left = list(reasons)

    async def unanswered(_: str) -> tuple[int, dict[str, Any]]:
        reason = left.pop(0) if len(left) > 1 else left[0]
        return 503, {"code": "UNAVAILABLE", "reason": reason, "retryable": True}

    async with engines(unanswered) as end:
        generator, entries = await generate(
            end, tmp_path / "log", patience_seconds=0.1, demo_seconds=0.01, load_rate=20
        )

    assert generator.counts == {"unknown" if said == "unknown" else "failed": 1}
    assert [one.operation for one in entries] == ["invoke", said]
    assert len(end.asked) >= ASKED_AGAIN_COUNT
    assert {one["request_id"] for one in end.asked} == {entries[0].request_id}


async def test_slow_engines_do_not_slow_the_load_and_what_is_too_much_is_left_out(
    tmp_path: Path,
) -> None:
    released = asyncio.Event()

    async def hold(workflow_id: str) -> tuple[int, dict[str, Any]]:
        if workflow_id == "order-t-5":
            released.set()
        await released.wait()
        return 200, STARTED

    async with engines(hold) as end:
        generator, _ = await generate(
            end,
            tmp_path / "log",
            patience_seconds=10.0,
            demo_seconds=0.3,
            load_rate=100,
            load_concurrency=6,
        )

    assert generator.counts["accepted"] + generator.counts["left_out"] == 30
    assert generator.counts["accepted"] >= 6


@pytest.mark.parametrize("demo_seconds", [0.0, 60.0])
async def test_told_to_stop_it_stops(tmp_path: Path, demo_seconds: float) -> None:
    async with engines(at_once) as end, asyncio.timeout(5), asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        with ClientLog(tmp_path / "log", SystemClock()) as client_log:
            async with Client([end.url]) as client:
                settings = load(
                    LoadSettings, engines=end.url, demo_seconds=demo_seconds, load_rate=50
                )
                generator = Load(settings, client, client_log, SystemClock(), SeededIds(7))
                running = group.create_task(generator(stop))
                while not end.asked:
                    await asyncio.sleep(0.01)
                stop.set()
                await running

    assert len(end.cancelled) == 3
