"""An engine's settings: read once, in the composition root."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Literal

from pydantic import Field

from odin.core.ids import check_id
from odin.runtime.settings import (
    BrokerSettings,
    Duration,
    HttpSettings,
    LeaseSettings,
    PostgresSettings,
    ValkeySettings,
)


class EngineSettings(PostgresSettings, BrokerSettings, ValkeySettings, HttpSettings):
    """Read from ODIN_* in the environment."""

    node_id: str = Field(default_factory=socket.gethostname)
    shard_count: int = Field(default=64, ge=1, le=4_096)
    mode: Literal["sharded"] = "sharded"
    lanes: int = Field(default=1, ge=1, le=16)
    drain_timeout: Duration = timedelta(seconds=5)
    lease: LeaseSettings = LeaseSettings()

    def checked(self) -> EngineSettings:
        """Return the settings if the node id may serve as one.

        Raises:
            InvalidArgumentError: It may not.
        """
        check_id(self.node_id, "ODIN_NODE_ID")
        return self
