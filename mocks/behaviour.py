"""How a mock can be told to misbehave, always for a bounded time, repeatably for a seed.

- slow: wait `delay_ms` before anything else;
- failing: answer `status` before the effect;
- reset: cut the connection after the effect, without a word;
- forgetful: lose the answer after the effect (the caller sees 500); the key table is kept.

Each kind can be on at once; each counts how often it bit, so that a fault without effect shows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

Kind: TypeAlias = Literal["slow", "failing", "reset", "forgetful"]
FAULT_SECONDS_MAX = 600.0


class BehaviourRequest(BaseModel):
    """The body of POST /admin/behaviour; kind "none" ends every misbehaviour.

    Give `for_seconds`, or `until` (an instant with a time zone); at most ten minutes either way.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind | Literal["none"]
    delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 1_000
    status: Annotated[int, Field(ge=400, le=599)] = 500
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    for_seconds: Annotated[float, Field(gt=0, le=FAULT_SECONDS_MAX)] | None = None
    until: AwareDatetime | None = None
    seed: int = 0
    paths: Annotated[
        list[Annotated[str, StringConstraints(max_length=50)]], Field(max_length=10)
    ] = []

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.kind != "none" and (self.for_seconds is None) == (self.until is None):
            raise ValueError("give for_seconds or until, and not both")
        return self

    def seconds(self, now: datetime) -> float:
        """Return how long the behaviour lasts from `now`, at most ten minutes."""
        span = (self.until - now).total_seconds() if self.until else self.for_seconds
        return min(span or 0.0, FAULT_SECONDS_MAX)


@dataclass(slots=True)
class _Fault:
    asked: BehaviourRequest
    ends_at: float
    dice: random.Random
    hit_count: int = field(default=0)


class Behaviours:
    """What a mock does wrong at present. In memory: a restart heals it."""

    def __init__(self, clock: Clock) -> None:
        """Take the clock that ends faults."""
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def change(self, asked: BehaviourRequest) -> None:
        """Begin a misbehaviour, in place of one of the same kind; "none" ends all."""
        if asked.kind == "none":
            self._faults.clear()
            return
        ends_at = self._clock.boottime() + asked.seconds(self._clock.wall())
        dice = random.Random(asked.seed)  # noqa: S311 - repeatable faults, nothing secret
        self._faults[asked.kind] = _Fault(asked, ends_at, dice)

    def drawn(self, kind: Kind, path: str) -> BehaviourRequest | None:
        """Return the misbehaviour of this kind if it strikes this call."""
        fault = self._faults.get(kind)
        if fault is None or (fault.asked.paths and path not in fault.asked.paths):
            return None
        if (
            self._clock.boottime() >= fault.ends_at
            or fault.dice.random() >= fault.asked.probability
        ):
            return None
        fault.hit_count += 1
        return fault.asked

    def shown(self) -> list[dict[str, object]]:
        """Return what was asked for since the last "none", how often it bit, and what is left.

        One that is over stays listed with 0 seconds left, so that its count can still be read.
        """
        now = self._clock.boottime()
        return [
            {
                **fault.asked.model_dump(mode="json", exclude={"for_seconds", "until"}),
                "hit_count": fault.hit_count,
                "seconds_left": round(max(0.0, fault.ends_at - now), 3),
            }
            for fault in self._faults.values()
        ]
