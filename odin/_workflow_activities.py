"""How workflow code starts activities. Authors reach it as `odin.workflow`."""

# ruff: noqa: ANN401 - arguments and results of activities are whatever the codec takes

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from odin._current import current_run
from odin.common import RetryPolicy, duration_ms
from odin.core.backoff import RetryPolicySpec
from odin.core.commands import ScheduleActivity
from odin.core.definition import ACTIVITY_NAME_ATTRIBUTE, DefinitionError, signature_of
from odin.core.handles import ActivityCancellationType, ActivityHandle
from odin.core.payload import encode_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")

START_TO_CLOSE_MS = 60_000
_MISSING: Any = object()
_ONCE_A_SECOND_DOUBLED = RetryPolicySpec()


class ActivityOptions(TypedDict, total=False):
    """How an activity is run; what is not given has the default that stands here.

    Attributes:
        task_queue: The workflow's own. schedule_to_close_timeout: The whole activity, retries
            included; no limit. schedule_to_start_timeout: From being scheduled to being taken by a
            worker; no limit. start_to_close_timeout: One attempt; `schedule_to_close_timeout` if
            that is given, else 60 s. heartbeat_timeout: From one heartbeat to the next; no limit.
            retry_policy: `RetryPolicy()`: after 1 s, doubled each time up to 100 s, without end.
            cancellation_type: TRY_CANCEL. activity_id: The command's number; the idempotency key
            is made of it. summary: Shown in the dashboard.
    """

    task_queue: str | None
    schedule_to_close_timeout: timedelta | None
    schedule_to_start_timeout: timedelta | None
    start_to_close_timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    retry_policy: RetryPolicy | None
    cancellation_type: ActivityCancellationType
    activity_id: str | None
    summary: str | None


@overload
def start_activity(
    activity: Callable[[], Awaitable[R]], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[[], R], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[[P], Awaitable[R]], arg: P, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[[P], R], arg: P, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[..., Awaitable[R]],
    *,
    args: Sequence[Any],
    **options: Unpack[ActivityOptions],
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: Callable[..., R], *, args: Sequence[Any], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: str,
    arg: Any = ...,
    *,
    args: Sequence[Any] = ...,
    result_type: type[R],
    **options: Unpack[ActivityOptions],
) -> ActivityHandle[R]: ...
@overload
def start_activity(
    activity: str,
    arg: Any = ...,
    *,
    args: Sequence[Any] = ...,
    **options: Unpack[ActivityOptions],
) -> ActivityHandle[Any]: ...
def start_activity(
    activity: Any,
    arg: Any = _MISSING,
    *,
    args: Sequence[Any] = (),
    result_type: Any = None,
    **options: Any,
) -> ActivityHandle[Any]:
    """Start an activity and return at once; await the handle for its result.

    Args:
        activity: A decorated activity function, or an activity's name.
        arg: The argument, if there is one.
        args: The arguments, if there are several.
        result_type: What the result is decoded to; the function's return type when not given.
        **options: See `ActivityOptions`.

    Raises:
        DefinitionError: `activity` is no activity.
        PayloadError: An argument cannot be stored and replayed exactly.
    """
    return _start(activity, 0, arg, args, result_type, **options)


