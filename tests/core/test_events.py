"""Events: names on disk, round trips, old histories."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core import commands as c
from odin.core import events as e
from tests.core.struct_strategies import instances

ALL = sorted(e.EVENT_TYPES.items())


@pytest.mark.parametrize(("name", "cls"), ALL, ids=[name for name, _ in ALL])
@settings(max_examples=15)
@given(data=st.data())
def test_an_event_comes_back_from_its_row_as_it_was(
    data: st.DataObject, name: str, cls: type
) -> None:
    event = data.draw(instances(cls))
    stored = e.to_history(event, 7, 99)
    assert (stored.event_id, stored.type, stored.recorded_at_us) == (7, name, 99)
    assert e.type_name(event) == name
    assert e.from_history(stored) == event


def test_a_type_is_the_snake_case_form_of_its_class_and_none_is_twice() -> None:
    assert e.EVENT_TYPES["workflow_execution_continued_as_new"] is e.WorkflowExecutionContinuedAsNew
    assert len(e.EVENT_TYPES) == len(e.TYPE_NAMES)
    for name, cls in ALL:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        assert name.replace("_", "") == cls.__name__.lower()


def test_fields_that_an_event_does_not_need_cost_no_bytes() -> None:
    stored = e.to_history(e.TimerFired(command_id=3), 1, 1)
    assert msgspec.msgpack.decode(stored.attributes) == {"command_id": 3}


@pytest.mark.parametrize(("name", "cls"), ALL, ids=[name for name, _ in ALL])
def test_a_history_written_by_newer_code_can_be_read(name: str, cls: type) -> None:
    required = {
        field.name: 1 if field.type is int else _any_of(field.type)
        for field in msgspec.structs.fields(cls)
        if field.required
    }
    attributes = msgspec.msgpack.encode(required | {"a_field_of_the_future": 1})
    event = e.from_history(e.HistoryEvent(1, name, 1, attributes))
    assert type(event) is cls


def _any_of(type_: object) -> object:
    return {"str": "x", "Payload": ["json", b"1"], "Failure": {"message": "no"}}[
        getattr(type_, "__name__", "")
    ]


def test_an_unknown_type_and_damaged_attributes_are_errors() -> None:
    with pytest.raises(KeyError):
        e.from_history(e.HistoryEvent(1, "workflow_execution_vanished", 1, b"\x80"))
    with pytest.raises(msgspec.DecodeError):
        e.from_history(e.HistoryEvent(1, "timer_fired", 1, b"\x80"))
    with pytest.raises(msgspec.DecodeError):
        e.from_history(e.HistoryEvent(1, "timer_fired", 1, b""))


def test_every_closing_event_and_every_closing_command_is_named() -> None:
    closing = {cls.__name__ for cls in e.CLOSING}
    assert len(closing) == 6
    assert all(name.startswith("WorkflowExecution") for name in closing)
    assert len(c.CLOSING_COMMANDS) == 4


def test_events_are_never_changed() -> None:
    event = e.TimerFired(command_id=3)
    with pytest.raises(AttributeError):
        setattr(event, "command_id", 4)  # noqa: B010 - the type checker refuses the plain form
