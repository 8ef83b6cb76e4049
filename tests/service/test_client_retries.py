"""What the client makes of bad luck: copies of one call, and what may be said of their fate."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from odin.client import Client, WorkflowContinuedAsNewError
from odin.core.payload import Payload
from odin.core.requests import Outcome, Started
from odin.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutcomeUnknownError,
    ResourceExhaustedError,
    StoreFullError,
    UnavailableError,
    WorkflowAlreadyStartedError,
)
from tests.service.scripted_server import DROP, HANG, Say, Script, problem, scripted

STARTED = Say(201, Started(run_id="r1", first_run_id="r1", started=True))
IN_THE_WAY = problem(409, "ALREADY_EXISTS", "ALREADY_STARTED", details={"run_id": "r0"})
MOVING = problem(503, "UNAVAILABLE", "SHARD_MOVING", retry_after_ms=10)
UNKNOWN = problem(503, "UNAVAILABLE", "OUTCOME_UNKNOWN", retry_after_ms=10)
NO_ROOM = problem(503, "UNAVAILABLE", "STORE_FULL", retry_after_ms=10, detail="no room: free space")
LOST_READ = problem(503, "UNAVAILABLE", "STORE_UNAVAILABLE", retry_after_ms=10)
GONE = problem(404, "NOT_FOUND", "NOT_FOUND", retryable=False)
FULL = problem(429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", retry_after_ms=100)


def outcome(status: str, **more: object) -> Say:
    return Say(200, Outcome(run_id="r1", status=status, **more), "application/msgpack")  # type: ignore[arg-type] # as given


@asynccontextmanager
async def connected(*lines: Say | str) -> AsyncIterator[tuple[Script, Client]]:
    """Yield a script and a client of the servers that follow it."""
    async with scripted(*lines) as script, await Client.connect(*script.addresses) as client:
        yield script, client


async def start(script: Script, seconds: float = 5.0) -> str | None:
    """Start through all of the script's servers and return the run id."""
    client = await Client.connect(*script.addresses, timeout=timedelta(seconds=seconds))
    async with client:
        return (await client.start_workflow("order", id="order-1")).run_id


async def test_a_lost_answer_is_asked_for_elsewhere_under_the_same_request_id() -> None:
    async with scripted(DROP, STARTED) as script:
        assert await start(script) == "r1"
    first, second = script.copies
    assert first.body == second.body
    assert first.request_id
    assert first.address != second.address


async def test_calls_that_fail_together_at_one_engine_all_go_on_to_another() -> None:
    async with scripted(HANG, HANG, HANG, HANG, STARTED) as script:
        client = await Client.connect(*script.addresses, timeout=timedelta(seconds=3))
        async with client, asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(client.start_workflow("order", id=f"order-{number}"))
    first, second = script.copies[:4], script.copies[4:]
    assert len(second) == 4
    assert len({copy.address for copy in first}) == 1
    assert not {copy.address for copy in first} & {copy.address for copy in second}


async def test_a_refusal_that_nothing_precedes_is_reported() -> None:
    async with scripted(IN_THE_WAY) as script:
        with pytest.raises(WorkflowAlreadyStartedError) as refused:
            await start(script)
    assert refused.value.details == {"run_id": "r0"}
    assert len(script.copies) == 1


@pytest.mark.parametrize(
    "fate",
    [DROP, UNKNOWN, Say(503, "<html>", "text/html"), problem(503, "UNAVAILABLE", "UNHEARD_OF")],
    ids=["dropped", "unknown", "a proxy", "no reason that is known"],
)
async def test_a_refusal_after_a_copy_of_unknown_fate_is_not_reported_as_one(
    fate: Say | str,
) -> None:
    async with scripted(fate, IN_THE_WAY) as script:
        with pytest.raises(OutcomeUnknownError) as unknown:
            await start(script, 0.5)
    assert len(script.copies) > 2
    assert {copy.request_id for copy in script.copies} == {unknown.value.details["request_id"]}


