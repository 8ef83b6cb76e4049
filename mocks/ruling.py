"""What a service decides about a request: a value, made by a pure function, carried out elsewhere.

Each route of a mock is one such function: (what the service knows of the order, the request) →
`Ruling`. The ledger module writes a ruling in one transaction, with the idempotency key and the
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, StringConstraints

Id: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@-]{1,200}$")]

OrderId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@-]{1,180}$")]
"""Shorter than other ids, so that ids can be made of it."""


class OrderRequest(BaseModel):
    """What every request says: which order it is about. Unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    order_id: OrderId


@dataclass(frozen=True, slots=True)
class Known:
    """What a service knows of an order: its row."""

    state: str
    amount_cents: int = 0
    sku: str = ""
    quantity: int = 0


@dataclass(frozen=True, slots=True)
class StockMove:
    """How many pieces of a sku move; the three sum to 0, so that stock is conserved."""

    sku: str
    available: int
    reserved: int
    shipped: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A driver who sets out for an order, and the workflow that waits to hear of it."""

    workflow_id: str
    driver: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """Everything that one request leads to.

    Attributes:
        answer: The body of the reply.
        status: Its HTTP status; a refusal is an answer too, and kept under the key like one.
        after: What is known of the order from now on; None leaves the row as it is.
        effect: The name under which the ledger records the effect; None if nothing happened.
        amount_cents: The effect's amount.
        stock: Pieces that move; if they are not there the whole ruling becomes a refusal.
        delivery: A driver to send out.
        call_off: Whether the driver is called back.
    """

    answer: dict[str, object] = field(default_factory=dict)
    status: int = 200
    after: Known | None = None
    effect: str | None = None
    amount_cents: int = 0
    stock: StockMove | None = None
    delivery: Delivery | None = None
    call_off: bool = False


Decide: TypeAlias = Callable[[Known | None, Any], Ruling]


@dataclass(frozen=True, slots=True)
class Route:
    """One effect that a service offers: its path, the shape of its body and its rule."""

    path: str
    body: type[OrderRequest]
    decide: Decide


def refusal(status: int, reason: str, detail: str) -> Ruling:
    """Return a ruling that changes nothing and says why."""
    return Ruling(answer=problem(status, reason, detail), status=status)


def problem(
    status: int, reason: str, detail: str, *, code: str = "", retryable: bool = False
) -> dict[str, object]:
    """Return the body of a problem+json reply."""
    return {
        "type": "about:blank",
        "title": reason.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code or _CODES.get(status, "INTERNAL"),
        "reason": reason,
        "retryable": retryable,
    }


_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "INVALID_ARGUMENT",
    409: "FAILED_PRECONDITION",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    503: "UNAVAILABLE",
}
