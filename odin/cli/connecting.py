"""How a command talks to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from odin._client.transport import Request, Transport
from odin.cli.nearby import nearby
from odin.cli.shared import Shared, current
from odin.client import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_READ_SECONDS = 5.0
_REACH_SECONDS = 2.0


def address_of(options: Shared) -> str:
    """Return the engines to call: those that were named, else those of the local cluster.

    Empty, for the usual port of this machine, if there is neither.
    """
    if options.address:
        return options.address
    local = nearby()
    return "" if local is None else local.address


def with_client(work: Callable[[Client], Awaitable[T]]) -> T:
    """Run `work` with a client of the cluster that the options name."""

    async def run() -> T:
        options = current()
        client = await Client.connect(
            address_of(options),
            namespace=options.namespace,
            api_key=options.api_key,
            identity="odin cli",
        )
        async with client:
            async with connected():  # nobody should wait a whole deadline for a mistyped address
                pass
            return await work(client)

    return asyncio.run(run())


@asynccontextmanager
async def connected() -> AsyncIterator[Transport]:
    """Yield a transport to the cluster that the options name, once an engine has answered."""
    options = current()
    transport = Transport([address_of(options)], options.api_key)
    try:
        await transport.call(Request(method="GET", path="/v1/health"), _REACH_SECONDS)
        yield transport
    finally:
        await transport.close()


def get_json(path: str, query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - any JSON
    """Return what a route of the API answers."""

    async def run() -> Any:  # noqa: ANN401 - any JSON
        async with connected() as transport:
            return await fetch_json(transport, path, query)

    return asyncio.run(run())


async def fetch_json(transport: Transport, path: str, query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - any JSON
    """Return what a route of the API answers, through an open transport."""
    request = Request(method="GET", path=path, query=query or {})
    reply = await transport.call(request, _READ_SECONDS)
    return msgspec.json.decode(reply.body)


def namespace_query() -> dict[str, str]:
    """Return the query parameter that names the namespace, where it is not the default."""
    namespace = current().namespace
    return {} if namespace == "default" else {"namespace": namespace}
