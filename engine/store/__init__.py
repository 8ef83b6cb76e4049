"""The one fenced door to Postgres: what a group writes, and what the owner and the API read.

`commit.sql` and the functions of `schema/0001_initial.sql` are the fence. Everything here is values
in and values out: no decision is taken in this package.
"""

from __future__ import annotations

from .errors import WriteRaisedError
from .group import Committed, EventWrite, Group, OutboxDelay, OutboxInsert, RequestWrite
from .store import Store
from .values import (
    ClusterSettings,
    ClusterView,
    ExecutionFilter,
    ExecutionSummary,
    NodeIdTaken,
    NodeRow,
    OutboxRow,
    Renewed,
    ShardRow,
    StoredRequest,
)

__all__ = [
    "ClusterSettings",
    "ClusterView",
    "Committed",
    "EventWrite",
    "ExecutionFilter",
    "ExecutionSummary",
    "Group",
    "NodeIdTaken",
    "NodeRow",
    "OutboxDelay",
    "OutboxInsert",
    "OutboxRow",
    "Renewed",
    "RequestWrite",
    "ShardRow",
    "Store",
    "StoredRequest",
    "WriteRaisedError",
]
