# ruff: noqa: ANN401, BLE001, S110, SIM105, SLF001 - careless code is what is tested

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odin import workflow
from odin.core.instance import StaleInstanceError
from tests.core.replay_owner import START_US, Owner

SEEN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_reported_late() -> Any:
    SEEN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        gc.collect()


def evict(owner: Owner) -> None:
    assert owner.warm is not None
    owner.warm.evict()
    owner.warm.evict()
    failure = owner.warm.run_task(START_US).failure
    assert failure is not None
    assert "evicted" in failure.message
    with pytest.raises(StaleInstanceError):
        owner.warm.apply([])


@workflow.defn
async def careful() -> None:
    try:
        await workflow.sleep(100)
    finally:
        SEEN.append("finally")
        workflow.logger.error("must not be logged")
        _ = workflow.start_activity("clean-up")
        SEEN.append("never")


def test_eviction_unwinds_the_code_and_no_command_comes_of_it(caplog: Any) -> None:
    owner = Owner(careful)
    owner.step()
    evict(owner)
    assert SEEN == ["finally"]
    assert not caplog.records


async def numbers() -> AsyncIterator[int]:
    try:
        while True:
            yield 1
            await workflow.sleep(1)
    finally:
        SEEN.append("generator")
        await asyncio.sleep(1)


@workflow.defn
async def crowded() -> None:
    async def child(at: int) -> None:
        try:
            await workflow.execute_activity(f"step-{at}")
        except BaseException:
            SEEN.append(f"child {at}")
            await asyncio.sleep(0)
            raise

    async def stubborn() -> None:
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except BaseException:
                pass

    stream = numbers()
    SEEN.append(str(await anext(stream)))
    async with asyncio.TaskGroup() as group:
        group.create_task(child(1))
        group.create_task(child(2))
        group.create_task(stubborn())
        group.create_task(workflow.wait_condition(lambda: False, timeout=10))
        group.create_task(asyncio.wait_for(child(3), 5))


def test_eviction_unwinds_tasks_groups_generators_and_stubborn_code() -> None:
    owner = Owner(crowded)
    assert len(owner.step()) == 5
    evict(owner)
    assert SEEN == ["1", "child 1", "child 2", "child 3", "generator"]


@workflow.defn
async def deaf() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass


def test_code_that_swallows_its_eviction_for_ever_is_abandoned_and_kept_from_the_collector() -> (
    None
):
    owner = Owner(deaf)
    owner.step()
    assert owner.warm is not None
    main = owner.warm._run._main
    assert main is not None
    coroutine = main.get_coro()
    before = sys.getrefcount(coroutine)
    evict(owner)
    assert sys.getrefcount(coroutine) > before


@workflow.defn
async def busy_leaver() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        loop = asyncio.get_running_loop()
        loop.call_soon(SEEN.append, "never")
        assert loop.is_closed()
        for attempt in (
            lambda: asyncio.create_task(workflow.sleep(1)),
            lambda: loop.call_later(1, SEEN.append, "never"),
            lambda: loop.call_later(0, SEEN.append, "never"),
        ):
            try:
                attempt()
            except Exception:
                SEEN.append("never")
            except BaseException:
                SEEN.append("refused")


def test_nothing_can_be_started_on_the_way_out() -> None:
    owner = Owner(busy_leaver)
    owner.step()
    evict(owner)
    assert SEEN == ["refused"] * 3


def test_an_instance_may_be_evicted_before_it_ran_and_on_another_thread() -> None:
    owner = Owner(careful)
    evict(owner)
    assert SEEN == []

    owner = Owner(careful)
    owner.step()
    thread = threading.Thread(target=evict, args=(owner,))
    thread.start()
    thread.join()
    assert SEEN == ["finally"]


@workflow.defn
async def loud_in_silence() -> None:
    async def fails() -> None:
        raise ValueError("nobody looks")

    orphan = asyncio.create_task(fails())
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(ValueError("nobody looks"))
    await asyncio.sleep(0)
    del orphan, future
    await asyncio.Event().wait()


def test_what_is_left_behind_is_not_reported_by_the_collector(caplog: Any) -> None:
    owner = Owner(loud_in_silence)
    owner.step()
    evict(owner)
    del owner
    gc.collect()
    assert not caplog.records