@overload
async def execute_activity(
    activity: Callable[[], Awaitable[R]], **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(activity: Callable[[], R], **options: Unpack[ActivityOptions]) -> R: ...
@overload
async def execute_activity(
    activity: Callable[[P], Awaitable[R]], arg: P, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(
    activity: Callable[[P], R], arg: P, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(
    activity: Callable[..., Awaitable[R]],
    *,
    args: Sequence[Any],
    **options: Unpack[ActivityOptions],
) -> R: ...
@overload
async def execute_activity(
    activity: Callable[..., R], *, args: Sequence[Any], **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity(
    activity: str,
    arg: Any = ...,
    *,
    args: Sequence[Any] = ...,
    result_type: type[R],
    **options: Unpack[ActivityOptions],
) -> R: ...
@overload
async def execute_activity(
    activity: str,
    arg: Any = ...,
    *,
    args: Sequence[Any] = ...,
    **options: Unpack[ActivityOptions],
) -> Any: ...
async def execute_activity(
    activity: Any,
    arg: Any = _MISSING,
    *,
    args: Sequence[Any] = (),
    result_type: Any = None,
    **options: Any,
) -> Any:
    """Run an activity and return its result. Arguments as `start_activity`.

    Raises:
        ActivityError: The activity failed for good, or ran out of time; `cause` says why.
        asyncio.CancelledError: The wait was cancelled.
    """
    return await _start(activity, 0, arg, args, result_type, **options)


@overload
def start_activity_method(
    activity: Callable[[S], Awaitable[R]], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity_method(
    activity: Callable[[S], R], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity_method(
    activity: Callable[[S, P], Awaitable[R]], arg: P, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity_method(
    activity: Callable[[S, P], R], arg: P, **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
@overload
def start_activity_method(
    activity: Callable[..., Awaitable[R]],
    *,
    args: Sequence[Any],
    **options: Unpack[ActivityOptions],
) -> ActivityHandle[R]: ...
@overload
def start_activity_method(
    activity: Callable[..., R], *, args: Sequence[Any], **options: Unpack[ActivityOptions]
) -> ActivityHandle[R]: ...
def start_activity_method(
    activity: Any, arg: Any = _MISSING, *, args: Sequence[Any] = (), **options: Any
) -> ActivityHandle[Any]:
    """Start an activity that is a method (`Payments.charge`); otherwise as `start_activity`."""
    return _start(activity, 1, arg, args, None, **options)


@overload
async def execute_activity_method(
    activity: Callable[[S], Awaitable[R]], **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[[S], R], **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[[S, P], Awaitable[R]], arg: P, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[[S, P], R], arg: P, **options: Unpack[ActivityOptions]
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[..., Awaitable[R]],
    *,
    args: Sequence[Any],
    **options: Unpack[ActivityOptions],
) -> R: ...
@overload
async def execute_activity_method(
    activity: Callable[..., R], *, args: Sequence[Any], **options: Unpack[ActivityOptions]
) -> R: ...
async def execute_activity_method(
    activity: Any, arg: Any = _MISSING, *, args: Sequence[Any] = (), **options: Any
) -> Any:
    """Run an activity that is a method and return its result; as `execute_activity`."""
    return await _start(activity, 1, arg, args, None, **options)


def _start(  # noqa: PLR0913 - each is an option of an activity
    activity: Any,
    skip: int,
    arg: Any,
    args: Sequence[Any],
    result_type: Any,
    *,
    task_queue: str | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    start_to_close_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    cancellation_type: ActivityCancellationType = ActivityCancellationType.TRY_CANCEL,
    activity_id: str | None = None,
    summary: str | None = None,
) -> ActivityHandle[Any]:
    run = current_run()
    name, returns = _named(activity, skip)
    if arg is not _MISSING:
        if args:
            raise TypeError("give an activity either arg or args, not both")
        args = (arg,)
    command_id = run.next_command_id()
    overall_ms = duration_ms(schedule_to_close_timeout)
    attempt_ms = duration_ms(start_to_close_timeout)
    if attempt_ms is None:
        attempt_ms = START_TO_CLOSE_MS if overall_ms is None else overall_ms
    identity = activity_id or str(command_id)
    run.issue(
        ScheduleActivity(
            command_id=command_id,
            activity_id=identity,
            activity_type=name,
            task_queue=task_queue or run.info.task_queue,
            input=encode_all(args, f"activity {name!r}: argument") if args else (),
            retry_policy=_ONCE_A_SECOND_DOUBLED if retry_policy is None else retry_policy.to_spec(),
            schedule_to_start_ms=duration_ms(schedule_to_start_timeout),
            start_to_close_ms=attempt_ms,
            schedule_to_close_ms=overall_ms,
            heartbeat_ms=duration_ms(heartbeat_timeout),
            summary=summary or "",
        )
    )
    wanted = result_type if result_type is not None else returns
    handle: ActivityHandle[Any] = ActivityHandle(
        run, command_id, identity, name, wanted, cancellation_type
    )
    run.expect(handle)
    return handle


def _named(activity: Any, skip: int) -> tuple[str, Any]:
    """Return the name of an activity, and the type of its result."""
    if isinstance(activity, str):
        return activity, Any
    name = getattr(activity, ACTIVITY_NAME_ATTRIBUTE, None)
    if not isinstance(name, str):
        raise DefinitionError(
            f"{getattr(activity, '__qualname__', activity)!r} is no activity: decorate it with"
            " @activity.defn, or give the activity's name"
        )
    return name, signature_of(activity, skip).returns
