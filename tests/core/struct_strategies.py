"""Hypothesis strategies for msgspec structs, from their fields: 64-bit integers, short texts."""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from odin.core.backoff import RetryPolicySpec
from odin.core.payload import Failure

_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=4),
    bytes: st.binary(max_size=4),
    bool: st.booleans(),
    NoneType: st.none(),
    RetryPolicySpec: st.builds(RetryPolicySpec, maximum_attempts=st.integers(0, 9)),
    Failure: st.builds(
        Failure,
        message=st.text(max_size=4),
        kind=st.sampled_from(["application", "timeout"]),
        non_retryable=st.booleans(),
        cause=st.none() | st.builds(Failure, message=st.text(max_size=4)),
    ),
}


@cache
def instances(type_: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any annotation
    """Return values of an annotation as structs use it."""
    if type_ in _SCALARS:
        return _SCALARS[type_]
    origin, inside = get_origin(type_), get_args(type_)
    if origin is not None:
        return _generic(origin, inside)
    fields = {
        field.name: instances(type_hint(type_, field.name))
        for field in msgspec.structs.fields(type_)
    }
    return st.builds(type_, **fields)


def _generic(origin: Any, inside: tuple[Any, ...]) -> st.SearchStrategy[Any]:  # noqa: ANN401 - as above
    if origin is Literal:
        return st.sampled_from(inside)
    if origin is Annotated:
        return _bounded(inside[0], inside[1])
    if origin in (Union, UnionType):
        return st.one_of([instances(one) for one in inside])
    if origin is tuple:
        return st.lists(instances(inside[0]), max_size=2).map(tuple)
    return st.dictionaries(instances(inside[0]), instances(inside[1]), max_size=2)


def _bounded(type_: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:  # noqa: ANN401 - as above
    """Return values within the bounds that an annotation states."""
    if type_ is int:
        return st.integers(
            None if meta.ge is None else int(meta.ge), None if meta.le is None else int(meta.le)
        )
    if meta.pattern is not None:
        return st.from_regex(meta.pattern)
    if type_ is str:
        return st.text(min_size=meta.min_length or 0, max_size=9)
    return instances(type_)


def type_hint(cls: type[msgspec.Struct], name: str) -> Any:  # noqa: ANN401 - any annotation
    """Return the resolved annotation of a field."""
    return next(field.type for field in msgspec.structs.fields(cls) if field.name == name)
