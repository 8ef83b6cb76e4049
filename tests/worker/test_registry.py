"""What a worker refuses when it is made, and what an activity may know."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass

import pytest

from odin import activity, workflow
from odin.core.definition import DefinitionError
from odin.core.payload import encode, encode_all
from odin.errors import ConfigurationError, InvalidArgumentError, PayloadError
from odin.worker import Worker, WorkerOptions
from odin.worker.registry import Activity, Registry


@dataclass
class Order:
    name: str
    count: int = 1


@activity.defn(name="buy")
async def buy_it(order: Order, note: str = "") -> str:
    return f"{order.count} {order.name} {note}"


class Shop:
    @activity.defn
    async def sell(self, order: Order) -> str:
        return order.name


class Seller:
    async def __call__(self, order: Order) -> str:
        return order.name


@workflow.defn
async def empty() -> None:
    return None


def test_arguments_come_back_as_the_types_of_the_hints() -> None:
    for fn in (buy_it, Shop().sell, activity.defn(name="callable")(Seller())):
        one = Activity(fn)
        assert one.is_async
        assert one.arguments([encode({"name": "tea", "count": 2})]) == [Order("tea", 2)]


def test_the_argument_that_does_not_fit_is_named() -> None:
    with pytest.raises(PayloadError, match=r"argument 2 \(note\) of activity 'buy'"):
        Activity(buy_it).arguments(encode_all([{"name": "tea"}, 7]))
    with pytest.raises(PayloadError, match="takes 1 to 2 arguments, got 3"):
        Activity(buy_it).arguments(encode_all([1, 2, 3]))


def test_two_activities_of_one_name_are_refused() -> None:
    @activity.defn(name="buy")
    def other() -> None: ...

    with pytest.raises(DefinitionError, match="'buy'"):
        Registry([], [buy_it, other])
    with pytest.raises(DefinitionError, match="'empty'"):
        Registry([empty, empty], [])


def test_what_is_not_decorated_is_refused_with_the_decorator_to_use() -> None:
    def plain() -> None: ...

    with pytest.raises(DefinitionError, match=r"@activity\.defn"):
        Registry([], [plain])
    with pytest.raises(DefinitionError, match=r"@workflow\.defn"):
        Registry([plain], [])
    with pytest.raises(DefinitionError, match="at least one"):
        Registry([], [])


def test_classes_and_generators_are_no_activities() -> None:
    with pytest.raises(DefinitionError, match="class"):
        activity.defn(Order)

    def generator() -> object:
        yield 1

    with pytest.raises(DefinitionError, match="generator"):
        activity.defn(generator)
    with pytest.raises(InvalidArgumentError):
        activity.defn(name="no spaces")(buy_it)


def test_outside_an_activity_there_is_no_info() -> None:
    assert not activity.in_activity()
    for call in (activity.info, activity.heartbeat, activity.is_cancelled):
        with pytest.raises(RuntimeError, match="not inside an activity"):
            call()


def test_a_worker_without_the_address_of_its_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="amqp_url"):
        WorkerOptions()
    with pytest.raises(ConfigurationError, match="kafka"):
        WorkerOptions(broker="kafka")
    with pytest.raises(InvalidArgumentError):
        WorkerOptions(broker="embedded", max_concurrent_activities=0)
    with pytest.raises(InvalidArgumentError):
        Worker("ftp://nowhere", activities=[buy_it], broker="embedded")


def test_a_client_brings_addresses_namespace_and_token() -> None:
    class Connected:
        addresses: tuple[str, ...] = ("http://127.0.0.1:7300",)
        namespace: str = "mine"
        api_key: str | None = "secret"

    worker = Worker(Connected(), activities=[buy_it], broker="embedded")
    assert worker.options.namespace == "mine"
    assert worker.options.headers() == {"Authorization": "Bearer secret"}


async def test_waiting_for_cancellation_works_whoever_comes_first() -> None:
    def beat(_: object) -> None: ...

    context = activity.Context(lambda: pytest.fail("nobody asked for the info"), beat)
    activity.current.set(context)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(activity.wait_for_cancelled())
        assert not activity.wait_for_cancelled_sync(0.01)
        await asyncio.sleep(0)
        context.cancel("test")
    assert activity.is_cancelled()
    assert activity.wait_for_cancelled_sync(0.01)
    await activity.wait_for_cancelled()


def test_importing_activities_and_workflows_loads_no_server_and_no_client() -> None:
    code = (
        "import sys, odin, odin.activity, odin.workflow;"
        "print(*{'aiohttp', 'aio_pika', 'asyncpg', 'fastapi', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
