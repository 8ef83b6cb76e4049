"""What is broken, one scenario each, and the bounds that it must keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from cluster.proxy.faults import Fault
from engine.store.lane import COMMIT_IN_STEPS

from .bed import ENGINES, Bed

TAKEOVER_SECONDS = 12.0
HAND_OVER_SECONDS = 1.5
PAUSE_SECONDS = 2.0
FREEZE_SECONDS = 15.0
CUT_SECONDS = 15.0
SHORT_SECONDS = 10.0
# A frozen engine that holds a shard's row: its backend is ended after a second of waiting.
LOCKED_SECONDS = TAKEOVER_SECONDS + 1.0
# All engines at once: they wait for their own old leases, then begin.
COLD_SECONDS = 25.0
COMMIT = "commit_group"
IN_STEPS = "engine-frozen-between-lock-and-commit"
"""Needs engines that commit in steps: a cluster of its own."""
BLACKHOLE = Fault(mode="blackhole")

Scenario = Callable[[Bed], Awaitable[None]]


async def _lost(bed: Bed, engine: str, begin: Callable[[], object], seconds: float) -> None:
    """Do something to an engine; its shards must serve elsewhere, and others go on."""
    others = bed.others(engine)
    async with bed.pulse(others):
        shards, since = await bed.orphans(engine), await bed.books.now()
        at = bed.clock.boottime()
        begin()
        await bed.serve_again(shards, [bed.addresses[one] for one in others], at, seconds)
        await bed.others_pause(others, since, PAUSE_SECONDS)


async def engine_killed(bed: Bed, engine: str = "engine-2") -> None:
    await _lost(bed, engine, lambda: bed.breaker.kill([engine]), TAKEOVER_SECONDS)


async def engine_told_to_end(bed: Bed, engine: str = "engine-3") -> None:
    await _lost(bed, engine, lambda: bed.breaker.restart([engine]), HAND_OVER_SECONDS)


async def engine_frozen(
    bed: Bed, engine: str = "engine-1", seconds: float = TAKEOVER_SECONDS
) -> None:
    def begin() -> None:
        bed.breaker.freeze([engine], FREEZE_SECONDS)

    at = bed.clock.boottime()
    await _lost(bed, engine, begin, seconds)
    await asyncio.sleep(max(0.0, FREEZE_SECONDS - bed.elapsed(at)) + 1)


async def _frozen_at_commit(bed: Bed, engine: str, mode: str) -> None:
    fault = Fault(
        mode="freeze_before" if mode == "before" else "freeze_after",
        pattern=COMMIT,
        is_statement=True,
    )
    await bed.orphans(engine)
    await bed.at_commit(engine, fault, FREEZE_SECONDS + 5)
    at = bed.clock.boottime()
    await engine_frozen(bed, engine, LOCKED_SECONDS if mode == "before" else TAKEOVER_SECONDS)
    await asyncio.sleep(max(0.0, FREEZE_SECONDS + 5 - bed.elapsed(at)))


async def engine_frozen_sync_withheld(bed: Bed) -> None:
    await _frozen_at_commit(bed, "engine-2", "before")


async def engine_frozen_reply_unread(bed: Bed) -> None:
    await _frozen_at_commit(bed, "engine-3", "after")


async def engine_frozen_between_lock_and_commit(bed: Bed) -> None:
    """The group has been written, its COMMIT is on its way, and the engine stops for 15 s.

    Its session holds the shards' rows until somebody ends it; nothing of the group may land.
    """
    engine = "engine-2"
    fault = Fault(mode="freeze_before", pattern=COMMIT_IN_STEPS, is_statement=True)
    await bed.orphans(engine)
    at = bed.clock.boottime()
    await bed.at_commit(engine, fault, FREEZE_SECONDS + 5)
    [(pid, transaction)] = await bed.books.open_writes(engine)
    await engine_frozen(bed, engine, LOCKED_SECONDS)
    is_held, fate = await bed.books.fate(pid, transaction)
    if is_held or fate != "aborted":
        bed.told.wrong.append(f"the frozen session: holds its locks: {is_held}, its group: {fate}")
    await asyncio.sleep(max(0.0, FREEZE_SECONDS + 5 - bed.elapsed(at)))


async def commit_cut(bed: Bed) -> None:
    """The socket is cut right after the commit was sent, at every engine in turn, several times."""
    fault = Fault(mode="cut_after", pattern=COMMIT, is_statement=True)
    for _ in range(3):
        for engine in ENGINES:
            await bed.orphans(engine)
            await bed.at_commit(engine, fault, SHORT_SECONDS)
            await asyncio.sleep(0.5)


async def all_engines_killed(bed: Bed) -> None:
    at = bed.clock.boottime()
    bed.breaker.kill(ENGINES)
    await bed.serve_again(range(64), bed.addresses.values(), at, COLD_SECONDS)


async def worker_killed(bed: Bed) -> None:
    bed.breaker.kill(["worker-1"])
    await asyncio.sleep(SHORT_SECONDS)


async def worker_frozen(bed: Bed) -> None:
    bed.breaker.freeze(["worker-2"], FREEZE_SECONDS)
    await asyncio.sleep(FREEZE_SECONDS + 1)


async def rabbitmq_killed(bed: Bed) -> None:
    bed.breaker.kill(["rabbitmq"])
    await asyncio.sleep(SHORT_SECONDS)


async def rabbitmq_restarted(bed: Bed) -> None:
    bed.breaker.restart(["rabbitmq"])
    await asyncio.sleep(SHORT_SECONDS)


async def rabbitmq_alarm(bed: Bed) -> None:
    await bed.breaker.alarm(SHORT_SECONDS)
    await asyncio.sleep(SHORT_SECONDS)
    await bed.breaker.heal()


async def postgres_restarted(bed: Bed) -> None:
    bed.breaker.restart(["postgres"])
    await asyncio.sleep(SHORT_SECONDS)


async def postgres_killed(bed: Bed) -> None:
    bed.breaker.kill(["postgres"])
    await asyncio.sleep(SHORT_SECONDS)


async def postgres_backends_terminated(bed: Bed) -> None:
    for _ in range(4):
        await bed.breaker.disconnect()
        await asyncio.sleep(2)


async def postgres_slow(bed: Bed) -> None:
    since = await bed.books.now()
    await bed.cut(
        "engines", Fault(mode="delay", delay_ms=150, jitter_ms=50), CUT_SECONDS, to="postgres"
    )
    await asyncio.sleep(CUT_SECONDS)
    moved = await bed.books.moved(since)
    if moved:
        bed.told.wrong.append(f"a slow Postgres cost {moved} leases")


async def valkey_killed(bed: Bed) -> None:
    bed.breaker.kill(["valkey"])
    await asyncio.sleep(SHORT_SECONDS)


async def valkey_hung(bed: Bed) -> None:
    bed.breaker.freeze(["valkey"], SHORT_SECONDS)
    await asyncio.sleep(SHORT_SECONDS)


async def valkey_gone(bed: Bed) -> None:
    await bed.cut("valkey", Fault(mode="refuse"), SHORT_SECONDS)
    await asyncio.sleep(SHORT_SECONDS)


async def cut_from_postgres(bed: Bed, engine: str) -> None:
    shards = await bed.orphans(engine)
    at = bed.clock.boottime()
    await bed.cut(engine, BLACKHOLE, CUT_SECONDS, to="postgres")
    others = [bed.addresses[one] for one in bed.others(engine)]
    await bed.serve_again(shards, others, at, TAKEOVER_SECONDS)
    await asyncio.sleep(max(0.0, CUT_SECONDS - bed.elapsed(at)) + 1)


async def half_cut_from_postgres(bed: Bed, engine: str = "engine-1") -> None:
    """What the engine sends arrives; no answer does."""
    shards = await bed.orphans(engine)
    at = bed.clock.boottime()
    await bed.cut(engine, Fault(mode="blackhole", direction="down"), CUT_SECONDS, to="postgres")
    others = [bed.addresses[one] for one in bed.others(engine)]
    await bed.serve_again(shards, others, at, TAKEOVER_SECONDS + 3)
    await asyncio.sleep(max(0.0, CUT_SECONDS - bed.elapsed(at)) + 1)


async def cut_from_rabbitmq(bed: Bed, engine: str) -> None:
    await bed.cut(engine, BLACKHOLE, CUT_SECONDS, to="rabbitmq")
    await asyncio.sleep(CUT_SECONDS)


async def cut_from_workers(bed: Bed, engine: str) -> None:
    await bed.cut(engine, BLACKHOLE, CUT_SECONDS, from_="workers")
    await asyncio.sleep(CUT_SECONDS)


async def cut_from_engines(bed: Bed, engine: str) -> None:
    links = await bed.breaker.links(engine, to="engines")
    links += await bed.breaker.links(engine, from_="engines")
    await bed.breaker.break_links(links, BLACKHOLE, CUT_SECONDS)
    await asyncio.sleep(CUT_SECONDS)


def _cuts() -> dict[str, Scenario]:
    ways = {
        "postgres": cut_from_postgres,
        "rabbitmq": cut_from_rabbitmq,
        "workers": cut_from_workers,
        "engines": cut_from_engines,
    }
    return {
        f"{engine}-cut-from-{what}": partial(cut, engine=engine)
        for what, cut in ways.items()
        for engine in ENGINES
    }


SCENARIOS: dict[str, Scenario] = {
    "engine-killed": engine_killed,
    "engine-frozen": engine_frozen,
    "engine-frozen-sync-withheld": engine_frozen_sync_withheld,
    "engine-frozen-reply-unread": engine_frozen_reply_unread,
    IN_STEPS: engine_frozen_between_lock_and_commit,
    "engine-told-to-end": engine_told_to_end,
    "commit-cut": commit_cut,
    "worker-killed": worker_killed,
    "worker-frozen": worker_frozen,
    "rabbitmq-killed": rabbitmq_killed,
    "rabbitmq-restarted": rabbitmq_restarted,
    "rabbitmq-alarm": rabbitmq_alarm,
    "postgres-restarted": postgres_restarted,
    "postgres-killed": postgres_killed,
    "postgres-backends-terminated": postgres_backends_terminated,
    "postgres-slow": postgres_slow,
    "valkey-killed": valkey_killed,
    "valkey-hung": valkey_hung,
    "valkey-gone": valkey_gone,
    **_cuts(),
    "engine-half-cut-from-postgres": half_cut_from_postgres,
    "all-engines-killed": all_engines_killed,
}