@pytest.mark.parametrize("told", [MOVING, LOST_READ, NO_ROOM], ids=["moving", "lost", "full"])
async def test_a_copy_that_surely_changed_nothing_leaves_nothing_unresolved(told: Say) -> None:
    async with scripted(told, told, IN_THE_WAY) as script:
        with pytest.raises(WorkflowAlreadyStartedError):
            await start(script)
    assert len({copy.request_id for copy in script.copies}) == 1


async def test_a_database_without_room_is_waited_out() -> None:
    async with scripted(NO_ROOM, NO_ROOM, STARTED) as script:
        assert await start(script) == "r1"


async def test_a_cause_that_lasts_to_the_deadline_is_what_is_reported() -> None:
    async with scripted(NO_ROOM) as script:
        with pytest.raises(StoreFullError, match="no room: free space"):
            await start(script, 0.4)
    assert len(script.copies) > 2


async def test_an_outcome_that_is_unknown_is_reported_with_the_last_answer() -> None:
    async with scripted(DROP, NO_ROOM) as script:
        with pytest.raises(
            OutcomeUnknownError, match="last answer: no room: free space"
        ) as unknown:
            await start(script, 0.4)
    assert unknown.value.details["last_reason"] == "STORE_FULL"


async def test_a_cluster_that_is_gone_since_is_reported_with_the_last_answer() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with scripted(NO_ROOM, servers=1) as script:
            script.addresses.append(f"127.0.0.1:{unused.getsockname()[1]}")
            for _ in range(4):  # the address that is asked last is chosen by chance
                with pytest.raises(UnavailableError, match="no room: free space") as refused:
                    await start(script, 0.4)
                assert not isinstance(refused.value, OutcomeUnknownError)


@pytest.mark.parametrize("lost", [DROP, LOST_READ, UNKNOWN], ids=["dropped", "lost", "unknown"])
async def test_a_lost_read_is_asked_again_and_its_refusal_is_believed(lost: Say | str) -> None:
    async with connected(lost, lost, GONE) as (script, client):
        with pytest.raises(NotFoundError):
            await client.get_workflow_handle("o").describe()
    assert len(script.copies) == 3


@pytest.mark.parametrize("lost", [LOST_READ, UNKNOWN, DROP], ids=["lost", "unknown", "dropped"])
async def test_a_read_that_is_lost_to_the_deadline_has_no_fate(lost: Say | str) -> None:
    async with scripted(lost) as script:
        client = await Client.connect(*script.addresses, timeout=timedelta(seconds=0.4))
        async with client:
            handle = client.get_workflow_handle("o")
            for read in (handle.describe, handle.fetch_history):
                with pytest.raises(UnavailableError) as refused:
                    await read()
                assert type(refused.value) is not OutcomeUnknownError
                assert refused.value.retryable
    assert len(script.copies) > 2


async def test_asking_on_after_a_copy_of_unknown_fate_may_yet_succeed() -> None:
    async with scripted(DROP, IN_THE_WAY, STARTED) as script:
        assert await start(script) == "r1"


async def test_input_that_can_never_be_right_is_reported_whatever_came_before() -> None:
    wrong = problem(400, "INVALID_ARGUMENT", "BAD_ID", retryable=False)
    async with scripted(DROP, wrong) as script:
        with pytest.raises(InvalidArgumentError, match="BAD_ID"):
            await start(script)


async def test_a_refusal_for_load_is_waited_out_and_leaves_nothing_unresolved() -> None:
    began = time.monotonic()
    async with scripted(FULL, IN_THE_WAY) as script:
        with pytest.raises(WorkflowAlreadyStartedError):
            await start(script)
    assert time.monotonic() - began >= 0.1


async def test_a_refusal_for_load_until_the_deadline_is_what_is_reported() -> None:
    async with scripted(FULL) as script:
        with pytest.raises(ResourceExhaustedError):
            await start(script, 2.0)
    assert 2 <= len(script.copies) <= 20  # it asks for 0.1 s between them


