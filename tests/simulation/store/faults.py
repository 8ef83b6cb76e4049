"""What can befall one call to the database, and how often it does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random


class Fault(Enum):
    """What befalls a call. What the client sees of the first four is a broken connection.

    Attributes:
        LOST: The call never arrives.
        CUT: It is carried out; the connection breaks before its answer.
        LATE: It arrives long after the connection broke, and is carried out then.
        DIED: Its backend ends before the commit; the client learns no more than with CUT.
        SILENT: It is carried out; its answer never comes, and the connection seems to stand.
        STALLED: It takes its locks, and commits long after that.
        DEADLOCK: It is rolled back as the victim of a deadlock.
        SERIALIZATION: It is rolled back for a conflict.
        SLOW: Its answer takes its time.
    """

    LOST = "lost"
    CUT = "cut"
    LATE = "late"
    DIED = "died"
    SILENT = "silent"
    STALLED = "stalled"
    DEADLOCK = "deadlock"
    SERIALIZATION = "serialization"
    SLOW = "slow"


RAISES: Final = {Fault.DEADLOCK: "40P01", Fault.SERIALIZATION: "40001"}


@dataclass(frozen=True, slots=True)
class Odds:
    """How likely each fault is, per call; 0 to 1, their sum at most 1."""

    lost: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    died: float = 0.0
    silent: float = 0.0
    stalled: float = 0.0
    deadlock: float = 0.0
    serialization: float = 0.0
    slow: float = 0.0

    def draw(self, dice: Random) -> Fault | None:
        """Return what befalls the next call."""
        at = dice.random()
        for one in fields(self):
            at -= getattr(self, one.name)
            if at < 0:
                return Fault(one.name)
        return None


NO_ODDS: Final = Odds()
