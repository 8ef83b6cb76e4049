"""The mocks over real HTTP and real Postgres: one effect per key, whatever happens around it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import asyncpg
import pytest

from .mocks_fixture import LEDGER, Shop, rows, shop

WAITS_FOR_LEDGER = """
SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'mock_ledger'::regclass)
"""
CHARGE = {"order_id": "order-1", "amount_cents": 1250, "card": "visa"}


@pytest.fixture
async def payments(dsn: str) -> AsyncIterator[Shop]:
    async with shop("payments", dsn) as opened:
        yield opened


async def test_the_same_key_and_body_get_the_first_answer_again(payments: Shop) -> None:
    first = await payments.post("/charge", "key-1", CHARGE)
    again = await payments.post("/charge", "key-1", CHARGE)

    assert first == (200, {"order_id": "order-1", "charged_cents": 1250}, False)
    assert again == (*first[:2], True)
    assert await payments.effects() == ["charge"]


async def test_the_same_key_with_another_body_is_refused(payments: Shop) -> None:
    await payments.post("/charge", "key-1", CHARGE)

    status, body, _ = await payments.post("/charge", "key-1", {**CHARGE, "amount_cents": 1251})

    assert (status, body["reason"], body["retryable"]) == (422, "REQUEST_MISMATCH", False)
    assert await payments.effects() == ["charge"]


async def test_the_same_key_for_another_effect_is_refused(payments: Shop) -> None:
    await payments.post("/refund", "key-1", {"order_id": "order-2"})

    assert (await payments.post("/charge", "key-1", CHARGE))[0] == 422


async def test_twenty_requests_with_one_key_at_once_have_one_effect(payments: Shop) -> None:
    answers: list[tuple[int, object, bool]] = []

    async def charge() -> None:
        answers.append(await payments.post("/charge", "key-1", CHARGE))

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(charge())

    assert {status for status, _, _ in answers} == {200}
    assert sorted(replayed for _, _, replayed in answers) == [False] + [True] * 19
    assert await payments.effects() == ["charge"]


async def test_another_key_is_another_effect_so_that_a_double_charge_shows(payments: Shop) -> None:
    await payments.post("/charge", "key-1", CHARGE)
    await payments.post("/charge", "key-2", CHARGE)

    assert await payments.effects() == ["charge", "charge"]


async def test_a_declined_card_is_an_answer_like_any_other(payments: Shop) -> None:
    body = {**CHARGE, "card": "declined-1"}
    first = await payments.post("/charge", "key-1", body)
    again = await payments.post("/charge", "key-1", body)

    assert (first[0], first[1]["reason"], again[2]) == (402, "CARD_DECLINED", True)
    assert await payments.effects() == []


async def test_a_charge_that_arrives_after_the_order_was_given_up_is_refused(
    payments: Shop,
) -> None:
    _, refunded, _ = await payments.post("/refund", "key-r", {"order_id": "order-1"})
    status, late, _ = await payments.post("/charge", "key-1", CHARGE)

    assert refunded["refunded_cents"] == 0
    assert (status, late["reason"]) == (409, "ORDER_CLOSED")
    assert await payments.effects() == []


async def test_a_refund_gives_back_what_was_charged(payments: Shop) -> None:
    await payments.post("/charge", "key-1", CHARGE)
    await payments.post("/refund", "key-2", {"order_id": "order-1"})

    recorded = [(row["effect"], row["amount_cents"]) for row in await rows(payments.dsn, LEDGER)]
    assert recorded == [("charge", 1250), ("refund", 1250)]


async def test_forgetting_the_answer_keeps_the_effect_and_the_key(payments: Shop) -> None:
    assert await payments.behave(kind="forgetful", for_seconds=60) == 200
    lost = await payments.post("/charge", "key-1", CHARGE)
    await payments.behave(kind="none")
    again = await payments.post("/charge", "key-1", CHARGE)

    assert (lost[0], lost[1]["reason"]) == (500, "ANSWER_LOST")
    assert (again[0], again[2]) == (200, True)
    assert await payments.effects() == ["charge"]


async def test_a_reset_after_the_effect_cuts_the_connection_and_keeps_the_effect(
    payments: Shop,
) -> None:
    await payments.behave(kind="reset", for_seconds=60)
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await payments.post("/charge", "key-1", CHARGE)
    await payments.behave(kind="none")

    assert await payments.effects() == ["charge"]
    assert (await payments.post("/charge", "key-1", CHARGE))[2]


async def test_a_slow_mock_has_its_effect_although_the_client_gave_up(payments: Shop) -> None:
    await payments.behave(kind="slow", delay_ms=400, for_seconds=60)
    impatient = aiohttp.ClientTimeout(total=0.1)
    async with aiohttp.ClientSession(timeout=impatient) as http:
        with pytest.raises(TimeoutError):
            await Shop(payments.url, payments.dsn, http).post("/charge", "key-1", CHARGE)
    await payments.behave(kind="none")

    async with asyncio.timeout(5):
        while await payments.effects() != ["charge"]:
            await asyncio.sleep(0.02)


async def test_a_failing_mock_has_no_effect_and_counts_how_often_it_failed(payments: Shop) -> None:
    await payments.behave(kind="failing", status=503, for_seconds=60, paths=["/charge"])
    status, body, _ = await payments.post("/charge", "key-1", CHARGE)
    spared = await payments.post("/refund", "key-2", {"order_id": "order-9"})

    assert (status, body["retryable"], spared[0]) == (503, True, 200)
    assert [(one["kind"], one["hit_count"]) for one in await payments.behaviours()] == [
        ("failing", 1)
    ]
    assert await payments.effects() == []


async def test_misbehaviour_ends_by_itself(payments: Shop) -> None:
    await payments.behave(kind="failing", for_seconds=0.2)
    async with asyncio.timeout(5):
        while (await payments.behaviours())[0]["seconds_left"] > 0:
            await asyncio.sleep(0.02)

    assert (await payments.post("/charge", "key-1", CHARGE))[0] == 200


async def test_a_seed_makes_the_same_calls_fail(payments: Shop) -> None:
    async def statuses(run: str) -> list[int]:
        await payments.behave(kind="failing", probability=0.5, seed=7, for_seconds=60)
        body = {"order_id": "order-1"}
        return [(await payments.post("/refund", f"{run}-{n}", body))[0] for n in range(12)]

    first, second = await statuses("a"), await statuses("b")

    assert first == second
    assert set(first) == {200, 500}


async def test_misbehaviour_needs_the_admin_token(payments: Shop) -> None:
    for token in ("", "wrong-token-of-tests"):
        assert await payments.behave(token, kind="reset", for_seconds=60) == 401
    assert await payments.behaviours() == []


async def test_without_an_admin_token_the_admin_route_is_closed(dsn: str) -> None:
    async with shop("payments", dsn, admin_token=None) as opened:
        assert await opened.behave("None", kind="reset", for_seconds=60) == 403


MALFORMED: tuple[object, ...] = (
    {**CHARGE, "amount_cents": 0},
    {**CHARGE, "amount_cents": "1250"},
    {**CHARGE, "amount_cents": 1.5},
    {**CHARGE, "order_id": "a/b"},
    {**CHARGE, "extra": 1},
    {"order_id": "order-1"},
    [],
    None,
)


async def test_a_malformed_charge_is_refused_and_leaves_the_key_free(payments: Shop) -> None:
    for body in MALFORMED:
        status, problem, _ = await payments.post("/charge", "key-1", body)
        assert (status, problem["code"]) == (400, "INVALID_ARGUMENT"), body
    assert (await payments.post("/charge", "key-1", CHARGE))[0] == 200


async def test_a_request_without_a_key_or_too_large_is_refused(payments: Shop) -> None:
    assert (await payments.post("/charge", None, CHARGE))[0] == 400
    assert (await payments.post("/charge", "key-1", {**CHARGE, "card": "v" * 20_000}))[0] == 413
    assert (await payments.post("/nowhere", "key-1", CHARGE))[1]["reason"] == "NO_SUCH_ROUTE"


async def test_there_is_no_answer_while_the_ledger_cannot_be_written(payments: Shop) -> None:
    blocker = await asyncpg.connect(payments.dsn, timeout=10)
    try:
        blocking = blocker.transaction()
        await blocking.start()
        await blocker.execute("LOCK TABLE mock_ledger IN SHARE MODE")
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(payments.post("/charge", "key-1", CHARGE))
            while not await blocker.fetchval(WAITS_FOR_LEDGER):
                await asyncio.sleep(0.01)
            assert not answering.done()
            await blocking.rollback()
        assert answering.result()[0] == 200
        assert await payments.effects() == ["charge"]
    finally:
        await blocker.close()


async def test_the_ledger_cannot_be_changed_afterwards(payments: Shop) -> None:
    await payments.post("/charge", "key-1", CHARGE)

    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await rows(payments.dsn, "UPDATE mock_ledger SET amount_cents = 1 RETURNING seq")
