"""The client library against the engine's API over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

import pytest

from engine.api import create_app
from odin import workflow
from odin.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowIDConflictPolicy,
)
from odin.core.events import WorkflowExecutionSignaled, WorkflowExecutionStarted
from odin.core.payload import Failure, Payload, encode
from odin.core.requests import SignalWorkflow, StartWorkflow, TerminateWorkflow
from odin.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    PayloadError,
    UnauthenticatedError,
    WorkflowAlreadyStartedError,
)
from odin.exceptions import ActivityError, ApplicationError, CancelledError, TerminatedError
from tests.service.api_backend import MemoryBackend
from tests.service.api_server import serving


@dataclass
class Order:
    sku: str
    quantity: int = 1


@dataclass
class Receipt:
    total: float


@workflow.defn(name="buy")
async def buy(order: Order) -> Receipt:
    return Receipt(order.quantity * 1.0)


@workflow.defn
class Pack:
    @workflow.run
    async def run(self, order: Order) -> list[Order]:
        return [order]

    @workflow.signal(name="faster")
    async def hurry(self, by: int) -> None:
        """Take note."""


@pytest.fixture
async def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def client(backend: MemoryBackend) -> AsyncIterator[Client]:
    async with serving(create_app(backend)) as url, await Client.connect(url) as client:
        yield client


async def test_a_decorated_function_gives_name_argument_and_result_type(
    client: Client, backend: MemoryBackend
) -> None:
    handle = await client.start_workflow(buy, Order("tea", 2), id="o-1", task_queue="shop")
    backend.runs["o-1"].close("completed", encode({"total": 2.5}))
    receipt = assert_type(await handle.result(), Receipt)
    request = backend.asked[0]
    assert isinstance(request, StartWorkflow)
    assert (request.workflow_type, request.task_queue) == ("buy", "shop")
    assert request.input == (Payload("json", b'{"sku":"tea","quantity":2}'),)
    assert receipt == Receipt(2.5)
    assert (handle.id, handle.run_id) == ("o-1", backend.runs["o-1"].run_id)


async def test_a_class_is_started_by_its_run_method_and_signalled_by_its_handler(
    client: Client, backend: MemoryBackend
) -> None:
    handle = await client.start_workflow(Pack.run, Order("tea"), id="o-1")
    await handle.signal(Pack.hurry, 3)
    backend.runs["o-1"].close("completed", encode([{"sku": "tea"}]))
    assert assert_type(await handle.result(), list[Order]) == [Order("tea")]
    again = client.get_workflow_handle_for(Pack.run, "o-1")
    assert assert_type(await again.result(), list[Order]) == [Order("tea")]
    signal = backend.asked[1]
    assert isinstance(signal, SignalWorkflow)
    assert (signal.name, signal.input, signal.run_id) == ("faster", (Payload("json", b"3"),), None)


async def test_all_options_of_a_start_reach_the_engine(
    client: Client, backend: MemoryBackend
) -> None:
    await client.start_workflow(
        "order",
        args=["a", None],
        id="o-1",
        execution_timeout=timedelta(hours=1),
        run_timeout=timedelta(milliseconds=1),
        task_timeout=timedelta(seconds=20),
        start_delay=timedelta(seconds=0.5),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        memo={"note": [1]},
        search_attributes={"city": "Oslo"},
        start_signal="go",
        start_signal_args=[True],
        request_id="mine",
        origin="synthetic",
    )
    request = backend.asked[0]
    assert isinstance(request, StartWorkflow)
    assert request.input == (Payload("json", b'"a"'), Payload("json", b"null"))
    assert (request.execution_timeout_ms, request.run_timeout_ms) == (3_600_000, 1)
    assert (request.task_timeout_ms, request.start_delay_ms) == (20_000, 500)
    assert (request.id_conflict_policy, request.id_reuse_policy) == (
        "use_existing",
        "allow_duplicate",
    )
    assert request.memo == {"note": Payload("json", b"[1]")}
    assert request.search_attributes == {"city": Payload("json", b'"Oslo"')}
    assert (request.signal_name, request.signal_input) == ("go", (Payload("json", b"true"),))
    assert (request.request_id, request.origin) == ("mine", "synthetic")
    assert request.identity == client.identity


async def test_the_same_request_id_gets_the_same_run(client: Client) -> None:
    first = await client.start_workflow("order", id="o-1", request_id="mine")
    again = await client.start_workflow("order", id="o-1", request_id="mine")
    assert first.run_id == again.run_id
    with pytest.raises(WorkflowAlreadyStartedError) as refused:
        await client.start_workflow("order", id="o-1")
    assert refused.value.details == {"run_id": first.run_id}


@pytest.mark.parametrize(
    ("status", "failure", "kind"),
    [
        ("failed", Failure("no", type="Broke"), ApplicationError),
        ("failed", Failure("no", "activity", "charge", cause=Failure("empty")), ActivityError),
        ("canceled", None, CancelledError),
        ("terminated", Failure("enough", "terminated"), TerminatedError),
    ],
)
async def test_a_run_without_a_result_raises_with_its_cause(
    client: Client,
    backend: MemoryBackend,
    status: str,
    failure: Failure | None,
    kind: type[Exception],
) -> None:
    handle = await client.start_workflow("order", id="o-1")
    backend.runs["o-1"].close(status, failure=failure)
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert type(failed.value.cause) is kind
    if kind is ActivityError:
        assert str(failed.value.cause.__cause__) == "empty"


async def test_a_wait_with_a_limit_says_that_the_run_goes_on(client: Client) -> None:
    handle = await client.start_workflow("order", id="o-1")
    with pytest.raises(DeadlineExceededError, match="still runs"):
        await handle.result(timeout=timedelta(milliseconds=50))


async def test_a_result_outlives_the_engine_that_it_waited_at(backend: MemoryBackend) -> None:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(create_app(backend)))]
        dying = AsyncExitStack()
        urls.append(await dying.enter_async_context(serving(create_app(backend))))
        client = await stack.enter_async_context(await Client.connect(*urls))
        handles = [await client.start_workflow("order", id=f"o-{one}") for one in range(4)]
        asked = len(backend.asked)
        async with asyncio.TaskGroup() as group:
            results = [group.create_task(handle.result()) for handle in handles]
            async with asyncio.timeout(5):
                while len(backend.asked) < asked + len(handles):
                    await asyncio.sleep(0.01)
            await dying.aclose()
            for one in range(4):
                backend.runs[f"o-{one}"].close("completed", encode(one))
        assert [task.result() for task in results] == [0, 1, 2, 3]


async def test_an_execution_is_described_and_its_history_is_exact(
    client: Client, backend: MemoryBackend
) -> None:
    handle = await client.start_workflow("order", {"a": 1}, id="o-1")
    for number in range(3):
        await handle.signal("go", number)
    described = await handle.describe()
    history = await handle.fetch_history()
    assert described.status is WorkflowExecutionStatus.RUNNING
    assert (described.input, described.history_length) == (({"a": 1},), 5)
    assert described.owner is not None
    assert described.owner.node_id == "engine-1"
    assert history.run_id == handle.run_id
    assert history.events == tuple(backend.runs["o-1"].events)
    first, *_, last = history.decoded()
    assert isinstance(first, WorkflowExecutionStarted)
    assert isinstance(last, WorkflowExecutionSignaled)


async def test_cancel_and_terminate_carry_their_reason(
    client: Client, backend: MemoryBackend
) -> None:
    handle = await client.start_workflow("order", id="o-1")
    await handle.terminate("enough")
    request = backend.asked[-1]
    assert isinstance(request, TerminateWorkflow)
    assert (request.reason, request.identity) == ("enough", client.identity)
    with pytest.raises(NotFoundError):
        await client.get_workflow_handle("o-2").cancel(reason="none")


async def test_a_list_goes_through_all_pages(client: Client, backend: MemoryBackend) -> None:
    for one in range(5):
        await client.start_workflow("order", id=f"o-{one}")
    listed = [
        one.workflow_id
        async for one in client.list_workflows(
            limit=4, failed=False, id_prefix="o-", started_after=datetime(2026, 1, 1, tzinfo=UTC)
        )
    ]
    assert listed == ["o-4", "o-3", "o-2", "o-1"]
    assert backend.filters[0].workflow_id_prefix == "o-"


async def test_values_that_cannot_be_kept_are_refused_before_they_are_sent(
    client: Client, backend: MemoryBackend
) -> None:
    with pytest.raises(PayloadError, match="argument 1"):
        await client.start_workflow("order", float("nan"), id="o-1")
    with pytest.raises(InvalidArgumentError):
        await client.start_workflow("order", id="o 1")
    with pytest.raises(PayloadError):
        await client.start_workflow(buy, object(), id="o-1")  # type: ignore[arg-type] # what is tested
    with pytest.raises(TypeError, match="idd"):
        await client.start_workflow("order", id="o-1", idd=1)  # type: ignore[call-overload] # what is tested
    assert backend.asked == []


async def test_the_api_key_opens_a_guarded_cluster(backend: MemoryBackend) -> None:
    key = "k3y"
    async with serving(create_app(backend, token=key)) as url:
        async with await Client.connect(url, api_key=key) as client:
            await client.start_workflow("order", id="o-1")
        async with await Client.connect(url) as client:
            with pytest.raises(UnauthenticatedError):
                await client.start_workflow("order", id="o-2")


def test_addresses_may_leave_out_the_scheme_and_stand_together() -> None:
    client = Client(["a:1, http://b:2/", "a:1"])
    assert client.addresses == ("http://a:1", "http://b:2")
    with pytest.raises(InvalidArgumentError):
        Client(["http://"])
