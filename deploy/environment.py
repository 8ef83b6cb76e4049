"""`python3 -m deploy.environment > .env`: the example's variables, with secrets of this deployment.

Needs nothing but the standard library, so that a host with a container engine alone can run it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

EXAMPLE: Final = Path(__file__).with_name("env.example")
SECRETS: Final = (
    "ODIN_API_TOKEN",
    "ODIN_POSTGRES_PASSWORD",
    "ODIN_RABBITMQ_PASSWORD",
    "ODIN_VALKEY_PASSWORD",
    "ODIN_MOCK_ADMIN_TOKEN",
)


def example_variables(text: str) -> dict[str, str]:
    """Return the variables of an env file; comments and empty lines are left out."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def filled(
    text: str,
    given: Mapping[str, str] | None = None,
    make_secret: Callable[[], str] = lambda: secrets.token_hex(24),
) -> str:
    """Return the env file `text` with `given` put in and every empty secret made up.

    Raises:
        KeyError: `given` names a variable that the file lacks.
    """
    unknown = sorted(set(given or {}) - set(example_variables(text)))
    if unknown:
        raise KeyError(f"the env file has no {', '.join(unknown)}")
    lines = []
    for line in text.splitlines():
        name, assigned, value = line.partition("=")
        if assigned and not line.startswith("#"):
            value = (given or {}).get(name, value)
            if name in SECRETS and not value:
                value = make_secret()
            line = f"{name}={value}"  # noqa: PLW2901 - the line as it is to be written
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(filled(EXAMPLE.read_text(encoding="utf-8")))
