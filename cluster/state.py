"""What a supervisor writes down of its cluster: for `odin ps`, `odin down` and the next `odin up`.

The file is replaced whole, so that a reader never sees half of it. Secrets stand in a second file
that only its owner may read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from .identity import is_same

if TYPE_CHECKING:
    from pathlib import Path

    from .place import Place

VERSION: Final = 1
Phase: TypeAlias = Literal["starting", "running", "stopping", "stopped"]
PartPhase: TypeAlias = Literal["starting", "running", "waiting", "refused", "done", "stopped"]


class PartState(msgspec.Struct, kw_only=True, forbid_unknown_fields=False):
    """One part as it is.

    Attributes:
        name: "engine-1", "postgres", …
        kind: "engine", "worker", "mock", "load" or "server".
        phase: starting, running, waiting (ended, will be started again), refused (the same, and
            its exit code said that it did not want to start), done, stopped.
        pid: Its process; None while it has none, or if somebody else runs it.
        fingerprint: Tells the process from a later one with the same pid.
        started_at: When the process was started, ISO 8601, UTC.
        restarts: How often it was started again.
        address: Where it listens, without secrets; empty if it does not.
        exit_code: How the last process ended; negative for a signal.
        last_line: The last line of its log when it ended by itself.
        log: Its log file.
    """

    name: str
    kind: str
    phase: PartPhase = "stopped"
    pid: int | None = None
    fingerprint: str = ""
    started_at: str = ""
    restarts: int = 0
    address: str = ""
    exit_code: int | None = None
    last_line: str = ""
    log: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether its process runs at this moment."""
        return is_same(self.pid, self.fingerprint)


class ClusterState(msgspec.Struct, kw_only=True):
    """The cluster of one folder.

    Attributes:
        pid: The supervisor.
        fingerprint: Tells it from a later process with the same pid.
        phase: starting, running, stopping, stopped.
        started_at: ISO 8601, UTC.
        broker: "rabbitmq" or "embedded"; empty until that is known.
        engines: Base addresses of the engines.
        notices: What the user should know, such as why there is no RabbitMQ.
        parts: Servers first, then what they carry.
    """

    pid: int
    fingerprint: str
    phase: Phase
    started_at: str
    broker: str = ""
    engines: list[str] = msgspec.field(default_factory=list)
    notices: list[str] = msgspec.field(default_factory=list)
    parts: list[PartState] = msgspec.field(default_factory=list)
    version: int = VERSION

    @property
    def is_supervised(self) -> bool:
        """Whether the supervisor runs at this moment."""
        return is_same(self.pid, self.fingerprint)


class Secrets(msgspec.Struct, kw_only=True):
    """Addresses with passwords."""

    postgres_dsn: str = ""
    amqp_url: str = ""
    valkey_url: str = ""
    mock_admin_token: str = ""
    proxy_token: str = ""


def read_state(place: Place) -> ClusterState | None:
    """Return what was written last; None if nothing was, or it is of another version."""
    try:
        return msgspec.json.decode(place.state.read_bytes(), type=ClusterState)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write_state(place: Place, state: ClusterState) -> None:
    """Replace the state file."""
    _replace(place.state, msgspec.json.format(msgspec.json.encode(state), indent=1), 0o644)


def read_secrets(place: Place) -> Secrets:
    """Return the secrets of the cluster; empty ones if there are none."""
    try:
        return msgspec.json.decode(place.secrets.read_bytes(), type=Secrets)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Secrets()


def write_secrets(place: Place, secrets: Secrets) -> None:
    """Replace the secrets; no other user can read them at any moment."""
    _replace(place.secrets, msgspec.json.encode(secrets), 0o600)


def _replace(path: Path, content: bytes, mode: int) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)