async def test_an_engine_that_is_full_is_left_for_one_that_is_not() -> None:
    """Its own queues are long, such as those of an engine that has lost its broker."""
    began = time.monotonic()
    async with scripted(own("queue_delay"), own("outbox_depth"), STARTED, servers=3) as script:
        assert await start(script) == "r1"
    assert len({copy.address for copy in script.copies}) == 3
    assert time.monotonic() - began < 2


async def test_when_all_engines_are_full_the_shortest_of_their_waits_is_kept() -> None:
    began = time.monotonic()
    full = [own("queue_delay", 60_000), own("queue_delay", 700)]
    async with scripted(*full, STARTED) as script:
        assert await start(script) == "r1"
    assert 0.7 <= time.monotonic() - began < 3


async def test_a_quota_that_all_engines_share_is_waited_out_where_it_was_told() -> None:
    async with scripted(own("origin_quota", 100), STARTED) as script:
        assert await start(script) == "r1"
    assert len({copy.address for copy in script.copies}) == 1


def own(limit: str, retry_after_ms: int = 60_000) -> Say:
    """The refusal of an engine by one of its limits."""
    reason = "RESOURCE_EXHAUSTED"
    details = {"limit": limit}
    return problem(429, reason, reason, retry_after_ms=retry_after_ms, details=details)


