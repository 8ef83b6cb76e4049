"""What is known of a workflow before it runs: name, function, signals, types of arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from odin.core.payload import Payload, decode
from odin.errors import InvalidArgumentError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from odin.core.events import ParentRef, WorkflowExecutionStarted

WORKFLOW_ATTRIBUTE: Final = "__odin_workflow__"
RUN_ATTRIBUTE: Final = "__odin_run__"
SIGNAL_ATTRIBUTE: Final = "__odin_signal__"
INIT_ATTRIBUTE: Final = "__odin_init__"
ACTIVITY_NAME_ATTRIBUTE: Final = "__odin_activity_name__"


class DefinitionError(InvalidArgumentError):
    """A workflow, signal or activity is declared in a way that cannot work."""

    reason = "BAD_DEFINITION"


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """Who a run is. The worker knows the first three; the rest comes from the run's first event.

    Instants are microseconds since 1970, durations milliseconds.
    """

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str = ""
    task_queue: str = ""
    first_run_id: str = ""
    continued_from_run_id: str | None = None
    start_time_us: int = 0
    execution_timeout_ms: int | None = None
    run_timeout_ms: int | None = None
    task_timeout_ms: int = 10_000
    parent: ParentRef | None = None
    origin: str = ""
    memo: Mapping[str, Payload] = field(default_factory=lambda: MappingProxyType({}))
    search_attributes: Mapping[str, Payload] = field(default_factory=lambda: MappingProxyType({}))

    def started(self, event: WorkflowExecutionStarted, recorded_at_us: int) -> WorkflowInfo:
        """Return the info with what the run's first event says."""
        return WorkflowInfo(
            self.namespace,
            self.workflow_id,
            self.run_id,
            event.workflow_type,
            event.task_queue,
            event.first_run_id,
            event.continued_from_run_id,
            recorded_at_us,
            event.execution_timeout_ms,
            event.run_timeout_ms,
            event.task_timeout_ms,
            event.parent,
            event.origin,
            MappingProxyType(event.memo),
            MappingProxyType(event.search_attributes),
        )


class CallSignature:
    """The types that a function takes and returns, as far as payloads need them.

    Args:
        fn: A function; its type hints are resolved. skip: How many leading parameters are not the
            caller's (1 for a method taken from its class).

    Raises:
        DefinitionError: A type hint cannot be resolved, or a parameter cannot be given by position.
    """

    __slots__ = ("maximum", "name", "required", "returns", "types")

    def __init__(self, fn: Callable[..., object], skip: int = 0) -> None:
        self.name = getattr(fn, "__qualname__", repr(fn))
        try:
            hints = get_type_hints(fn, include_extras=True)
        except TypeError:  # a callable object: its call has the hints
            hints = get_type_hints(type(fn).__call__, include_extras=True)
        except NameError as error:
            raise DefinitionError(
                f"the type hints of {self.name} cannot be resolved: {error}; define the types at"
                " module level and import them at run time"
            ) from error
        parameters = list(inspect.signature(fn).parameters.values())[skip:]
        self.types: list[Any] = []
        self.required = 0
        self.maximum: int | None = 0
        for parameter in parameters:
            self._add(parameter, hints)
        self.returns: Any = hints.get("return", Any)

    def _add(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> None:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                self.maximum = None
            case inspect.Parameter.VAR_KEYWORD:
                pass
            case inspect.Parameter.KEYWORD_ONLY:
                if parameter.default is inspect.Parameter.empty:
                    raise DefinitionError(
                        f"{self.name} has the keyword-only parameter {parameter.name!r} without a"
                        " default: arguments travel by position"
                    )
            case _:
                self.types.append(hints.get(parameter.name, Any))
                self.required += parameter.default is inspect.Parameter.empty
                if self.maximum is not None:
                    self.maximum += 1

    def decode(self, payloads: Sequence[Payload]) -> list[Any]:
        """Return the arguments that `payloads` hold.

        Raises:
            PayloadError: Too few or too many, or one does not fit its type.
        """
        count = len(payloads)
        if count < self.required or (self.maximum is not None and count > self.maximum):
            most = "any number" if self.maximum is None else self.maximum
            raise PayloadError(
                f"{self.name} takes {self.required} to {most} arguments, got {count}"
            )
        types = self.types
        known = len(types)
        return [
            decode(payload, types[at] if at < known else Any) for at, payload in enumerate(payloads)
        ]


_SIGNATURES: Final[dict[tuple[object, int], CallSignature]] = {}


def signature_of(fn: Callable[..., object], skip: int = 0) -> CallSignature:
    """Return the signature of `fn`; closures made again and again of one code share it.

    Raises:
        DefinitionError: As `CallSignature`.
    """
    if type(fn) is FunctionType and "__wrapped__" not in fn.__dict__:
        known = _SIGNATURES.get((fn.__code__, skip))
        if known is not None:
            return known
    bound = 1 if inspect.ismethod(fn) else 0
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return CallSignature(fn, skip)
    key = (code, skip - bound)
    known = _SIGNATURES.get(key)
    if known is None:
        known = _SIGNATURES[key] = CallSignature(fn, skip)
    return known


def forget_signatures() -> None:
    """Forget what `signature_of` keeps, for code that was loaded anew.

    A function that did not change has an equal code object, and takes types that did.
    """
    _SIGNATURES.clear()


class WorkflowDefinition:
    """A registered workflow: a class with a run method, or an async function.

    Args:
        name: The workflow type.
        run: The async function; unbound when `cls` is given.
        cls: The class whose instances hold the state of a run.
        signals: Name to function (unbound).
        has_init: Whether the class's constructor takes the arguments of the run.
        failure_types: Further exception types that fail the workflow and not only the task.
        warnings: What the lint found without refusing the code.
    """

    def __init__(  # noqa: PLR0913 - a plain record
        self,
        name: str,
        run: Callable[..., Any],
        *,
        cls: type | None = None,
        signals: Mapping[str, Callable[..., Any]] | None = None,
        has_init: bool = False,
        failure_types: Sequence[type[BaseException]] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.run = run
        self.cls = cls
        self.signals: Mapping[str, Callable[..., Any]] = MappingProxyType(dict(signals or {}))
        self.has_init = has_init
        self.failure_types = tuple(failure_types)
        self.warnings = tuple(warnings)

    def __repr__(self) -> str:
        return f"WorkflowDefinition({self.name!r})"

    @property
    def skip(self) -> int:
        """How many leading parameters of the functions are `self`."""
        return 0 if self.cls is None else 1

    def signature(self) -> CallSignature:
        """Return the types of the run's arguments and result."""
        return signature_of(self.run, self.skip)

    @classmethod
    def of(cls, workflow: object) -> WorkflowDefinition:
        """Return the definition of a decorated class or function, or of its run method.

        Raises:
            DefinitionError: It is not decorated.
        """
        if isinstance(workflow, WorkflowDefinition):
            return workflow
        own = vars(workflow) if isinstance(workflow, type) else getattr(workflow, "__dict__", {})
        found = own.get(WORKFLOW_ATTRIBUTE)
        if not isinstance(found, WorkflowDefinition):
            raise DefinitionError(
                f"{getattr(workflow, '__qualname__', workflow)!r} is not a workflow: decorate it"
                " with @workflow.defn"
            )
        return found
