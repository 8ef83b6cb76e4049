"""What a worker can run: its workflows and activities by name, checked when the worker is made."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from odin import activity
from odin.core.definition import CallSignature, DefinitionError, WorkflowDefinition, signature_of
from odin.core.payload import JSON, Payload, decode
from odin.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Activity:
    """One registered activity."""

    __slots__ = ("_decoders", "_signature", "fn", "is_async", "name")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.name = activity.name_of(fn)
        self.fn = fn
        call = fn if inspect.isroutine(fn) else type(fn).__call__
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)
        self._signature: CallSignature = signature_of(fn)
        self._decoders = [_decoder(one, self.name) for one in self._signature.types]

    def arguments(self, payloads: Sequence[Payload]) -> list[Any]:
        """Return the arguments that `payloads` hold.

        Raises:
            PayloadError: There are too few or too many, or one does not fit; the message names it.
        """
        signature = self._signature
        count = len(payloads)
        if count < signature.required or (
            signature.maximum is not None and count > signature.maximum
        ):
            most = "any number" if signature.maximum is None else signature.maximum
            raise PayloadError(
                f"activity {self.name!r} takes {signature.required} to {most} arguments,"
                f" got {count}"
            )
        return [self._argument(at, payload) for at, payload in enumerate(payloads)]

    def _argument(self, at: int, payload: Payload) -> Any:  # noqa: ANN401 - user values have any type
        decoders = self._decoders
        try:
            if at < len(decoders) and payload.encoding == JSON:
                return decoders[at].decode(payload.data)
            return decode(payload)
        except (PayloadError, msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise PayloadError(
                f"argument {at + 1} ({self._parameter(at)}) of activity {self.name!r} cannot be"
                f" read: {error}"
            ) from error

    def _parameter(self, at: int) -> str:
        names = list(inspect.signature(self.fn).parameters)
        return names[min(at, len(names) - 1)] if names else "?"


def _decoder(type_: Any, name: str) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type form
    try:
        return msgspec.json.Decoder(type_)
    except TypeError as error:
        raise DefinitionError(
            f"activity {name!r} takes a {type_!r}, which cannot be read from JSON: {error}"
        ) from error


class Registry:
    """The workflows and activities of one worker.

    Args:
        workflows: Decorated classes or functions.
        activities: Decorated functions, or bound methods of decorated functions.

    Raises:
        DefinitionError: One is not decorated, or two have one name.
    """

    def __init__(
        self, workflows: Sequence[object], activities: Sequence[Callable[..., Any]]
    ) -> None:
        self.workflows: dict[str, WorkflowDefinition] = {}
        for workflow in workflows:
            definition = WorkflowDefinition.of(workflow)
            _unique(self.workflows, definition.name, "workflow")
            self.workflows[definition.name] = definition
        self.activities: dict[str, Activity] = {}
        for fn in activities:
            one = Activity(fn)
            _unique(self.activities, one.name, "activity")
            self.activities[one.name] = one
        if not self.workflows and not self.activities:
            raise DefinitionError("a worker needs at least one workflow or activity")

    def unknown_workflow(self, name: str) -> str:
        """Return what to tell the author of a workflow that this worker does not know."""
        known = ", ".join(sorted(self.workflows)) or "none"
        return (
            f"workflow type {name!r} is not registered at this worker (registered: {known});"
            " add it to Worker(workflows=[...]) or use another task queue"
        )

    def unknown_activity(self, name: str) -> str:
        """Return what to tell the author of an activity that this worker does not know."""
        known = ", ".join(sorted(self.activities)) or "none"
        return (
            f"activity type {name!r} is not registered at this worker (registered: {known});"
            " add it to Worker(activities=[...]) or use another task queue"
        )


def _unique(known: dict[str, Any], name: str, what: str) -> None:
    if name in known:
        raise DefinitionError(f"two definitions have the {what} name {name!r}: give one another")
