"""The decorators that declare workflows. Authors reach them as `odin.workflow`."""

# ruff: noqa: ANN401 - decorators hand back what they were given

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from odin.core.definition import (
    INIT_ATTRIBUTE,
    RUN_ATTRIBUTE,
    SIGNAL_ATTRIBUTE,
    WORKFLOW_ATTRIBUTE,
    DefinitionError,
    WorkflowDefinition,
)
from odin.core.lint import check_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

W = TypeVar("W", bound="type | Callable[..., Any]")
F = TypeVar("F", bound="Callable[..., Any]")


@overload
def defn(workflow: W, /) -> W: ...
@overload
def defn(
    *, name: str | None = None, failure_exception_types: Sequence[type[BaseException]] = ()
) -> Callable[[W], W]: ...
def defn(
    workflow: Any = None,
    /,
    *,
    name: str | None = None,
    failure_exception_types: Sequence[type[BaseException]] = (),
) -> Any:
    """Declare a workflow: a class with one `@workflow.run` method, or an async function.

    Args:
        workflow: The class or function. name: The workflow type; its `__name__` when None.
            failure_exception_types: Exceptions that fail the workflow, beside odin's failures. Any
            other exception is
            taken for a bug: the run waits for better code.

    Raises:
        DefinitionError: It cannot work, or its source has a call that would come out differently
            at replay.
    """

    def declare(found: Any) -> Any:
        if inspect.isclass(found):
            definition = _of_class(found, name, failure_exception_types)
            if definition.run in vars(found).values():  # an inherited one has several classes
                setattr(definition.run, WORKFLOW_ATTRIBUTE, definition)
        elif inspect.iscoroutinefunction(found):
            warnings = check_functions([found])
            definition = WorkflowDefinition(
                name or found.__name__,
                found,
                failure_types=failure_exception_types,
                warnings=warnings,
            )
        else:
            raise DefinitionError(
                f"{found!r} is neither a class nor an async function: it cannot be a workflow"
            )
        setattr(found, WORKFLOW_ATTRIBUTE, definition)
        return found

    return declare if workflow is None else declare(workflow)


def _of_class(
    cls: type, name: str | None, failure_types: Sequence[type[BaseException]]
) -> WorkflowDefinition:
    runs: list[Callable[..., Any]] = []
    signals: dict[str, Callable[..., Any]] = {}
    for attribute in dir(cls):  # sorted: the same everywhere
        found = inspect.getattr_static(cls, attribute)
        if getattr(found, RUN_ATTRIBUTE, False):
            runs.append(found)
        signal_name = getattr(found, SIGNAL_ATTRIBUTE, None)
        if signal_name is not None:
            if signal_name in signals:
                raise DefinitionError(
                    f"{cls.__qualname__} has two handlers of signal {signal_name!r}"
                )
            signals[signal_name] = found
    if len(runs) != 1:
        raise DefinitionError(
            f"{cls.__qualname__} needs exactly one method with @workflow.run, it has {len(runs)}"
        )
    constructor = cls.__init__  # type: ignore[misc] # looked at, not called
    has_init = bool(getattr(constructor, INIT_ATTRIBUTE, False))
    _check_constructor(cls, constructor, has_init=has_init)
    functions = [value for value in vars(cls).values() if inspect.isfunction(value)]
    return WorkflowDefinition(
        name or cls.__name__,
        runs[0],
        cls=cls,
        signals=signals,
        has_init=has_init,
        failure_types=failure_types,
        warnings=check_functions(functions),
    )


def _check_constructor(cls: type, constructor: Any, *, has_init: bool) -> None:
    if has_init or constructor is object.__init__:
        return
    try:
        inspect.signature(constructor).bind(None)
    except TypeError as error:
        raise DefinitionError(
            f"the constructor of {cls.__qualname__} wants arguments: decorate it with"
            " @workflow.init to give it those of the run"
        ) from error


def run(fn: F) -> F:
    """Mark the async method that is the workflow."""
    if not inspect.iscoroutinefunction(fn):
        raise DefinitionError(f"{fn.__qualname__} must be `async def` to be a workflow's run")
    setattr(fn, RUN_ATTRIBUTE, True)
    return fn


def init(fn: F) -> F:
    """Mark a constructor that takes the arguments of run: signal handlers may run before run."""
    if fn.__name__ != "__init__":
        raise DefinitionError(f"@workflow.init belongs on __init__, not on {fn.__qualname__}")
    setattr(fn, INIT_ATTRIBUTE, True)
    return fn


@overload
def signal(fn: F, /) -> F: ...
@overload
def signal(*, name: str | None = None) -> Callable[[F], F]: ...
def signal(fn: Any = None, /, *, name: str | None = None) -> Any:
    """Mark a method that handles a signal, `async` or plain.

    Args:
        fn: The method.
        name: The signal's name; the method's when None.
    """

    def mark(found: Any) -> Any:
        setattr(found, SIGNAL_ATTRIBUTE, name or found.__name__)
        return found

    return mark if fn is None else mark(fn)
