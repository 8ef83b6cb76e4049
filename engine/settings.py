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
    """Read from ODIN_* in the environment.

    ODIN_ENGINE_ROUTES: `advertised=dialled` pairs of engine addresses, separated by commas, for an
    engine that reaches the others through something in between.
    """

    node_id: str = Field(default_factory=socket.gethostname)
    shard_count: int = Field(default=64, ge=1, le=4_096)
    mode: Literal["sharded"] = "sharded"
    lanes: int = Field(default=1, ge=1, le=16)
    retention: Duration = timedelta(hours=6)
    drain_timeout: Duration = timedelta(seconds=5)
    engine_routes: str = ""
    lease: LeaseSettings = LeaseSettings()

    @property
    def routes(self) -> dict[str, str]:
        """Advertised address → the one to dial."""
        pairs = (part.strip().partition("=") for part in self.engine_routes.split(","))
        return {advertised: dialled for advertised, found, dialled in pairs if found}

    def checked(self) -> EngineSettings:
        """Return the settings if the node id may serve as one.

        Raises:
            InvalidArgumentError: It may not.
        """
        check_id(self.node_id, "ODIN_NODE_ID")
        return self
