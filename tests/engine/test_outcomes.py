"""The four outcomes of a write, forced: what commits and then errs, what is lost, what raises.

The store is the real one on real Postgres; only its answer is spoiled, before or after the call.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import ClassVar

import pytest

from engine.handler import Handler
from engine.store import Store
from engine.store.errors import WriteRaisedError
from engine.store.group import Committed, Group
from engine.term import Term
from odin.core.decide import Decision
from odin.core.requests import StartWorkflow
from odin.errors import OdinError, OutcomeUnknownError
from tests.engine.bed import Bed, running_bed
from tests.engine.flows import ACTIVITIES, WORKFLOWS, Collect, CountOn, many_steps, one_step


class SpoiledStore(Store):
    """A store whose commits are spoiled as `plan` says; counts what it did."""

    plan = staticmethod(lambda _group: "")
    done: ClassVar[Counter[str]] = Counter()

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        """Commit, or pretend otherwise."""
        what = type(self).plan(group)
        self.done[what] += 1
        if what == "lost":
            raise OutcomeUnknownError("the call never arrived")
        if what == "raise":
            raise WriteRaisedError("spoiled: rolled back")
        if what == "deadlock":
            raise WriteRaisedError("spoiled: a deadlock", sqlstate="40P01")
        committed = await super().commit(group, lane=lane)
        if what == "commit, then err":
            raise OutcomeUnknownError("committed, and nobody was told")
        return committed


def spoiling(name: str, plan: object) -> type[SpoiledStore]:
    """Return a store class of its own with this plan."""
    return type(name, (SpoiledStore,), {"plan": staticmethod(plan), "done": Counter()})  # type: ignore[arg-type] # a plan is a function


async def check_histories(bed: Bed) -> None:
    """Fail unless every history is dense, closed once, and in the order of its ranges."""
    rows = await bed.fetch(
        "SELECT run_id, array_agg(event_id ORDER BY event_id) AS ids,"
        " array_agg(range_id ORDER BY event_id) AS ranges FROM event GROUP BY run_id"
    )
    assert rows
    for row in rows:
        assert row["ids"] == list(range(1, len(row["ids"]) + 1))
        assert row["ranges"] == sorted(row["ranges"])


@pytest.mark.parametrize("kind", ["commit, then err", "lost"])
async def test_unknown_outcomes_lose_nothing_and_repeat_nothing(dsn: str, kind: str) -> None:
    dice = random.Random(7)  # noqa: S311 - repeatable on purpose

    def plan(group: Group) -> str:
        return kind if group.events and dice.random() < 0.15 else ""

    store = spoiling("Unknown", plan)
    async with running_bed(dsn, store_type=store) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            results = [
                group.create_task(bed.client.execute_workflow(many_steps, 3, id=f"doubt-{number}"))
                for number in range(20)
            ]
        assert {task.result() for task in results} == {3}
        runs = await bed.fetch("SELECT workflow_id, status FROM execution")
        assert Counter(row["status"] for row in runs) == {"completed": 20}
        await check_histories(bed)
    assert store.done[kind] > 0
    assert store.done[""] > 0


async def test_a_group_that_raises_is_decided_anew_request_by_request(dsn: str) -> None:
    def plan(group: Group) -> str:
        return "raise" if len(group.inserts) > 1 else ""

    store = spoiling("Raises", plan)
    async with running_bed(dsn, store_type=store) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            results = [
                group.create_task(bed.client.execute_workflow(one_step, "x", id=f"crowd-{number}"))
                for number in range(12)
            ]
        assert {task.result() for task in results} == {"x"}
        await check_histories(bed)
    assert store.done["raise"] > 0


async def test_one_request_that_raises_alone_fails_and_harms_no_other(dsn: str) -> None:
    def plan(group: Group) -> str:
        poisoned = any(one.workflow_id == "poison" for one in group.inserts.values())
        return "raise" if poisoned else ""

    async with running_bed(dsn, store_type=spoiling("Poison", plan)) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        with pytest.raises(OdinError) as failure:
            await bed.client.start_workflow(one_step, "x", id="poison")
        assert failure.value.reason == "WRITE_RAISED"
        assert await bed.client.execute_workflow(one_step, "y", id="healthy") == "y"
        assert await bed.fetch("SELECT 1 FROM execution WHERE workflow_id = 'poison'") == []


async def test_a_write_that_fails_twice_for_others_sake_is_asked_again_and_goes_through(
    dsn: str,
) -> None:
    def plan(group: Group) -> str:
        starts = any(one.workflow_id == "unlucky" for one in group.inserts.values())
        return "deadlock" if starts and store.done["deadlock"] < 2 else ""

    store = spoiling("Deadlocks", plan)
    async with running_bed(dsn, store_type=store) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        assert await bed.client.execute_workflow(one_step, "x", id="unlucky") == "x"
        await check_histories(bed)
    assert store.done["deadlock"] == 2


class HeldStore(SpoiledStore):
    """A store at which the groups with a run called "poison" wait for a word, and then raise."""

    tries: ClassVar[asyncio.Queue[asyncio.Event]]

    async def commit(self, group: Group, *, lane: int = 0) -> Committed:
        """Commit, or wait and raise."""
        if any(one.workflow_id == "poison" for one in group.inserts.values()):
            may_raise = asyncio.Event()
            self.tries.put_nowait(may_raise)
            await may_raise.wait()
            raise WriteRaisedError("spoiled: rolled back")
        return await super().commit(group, lane=lane)


async def test_nobody_is_answered_for_the_write_of_another(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: asyncio.Queue[None] = asyncio.Queue()
    answers: asyncio.Queue[str] = asyncio.Queue()
    settled, ask = Term.settled, Handler.ask

    async def wait(term: Term) -> None:
        waiting.put_nowait(None)
        await settled(term)

    async def answered(handler: Handler, request: StartWorkflow, written: list[Decision]) -> object:
        try:
            return await ask(handler, request, written)
        except OdinError as error:
            if request.workflow_id == "there":
                answers.put_nowait(error.reason)
            raise

    tries: asyncio.Queue[asyncio.Event] = asyncio.Queue()
    store = type("Held", (HeldStore,), {"tries": tries, "done": Counter()})
    async with running_bed(dsn, store_type=store, shard_count=1) as bed, asyncio.timeout(30):
        await bed.client.start_workflow(Collect.run, id="there")
        monkeypatch.setattr(Term, "settled", wait)
        monkeypatch.setattr(Handler, "ask", answered)
        poison = asyncio.create_task(bed.client.start_workflow(Collect.run, id="poison"))
        may_raise = await tries.get()
        again = asyncio.create_task(bed.client.start_workflow(Collect.run, id="there"))
        await waiting.get()  # a refusal, once the poisoned group has ended
        may_raise.set()
        may_raise = await tries.get()  # now the poisoned start is alone, and raises again
        await waiting.get()
        may_raise.set()
        with pytest.raises(OdinError) as failure:
            await poison
        assert failure.value.reason == "WRITE_RAISED"
        assert await answers.get() == "STORE_UNAVAILABLE"
        assert await answers.get() == "ALREADY_STARTED"
        again.cancel()
        await asyncio.wait({again})


async def test_a_wait_ends_for_the_doubt_of_its_shard_and_not_for_the_write_that_raised(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[OdinError] = []
    end = Term.end

    def ended(term: Term, error: OdinError) -> None:
        errors.append(error)
        end(term, error)

    store = spoiling("Raise", lambda group: "raise" if group.inserts else "")
    async with running_bed(dsn, store_type=store, shard_count=1) as bed:
        monkeypatch.setattr(Term, "end", ended)
        with pytest.raises(OdinError) as failure:
            await bed.client.start_workflow(one_step, "x", id="poison")
        assert failure.value.reason == "WRITE_RAISED"
        assert {error.reason for error in errors} == {"OUTCOME_UNKNOWN"}


async def test_signals_are_kept_once_through_unknown_outcomes(dsn: str) -> None:
    dice = random.Random(11)  # noqa: S311 - repeatable on purpose

    def plan(group: Group) -> str:
        if group.events and dice.random() < 0.2:
            return dice.choice(["commit, then err", "lost"])
        return ""

    async with running_bed(dsn, store_type=spoiling("Signals", plan)) as bed:
        await bed.start_worker(WORKFLOWS, ACTIVITIES)
        collect = await bed.client.start_workflow(Collect.run, id="collect")
        await bed.client.start_workflow(CountOn.run, args=[0, 20], id="count")
        count = bed.client.get_workflow_handle("count")
        for number in range(20):
            await collect.signal(Collect.add, number)
            await count.signal(CountOn.tick)
        await collect.signal(Collect.finish)
        async with asyncio.timeout(40):
            assert await collect.result() == list(range(20))
            assert await count.result() == 20
        await check_histories(bed)
