"""The messages on links: worker to engine, engine to worker, engine to engine.

A frame is one WebSocket binary message: a msgpack array of the structs below, so that one frame
carries a batch. Every struct is an array whose first element is its tag. `seq` ties an answer to
what it answers; it counts per link and side, and 0 means that no answer is expected. Fields are
only ever appended, with a default.

"worker" is always the incarnation of a process, never its name. Instants are `_us` since 1970 UTC
by the cluster's clock.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from odin.core.wire.between_engines import (
    Forward,
    Forwarded,
    ForwardFailed,
    PeerHello,
    ReleaseTold,
    Unsubscribe,
)
from odin.core.wire.from_worker import (
    ClaimActivityTask,
    ClaimWorkflowTask,
    Evicted,
    FetchHistory,
    Heartbeat,
    Hello,
    Inventory,
    Receipt,
    Release,
    ReportActivityTask,
    ReportWorkflowTask,
    ReportWorkflowTaskFailure,
    Slots,
)
from odin.core.wire.parts import (
    ActivityOutcome,
    HeldClaim,
    NodeEntry,
    Ping,
    Pong,
    QueueSpec,
    RunHeader,
    ShardEntry,
    TaskEntry,
    WarmRun,
)
from odin.core.wire.to_worker import (
    ActivityReportAnswered,
    ActivityTaskGranted,
    CancelActivity,
    HistoryPage,
    NodeList,
    NotOwner,
    NotWanted,
    PushWorkflowTask,
    ShardMap,
    Tasks,
    Welcome,
    WorkflowTaskAccepted,
    WorkflowTaskGranted,
    WorkflowTaskRefused,
)

LINK_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024


FromWorker: TypeAlias = (
    Hello
    | Inventory
    | ClaimWorkflowTask
    | ClaimActivityTask
    | ReportWorkflowTask
    | ReportWorkflowTaskFailure
    | ReportActivityTask
    | Heartbeat
    | Release
    | FetchHistory
    | Evicted
    | Slots
    | Receipt
    | Ping
    | Pong
)
ToWorker: TypeAlias = (
    Welcome
    | ShardMap
    | NodeList
    | WorkflowTaskGranted
    | ActivityTaskGranted
    | NotWanted
    | NotOwner
    | WorkflowTaskAccepted
    | WorkflowTaskRefused
    | ActivityReportAnswered
    | PushWorkflowTask
    | HistoryPage
    | Tasks
    | CancelActivity
    | Ping
    | Pong
)
BetweenEngines: TypeAlias = (
    PeerHello
    | ShardMap
    | Forward
    | Forwarded
    | ForwardFailed
    | Unsubscribe
    | ReleaseTold
    | Ping
    | Pong
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_FROM_WORKER: Final = msgspec.msgpack.Decoder(list[FromWorker])
_TO_WORKER: Final = msgspec.msgpack.Decoder(list[ToWorker])
_BETWEEN_ENGINES: Final = msgspec.msgpack.Decoder(list[BetweenEngines])


def encode_frame(messages: list[FromWorker] | list[ToWorker] | list[BetweenEngines]) -> bytes:
    """Return the messages as one frame."""
    return _ENCODER.encode(messages)


def decode_from_worker(frame: bytes) -> list[FromWorker]:
    """Return a worker's messages.

    Raises:
        msgspec.DecodeError: The frame is damaged or of another protocol (msgspec.ValidationError is
        one of them).
    """
    return _FROM_WORKER.decode(frame)


def decode_to_worker(frame: bytes) -> list[ToWorker]:
    """Return an engine's messages to a worker; raises like `decode_from_worker`."""
    return _TO_WORKER.decode(frame)


def decode_between_engines(frame: bytes) -> list[BetweenEngines]:
    """Return an engine's messages to another engine; raises like `decode_from_worker`."""
    return _BETWEEN_ENGINES.decode(frame)


__all__ = [
    "FRAME_BYTES_MAX",
    "LINK_VERSION",
    "ActivityOutcome",
    "ActivityReportAnswered",
    "ActivityTaskGranted",
    "BetweenEngines",
    "CancelActivity",
    "ClaimActivityTask",
    "ClaimWorkflowTask",
    "Evicted",
    "FetchHistory",
    "Forward",
    "ForwardFailed",
    "Forwarded",
    "FromWorker",
    "Heartbeat",
    "HeldClaim",
    "Hello",
    "HistoryPage",
    "Inventory",
    "NodeEntry",
    "NodeList",
    "NotOwner",
    "NotWanted",
    "PeerHello",
    "Ping",
    "Pong",
    "PushWorkflowTask",
    "QueueSpec",
    "Receipt",
    "Release",
    "ReleaseTold",
    "ReportActivityTask",
    "ReportWorkflowTask",
    "ReportWorkflowTaskFailure",
    "RunHeader",
    "ShardEntry",
    "ShardMap",
    "Slots",
    "TaskEntry",
    "Tasks",
    "ToWorker",
    "Unsubscribe",
    "WarmRun",
    "Welcome",
    "WorkflowTaskAccepted",
    "WorkflowTaskGranted",
    "WorkflowTaskRefused",
    "decode_between_engines",
    "decode_from_worker",
    "decode_to_worker",
    "encode_frame",
]
