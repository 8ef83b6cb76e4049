"""Shipping conserves its stock and drivers deliver, each in the order that their rules allow."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from mocks.delivery import judged
from mocks.ledger import SESSION
from mocks.retention import Retention
from odin.runtime.clock import SystemClock
from odin.runtime.postgres import close_pool, create_pool

from .mocks_fixture import EngineEnd, Shop, engine_end, rows, shop

ORDER = {"order_id": "order-1"}
RESERVE = {**ORDER, "sku": "sku-03", "quantity": 2}
ASSIGN = {**ORDER, "workflow_id": "wf-1"}
CLOSED: dict[str, object] = {
    "code": "FAILED_PRECONDITION",
    "reason": "RUN_CLOSED",
    "retryable": False,
}
MOVING: dict[str, object] = {"code": "UNAVAILABLE", "reason": "SHARD_MOVING", "retryable": True}
STOCK = "SELECT total, available, reserved, shipped FROM mock_stock WHERE sku = 'sku-03'"
DELIVERY = "SELECT state, attempt_count, last_error FROM mock_delivery"


@pytest.fixture
async def shipping(dsn: str) -> AsyncIterator[Shop]:
    async with shop("shipping", dsn) as opened:
        yield opened


async def stock(opened: Shop) -> tuple[int, int]:
    """Reserved and shipped pieces; every piece is somewhere."""
    (row,) = await rows(opened.dsn, STOCK)
    assert row["available"] + row["reserved"] + row["shipped"] == row["total"]
    return row["reserved"], row["shipped"]


async def test_goods_move_from_the_shelf_to_the_customer_and_back(shipping: Shop) -> None:
    seen = []
    for path, body in (
        ("/reserve", RESERVE),
        ("/ship", ORDER),
        ("/cancel-shipment", ORDER),
        ("/unreserve", ORDER),
    ):
        assert (await shipping.post(path, f"key-{path}", body))[0] == 200
        seen.append(await stock(shipping))

    assert seen == [(2, 0), (0, 2), (2, 0), (0, 0)]
    assert await shipping.effects() == ["reserve", "ship", "cancel_shipment", "unreserve"]


async def test_nothing_is_shipped_that_is_not_reserved(shipping: Shop) -> None:
    status, body, _ = await shipping.post("/ship", "key-1", ORDER)

    assert (status, body["reason"]) == (409, "NOT_RESERVED")
    assert await shipping.effects() == []


@pytest.mark.parametrize(
    ("undo", "late", "body"),
    [("/unreserve", "/reserve", RESERVE), ("/cancel-shipment", "/ship", ORDER)],
)
async def test_a_step_that_arrives_after_it_was_undone_is_refused(
    shipping: Shop, undo: str, late: str, body: object
) -> None:
    if late == "/ship":
        await shipping.post("/reserve", "key-0", RESERVE)
    before = await shipping.effects()

    assert (await shipping.post(undo, "key-1", ORDER))[0] == 200
    assert (await shipping.post(late, "key-2", body))[0] == 409
    assert await shipping.effects() == before


async def test_more_than_there_is_cannot_be_reserved(shipping: Shop) -> None:
    await rows(shipping.dsn, "UPDATE mock_stock SET available = 1, total = 1 RETURNING sku")
    status, body, _ = await shipping.post("/reserve", "key-1", RESERVE)
    again = await shipping.post("/reserve", "key-1", RESERVE)
    unknown = await shipping.post("/reserve", "key-2", {**RESERVE, "sku": "sku-99"})

    assert (status, body["reason"], again[2], unknown[0]) == (409, "OUT_OF_STOCK", True, 409)
    assert await shipping.effects() == []
    assert await stock(shipping) == (0, 0)


async def delivery_in(dsn: str, *states: str) -> dict[str, object]:
    async with asyncio.timeout(10):
        while True:
            found = await rows(dsn, DELIVERY)
            if found and found[0]["state"] in states:
                return dict(found[0])
            await asyncio.sleep(0.02)


def quick(*engines: EngineEnd) -> dict[str, object]:
    addresses = ",".join(engine.url for engine in engines)
    return {"engines": addresses, "delivery_seconds_min": 0.0, "delivery_seconds_max": 0.05}


async def test_a_delivery_is_repeated_until_an_engine_accepts_it(dsn: str) -> None:
    answers: list[tuple[int, dict[str, object]]]
    answers = [(503, MOVING), (404, {"detail": "no engine"}), (429, {}), (200, {})]
    async with engine_end(*answers) as end, shop("drivers", dsn, **quick(end)) as drivers:
        await drivers.post("/assign", "key-1", ASSIGN)
        settled = await delivery_in(dsn, "reported", "refused")

    assert settled == {"state": "reported", "attempt_count": 4, "last_error": ""}
    assert len({path for path, _ in end.received}) == 1
    assert end.received[0][0] == "/v1/executions/wf-1/signals/delivered"
    assert all(body == end.received[0][1] for _, body in end.received)
    assert end.received[0][1]["request_id"] == "delivered-order-1"
    assert end.received[0][1]["input"][0]["order_id"] == "order-1"
    assert await drivers.effects() == ["assign", "deliver"]


async def test_an_engine_that_is_gone_is_passed_over_for_another(dsn: str) -> None:
    async with engine_end((200, {})) as gone, engine_end((202, {})) as end:
        dead = EngineEnd([], url=gone.url.rsplit(":", 1)[0] + ":9")
        async with shop("drivers", dsn, **quick(dead, end)) as drivers:
            for number in range(4):
                order = {"order_id": f"order-{number}", "workflow_id": f"wf-{number}"}
                await drivers.post("/assign", f"key-{number}", order)
            async with asyncio.timeout(10):
                while len({path for path, _ in end.received}) < 4:
                    await asyncio.sleep(0.02)


async def test_a_definite_refusal_ends_the_report(dsn: str) -> None:
    async with engine_end((400, CLOSED)) as end, shop("drivers", dsn, **quick(end)) as drivers:
        await drivers.post("/assign", "key-1", ASSIGN)
        settled = await delivery_in(dsn, "reported", "refused")

    assert settled == {"state": "refused", "attempt_count": 1, "last_error": "RUN_CLOSED"}


async def test_a_delivery_under_way_survives_a_restart_of_the_mock(dsn: str) -> None:
    async with engine_end((200, {})) as end:
        async with shop("drivers", dsn, delivery_seconds_min=0.3, delivery_seconds_max=0.3) as mock:
            await mock.post("/assign", "key-1", ASSIGN)
        assert not end.received
        async with shop("drivers", dsn, **quick(end)):
            assert (await delivery_in(dsn, "reported"))["attempt_count"] == 1


async def test_a_driver_called_off_delivers_nothing(dsn: str) -> None:
    slow = {"delivery_seconds_min": 30.0, "delivery_seconds_max": 30.0}
    async with shop("drivers", dsn, **slow) as drivers:
        await drivers.post("/assign", "key-1", ASSIGN)
        await drivers.post("/unassign", "key-2", ORDER)
        late = await drivers.post("/assign", "key-3", ASSIGN)

        assert (await rows(dsn, DELIVERY))[0]["state"] == "cancelled"
        assert late[0] == 409
        assert await drivers.effects() == ["assign", "unassign"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (202, b"", "reported"),
        (404, b'{"code":"NOT_FOUND","reason":"NO_SUCH_RUN","retryable":false}', "refused"),
        (422, b'{"code":"INVALID_ARGUMENT","retryable":false}', "refused"),
        (404, b"<html>", "status 404"),
        (409, b'{"code":"ABORTED","retryable":true}', "status 409"),
        (401, b'{"code":"UNAUTHENTICATED","retryable":false}', "status 401"),
        (500, b'{"code":"INTERNAL","retryable":false}', "status 500"),
    ],
)
def test_only_an_engines_own_refusal_is_final(status: int, body: bytes, expected: str) -> None:
    assert judged(status, body).startswith(expected)


async def test_old_books_are_forgotten_and_new_ones_kept(shipping: Shop) -> None:
    await shipping.post("/reserve", "key-1", RESERVE)
    pool = await create_pool(
        shipping.dsn,
        name="test",
        application_name="test",
        min_size=1,
        max_size=1,
        session=SESSION,
    )
    try:
        clock = SystemClock()
        await Retention(pool, clock, "shipping", timedelta(hours=1)).forget()
        assert await shipping.effects() == ["reserve"]
        await Retention(pool, clock, "payments", timedelta(0)).forget()
        assert await shipping.effects() == ["reserve"]
        await Retention(pool, clock, "shipping", timedelta(0)).forget()
        assert await shipping.effects() == []
        assert not (await shipping.post("/ship", "key-1", ORDER))[2]
    finally:
        await close_pool(pool)
