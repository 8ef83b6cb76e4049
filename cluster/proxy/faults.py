"""What can be done to a link, as values; pure.

`up` is the direction from the part to its dependency, `down` the way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from odin.errors import InvalidArgumentError

Mode: TypeAlias = Literal[
    "refuse",
    "reset",
    "blackhole",
    "half_open",
    "delay",
    "throttle",
    "cut_after",
    "freeze_before",
    "freeze_after",
]
Direction: TypeAlias = Literal["both", "up", "down"]

TRIGGERED: Final = ("cut_after", "freeze_before", "freeze_after")
SECONDS_MAX: Final = 600.0
DELAY_MS_MAX: Final = 60_000
PATTERN_BYTES_MAX: Final = 256


class LinkName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One link: which part reaches which dependency over it."""

    part: str
    dependency: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.part} → {self.dependency}"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is wrong with a link.

    Attributes:
        mode: refuse: what is open is reset, and nobody gets in. reset: the same, but whoever
            connects is accepted and reset. blackhole: connections stay and nothing of `direction`
            is read, nor is their end noticed. half_open: one end is reset and the other never
            hears of it; `up` (or both): the dependency does not, `down`: the part does not.
            delay, throttle: what they say. cut_after: forwards up to the end of the pattern, then
            the part's end is reset and the dependency reads an orderly end. freeze_before: holds
            back the message that completes the pattern, and all that follows it. freeze_after:
            forwards the pattern, and the answer to it is never read.
        direction: What of the link is meant; of a triggered mode, where the pattern is looked for
            (`both` stands for `up`).
        delay_ms: Added to each piece of data.
        jitter_ms: Up to this much more, at random; the order stays.
        bytes_per_second: The rate of a throttled direction.
        pattern: The literal text that triggers.
        is_statement: The pattern stands in the text of a Postgres statement, and what triggers is
            the message that ends its execution (Sync), however often it has been prepared before.
        is_once: Whether the trigger is off after the first time, on whatever connection.
    """

    mode: Mode
    direction: Direction = "both"
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_second: float = 0.0
    pattern: str = ""
    is_statement: bool = False
    is_once: bool = True

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidArgumentError: a number is out of range or missing, or the pattern is.
        """
        if not 0 <= self.delay_ms <= DELAY_MS_MAX or not 0 <= self.jitter_ms <= DELAY_MS_MAX:
            raise InvalidArgumentError(f"delay and jitter are 0 to {DELAY_MS_MAX} ms")
        if self.mode == "delay" and not self.delay_ms + self.jitter_ms:
            raise InvalidArgumentError("a delay needs delay_ms or jitter_ms")
        if (self.mode == "throttle") != (self.bytes_per_second > 0):
            raise InvalidArgumentError("bytes_per_second belongs to mode throttle, and is above 0")
        if (self.mode in TRIGGERED) != bool(self.pattern):
            raise InvalidArgumentError(f"a pattern belongs to the modes {', '.join(TRIGGERED)}")
        if len(self.pattern.encode()) > PATTERN_BYTES_MAX:
            raise InvalidArgumentError(f"a pattern has at most {PATTERN_BYTES_MAX} bytes")
        if self.is_statement and self.direction == "down":
            raise InvalidArgumentError("statements travel up")


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault for some links, for a bounded time.

    Attributes:
        links: Which links.
        fault: What is wrong with them.
        seconds: After how long the proxy heals it by itself.
    """

    links: Sequence[LinkName]
    fault: Fault
    seconds: float

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidArgumentError: no link is named, or the time is out of range.
        """
        if not self.links:
            raise InvalidArgumentError("no link is named")
        if not 0 < self.seconds <= SECONDS_MAX:
            raise InvalidArgumentError(f"a fault lasts above 0 and up to {SECONDS_MAX:.0f} s")
        self.fault.check()


@dataclass(frozen=True, slots=True)
class Flow:
    """How one direction of a link behaves."""

    is_held: bool = False
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    bytes_per_second: float = 0.0
    triggers: tuple[tuple[str, Fault], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether data passes as it comes."""
        return self == _PLAIN


_PLAIN: Final = Flow()


def flow_of(faults: Iterable[tuple[str, Fault]], direction: Literal["up", "down"]) -> Flow:
    """Return what the faults of a link, by id, make of one of its directions.

    Delays add up, of several rates the lowest holds.
    """
    is_held, delay, jitter, rate = False, 0.0, 0.0, 0.0
    triggers: list[tuple[str, Fault]] = []
    for fault_id, one in faults:
        if one.mode in TRIGGERED:
            if direction == ("down" if one.direction == "down" else "up"):
                triggers.append((fault_id, one))
        elif one.direction in ("both", direction):
            is_held = is_held or one.mode == "blackhole"
            delay += one.delay_ms / 1_000
            jitter += one.jitter_ms / 1_000
            if one.bytes_per_second:
                rate = min(rate or one.bytes_per_second, one.bytes_per_second)
    return Flow(is_held, delay, jitter, rate, tuple(triggers))
