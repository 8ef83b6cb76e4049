"""A command that starts a workflow, with arguments that fit its types: to be copied and changed."""

from __future__ import annotations

import dataclasses
import enum
import shlex
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from odin.core.definition import WorkflowDefinition
from odin.core.ids import DEFAULT_TASK_QUEUE

_PLAIN: Final[dict[object, object]] = {
    str: "text",
    int: 1,
    float: 1.5,
    bool: True,
    bytes: "",
    timedelta: "PT1M",
    datetime: "2030-01-01T00:00:00Z",
    date: "2030-01-01",
}
_DEPTH_MAX: Final = 4


def sample_command(workflow: object, task_queue: str = DEFAULT_TASK_QUEUE) -> str:
    """Return an `odin run` for a workflow of a task queue."""
    definition = WorkflowDefinition.of(workflow)
    signature = definition.signature()
    parts = ["odin", "run", definition.name]
    for type_ in signature.types[: signature.required]:
        parts += ["--input", msgspec.json.encode(sample(type_)).decode()]
    if task_queue != DEFAULT_TASK_QUEUE:
        parts += ["--queue", task_queue]
    return shlex.join([*parts, "--wait"])


def sample(type_: Any, depth: int = 0) -> object:  # noqa: ANN401 - a type form
    """Return a value of the type as JSON has it; null where nothing better is known."""
    if type_ in _PLAIN or depth >= _DEPTH_MAX:
        return _PLAIN.get(type_)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Union or type(type_).__name__ == "UnionType":
        return sample(next(one for one in arguments if one is not type(None)), depth)
    if getattr(type_, "__metadata__", None) is not None:
        return sample(arguments[0], depth)
    if type(type_).__name__ == "_LiteralGenericAlias":
        return arguments[0]
    return _compound(origin or type_, arguments, type_, depth)


def _compound(kind: Any, arguments: tuple[Any, ...], type_: Any, depth: int) -> object:  # noqa: ANN401 - type forms
    if not isinstance(kind, type):
        return None
    if issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {
            one.name: sample(hints[one.name], depth + 1)
            for one in dataclasses.fields(kind)
            if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        }
    if issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(type_)
        return {one.encode_name: sample(one.type, depth + 1) for one in fields if one.required}
    return _collection(kind, arguments, depth)


def _collection(kind: type, arguments: tuple[Any, ...], depth: int) -> object:
    if issubclass(kind, Sequence | set | frozenset):
        return [sample(arguments[0], depth + 1)] if arguments else []
    return {} if issubclass(kind, Mapping) else None
