"""Clients: odin's own retry logic over the simulated network, and a log of what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from odin._client.transport import Request, Transport
from odin.core.requests import Accepted, ClientRequest, Outcome, Started, WaitWorkflow
from odin.errors import OdinError, OutcomeUnknownError
from odin.runtime.http.problem import problem_of

if TYPE_CHECKING:
    from tests.simulation.network import Network

Answer = Started | Accepted | Outcome
DEADLINE_SECONDS = 15.0
_DECODE = {
    kind.__name__: msgspec.msgpack.Decoder(kind).decode for kind in (Started, Accepted, Outcome)
}


class _NobodyListensError(aiohttp.ClientConnectorError):
    """A connection that was refused."""

    def __init__(self) -> None:
        Exception.__init__(self, "nobody listens")

    def __str__(self) -> str:
        return "nobody listens"


@dataclass(slots=True, eq=False)
class Call:
    """One call as its client saw it.

    Attributes:
        asked_at: Virtual seconds.
        answer: None while there is none, and when there is an error.
        error: The refusal, or that nobody knows.
    """

    request: ClientRequest
    asked_at: float
    answer: Answer | None = None
    error: OdinError | None = None
    answered_at: float = 0.0

    @property
    def is_unknown(self) -> bool:
        """Whether it may have had its effect although it was not acknowledged."""
        return self.answer is None and (
            self.error is None or isinstance(self.error, OutcomeUnknownError)
        )


class Client(Transport):
    """One client; it belongs to the process that makes it."""

    def __init__(self, network: Network, addresses: Sequence[str], log: list[Call]) -> None:
        super().__init__(addresses)
        self._network = network
        self._log = log
        self._asked: dict[str, ClientRequest] = {}

    async def ask(
        self, request: ClientRequest, deadline_seconds: float = DEADLINE_SECONDS
    ) -> Answer:
        """Ask until it is answered or the time is up.

        Raises:
            OdinError: A refusal, or nobody knows.
        """
        loop = asyncio.get_running_loop()
        path = f"/{len(self._log)}"
        call = Call(request, loop.time())
        self._log.append(call)
        self._asked[path] = request
        held = request.wait_ms / 1_000 if isinstance(request, WaitWorkflow) else 0.0
        copy = Request(method="POST", path=path, request_id=getattr(request, "request_id", None))
        try:
            reply = await self.call(copy, deadline_seconds, held_seconds=held)
        except OdinError as error:
            call.error = error
            raise
        finally:
            call.answered_at = loop.time()
            del self._asked[path]
        answer: Answer = _DECODE[reply.content_type](reply.body)  # type: ignore[assignment]  # one of three
        call.answer = answer
        return answer

    async def _send(
        self, address: str, request: Request, seconds: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        asked: Any = self._asked[request.path]
        try:
            async with asyncio.timeout(seconds):
                answer = await self._network.call(address, asked, seconds)
        except ConnectionRefusedError:
            raise _NobodyListensError from None
        if isinstance(answer, OdinError):
            body = msgspec.json.encode(problem_of(answer, request.path))
            return answer.status, body, {}
        return 200, msgspec.msgpack.encode(answer), {"content-type": type(answer).__name__}
