"""What an experiment draws: by a seed the first time, from the record when it is run again.

Every draw has a name and a value that becomes JSON, so that the record of an experiment holds all
that chance decided in it. With the record given, nothing is rolled: a cluster of another size would
make the same seed choose otherwise.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeVar

from odin.errors import FailedPreconditionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

T = TypeVar("T")


class TargetGoneError(FailedPreconditionError):
    """What an earlier experiment struck cannot be struck now."""

    reason = "TARGET_GONE"


class Dice:
    """Draws, and remembers what was drawn.

    Attributes:
        drawn: Name → value.
        given: What was drawn the first time; None: it is to be rolled.
    """

    def __init__(self, seed: object, given: Mapping[str, Any] | None = None) -> None:
        """Begin with a seed, or with the values of an earlier experiment."""
        self._random = random.Random(str(seed))  # noqa: S311 - repeatable choices, no secret
        self.drawn: dict[str, Any] = {}
        self.given = given

    def draw(
        self, name: str, roll: Callable[[random.Random], T], among: Collection[object] | None = None
    ) -> T:
        """Return the value of this name.

        Args:
            name: What it is for.
            roll: Makes it.
            among: What there is to choose from, to hold a given value or each of a given list
                against; None: nothing to hold it against.

        Raises:
            TargetGoneError: a given value is not among them, or there is none of this name.
        """
        value = roll(self._random) if self.given is None else self._given(name, among)
        self.drawn[name] = value
        return value

    def choose(self, name: str, options: Sequence[T]) -> T:
        """Return one of several; errors as for `draw`."""
        return self.draw(name, lambda dice: dice.choice(options), options)

    def _given(self, name: str, among: Collection[object] | None) -> Any:  # noqa: ANN401 - of JSON
        assert self.given is not None  # noqa: S101 - for the type checker
        if name not in self.given:
            raise TargetGoneError(f"the record does not say which {name} was drawn")
        value = self.given[name]
        wanted = value if isinstance(value, list) else [value]
        gone = [str(one) for one in wanted if among is not None and one not in among]
        if gone:
            there = ", ".join(str(one) for one in among or ()) or "none"
            raise TargetGoneError(
                f"{name}: {', '.join(gone)} was struck then and cannot be struck now; there is "
                f"{there}"
            )
        return value
