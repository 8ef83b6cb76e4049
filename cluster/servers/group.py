"""The three servers together: started side by side, stopped side by side."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from .common import Server, private_folder
from .postgres import postgres_server
from .rabbitmq import rabbitmq_server
from .valkey import valkey_server


class ServerSet:
    """Postgres, RabbitMQ and Valkey for one cluster, with their data below one folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = private_folder(folder)
        self.postgres = postgres_server(self.folder / "postgres", environ)
        self.rabbitmq = rabbitmq_server(self.folder / "rabbitmq", environ)
        self.valkey = valkey_server(self.folder / "valkey", environ)

    @property
    def all(self) -> tuple[Server, ...]:
        """The three servers."""
        return (self.postgres, self.rabbitmq, self.valkey)

    async def start(self) -> None:
        """Start all; when one fails, those that came up are stopped again.

        Raises:
            ExceptionGroup: of `ServerError`, one for each server that did not start.
        """
        try:
            await _together([server.start for server in self.all])
        except (
            BaseException
        ):  # whatever ends the start, cancellation included, must leave no server
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all that run."""
        await _together([server.stop for server in self.all])

    async def __aenter__(self) -> Self:
        await self.start()  # which leaves nothing running when it fails
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()


async def _together(calls: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call())
