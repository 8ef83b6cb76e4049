"""`python -m mocks payments|shipping|drivers`: one mock service as a process."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from functools import partial

from odin.errors import InvalidArgumentError
from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .assembly import SERVICES, assembled
from .settings import MockSettings

DRAIN_TIMEOUT = timedelta(seconds=3)

log = logging.getLogger(__name__)


async def serve_mock(arguments: list[str]) -> None:
    """Run the mock that the arguments name until told to stop.

    Raises:
        InvalidArgumentError: none or more than one is named.
        ConfigurationError: a setting is missing or wrong.
    """
    if len(arguments) != 1:
        raise InvalidArgumentError(f"name one mock: {', '.join(SERVICES)}")
    async with assembled(arguments[0], load(MockSettings)) as mock:
        log.info("listening", extra={"url": mock.url})
        await serve(mock.loops, DRAIN_TIMEOUT)


def main() -> None:
    """Start the process."""
    arguments = sys.argv[1:]
    run(partial(serve_mock, arguments), service="mocks", node="-".join(arguments))


if __name__ == "__main__":
    main()
