"""What the collector does with a connection that was given up before it was closed."""

import asyncio
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor

import aio_pika
from yarl import URL

from odin.runtime.amqp import ClosedByUs


def told_by_the_collector(kind: type[aio_pika.Connection]) -> list[str]:
    """Return what is warned of when a connection is collected while no loop runs."""
    loop = asyncio.new_event_loop()

    async def made() -> aio_pika.Connection:
        return kind(URL("amqp://nobody:nothing@127.0.0.1:1/"))

    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.disable()
            given_up = loop.run_until_complete(made())
            del given_up
            gc.collect()
    finally:
        gc.enable()
        loop.close()
    return [str(one.message) for one in told]


def test_a_connection_that_was_given_up_leaves_nothing_to_the_collector() -> None:
    with ThreadPoolExecutor(1) as threads:  # a thread that has no loop of its own
        assert threads.submit(told_by_the_collector, ClosedByUs).result() == []
        assert threads.submit(told_by_the_collector, aio_pika.Connection).result() != []
