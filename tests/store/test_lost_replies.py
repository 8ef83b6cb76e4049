"""What `make doubt` does to an engine's connections, tried with dice that always fall so."""

import asyncpg
import asyncpg.connection
import pytest

from engine.store import Store
from odin.errors import OutcomeUnknownError
from tests.doubt import Dice, open_doubtfully, was_told

from .support import run, starting


async def test_a_call_that_loses_its_reply_has_done_its_work(
    dsn: str, store: Store, terms: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Dice(1.0, seed=1)
    # Not the name that `make doubt` itself has replaced.
    monkeypatch.setattr(asyncpg, "connect", open_doubtfully(dice, asyncpg.connection.connect))
    execution = run()
    async with Store(dsn, store.incarnation) as doubtful:
        with pytest.raises(OutcomeUnknownError) as raised:
            await doubtful.commit(starting(store.incarnation, terms, execution))
    assert was_told(raised.value)
    assert dice.lost == {"commit_group": 1}
    assert await store.load_execution(execution.shard_id, execution.run_id) == execution


async def test_whoever_is_no_engine_is_answered(dsn: str) -> None:
    opened = open_doubtfully(Dice(1.0, seed=1), asyncpg.connection.connect)
    connection = await opened(dsn, timeout=10)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


def test_what_no_lost_reply_stands_behind_is_a_failure() -> None:
    for error in (AssertionError("wrong"), OutcomeUnknownError("by itself"), None):
        assert not was_told(error)
