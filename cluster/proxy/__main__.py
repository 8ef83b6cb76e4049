"""`python -m cluster.proxy`: the proxy as a process."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from odin.runtime.http import bind, serve_http
from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .control import create_app
from .exchange import Exchange
from .settings import ProxySettings

DRAIN_TIMEOUT: Final = timedelta(seconds=2)
HOST: Final = "127.0.0.1"

log = logging.getLogger(__name__)


async def main() -> None:
    """Carry the links until told to stop.

    Raises:
        ConfigurationError: a setting is missing or wrong, or a port is taken.
    """
    settings = load(ProxySettings)
    exchange = Exchange(settings.wires)
    app = create_app(exchange, settings.proxy_token.get_secret_value())
    listener = bind(HOST, settings.proxy_port)

    async def control(stop: asyncio.Event) -> None:
        await serve_http(app, HOST, settings.proxy_port, stop, sockets=[listener])

    log.info("carrying", extra={"links": len(settings.wires), "port": settings.proxy_port})
    await serve({"links": exchange.run, "control": control}, DRAIN_TIMEOUT)


if __name__ == "__main__":
    run(main, service="proxy")
