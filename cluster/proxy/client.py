"""Gives the proxy its orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import aiohttp
import msgspec

from odin.errors import InvalidArgumentError, NotFoundError, UnavailableError

from .exchange import FaultView, LinkView

if TYPE_CHECKING:
    from types import TracebackType

    from .faults import Order

TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
T = TypeVar("T")


class ProxyDownError(UnavailableError):
    """The proxy does not answer."""

    reason = "PROXY_DOWN"


class ProxyClient:
    """One proxy; `async with` opens and closes the session."""

    def __init__(self, address: str, token: str) -> None:
        """Remember where it is.

        Args:
            address: `http://host:port`.
            token: What lets us in.
        """
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, headers=self._headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def links(self) -> list[LinkView]:
        """Return every link as it is.

        Raises:
            ProxyDownError: the proxy does not answer.
        """
        return await self._call("GET", "/v1/links", list[LinkView])

    async def faults(self) -> list[FaultView]:
        """Return every fault that is not over.

        Raises:
            ProxyDownError: the proxy does not answer.
        """
        return await self._call("GET", "/v1/faults", list[FaultView])

    async def begin(self, order: Order) -> str:
        """Let a fault begin; return its id once it bites.

        Raises:
            InvalidArgumentError: the order makes no sense.
            NotFoundError: there is no such link.
            ProxyDownError: the proxy does not answer.
        """
        found = await self._call("POST", "/v1/faults", dict[str, str], msgspec.json.encode(order))
        return found["id"]

    async def heal(self, fault_id: str) -> None:
        """Let a fault end; one that has ended already is no error.

        Raises:
            ProxyDownError: the proxy does not answer.
        """
        await self._call("DELETE", f"/v1/faults/{fault_id}", dict[str, int])

    async def heal_all(self) -> int:
        """Let every fault end; return how many there were.

        Raises:
            ProxyDownError: the proxy does not answer.
        """
        return (await self._call("DELETE", "/v1/faults", dict[str, int]))["healed"]

    async def _call(self, method: str, path: str, answer: type[T], body: bytes | None = None) -> T:
        assert self._session is not None, "inside async with"  # noqa: S101 - for the type checker
        try:
            async with self._session.request(method, self._address + path, data=body) as got:
                content = await got.read()
                status = got.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ProxyDownError(f"the proxy does not answer: {error}") from error
        if status >= _BAD_REQUEST:
            detail: Any = msgspec.json.decode(content).get("detail", "") if content else ""
            if status == _BAD_REQUEST:
                raise InvalidArgumentError(str(detail))
            if status == _NOT_FOUND:
                raise NotFoundError(str(detail))
            raise ProxyDownError(f"the proxy answered {status}: {detail}")
        return msgspec.json.decode(content, type=answer)
