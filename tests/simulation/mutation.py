"""A mutation of odin's own code: a guard taken out by replacing a function while a world lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from unittest.mock import patch

Patch: TypeAlias = tuple[str, Any]
Patches: TypeAlias = Callable[[], list[Patch]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """Guards taken out.

    Args:
        says: What is broken.
        kinds: The faults that bring it out.
        patches: Returns what to replace by what, each as (dotted name, replacement).
        shape: What a world needs to be for it, if it is not as any other.
    """

    says: str
    kinds: list[str] | None
    patches: Patches
    shape: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Run the block with the guards taken out."""
        with ExitStack() as stack:
            for name, replacement in self.patches():
                stack.enter_context(patch(name, replacement))
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(says: str, *kinds: str, **shape: object) -> Callable[[Patches], Patches]:
    """Register the patches of a mutation under the function's name.

    Args:
        says: What is broken.
        kinds: The faults that bring it out.
        shape: Fields of a world's shape that it needs.
    """

    def register(patches: Patches) -> Patches:
        MUTATIONS[patches.__name__] = Mutation(says, list(kinds) or None, patches, shape)
        return patches

    return register
