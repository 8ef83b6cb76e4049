"""The deployment that is tried: the example's variables, with own secrets, ports and images."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.environment import SECRETS, example_variables, filled

from .images import NAMES

ENGINES: Final = ("engine-1", "engine-2", "engine-3")
# Little load, and drivers that hurry: it is seen to work, not measured.
QUICK: Final = {
    "ODIN_LOAD_RATE": "1",
    "ODIN_MOCK_DELIVERY_SECONDS_MIN": "1",
    "ODIN_MOCK_DELIVERY_SECONDS_MAX": "2",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What the trial needs to know of the deployment.

    Attributes:
        file: The env file for compose.
        addresses: Where each engine's API is published, by the engine's name.
        token: What opens it.
        secrets: Everything that must show in no log.
    """

    file: Path
    addresses: dict[str, str]
    token: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False)


def make_setting(example: Path, file: Path) -> Setting:
    """Write the env file, for its owner alone to read, and return what is in it."""
    ports = free_ports(len(ENGINES))
    given = {
        **NAMES,
        **QUICK,
        **{f"ODIN_ENGINE_{n}_PORT": str(port) for n, port in enumerate(ports, 1)},
    }
    text = filled(example.read_text(encoding="utf-8"), given)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    variables = example_variables(text)
    return Setting(
        file,
        {name: f"http://127.0.0.1:{port}" for name, port in zip(ENGINES, ports, strict=True)},
        variables["ODIN_API_TOKEN"],
        [variables[name] for name in SECRETS],
    )


def free_ports(number: int) -> list[int]:
    """Return loopback ports that nobody uses now, no two the same."""
    with ExitStack() as held:
        sockets = [
            held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)
        ]
        return [one.getsockname()[1] for one in sockets]
