"""The simulated Postgres of one cluster: its tables, its clock, its backends, and its bad days."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from engine.store.connections import SQL
from tests.simulation.clocks import DatabaseClock
from tests.simulation.loop_parts import PROCESS, Process

from . import commit, nodes, queries
from .client import SimConnection, SimPool
from .faults import NO_ODDS, Fault, Odds
from .locks import Locks
from .server import OUTSIDE, Backend, Call
from .statements import Context, Row, Statement, Write, error
from .store import SimStore
from .tables import Tables

if TYPE_CHECKING:
    from random import Random

    from odin.runtime.postgres import Session
    from tests.simulation.loop import SimLoop

Heal = Callable[[], None]
_RESEND_SECONDS: Final = 0.4
_SERVER_NOTICES_SECONDS: Final = 9.0


def _nothing(_context: Context) -> tuple[list[Row], list[Write]]:
    return [], []


def _limits(_context: Context) -> tuple[list[Row], list[Write]]:
    return [{"maximum": 500, "reserved": 3}], []


STATEMENTS: Final[dict[str, Statement]] = {
    **nodes.STATEMENTS,
    **commit.STATEMENTS,
    **queries.STATEMENTS,
    "connection limits": Statement(_limits, reads_only=True),
    **dict.fromkeys(("BEGIN", "COMMIT", "ROLLBACK"), Statement(_nothing)),
}
_NAMES: Final = {text: name for name, text in SQL.items()}


class SimDatabase:
    """One Postgres.

    Attributes:
        tables: What has committed; read it at will, change nothing.
        clock: clock_timestamp(); may be stepped.
        odds: What befalls calls at random.
        plan: Decides what befalls a call, before the odds are asked.
        delay: (from, to) to extra seconds; None lets nothing through. This end is `name`.
        refuses: Whether new connections are too many.
        is_away: Whether nobody answers.
        on_commit: Called after each commit that wrote something.
        counts: Calls by name, and faults by theirs.
        txid: Of the newest commit that wrote something; counts up in the order of commits.
    """

    def __init__(self, loop: SimLoop, *, name: str = "db", seconds: float = 1.0) -> None:
        """Make an empty one whose latencies are `seconds` times those of a quiet one."""
        self.loop = loop
        self.call_later = loop.call_later
        self.name = name
        self.tables = Tables()
        self.clock = DatabaseClock(loop)
        self.dice = loop.dice_for("database")
        self.locks = Locks()
        self.backends: dict[int, Backend] = {}
        self.odds: Odds = NO_ODDS
        self.plan: Callable[[Call], Fault | None] | None = None
        self.delay: Callable[[str, str], float | None] = lambda _source, _target: 0.0
        self.refuses = False
        self.is_away = False
        self.on_commit: list[Callable[[Backend], None]] = []
        self.counts: Counter[str] = Counter()
        self.txid = 0
        self._pace = seconds
        self._pid = 0
        self._clients: dict[Process, dict[SimConnection, None]] = {}

    def store_type(self, host: str) -> type[SimStore]:
        """Return the store of the engines on a host, for `Engine(store_type=...)`."""
        return SimStore.on(self, host)

    def name_of(self, query: str) -> str:
        """Return the name of a statement's text.

        Raises:
            LookupError: The model does not know it.
        """
        if "max_connections" in query:
            return "connection limits"
        if query not in _NAMES:
            begin = " ".join(query.split())[:120]
            raise LookupError(f"the model of Postgres has no statement for: {begin}")
        return _NAMES[query]

    # --- connections ------------------------------------------------------------------------------

    async def connect(self, host: str, application_name: str, session: Session) -> SimConnection:
        """Open a connection.

        Raises:
            TimeoutError, OSError, asyncpg.PostgresError: The server is not to be had.
        """
        async with asyncio.timeout(session.connect_timeout):
            while self.delay(host, self.name) is None or self.delay(self.name, host) is None:
                await asyncio.sleep(_RESEND_SECONDS)
            await asyncio.sleep(3 * self.latency())
        if self.is_away:
            raise ConnectionRefusedError("the database is away")
        if self.refuses:
            raise error("53300", "sorry, too many clients already")
        connection = SimConnection(self, host, application_name, session)
        process = PROCESS.get()
        if process is not None:
            if process not in self._clients:
                self._clients[process] = {}
                process.on_end.append(lambda: self._died(process))
            self._clients[process][connection] = None
        return connection

    def pool(self, host: str, application_name: str, size: int, session: Session) -> SimPool:
        """Return a pool; it opens connections as they are needed."""
        return SimPool(self, host, application_name, size, session)

    def accept(self, connection: SimConnection) -> Backend:
        """Return the backend of a new connection."""
        self._pid += 1
        backend = self.backends[self._pid] = Backend(self, connection, self._pid)
        return backend

    def _died(self, process: Process) -> None:
        for connection in self._clients.pop(process, {}):
            connection.terminate()

    def _forget(self, connection: SimConnection) -> None:
        for connections in self._clients.values():
            connections.pop(connection, None)

    # --- the wire ---------------------------------------------------------------------------------

    def latency(self) -> float:
        """Return how long a packet takes, in seconds."""
        dice = self.dice.random()
        return self._pace * (0.0002 + 0.001 * dice if dice < 0.98 else dice * 0.03)

    def work_seconds(self, call: Call) -> float:
        """Return how long a statement takes from its locks to its commit."""
        if call.fault is Fault.STALLED:
            return self.dice.uniform(1.0, 25.0)
        return self._pace * self.dice.uniform(0.0005, 0.004)

    def send(
        self,
        connection: SimConnection,
        name: str,
        arguments: tuple[Any, ...],
        answer: asyncio.Future[list[Any]],
    ) -> None:
        """Carry a call to its backend, with whatever befalls it."""
        call = Call(connection.backend, name, STATEMENTS[name], arguments, answer)
        self.counts[name] += 1
        if self.plan is not None:
            call.fault = self.plan(call)
        if call.fault is None and self.odds is not NO_ODDS:
            call.fault = self.odds.draw(self.dice)
        if call.fault is not None:
            self.counts[call.fault.value] += 1
            self.loop.note(f"{call.fault.value} {name} {connection.application_name}")
        if call.fault is Fault.LOST:
            self.cut_connection(connection)
            self._later(self.latency(), call.backend.hang_up)
        elif call.fault is Fault.LATE:
            self.cut_connection(connection)
            self._later(self.dice.uniform(0.2, 20.0), self._arrive_late, call)
        else:
            self._transmit(call)

    def _transmit(self, call: Call) -> None:
        connection = call.backend.connection
        extra = self.delay(connection.host, self.name)
        if extra is not None:
            self._later(extra + self.latency(), call.backend.receive, call)
        elif not connection.is_cut:
            self._later(_RESEND_SECONDS, self._transmit, call)

    @staticmethod
    def _arrive_late(call: Call) -> None:
        call.backend.client_is_gone = True
        call.backend.receive(call)

    def deliver(
        self, connection: SimConnection, call: Call, outcome: list[Any] | BaseException
    ) -> None:
        """Carry an answer to its client, if nothing befalls it."""
        if call.fault is Fault.CUT:
            self.cut_connection(connection)
            call.backend.hang_up()
            return
        if call.fault is Fault.SILENT:
            return
        slow = self.dice.uniform(0.3, 4.0) if call.fault is Fault.SLOW else 0.0
        self._bring(connection, call, outcome, slow)

    def _bring(
        self,
        connection: SimConnection,
        call: Call,
        outcome: list[Any] | BaseException,
        slow: float = 0.0,
    ) -> None:
        extra = self.delay(self.name, connection.host)
        if extra is not None:
            self._later(slow + extra + self.latency(), _answer, connection, call, outcome)
        elif not connection.is_cut:
            self._later(_RESEND_SECONDS, self._bring, connection, call, outcome)

    def give_up(self, connection: SimConnection) -> None:
        """The client waits no more: it asks for a cancellation, perhaps too late, and goes."""
        if self.dice.random() < 0.5 and self.delay(connection.host, self.name) is not None:
            self._later(self.latency(), connection.backend.cancel)
        self.hang_up(connection)

    def hang_up(self, connection: SimConnection) -> None:
        """The client has closed the connection; the server learns of it."""
        self._forget(connection)
        extra = self.delay(connection.host, self.name)
        seconds = _SERVER_NOTICES_SECONDS if extra is None else extra + self.latency()
        self._later(seconds, connection.backend.hang_up)

    def cut_connection(self, connection: SimConnection) -> None:
        """Break the line; the client sees it at its next packet."""
        self._forget(connection)
        extra = self.delay(self.name, connection.host)
        if extra is not None:
            self._later(extra + self.latency(), connection.broken)

    def _later(self, seconds: float, callback: Callable[..., None], *arguments: object) -> None:
        self.call_later(seconds, callback, *arguments, context=OUTSIDE)

    # --- what the server does ---------------------------------------------------------------------

    def committed(self, backend: Backend) -> None:
        """A transaction has written something."""
        for told in self.on_commit:
            told(backend)

    def blocking(self, pid: int) -> list[Backend]:
        """Return the backends that backend `pid` waits for."""
        backend = self.backends.get(pid)
        return [] if backend is None else self.locks.blocking(backend)

    # --- bad days ---------------------------------------------------------------------------------

    def cut(self, host: str) -> None:
        """Break every connection of a host; the server carries on with what it was asked."""
        for backend in list(self.backends.values()):
            if backend.connection.host == host:
                self.cut_connection(backend.connection)
                self._later(self.latency(), backend.hang_up)

    def terminate(self, host: str | None = None) -> None:
        """End the backends of a host, or all: what has not committed is rolled back."""
        for backend in list(self.backends.values()):
            if host is None or backend.connection.host == host:
                backend.terminate()

    def go_away(self) -> None:
        """Crash: every session ends, nobody answers; what has committed stays."""
        self.loop.note("database away")
        self.is_away = True
        self.terminate()

    def come_back(self) -> None:
        """Answer again."""
        self.loop.note("database back")
        self.is_away = False

    def trouble(self, dice: Random) -> tuple[str, Heal]:
        """Begin one of the bad days; return what it is, and what ends it."""
        kind = dice.choice(("odds", "odds", "odds", "away", "refuses", "terminate"))
        if kind == "away":
            self.go_away()
            return "database away", self.come_back
        if kind == "refuses":
            self.terminate()
            self.refuses = True
            return "too many connections", lambda: setattr(self, "refuses", False)
        if kind == "terminate":
            self.terminate()
            return "backends terminated", lambda: None
        odds = Odds(**{one.value: dice.choice((0.0, 0.0, 0.02, 0.1)) for one in Fault})
        self.odds = odds

        def heal() -> None:
            if self.odds is odds:
                self.odds = NO_ODDS

        return f"{odds}", heal


def _answer(connection: SimConnection, call: Call, outcome: list[Any] | BaseException) -> None:
    if connection.is_cut or call.answer.done():
        return
    if isinstance(outcome, BaseException):
        call.answer.set_exception(outcome)
    else:
        call.answer.set_result(outcome)
