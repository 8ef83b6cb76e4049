"""Mutations of odin's own code, each of which the simulation must find.

A mutation takes one guard out by replacing a function while a world lives. `seeds` that find it
stand in test_mutations.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

Patch = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One guard taken out.

    Args:
        says: What is broken.
        patches: Returns what to replace by what, each as (dotted name, replacement).
    """

    says: str
    patches: Callable[[], list[Patch]]

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Run the block with the guard taken out."""
        with ExitStack() as stack:
            for name, replacement in self.patches():
                stack.enter_context(patch(name, replacement))
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(says: str) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Register the patches of a mutation under the function's name."""

    def register(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        MUTATIONS[patches.__name__] = Mutation(says, patches)
        return patches

    return register
