"""What a workflow holds in its hand while an activity runs."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from odin.core.commands import RequestCancelActivity
from odin.core.failures import (
    ActivityError,
    CancelledError,
    TimeoutError,  # noqa: A004 - the name that users know
    TimeoutType,
    error_of,
)
from odin.core.loop_parts import DeterministicFuture
from odin.core.payload import decode
from odin.errors import PayloadError

if TYPE_CHECKING:
    from odin.core import events as e
    from odin.core.run import Run

T = TypeVar("T")


class ActivityCancellationType(IntEnum):
    """What cancelling the wait for an activity means for the activity.

    TRY_CANCEL: the wait ends at once, and the activity is asked to stop.
        WAIT_CANCELLATION_COMPLETED: the activity is asked to stop, and the wait ends as the
        activity does. ABANDON: the wait ends, the activity goes on.
    """

    TRY_CANCEL = 0
    WAIT_CANCELLATION_COMPLETED = 1
    ABANDON = 2


class ActivityHandle(DeterministicFuture[T]):
    """A scheduled activity: await it for the result, cancel it to stop it."""

    __slots__ = (
        "_cancel_asked",
        "_cancellation_type",
        "_result_type",
        "_run",
        "activity_id",
        "activity_type",
        "command_id",
    )

    def __init__(
        self,
        run: Run,
        command_id: int,
        activity_id: str,
        activity_type: str,
        result_type: Any,  # noqa: ANN401 - whatever the codec takes
        cancellation_type: ActivityCancellationType,
    ) -> None:
        super().__init__(run.loop)
        self.command_id = command_id
        self.activity_id = activity_id
        self.activity_type = activity_type
        self._run = run
        self._result_type = result_type
        self._cancellation_type = cancellation_type
        self._cancel_asked = False

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - asyncio's signature
        """Cancel the wait, and the activity as its cancellation type says."""
        if self.done():
            return False
        if self._run.loop.evicting or self._cancellation_type is ActivityCancellationType.ABANDON:
            return super().cancel(msg)
        if self._cancellation_type is ActivityCancellationType.TRY_CANCEL:
            self._run.issue(RequestCancelActivity(command_id=self.command_id))
            return super().cancel(msg)
        if not self._cancel_asked:
            self._cancel_asked = True
            self._run.issue(RequestCancelActivity(command_id=self.command_id, wait=True))
        return True

    # How it ends; called by the instance, once, and only while it is not done.

    def on_completed(self, event: e.ActivityTaskCompleted) -> None:
        """Resolve with the recorded result."""
        try:
            result = decode(event.result, self._result_type)
        except PayloadError as error:
            self.set_exception(
                PayloadError(
                    f"the result of activity {self.activity_type!r} does not fit its type: {error}"
                )
            )
        else:
            self.set_result(result)

    def on_failed(self, event: e.ActivityTaskFailed) -> None:
        """Raise the recorded failure."""
        self._fail("failed", error_of(event.failure), event.retry_state)

    def on_timed_out(self, event: e.ActivityTaskTimedOut) -> None:
        """Raise the time limit that passed."""
        cause: BaseException = error_of(event.failure)
        if not isinstance(cause, TimeoutError):
            last, name = cause, event.timeout_type
            known = TimeoutType(name) if name in TimeoutType._value2member_map_ else None
            cause = TimeoutError(f"{name} timeout", type=known)
            cause.__cause__ = last
        self._fail(f"timed out ({event.timeout_type})", cause, event.retry_state)

    def on_canceled(self, event: e.ActivityTaskCanceled) -> None:
        """End as cancelled, or raise when somebody else had cancelled the activity."""
        if self._cancel_asked:
            super().cancel()
            return
        details = [decode(payload) for payload in event.details]
        self._fail("was cancelled", CancelledError("the activity was cancelled", *details), "")

    def _fail(self, how: str, cause: BaseException, retry_state: str) -> None:
        error = ActivityError(
            f"activity {self.activity_type!r} {how}",
            activity_type=self.activity_type,
            activity_id=self.activity_id,
            retry_state=retry_state,
        )
        error.__cause__ = cause
        self.set_exception(error)
