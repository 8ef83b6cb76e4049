"""The activities of the demo: each is one call to one of the shop's services.

An activity runs at least once; its idempotency key, the same for all attempts, makes that one
effect. A call ends or is given up within eight seconds, well before the ten that an attempt has, so
that an attempt says why it failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import aiohttp
import msgspec

from odin import activity
from odin.common import RetryPolicy
from odin.exceptions import ApplicationError

ATTEMPT_TIMEOUT: Final = timedelta(seconds=10)
RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=5)
)
CALL_SECONDS: Final = 8.0
CONNECT_SECONDS: Final = 3.0
ANSWER_BYTES_MAX: Final = 64 * 1024
_OK_BELOW: Final = 300
# A refusal that a later attempt may not meet: the request was never judged.
_PASSING: Final = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Purchase:
    """What an order is about.

    Attributes:
        order_id: Names the order in the books of every service.
        sku: What is bought.
        quantity: How many pieces.
        amount_cents: What is charged.
        card: What is charged to.
        limit_seconds: How long the order may take before it is given up.
    """

    order_id: str
    sku: str
    quantity: int = 1
    amount_cents: int = 1_200
    card: str = "good"
    limit_seconds: float = 240.0


@dataclass(frozen=True)
class Payment:
    """One amount to be taken from a card."""

    order_id: str
    amount_cents: int
    card: str


@dataclass(frozen=True)
class Addresses:
    """Base addresses of the three services."""

    payments: str
    shipping: str
    drivers: str


class Shop:
    """The activities, all over one HTTP session."""

    def __init__(self, session: aiohttp.ClientSession, addresses: Addresses) -> None:
        """Take a session (see `open_session`) and where the services are."""
        self._session = session
        self._addresses = addresses

    @activity.defn
    async def reserve(self, purchase: Purchase) -> None:
        """Put the goods aside."""
        body = {"sku": purchase.sku, "quantity": purchase.quantity}
        await self._call(self._addresses.shipping, "/reserve", purchase.order_id, **body)

    @activity.defn
    async def charge(self, payment: Payment) -> None:
        """Take the money."""
        body = {"amount_cents": payment.amount_cents, "card": payment.card}
        await self._call(self._addresses.payments, "/charge", payment.order_id, **body)

    @activity.defn
    async def ship(self, order_id: str) -> None:
        """Send the goods to the depot."""
        await self._call(self._addresses.shipping, "/ship", order_id)

    @activity.defn
    async def assign(self, order_id: str) -> str:
        """Send a driver, who will signal `delivered` to this workflow; return the driver's name."""
        workflow_id = activity.info().workflow_id
        told = await self._call(
            self._addresses.drivers, "/assign", order_id, workflow_id=workflow_id
        )
        return str(told.get("driver", ""))

    @activity.defn
    async def unreserve(self, order_id: str) -> None:
        """Give the goods back, or make sure that none will be put aside."""
        await self._call(self._addresses.shipping, "/unreserve", order_id)

    @activity.defn
    async def refund(self, order_id: str) -> None:
        """Give the money back, or make sure that none will be taken."""
        await self._call(self._addresses.payments, "/refund", order_id)

    @activity.defn
    async def cancel_shipment(self, order_id: str) -> None:
        """Recall the goods, or make sure that they will not be sent."""
        await self._call(self._addresses.shipping, "/cancel-shipment", order_id)

    @activity.defn
    async def unassign(self, order_id: str) -> None:
        """Call the driver off, or make sure that none sets out."""
        await self._call(self._addresses.drivers, "/unassign", order_id)

    async def _call(self, address: str, path: str, order_id: str, **body: object) -> dict[str, Any]:
        """Return the service's answer.

        Raises:
            ApplicationError: It refused for good (non-retryable, `type` is its reason), or it did
                not answer, or not now (`type` is "Unavailable").
        """
        headers = {"Idempotency-Key": activity.info().idempotency_key}
        told = {"order_id": order_id, **body}
        try:
            async with self._session.post(address + path, json=told, headers=headers) as reply:
                status, answer = reply.status, await reply.content.read(ANSWER_BYTES_MAX)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApplicationError(
                f"{path} was not answered: {type(error).__name__}", type="Unavailable"
            ) from error
        if status < _OK_BELOW:
            return _decoded(answer)
        raise _failure(path, status, _decoded(answer))

    def all_activities(self) -> list[Any]:
        """Return the activities as a worker takes them."""
        return [
            *(self.reserve, self.charge, self.ship, self.assign),
            *(self.unreserve, self.refund, self.cancel_shipment, self.unassign),
        ]


def open_session() -> aiohttp.ClientSession:
    """Return a session with the bounds of this module; to be closed by the caller."""
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=200))


def _failure(path: str, status: int, problem: dict[str, Any]) -> ApplicationError:
    reason = str(problem.get("reason", f"HTTP_{status}"))
    refused = 400 <= status < 500 and status not in _PASSING  # noqa: PLR2004 - HTTP's refusals
    if refused and not problem.get("retryable"):
        detail = str(problem.get("detail", ""))
        return ApplicationError(f"{path} refused: {detail}", type=reason, non_retryable=True)
    return ApplicationError(f"{path} failed with {status} {reason}", type="Unavailable")


def _decoded(answer: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
