"""What arrives on each kind of link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odin.core import wire

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Dialect:
    """What arrives on a link: how frames are read, and which messages answer a request by `seq`."""

    decode: Callable[[bytes], list[Any]]
    answers: frozenset[type]


ENGINE_TO_WORKER: Final = Dialect(
    wire.decode_to_worker,
    frozenset(
        {
            wire.WorkflowTaskGranted,
            wire.ActivityTaskGranted,
            wire.NotWanted,
            wire.NotOwner,
            wire.WorkflowTaskAccepted,
            wire.WorkflowTaskRefused,
            wire.ActivityReportAnswered,
            wire.HistoryPage,
        }
    ),
)
"""What a worker reads."""
WORKER_TO_ENGINE: Final = Dialect(wire.decode_from_worker, frozenset({wire.Receipt}))
"""What an engine reads from a worker."""
BETWEEN_ENGINES: Final = Dialect(
    wire.decode_between_engines, frozenset({wire.Forwarded, wire.ForwardFailed})
)
"""What an engine reads from another."""
