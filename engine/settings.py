"""An engine's settings: read once, in the composition root."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Literal

from pydantic import Field

from odin.core.ids import check_id
from odin.errors import ConfigurationError
from odin.runtime.parent import PARENT_PID
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
    ODIN_DEBUG_COMMIT_STEPS: write groups by BEGIN, call, COMMIT, so that an engine can be stopped
    between its lock and its commit; for local clusters that are broken on purpose alone.
    """

    node_id: str = Field(default_factory=socket.gethostname)
    shard_count: int = Field(default=64, ge=1, le=4_096)
    mode: Literal["sharded"] = "sharded"
    lanes: int = Field(default=1, ge=1, le=16)
    retention: Duration = timedelta(hours=6)
    drain_timeout: Duration = timedelta(seconds=5)
    engine_routes: str = ""
    debug_commit_steps: bool = False
    lease: LeaseSettings = LeaseSettings()

    @property
    def routes(self) -> dict[str, str]:
        """Advertised address → the one to dial."""
        pairs = (part.strip().partition("=") for part in self.engine_routes.split(","))
        return {advertised: dialled for advertised, found, dialled in pairs if found}

    def checked(self) -> EngineSettings:
        """Return the settings if the node id may serve as one and nothing is on that must not be.

        Raises:
            InvalidArgumentError: The node id may not.
            ConfigurationError: Commits in steps outside a local cluster.
        """
        check_id(self.node_id, "ODIN_NODE_ID")
        if self.debug_commit_steps and PARENT_PID not in os.environ:
            raise ConfigurationError(
                "ODIN_DEBUG_COMMIT_STEPS keeps locks over two more round trips, for tests that "
                "stop an engine there: it is for local clusters (odin up) alone; unset it"
            )
        return self
