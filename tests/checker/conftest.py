"""Fixtures: the rows of one real run, made once, and copies of them to be spoiled."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .real_run import clone, leave_behind, run_on


@pytest.fixture(scope="session")
async def real_rows(
    postgres_server: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """The address of a database that a real run has left behind; only to be copied."""
    folder: Path = tmp_path_factory.mktemp("real-run")
    template = urlsplit(postgres_server)._replace(path=f"/{template_database}").geturl()
    dsn = await clone(postgres_server, template)
    await leave_behind(dsn, folder)
    yield dsn
    await run_on(postgres_server, f'DROP DATABASE "{urlsplit(dsn).path[1:]}" WITH (FORCE)')


@pytest.fixture
async def rows(postgres_server: str, real_rows: str) -> AsyncIterator[str]:
    """The address of a copy of the real run's database, gone after the test."""
    dsn = await clone(postgres_server, real_rows)
    yield dsn
    await run_on(postgres_server, f'DROP DATABASE "{urlsplit(dsn).path[1:]}" WITH (FORCE)')
