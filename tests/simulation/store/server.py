"""The server's side: backends, their transactions, and what becomes of a call.

    sent ──▶ arrives ──▶ locks, one by one ──▶ runs ──▶ commits: writes, locks free ──▶ answer

Everything here is a callback of virtual time outside of every simulated process: a backend goes on
with what it was asked when its client dies, freezes or gives up, and learns of that only as it
reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import Context as Variables
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from .faults import RAISES, Fault
from .statements import Context, Statement, Write, error

if TYPE_CHECKING:
    import asyncio

    from .client import SimConnection
    from .database import SimDatabase
    from .statements import Lock

OUTSIDE: Final = Variables()
"""The context of no simulated process."""


@dataclass(slots=True, eq=False)
class Call:
    """One statement, from its sending to its answer.

    Attributes:
        answer: What the client waits for: rows, or an error.
        is_over: Whether the server has answered or will not any more.
    """

    backend: Backend
    name: str
    statement: Statement
    arguments: Sequence[Any]
    answer: asyncio.Future[list[Any]]
    fault: Fault | None = None
    is_over: bool = False
    locks: list[Lock] = field(default_factory=list)
    context: Context | None = None
    waiting: asyncio.TimerHandle | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Backend:
    """The server's end of one connection."""

    def __init__(self, database: SimDatabase, connection: SimConnection, pid: int) -> None:
        self.database = database
        self.connection = connection
        self.pid = pid
        self.application_name = connection.application_name
        parts = self.application_name.split("/")
        self.incarnation = parts[1] if len(parts) > 1 else ""
        self.is_gone = False
        self.client_is_gone = False
        self.in_transaction = False
        self.has_failed = False
        self.held: set[Hashable] = set()
        self.writes: list[Write] = []
        self.call: Call | None = None
        self._idle: asyncio.TimerHandle | None = None

    # --- the life of a call -----------------------------------------------------------------------

    def receive(self, call: Call) -> None:
        """A call has arrived."""
        if self.is_gone or call.is_over:
            return
        self.call = call
        if self._idle is not None:
            self._idle.cancel()
        session = self.connection.session
        if call.name in ("BEGIN", "ROLLBACK", "COMMIT"):
            self._transaction(call)
            return
        if self.has_failed:
            self._fail(call, "25P02", "current transaction is aborted")
            return
        if call.fault in RAISES:
            self._fail(call, RAISES[call.fault], "on purpose")
            return
        call.context = self._context(call)
        if call.statement.reads_only:
            rows, _ = call.statement.run(call.context)
            self._reply(call, rows)
            return
        self._after(call, session.statement_timeout, self._time_out, call, "57014")
        call.locks = [one for one in call.statement.locks(call.context) if self._wanted(one)]
        self._lock_next(call)

    def _context(self, call: Call) -> Context:
        database = self.database
        return Context(database.tables, database.clock.now_us(), call.arguments, set(), database)

    def _wanted(self, lock: Lock) -> bool:
        return not lock.skip or self.database.locks.is_free(self, lock)

    def _lock_next(self, call: Call) -> None:
        """Take what can be taken; what cannot is waited for."""
        context = call.context
        assert context is not None
        while call.locks:
            lock = call.locks.pop(0)
            context.held.add(lock.key)
            self.held.add(lock.key)

            if not self.database.locks.take(self, lock, partial(self._granted, call)):
                timeout = self.connection.session.lock_timeout
                call.waiting = self._after(call, timeout, self._time_out, call, "55P03")
                return
        context.now_us = self.database.clock.now_us()
        if call.statement.judge is not None:
            call.statement.judge(context)
            outcome = None
        else:
            outcome = self._run(call)
            if call.is_over:
                return
        if call.fault is Fault.STALLED:
            _cancel_timers(call)  # no timeout reaches a backend whose disk hangs
        self._after(call, self.database.work_seconds(call), self._finish, call, outcome)

    def _granted(self, call: Call) -> None:
        if call.waiting is not None:
            call.waiting.cancel()
        self._after(call, 0.0, self._lock_next, call)

    def _run(self, call: Call) -> tuple[list[Any], list[Write]] | None:
        assert call.context is not None
        try:
            return call.statement.run(call.context)
        except asyncpg.PostgresError as raised:
            self._fail_with(call, raised)
            return None

    def _finish(self, call: Call, outcome: tuple[list[Any], list[Write]] | None) -> None:
        """The statement ends; outside of a transaction block it commits."""
        if outcome is None:
            outcome = self._run(call)
            if outcome is None:
                return
        rows, writes = outcome
        self.writes.extend(writes)
        if call.fault is Fault.DIED:
            self.terminate()
            return
        if not self.in_transaction:
            self._commit()
        self._reply(call, rows)

    def _transaction(self, call: Call) -> None:
        if call.name == "BEGIN":
            self.in_transaction = True
            self._reply(call, [])
        elif call.name == "ROLLBACK" or self.has_failed:
            self._roll_back()
            self._reply(call, [])
        else:
            self._after(call, self.database.work_seconds(call), self._end_block, call)

    def _end_block(self, call: Call) -> None:
        if call.fault is Fault.DIED:
            self.terminate()
            return
        self._commit()
        self._reply(call, [])

    def _commit(self) -> None:
        database = self.database
        writes, self.writes = self.writes, []
        if writes:
            database.txid += 1
            for write in writes:
                write(database.txid)
            database.committed(self)
        self._end_transaction()

    def _roll_back(self) -> None:
        self.writes.clear()
        self._end_transaction()

    def _end_transaction(self) -> None:
        self.in_transaction = self.has_failed = False
        self._free()

    def _free(self) -> None:
        held, self.held = self.held, set()
        if held:
            self.database.locks.release(self, held)

    # --- its end ----------------------------------------------------------------------------------

    def _after(
        self, call: Call, seconds: float, callback: Callable[..., None], *arguments: object
    ) -> asyncio.TimerHandle:
        timer = self.database.call_later(seconds, callback, *arguments, context=OUTSIDE)
        call.timers.append(timer)
        return timer

    def _over(self, call: Call) -> None:
        call.is_over = True
        _cancel_timers(call)
        if self.call is call:
            self.call = None

    def _reply(self, call: Call, rows: list[Any]) -> None:
        self._over(call)
        self._idle_begins()
        if self.client_is_gone:
            self.end()
        else:
            self.database.deliver(self.connection, call, rows)

    def _fail(self, call: Call, sqlstate: str, message: str) -> None:
        self._fail_with(call, error(sqlstate, f"{call.name}: {message}"))

    def _fail_with(self, call: Call, raised: BaseException) -> None:
        """Roll back and tell the client; the session stands."""
        self._over(call)
        in_block = self.in_transaction
        self._roll_back()
        self.in_transaction = self.has_failed = in_block
        if self.client_is_gone:
            self.end()
        else:
            self.database.deliver(self.connection, call, raised)

    def _time_out(self, call: Call, sqlstate: str) -> None:
        self._fail(call, sqlstate, "canceling statement due to a timeout")

    def _idle_begins(self) -> None:
        if self.in_transaction and not self.is_gone:
            self._idle = self.database.loop.call_later(
                self.connection.session.idle_in_transaction_timeout,
                self.terminate,
                context=OUTSIDE,
            )

    def cancel(self) -> None:
        """The client has asked to cancel whatever runs now."""
        call = self.call
        if call is not None and call.fault is not Fault.STALLED:
            self._fail(call, "57014", "canceling statement due to user request")

    def hang_up(self) -> None:
        """The client is gone. What runs goes on to its end; an open transaction is rolled back."""
        self.client_is_gone = True
        if self.call is None:
            self.end()

    def terminate(self) -> None:
        """End the session: what has not committed is rolled back, the client sees a broken line."""
        if self.is_gone:
            return
        self.end()
        self.database.cut_connection(self.connection)

    def end(self) -> None:
        """Roll back and go."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._idle is not None:
            self._idle.cancel()
        if self.call is not None:
            self._over(self.call)
        self._roll_back()
        self.database.backends.pop(self.pid, None)


def _cancel_timers(call: Call) -> None:
    for timer in call.timers:
        timer.cancel()
    call.timers.clear()


__all__ = ["OUTSIDE", "Backend", "Call"]
