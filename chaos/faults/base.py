"""What every fault has in common.

    prepare ──▶ (its undo is on disk) ──▶ inject ──▶ verify ──▶ … ──▶ heal

`prepare` chooses the victim and breaks nothing; what it returns is written down before `inject`, so
that whoever finds a runner dead can undo what it left. `heal` does the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .undo import Undo


@dataclass(frozen=True, slots=True)
class Bite:
    """Whether a fault really bit, and what shows it.

    Attributes:
        is_seen: Whether it did.
        evidence: What was looked at and what it said; becomes JSON.
    """

    is_seen: bool
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Fault(Protocol):
    """One thing that is broken for a bounded time.

    Attributes:
        inject_seconds: How long `inject` may take.
        verify_seconds: How long `verify` may look.
    """

    inject_seconds: float
    verify_seconds: float

    @property
    def target(self) -> str:
        """Whom it strikes, in words."""
        ...

    async def prepare(self) -> Sequence[Undo]:
        """Choose the victim; return what will undo the fault. Nothing is broken yet."""
        ...

    async def inject(self) -> None:
        """Break it."""
        ...

    async def verify(self) -> Bite:
        """Look for proof that it bit, at most until `verify_seconds` are over."""
        ...

    async def heal(self) -> None:
        """End it; more than once does no harm."""
        ...
