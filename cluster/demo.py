"""`make demo`: the whole main job on one machine, with a load, and a verdict at its end.

Without ODIN_DEMO_SECONDS it goes on until it is told to stop. With it the load ends by itself; then
what is open has up to a minute more, and everything that was accepted is judged from Postgres.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import asyncpg

from .verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from .session import Session
    from .verdicts import Summary

OPEN_SECONDS: Final = 60.0
LATE_SECONDS: Final = 20.0
LOAD_STOP_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 1.0
SHOWN_MAX: Final = 5
EXIT_REFUTED: Final = 1
EXIT_INTERRUPTED: Final = 130


async def attend(session: Session) -> int:
    """Show the cluster until it is told to stop; return the exit code."""
    for one in session.cluster.parts:
        if one.kind == "engine":
            session.screen.line(f"{one.name} serves {one.address}")
        if one.kind == "chaos":
            session.screen.line("chaos breaks something every ten minutes: `odin chaos history`")
    await session.unless_stopped(session.show())
    return 0


class Timed:
    """A demo of a given length, and its verdict."""

    def __init__(self, seconds: float, client_log: Path) -> None:
        self._seconds = seconds
        self._client_log = client_log
        self._summary: Summary | None = None

    async def __call__(self, session: Session) -> int:
        """Run the load to its end, verify, and return 0 if everything is as it must be."""
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(session.show(), name="footer")
            await session.unless_stopped(self._to_the_end(session))
            showing.cancel()
        if self._summary is None:
            session.screen.line("interrupted: nothing was verified")
            return EXIT_INTERRUPTED
        session.screen.close()
        for line in told(self._summary):
            session.screen.line(line)
        return 0 if self._summary.ok else EXIT_REFUTED

    async def _to_the_end(self, session: Session) -> None:
        load = session.cluster.runners["load"]
        session.screen.line(f"the load runs for {self._seconds:.0f} s")
        try:
            async with asyncio.timeout(self._seconds + LATE_SECONDS):
                await load.over.wait()
        except TimeoutError:  # it crashed on the way and began anew
            await load.end(LOAD_STOP_SECONDS)
        session.screen.line(f"the load has ended; open orders have up to {OPEN_SECONDS:.0f} s more")
        until = session.clock.boottime() + OPEN_SECONDS
        while self._summary is None:
            left = max(0.0, until - session.clock.boottime())
            try:
                self._summary = await verify(
                    session.cluster.dsn, self._client_log, wait_seconds=left, clock=session.clock
                )
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if not left:
                    raise  # it is started again when it has ended: one look after the time is over
                await session.clock.sleep(AGAIN_SECONDS)


def told(summary: Summary) -> list[str]:
    """Return the verdict in lines."""
    counts = {"accepted": 0, "refused": 0, "unknown": 0, **summary.counts}
    ended = {name: counts.get(name, 0) for name in ("completed", "compensated")}
    charges, refunds = counts.get("effects_charge", 0), counts.get("effects_refund", 0)
    outcomes = ", ".join(f"{name} {counts[name]}" for name in ("accepted", "refused", "unknown"))
    lines = [
        f"started {counts.get('started', 0)}: {outcomes}",
        f"orders completed {ended['completed']}, given up and undone {ended['compensated']}",
        f"charges {charges}, refunds {refunds} (subscriptions included)",
    ]
    for problem, count in summary.problem_counts.items():
        who = ", ".join(summary.problems[problem][:SHOWN_MAX])
        more = ", …" if count > SHOWN_MAX else ""
        lines.append(f"FAILED {problem}: {count} ({who}{more})")
    lines.append(
        "VERIFIED: every accepted order finished in order and was charged once"
        if summary.ok
        else "FAILED: not everything that was accepted is as it must be"
    )
    return lines
