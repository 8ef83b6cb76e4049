"""A ticket stands for one group of decisions on its way to Postgres.

Who waits for it learns how it ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from odin.errors import (
    InternalError,
    NotOwnerError,
    OdinError,
    OutcomeUnknownError,
)

from .store.condition import unavailable, why_of

log = logging.getLogger(__name__)

Settled: TypeAlias = Callable[[OdinError | None], None]
Failed: TypeAlias = Callable[[OdinError], None]


_Told = TypeVar("_Told", OdinError, OdinError | None)


class GroupRaisedError(InternalError):
    """The group was rolled back by an error, or was never sent.

    Its requests are decided anew, each in a group of its own; but not if it is the server that
    takes nothing now (`is_of_server`), whatever it is given.
    """

    reason = "WRITE_RAISED"

    def __init__(self, message: str, *, is_passing: bool = False, sqlstate: str = "") -> None:
        super().__init__(message)
        self.is_passing = is_passing
        self.sqlstate = sqlstate
        self.is_of_server = is_passing and why_of(sqlstate) != ""

    def for_caller(self, *, is_own: bool) -> OdinError:
        """Return what a caller learns who can be given no second try here.

        Args:
            is_own: Whether it was his own write that raised, alone in its group. Only then, and
                only if it would raise again, is it the last word.
        """
        if is_own and not self.is_passing:
            return self
        return unavailable(self.sqlstate, str(self))


class ShardLostError(NotOwnerError):
    """The write was refused: another node owns the shard."""


class GroupUnknownError(OutcomeUnknownError):
    """Nobody knows whether the group committed.

    The range was bumped, so nothing of it can happen any more.
    """


class Ticket:
    """One group's end, per shard: committed, or the error that each waiter of that shard gets."""

    __slots__ = ("_errors", "_failing", "_is_over", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Settled]] = []
        self._failing: list[tuple[int, Failed]] = []
        self._errors: dict[int, OdinError] = {}
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the group has ended."""
        return self._is_over

    def error(self, shard_id: int) -> OdinError | None:
        """Return what befell the shard's part, None if it committed (or has not ended)."""
        return self._errors.get(shard_id)

    def then(self, shard_id: int, settled: Settled) -> None:
        """Call `settled` once the group has ended: with None if the shard's part committed."""
        if self._is_over:
            settled(self._errors.get(shard_id))
        elif shard_id in self._errors:
            settled(self._errors[shard_id])
        else:
            self._waiting.append((shard_id, settled))

    def otherwise(self, shard_id: int, failed: Failed) -> None:
        """Call `failed` if the shard's part does not commit; never if it does."""
        if shard_id in self._errors:
            failed(self._errors[shard_id])
        elif not self._is_over:
            self._failing.append((shard_id, failed))

    async def wait(self, shard_id: int) -> None:
        """Return once the shard's part has committed.

        Raises:
            ShardLostError, GroupUnknownError, GroupRaisedError: It has not.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: OdinError | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        self.then(shard_id, settle)
        await ended

    def fail(self, errors: dict[int, OdinError]) -> None:
        """End the parts of these shards; the rest of the group goes on."""
        self._errors.update(errors)
        waiting, self._waiting = self._waiting, []
        for shard_id, settled in waiting:
            if shard_id in errors:
                _tell(settled, errors[shard_id])
            else:
                self._waiting.append((shard_id, settled))
        failing, self._failing = self._failing, []
        for shard_id, failed in failing:
            if shard_id in errors:
                _tell(failed, errors[shard_id])
            else:
                self._failing.append((shard_id, failed))

    def end(self) -> None:
        """The group has ended: everything that did not fail has committed."""
        self._is_over = True
        self._failing.clear()
        waiting, self._waiting = self._waiting, []
        for shard_id, settled in waiting:
            _tell(settled, self._errors.get(shard_id))


def _tell(told: Callable[[_Told], None], error: _Told) -> None:
    try:
        told(error)
    except Exception:  # one waiter's fault must not keep the others waiting, nor end the lane
        log.exception("the end of a group could not be dealt with")