async def test_a_refusal_that_outlasts_the_deadline_is_reported_at_once() -> None:
    began = time.monotonic()
    later = problem(429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", retry_after_ms=60_000)
    async with scripted(later) as script:
        with pytest.raises(ResourceExhaustedError) as refused:
            await start(script, 30)
    assert refused.value.retry_after == 60
    assert time.monotonic() - began < 5


async def test_a_follower_sends_the_client_to_the_leader() -> None:
    async with scripted(STARTED, servers=3) as script:
        leader = script.addresses[2]
        script.lines.insert(
            0, problem(503, "UNAVAILABLE", "NOT_LEADER", details={"leader": leader})
        )
        assert await start(script) == "r1"
    assert script.copies[1].address == leader


@pytest.mark.parametrize("reason", ["SHARD_MOVING", "OUTCOME_UNKNOWN"])
async def test_an_engine_that_cannot_hear_the_owner_sends_the_client_there_once(
    reason: str,
) -> None:
    async with scripted(STARTED, servers=3) as script:
        owner = script.addresses[2]
        cut = problem(503, "UNAVAILABLE", reason, retry_after_ms=10, details={"owner": owner})
        script.lines[:0] = [cut, DROP, cut, cut]  # the owner does not answer either
        assert await start(script) == "r1"
    asked = [copy.address for copy in script.copies]
    assert asked[1] == owner
    assert set(asked[2:4]) == set(script.addresses[:2])  # and not the owner again


async def test_an_owner_that_is_frozen_and_not_cut_off_costs_a_second_and_this_call_alone() -> None:
    began = time.monotonic()
    async with scripted(STARTED, servers=3) as script:
        owner = script.addresses[2]
        reason = "SHARD_MOVING"
        cut = problem(503, "UNAVAILABLE", reason, retry_after_ms=10, details={"owner": owner})
        script.lines[:0] = [cut, HANG]
        timeout = timedelta(seconds=12)  # of which a copy has four
        async with await Client.connect(*script.addresses, timeout=timeout) as client:
            for number in range(3):
                handle = await client.start_workflow("order", id=f"order-{number}")
                assert handle.run_id == "r1"
    asked = [copy.address for copy in script.copies]
    assert asked[1] == owner
    assert owner not in asked[2:]
    assert 1.0 <= time.monotonic() - began < 3.0


async def test_an_engine_that_is_frozen_costs_one_call_a_copy_and_the_next_ones_nothing() -> None:
    began = time.monotonic()
    async with scripted(HANG, STARTED, DROP, STARTED, DROP, STARTED) as script:
        async with await Client.connect(*script.addresses, timeout=timedelta(seconds=6)) as client:
            for number in range(3):
                handle = await client.start_workflow("order", id=f"order-{number}")
                assert handle.run_id == "r1"
        frozen, other = script.copies[0].address, script.copies[1].address
    assert [copy.address for copy in script.copies[1:]] == [other] * 5
    assert frozen != other
    assert 2.0 <= time.monotonic() - began < 4.0  # one copy's time


async def test_an_engine_that_is_frozen_costs_a_part_of_the_deadline() -> None:
    async with scripted(HANG, STARTED) as script:
        assert await start(script, 3.0) == "r1"


async def test_a_wait_with_a_timeout_ends_when_no_engine_answers() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        async with Client([address], timeout=timedelta(seconds=0.5)) as client:
            with pytest.raises(UnavailableError):
                await client.get_workflow_handle("order-1").wait(timeout=timedelta(seconds=0.5))
    assert 0.5 <= time.monotonic() - began < 5


async def test_a_long_rest_leaves_time_for_a_last_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin._client.transport.random.uniform", lambda _least, most: most)
    async with scripted(*[DROP] * 4, STARTED) as script:
        assert await start(script, 1.5) == "r1"  # rests of 0.1, 0.2, 0.4 and 0.8 s would be 1.5


async def test_a_long_rest_is_not_cut_for_a_copy_that_could_only_lose_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odin._client.transport.random.uniform", lambda _least, most: most)
    refused = problem(503, "UNAVAILABLE", "STORE_FULL")
    async with scripted(*[refused] * 4, HANG) as script:
        with pytest.raises(StoreFullError):
            await start(script, 1.5)
    assert len(script.copies) == 4


@pytest.mark.parametrize(("seconds", "told"), [(0.4, 0.2), (0.7, 0.45), (4.0, 3.75)])
async def test_an_engine_has_its_last_word_while_the_client_still_listens(
    seconds: float, told: float
) -> None:
    """It refuses when its time is up; said too late, the cause would be an unknown outcome."""
    async with scripted(STARTED, servers=1) as script:
        await start(script, seconds)
    assert script.copies[0].told_seconds == pytest.approx(told, abs=0.001)


async def test_an_address_where_nobody_listens_leaves_nothing_unresolved() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with scripted(IN_THE_WAY, servers=1) as script:
            script.addresses.append(f"127.0.0.1:{unused.getsockname()[1]}")
            for _ in range(4):  # the first address is chosen by chance
                with pytest.raises(WorkflowAlreadyStartedError):
                    await start(script)


async def test_a_cluster_that_cannot_be_reached_is_said_to_be_so() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        script = Script([], [f"127.0.0.1:{unused.getsockname()[1]}"])
        with pytest.raises(UnavailableError, match="no engine answered") as refused:
            await start(script, 0.2)
    assert refused.value.reason == "UNREACHABLE"


async def test_a_proxy_without_problems_of_its_own_is_asked_again() -> None:
    cut = Say(500, "Internal Server Error", "text/plain")
    async with scripted(Say(502, "<html>", "text/html"), cut, STARTED) as script:
        assert await start(script) == "r1"


async def test_a_result_is_waited_for_anywhere_through_lost_answers() -> None:
    done = outcome("completed", result=Payload("json", b"[1]"))
    async with connected(DROP, outcome("running"), MOVING, DROP, done) as (script, client):
        assert await client.get_workflow_handle("o", result_type=list[int]).result() == [1]
    assert len(script.copies) == 5
    assert all("/wait?wait=10.000" in copy.target for copy in script.copies)


async def test_a_result_follows_the_chain_of_runs() -> None:
    onward = outcome("continued_as_new", new_run_id="r2")
    done = outcome("completed", result=Payload("json", b"7"))
    async with connected(onward, done) as (script, client):
        assert await client.get_workflow_handle("o", run_id="r1").result() == 7
    assert [copy.target.split("run_id=")[1][:2] for copy in script.copies] == ["r1", "r2"]


async def test_a_result_of_one_run_alone_stops_where_it_continued() -> None:
    async with connected(outcome("continued_as_new", new_run_id="r2")) as (_, client):
        with pytest.raises(WorkflowContinuedAsNewError) as onward:
            await client.get_workflow_handle("o", run_id="r1").result(follow_runs=False)
    assert onward.value.new_run_id == "r2"
