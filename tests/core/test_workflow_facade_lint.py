# ruff: noqa: ANN401, ASYNC210, ASYNC230, DTZ003, DTZ005, DTZ011, F821, PTH123, S102, S113, S311, SIM115, T201 - forbidden calls are what is tested

from __future__ import annotations

import datetime as dt
import os
import random
import threading
import uuid
from datetime import date, datetime
from os import getpid
from random import choice
from threading import Lock
from typing import Any

import pytest

from odin import activity, workflow
from odin.core.definition import DefinitionError, WorkflowDefinition


def helper() -> datetime:
    return datetime.now()


@activity.defn
def clock() -> str:
    return str(datetime.now())


def lint_of(function: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        workflow.defn(function)
    return str(caught.value)


def test_clocks_that_cannot_be_guarded_are_found_in_the_source() -> None:
    async def many() -> None:
        datetime.now()
        dt.datetime.utcnow()
        date.today()
        uuid.uuid4()
        choice([1])
        random.Random()
        open("x")
        threading.Lock()
        helper()
        import httpx as client  # type: ignore[import-not-found] # never imported
        from requests import get as fetch

        client.get("x")
        fetch("x")

    text = lint_of(many)
    lines = text.splitlines()
    assert len(lines) == 11
    for what, instead in (
        ("datetime.datetime.now()", "workflow.now()"),
        ("datetime.datetime.utcnow()", "workflow.now()"),
        ("datetime.date.today()", "workflow.now()"),
        ("uuid.uuid4()", "workflow.uuid4()"),
        ("random.choice()", "workflow.random()"),
        ("random.Random()", "workflow.random()"),
        (" open()", "activity"),
        ("threading.Lock()", "activity"),
        ("httpx.get()", "activity"),
        ("requests.get()", "activity"),
    ):
        assert any(what in line and instead in line for line in lines), what
    number = helper.__code__.co_firstlineno + 1
    assert any(f"test_workflow_facade_lint.py:{number}:" in line for line in lines)


def test_a_call_is_found_by_the_module_that_it_was_imported_from() -> None:
    async def many() -> None:
        getpid()
        Lock()

    pid, lock = lint_of(many).splitlines()
    assert " os.getpid() " in pid
    assert " threading." in lock  # allocate_lock() before Python 3.13


def test_lines_that_are_allowed_or_harmless_pass_the_lint() -> None:
    async def fine(moment: Any, numbers: dict[str, int]) -> None:
        datetime.now()  # odin: allow
        random = workflow.random()
        random.random()
        moment.now()
        [print][0](numbers)
        print(undefined_anywhere)  # type: ignore[name-defined] # a name that nobody knows
        await workflow.execute_activity(clock)
        for _ in sorted({"a", "b"}):
            pass
        fine(moment, numbers)  # type: ignore[unused-coroutine] # never run

    assert WorkflowDefinition.of(workflow.defn(fine)).warnings == ()


def test_what_may_be_meant_is_only_a_warning() -> None:
    async def doubtful() -> None:
        for _ in frozenset("ab"):
            pass
        [x + "" for x in set("ab")]
        os.getenv("HOME")
        os.environ["HOME"]

    warnings = WorkflowDefinition.of(workflow.defn(doubtful)).warnings
    assert [warning.split(": ")[1] for warning in warnings] == [
        "iterating a set", "iterating a set", "os.getenv()", "os.environ",
    ]  # fmt: skip


def test_code_without_source_is_not_looked_at() -> None:
    space: dict[str, Any] = {}
    exec("async def made():\n    import datetime\n    datetime.datetime.now()", space)
    assert WorkflowDefinition.of(workflow.defn(space["made"])).warnings == ()


# Waiting in order, and logging.
