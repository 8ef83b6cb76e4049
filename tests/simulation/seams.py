"""Where real parts meet the world, each replaced by its simulated counterpart.

Everything else of engines, relay and workers runs as it is, `engine.lifetime.Engine` and
`odin.worker.Worker` included. The replacements ask the running process which host it is on.
"""

from __future__ import annotations

import asyncio
import pkgutil
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

from odin.core.instance import Instance
from odin.errors import InternalError, OdinError
from tests.simulation.broker_client import Consumer, Publisher
from tests.simulation.network import Door, End, WebSocket, Work
from tests.simulation.process import here

GRACEFUL_SECONDS = 2.0


class _Listener:
    """A socket that listens; the network has the door."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        """Do nothing."""


class _Session:
    """What links are opened with."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _App:
    """An engine's HTTP application: its backend, and the routes of its links."""

    def __init__(self, backend: Any, mount: Callable[[Any], None]) -> None:  # noqa: ANN401 - the EngineBackend
        self.backend = backend
        self.routes: list[Any] = []
        self.router = self
        mount(self)

    async def link(self, path: str, websocket: WebSocket) -> None:
        """Serve a link."""
        route = next(one for one in self.routes if one.path == path)
        await route.endpoint(websocket)

    async def answer(self, request: object, seconds: float) -> object:
        """Answer a request; an error is an answer too."""
        try:
            return await self.backend.ask(request, int(seconds * 1_000))
        except OdinError as error:
            return error
        except Exception as error:  # noqa: BLE001 - as the HTTP layer does
            here().world.complain(f"unforeseen: {type(error).__name__}: {error}")
            return InternalError("something unforeseen happened")


async def _no_check(dsn: str) -> None:
    del dsn


def _create_app(backend: Any, *, token: str | None, mount: Callable[[Any], None]) -> _App:  # noqa: ANN401 - the EngineBackend
    del token
    process = here()
    process.world.node_began(process, backend._node)  # noqa: SLF001 - the judges look inside
    return _App(backend, mount)


async def _serve_http(
    app: _App,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    sockets: object,
    on_bound: Callable[[int], None],
) -> None:
    """Serve what the network brings until `stop` is set, then 2 s at most."""
    del sockets
    process = here()
    door = Door(process, app.link, app.answer, asyncio.Queue())
    address = f"http://{host}:{port}"
    doors = process.world.network.doors
    doors[address] = door
    on_bound(port)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_serve(door), name="http")
        await stop.wait()
        if doors.get(address) is door:
            del doors[address]
        serving.cancel()


async def _serve(door: Door) -> None:
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        try:
            while True:
                work = await door.work.get()
                tasks = [task for task in tasks if not task.done()]
                tasks.append(group.create_task(_guarded(work), name="http request"))
        except asyncio.CancelledError:
            current = asyncio.current_task()
            assert current is not None
            current.uncancel()
            if tasks:
                await asyncio.wait(tasks, timeout=GRACEFUL_SECONDS)
            for task in tasks:
                task.cancel()


async def _guarded(work: Work) -> None:
    try:
        await work()
    except (OSError, OdinError):
        return
    except Exception as error:  # noqa: BLE001 - a request's fault is the request's
        here().world.complain(f"unforeseen: {type(error).__name__}: {error}")


async def _connect(
    session: object, address: str, path: str, headers: Callable[[], Mapping[str, str]]
) -> End:
    del session, headers
    return await here().world.network.connect(address, path)


class _Watch:
    """Without a thread."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        """Do nothing."""

    def turned(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class _Dice(random.Random):
    """Dice of the world's seed for whoever would make his own."""

    def __init__(self) -> None:
        super().__init__(here().world.random.getrandbits(64))


@cache
def _seams() -> list[tuple[Any, str, object]]:
    """Return whose attribute is replaced by what; found once, because a seed is short."""
    dice = SimpleNamespace(Random=_Dice)
    found = [
        ("engine.lifetime.check", _no_check),
        ("engine.lifetime.bind", _Listener),
        ("engine.lifetime.new_session", _Session),
        ("engine.lifetime.connect_socket", _connect),
        ("engine.lifetime.create_app", _create_app),
        ("engine.lifetime.serve_http", _serve_http),
        ("engine.relaying.PublisherConnection", Publisher),
        ("relay.dead_letters.Consumer", Consumer),
        ("odin.runtime.rabbitmq.Consumer", Consumer),
        ("odin.worker.worker.new_session", _Session),
        ("odin.worker.worker.connect_socket", _connect),
        ("odin.worker.worker.Watch", _Watch),
        ("odin.runtime.link_keeper.random", dice),
        ("odin._client.transport.time", SimpleNamespace(monotonic=_loop_time)),
        ("odin._client.transport.random", _ClientDice()),
    ]
    seams: list[tuple[Any, str, object]] = []
    for name, new in found:
        owner, _, attribute = name.rpartition(".")
        seams.append((pkgutil.resolve_name(owner), attribute, new))
    return seams


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class _ClientDice:
    """The dice of calls, of the world's seed."""

    def randrange(self, stop: int) -> int:
        return here().world.random.randrange(stop)

    def uniform(self, low: float, high: float) -> float:
        return here().world.random.uniform(low, high)


@contextmanager
def sealed() -> Iterator[None]:
    """Run the block with every seam closed: nothing reaches a socket, a thread or a real clock."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _seams()]
    defaults = Instance.__init__.__kwdefaults__
    assert defaults is not None
    cpu_time = defaults["cpu_time"]
    try:
        for owner, name, new in _seams():
            setattr(owner, name, new)
        # The budget of a workflow task is CPU time, which no seed decides.
        defaults["cpu_time"] = lambda: 0.0
        yield
    finally:
        defaults["cpu_time"] = cpu_time
        for owner, name, old in before:
            setattr(owner, name, old)
