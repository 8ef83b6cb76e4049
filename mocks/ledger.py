"""Carries out rulings: key, order, stock, ledger and answer in one transaction, before the reply.

Whatever happens to the process, the connection or the reply afterwards, the same key finds the same
answer, and the effect stands exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from odin.runtime.postgres import Session
from odin.runtime.sql import load_queries

from .ruling import Known, Ruling, problem, refusal

if TYPE_CHECKING:
    from odin.runtime.postgres import Pool, PooledConnection

    from .ruling import Decide, OrderRequest, StockMove

SQL = load_queries(__package__)
SESSION = Session(lock_timeout=5.0, statement_timeout=5.0, command_timeout=6.0)


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived: its key, its body and the hash that tells bodies apart."""

    idempotency_key: str
    body_hash: bytes
    body: OrderRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """What is replied; `replayed` says that an earlier request with the key had this answer."""

    status: int
    body: bytes
    replayed: bool = False


class Ledger:
    """The books of one service."""

    def __init__(self, pool: Pool, service: str, delivery_seconds: tuple[float, float]) -> None:
        """Take a pool with `SESSION`'s bounds, and how long a driver takes, least and most."""
        self._pool = pool
        self._service = service
        self._delivery_seconds = delivery_seconds

    async def perform(self, call: Call, decide: Decide) -> Answer:
        """Decide `call` and write everything that follows from it, once per key.

        Raises:
            asyncpg.PostgresError, OSError, TimeoutError: nothing is known to have happened; the
                same key again finds out.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            taken = await connection.fetchval(
                SQL["take_key"], self._service, call.idempotency_key, call.body_hash
            )
            if not taken:
                return await self._earlier(connection, call)
            ruling = await self._rule(connection, call, decide)
            await self._write(connection, call, ruling)
            answer = Answer(ruling.status, msgspec.json.encode(ruling.answer))
            await connection.execute(
                SQL["keep_answer"], self._service, call.idempotency_key, answer.status, answer.body
            )
        return answer

    async def _earlier(self, connection: PooledConnection, call: Call) -> Answer:
        row = await connection.fetchrow(SQL["answer_of_key"], self._service, call.idempotency_key)
        if row is None:  # forgotten between the two statements: its time was up
            return _refused(410, "KEY_FORGOTTEN", "this idempotency key is too old to be used")
        if row["body_hash"] != call.body_hash:
            return _refused(
                422, "REQUEST_MISMATCH", "this idempotency key came before with another request"
            )
        return Answer(row["status"], row["answer"], replayed=True)

    async def _rule(self, connection: PooledConnection, call: Call, decide: Decide) -> Ruling:
        order_id = call.body.order_id
        await connection.execute(SQL["lock_order"], self._service, order_id)
        row = await connection.fetchrow(SQL["known_order"], self._service, order_id)
        known = (
            Known(row["state"], row["amount_cents"], row["sku"], row["quantity"]) if row else None
        )
        ruling = decide(known, call.body)
        if ruling.stock and not await _moved(connection, ruling.stock):
            return refusal(409, "OUT_OF_STOCK", f"not enough of {ruling.stock.sku} is left")
        return ruling

    async def _write(self, connection: PooledConnection, call: Call, ruling: Ruling) -> None:
        order_id, key = call.body.order_id, call.idempotency_key
        if ruling.after:
            after = ruling.after
            await connection.execute(
                SQL["keep_order"],
                *(self._service, order_id, after.state),
                *(after.amount_cents, after.sku, after.quantity),
            )
        if ruling.effect:
            await connection.execute(
                SQL["append_effect"],
                *(self._service, ruling.effect, order_id),
                *(key, ruling.amount_cents, call.body_hash),
            )
        if ruling.delivery:
            delivery = ruling.delivery
            await connection.execute(
                SQL["send_driver"],
                *(order_id, delivery.workflow_id, delivery.driver, f"delivered-{order_id}"),
                *self._delivery_seconds,
            )
        if ruling.call_off:
            await connection.execute(SQL["call_driver_off"], order_id)


async def _moved(connection: PooledConnection, move: StockMove) -> bool:
    moved = await connection.fetchval(
        SQL["move_stock"], move.sku, move.available, move.reserved, move.shipped
    )
    return bool(moved)


def _refused(status: int, reason: str, detail: str) -> Answer:
    return Answer(status, msgspec.json.encode(problem(status, reason, detail)))
