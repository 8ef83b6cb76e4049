"""What chaos does and when, as values: the experiments, their order for a seed, their instants.

Pure: time and seed come in as arguments, and nothing is rolled. The same seed gives the same order
on every machine, so that what was seen once can be asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from odin.errors import InvalidArgumentError, NotFoundError

Verdict: TypeAlias = Literal["pass", "fail", "unknown"]
_WORST_FIRST: Final[tuple[Verdict, ...]] = ("fail", "unknown", "pass")
# A takeover is due 12 s after the last renewal; what is above is the probes' own spacing.
TAKEOVER_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One experiment.

    Attributes:
        name: How people call it.
        number: Its number in the list of hazards; several may share one.
        title: A few words for tables.
        hypothesis: What is claimed, in one sentence.
        faults: What is broken, by the names of `faults.catalogue`.
        hold_seconds: How long it stays broken.
        expects: What must be seen besides the faults themselves, by the names of `chaos.witness`;
            without it nothing was shown.
        claims: What must hold at the end, by the names of `chaos.witness`.
        removes: Whose every copy is away meanwhile: "postgres", "broker", "valkey", "engines".
        needs: What the cluster must have: "proxies", "rabbitmq", "mocks", "faketime", "small disk".
        stall_seconds: How long a client may wait for the answer to a start.
        recover_seconds: After how long at most everything serves again once it is healed.
    """

    name: str
    number: int
    title: str
    hypothesis: str
    faults: tuple[str, ...]
    hold_seconds: float
    expects: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    removes: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    stall_seconds: float = TAKEOVER_SECONDS
    recover_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The instants of a rotation, in seconds.

    Attributes:
        every: From the begin of one experiment to the begin of the next; 0: back to back.
        verdict_after: From the begin of one to its verdict by the checker.
        first: When the first one begins.
    """

    every: float = 600.0
    verdict_after: float = 420.0
    first: float = 120.0

    def __post_init__(self) -> None:
        """Refuse a verdict that would come after the next fault.

        Raises:
            InvalidArgumentError: it would, or a span is negative.
        """
        if min(self.every, self.verdict_after, self.first) < 0:
            raise InvalidArgumentError("spans of a rotation are not negative")
        if self.verdict_after > self.every:
            raise InvalidArgumentError("the verdict comes before the next experiment begins")


SCHEDULED: Final = Timing()
FAST: Final = Timing(every=0.0, verdict_after=0.0, first=0.0)


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in the rotation: what begins when, and when it is judged (seconds from its start).

    Attributes:
        number: Counts from 0.
        scenario: What begins.
        at: When.
        verdict_at: When the checker is asked.
    """

    number: int
    scenario: Scenario
    at: float
    verdict_at: float


def rotation(seed: int, cycle: int, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """Return every scenario once, in an order of this seed and cycle.

    Those that take Postgres away never follow one another, neither inside a cycle nor across two:
    each gets a gap of its own between two others.

    Args:
        seed: Chooses the orders.
        cycle: Which round, from 0.
        scenarios: What there is to choose from.
    """
    ordered = sorted(scenarios, key=lambda one: _mark(seed, cycle, one.name))
    hard = [one for one in ordered if "postgres" in one.removes]
    others = [one for one in ordered if "postgres" not in one.removes]
    if len(hard) >= len(others):  # too few to stand between
        return tuple(ordered)
    gaps = sorted(range(1, len(others)), key=lambda gap: _mark(seed, cycle, f"gap {gap}"))
    placed = dict(zip(gaps, hard, strict=False))
    found: list[Scenario] = []
    for place, one in enumerate(others):
        if place in placed:
            found.append(placed[place])
        found.append(one)
    return tuple(found)


def slot(seed: int, number: int, scenarios: Sequence[Scenario], timing: Timing) -> Slot:
    """Return a place of the rotation, counted from 0 over all cycles.

    Raises:
        InvalidArgumentError: there is nothing to choose from.
    """
    if not scenarios:
        raise InvalidArgumentError("no scenario can be run here")
    cycle, place = divmod(number, len(scenarios))
    at = timing.first + number * timing.every
    scenario = rotation(seed, cycle, scenarios)[place]
    return Slot(number, scenario, at, at + timing.verdict_after)


def may_run_together(one: Scenario, other: Scenario) -> bool:
    """Return whether two experiments may overlap: never if both take the same thing away whole.

    A cluster without any Postgres, or any broker, for two reasons at once shows nothing about
    either; and whoever heals one of them would seem to have healed both.
    """
    return not one.removes & other.removes


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; of none, unknown."""
    found = set(verdicts)
    return next((one for one in _WORST_FIRST if one in found), "unknown")


def scenario_of(name: str, scenarios: Sequence[Scenario]) -> Scenario:
    """Return the scenario of this name.

    Raises:
        NotFoundError: there is none.
    """
    found = next((one for one in scenarios if one.name == name), None)
    if found is None:
        alike = [one.name for one in scenarios if set(name.split("-")) & set(one.name.split("-"))]
        hint = f"; alike: {', '.join(alike)}" if alike else ""
        raise NotFoundError(f"there is no experiment {name!r}{hint}; `odin chaos list` shows all")
    return found


def _mark(seed: int, cycle: int, text: str) -> bytes:
    return blake2b(f"{seed}/{cycle}/{text}".encode(), digest_size=8).digest()
