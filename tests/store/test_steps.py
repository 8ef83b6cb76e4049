"""Commits in steps, for tests that stop an engine between its lock and its commit."""

import asyncio
from typing import Any

import asyncpg
import pytest

from cluster.ports import choose_ports
from cluster.proxy.exchange import Exchange
from cluster.proxy.faults import Fault, Order
from cluster.proxy.settings import Wire
from engine.settings import EngineSettings
from engine.store import Renewed, Store
from engine.store.lane import COMMIT_IN_STEPS
from engine.store.steps import SteppingStore
from odin.errors import ConfigurationError, OutcomeUnknownError
from odin.runtime.parent import PARENT_PID
from tests.faults.wires import LINK
from tests.faults.wires import until as until_true

from .support import IDS, SHARDS, run, starting, take_all
from .test_commit import updating


def test_commits_in_steps_are_refused_outside_a_local_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ODIN_POSTGRES_DSN", "postgresql://odin@127.0.0.1/odin")
    monkeypatch.setenv("ODIN_BROKER", "embedded")
    monkeypatch.setenv("ODIN_DEBUG_COMMIT_STEPS", "1")
    monkeypatch.delenv(PARENT_PID, raising=False)
    with pytest.raises(ConfigurationError, match="ODIN_DEBUG_COMMIT_STEPS"):
        EngineSettings().checked()
    monkeypatch.setenv(PARENT_PID, "1")
    assert EngineSettings().checked().debug_commit_steps
    monkeypatch.delenv("ODIN_DEBUG_COMMIT_STEPS")
    assert not EngineSettings().debug_commit_steps


async def test_a_group_stopped_before_its_commit_is_ended_by_the_taker_and_never_lands(
    dsn: str, store: Store, rival: Store, admin: "asyncpg.Connection[Any]"
) -> None:
    host, port = dsn.rpartition("@")[2].partition("/")[0].split(":")
    listening = choose_ports(["link"])["link"]
    exchange, stop = (
        Exchange([Wire("engine-1", "postgres", listening, host, int(port))]),
        asyncio.Event(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(exchange.run(stop))
        await exchange.is_open.wait()
        through = dsn.replace(f"{host}:{port}", f"127.0.0.1:{listening}")
        async with SteppingStore(through, IDS.incarnation()) as stepping:
            me = stepping.incarnation
            assert isinstance(await stepping.register_node(me, "node-s", "s:1"), Renewed)
            terms = await take_all(stepping, me)
            assert len(terms) == SHARDS
            await stepping.commit(starting(me, terms, execution := run(0)))
            await exchange.begin(
                Order(
                    links=[LINK],
                    fault=Fault(mode="freeze_before", pattern=COMMIT_IN_STEPS, is_statement=True),
                    seconds=20,
                )
            )
            late = starting(me, terms)
            late.terms = {0: terms[0]}
            updating(late, execution)
            writing = group.create_task(outcome_of(stepping, late))
            await until_true(lambda: exchange.faults()[0].match_count == 1)
            assert await store.set_dead(me)
            async with asyncio.timeout(4):
                assert await rival.acquire(0, rival.incarnation, holds_term=False) == terms[0] + 1
            await exchange.heal(exchange.faults()[0].id)
            assert isinstance(await writing, OutcomeUnknownError)
            assert await admin.fetchval("SELECT array_agg(event_id) FROM event") == [1]
        stop.set()


async def outcome_of(stepping: Store, group: Any) -> object:  # noqa: ANN401 - a group as it is
    """What a commit returns or raises."""
    try:
        return await stepping.commit(group)
    except Exception as error:  # noqa: BLE001 - the error is what is looked at
        return error
