"""Lost replies: some calls of an engine do what they are asked, and then their connection breaks.

`ODIN_TEST_DOUBT=0.01` lets one call in a hundred end so, reads included; `ODIN_TEST_DOUBT_SEED`
repeats the dice of a run (`make doubt`). Only connections that bear an engine's name are touched:
what a test itself asks the database is answered.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import asyncpg

from engine.store.connections import SQL
from odin.errors import UnavailableError

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # no generic class at run time

_ENGINE: Final = "odin-engine/"
_TELLING: Final = {"OUTCOME_UNKNOWN", "STORE_UNAVAILABLE"}
_NAMES: Final = {query: name for name, query in SQL.items()}
RESTING: Final = {
    "tests/door/test_http_schema.py": "a lost read is a 503, and that test allows none",
    "tests/engine/test_store_failing.py": "it tells one cause of refusals from every other",
    "tests/store/test_steps.py::test_a_group_stopped_before_its_commit": "its write has to arrive"
    " at its commit; one that loses a reply before that never does",
}
"""Tests, by the beginning of their ids, in which every reply arrives, and why."""

TOLD: Final = "tests/store/"
"""Here the caller of the store is the test itself. Of a lost reply it has to be told, and that it
was ends the test; whatever else goes wrong is a failure, as everywhere."""


class Dice:
    """Says which calls lose their reply, and counts."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate = rate
        self.seed = seed
        self.rests = False
        self.asked = 0
        self.told = 0
        self.lost: Counter[str] = Counter()
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def loses(self, query: str) -> bool:
        """Return whether the reply to `query` gets lost."""
        if self.rests:
            return False
        self.asked += 1
        if self._random.random() >= self.rate:
            return False
        name = _NAMES.get(query) or " ".join(query.split()[:2])
        self.lost[name] += 1
        return True

    def report(self) -> str:
        """Return what was done, for people."""
        names = ", ".join(f"{name} {count}" for name, count in self.lost.most_common())
        return (
            f"doubt: {self.lost.total()} of {self.asked} calls lost their reply,"
            f" {self.told} tests of the store ended by being told of it"
            f" (ODIN_TEST_DOUBT={self.rate} ODIN_TEST_DOUBT_SEED={self.seed}): {names or 'none'}"
        )


class LostReplyError(asyncpg.ConnectionDoesNotExistError):
    """What asyncpg raises when a connection breaks, known to be of these dice."""


class DoubtfulConnection(_Connection):
    """A connection that breaks after some calls have done their work."""

    dice: ClassVar[Dice]
    __slots__ = ()

    # Each passes on whatever asyncpg's own method takes.
    async def execute(self, query: str, *arguments: Any, **options: Any) -> str:  # noqa: ANN401 - asyncpg's own
        return str(await self._doubted(query, super().execute(query, *arguments, **options)))

    async def fetch(self, query: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - asyncpg's own
        return await self._doubted(query, super().fetch(query, *arguments, **options))

    async def fetchrow(self, query: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - asyncpg's own
        return await self._doubted(query, super().fetchrow(query, *arguments, **options))

    async def fetchval(self, query: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - asyncpg's own
        return await self._doubted(query, super().fetchval(query, *arguments, **options))

    async def _doubted(self, query: str, call: Awaitable[Any]) -> Any:  # noqa: ANN401 - asyncpg's own
        answer = await call
        if self.dice.loses(query):
            self.terminate()
            raise LostReplyError("doubt: the reply was lost")
        return answer


def was_told(error: BaseException | None) -> bool:
    """Return whether a call that lost its reply said so: its outcome is unknown, or it was a read.

    Such an error is the store's own, behind which stands the broken connection, or, while a store
    opens or a test works in a transaction, the broken connection itself.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(was_told(one) for one in error.exceptions)
    if isinstance(error, UnavailableError) and error.reason in _TELLING:
        behind = error.__cause__
        while behind is not None and not isinstance(behind, LostReplyError):
            behind = behind.__cause__ or behind.__context__
        return behind is not None
    return isinstance(error, LostReplyError)


def dice_of_environment() -> Dice | None:
    """Return the dice that the environment asks for, or None."""
    rate = float(os.environ.get("ODIN_TEST_DOUBT", "0"))
    if not 0 <= rate <= 1:
        raise ValueError(f"ODIN_TEST_DOUBT is a share between 0 and 1, not {rate}")
    seed = int(os.environ.get("ODIN_TEST_DOUBT_SEED", "0")) or secrets.randbelow(10**9) + 1
    return Dice(rate, seed) if rate else None


def open_doubtfully(dice: Dice, opener: Callable[..., Any]) -> Callable[..., Any]:
    """Return `asyncpg.connect` or `asyncpg.create_pool` with doubt for engines alone."""
    doubtful = cast(
        "type[DoubtfulConnection]",
        type(
            "Doubtful",
            (DoubtfulConnection,),
            {
                "__slots__": (),
                "dice": dice,
            },
        ),
    )

    def opened(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - asyncpg's own
        settings = options.get("server_settings") or {}
        if settings.get("application_name", "").startswith(_ENGINE):
            options["connection_class"] = doubtful
        return opener(*arguments, **options)

    return opened
