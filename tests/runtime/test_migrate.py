from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from odin.errors import ConfigurationError
from odin.runtime.migrate import SchemaMismatchError, check, migrate, migrations
from odin.runtime.services import checkout


@pytest.fixture
async def empty(postgres_server: str) -> AsyncIterator[str]:
    """The address of a database without anything in it."""
    name = f"odin_empty_{secrets.token_hex(4)}"
    server = await asyncpg.connect(postgres_server)
    await server.execute(f'CREATE DATABASE "{name}"')
    yield urlunsplit(urlsplit(postgres_server)._replace(path=f"/{name}"))
    await server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE one (id integer); SELECT 1;")
    (tmp_path / "0002_second.sql").write_text("CREATE TABLE two (id integer);")
    return tmp_path


async def tables(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT relname FROM pg_class WHERE relkind = 'r'")
    await connection.close()
    return {row["relname"] for row in rows} & {"one", "two", "three"}


async def test_every_migration_is_applied_once(empty: str, folder: Path) -> None:
    assert await migrate(empty, folder) == ["0001_first", "0002_second"]
    assert await migrate(empty, folder) == []
    assert await tables(empty) == {"one", "two"}
    await check(empty, folder)


async def test_a_later_release_applies_only_what_is_new(empty: str, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0003_third.sql").write_text("CREATE TABLE three ();")
    with pytest.raises(SchemaMismatchError, match="has schema 2, this code needs 3"):
        await check(empty, folder)
    assert await migrate(empty, folder) == ["0003_third"]
    await check(empty, folder)


async def test_many_at_once_apply_each_migration_once(empty: str, folder: Path) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(migrate(empty, folder)) for _ in range(4)]
    assert sorted(name for task in tasks for name in task.result()) == ["0001_first", "0002_second"]


async def test_of_a_migration_that_fails_nothing_stays(empty: str, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("CREATE TABLE two (); SELECT 1/0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty, folder)
    assert await tables(empty) == {"one"}
    (folder / "0002_second.sql").write_text("CREATE TABLE two ();")
    assert await migrate(empty, folder) == ["0002_second"]


async def test_a_migration_that_cannot_be_written_down_is_not_applied(
    empty: str, folder: Path
) -> None:
    (folder / "0002_second.sql").write_text(
        "CREATE TABLE two (); ALTER TABLE schema_migration ADD CHECK (number < 2);"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await migrate(empty, folder)
    assert await tables(empty) == {"one"}


async def test_a_newer_database_is_refused_by_older_code(empty: str, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0002_second.sql").unlink()
    for attempt in (check, migrate):
        with pytest.raises(SchemaMismatchError, match="older than the database"):
            await attempt(empty, folder)


async def test_an_applied_migration_that_was_edited_is_refused(empty: str, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0001_first.sql").write_text("CREATE TABLE one (id bigint);")
    for attempt in (check, migrate):
        with pytest.raises(SchemaMismatchError, match="must not be edited"):
            await attempt(empty, folder)


async def test_an_empty_database_is_not_mistaken_for_a_migrated_one(
    empty: str, folder: Path
) -> None:
    with pytest.raises(SchemaMismatchError, match="odin migrate"):
        await check(empty, folder)


@pytest.mark.parametrize("names", [["0002_x.sql"], ["0001_x.sql", "0003_y.sql"], ["1_x.sql"]])
def test_misnumbered_files_are_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(ConfigurationError):
        migrations(tmp_path)


async def test_the_command_migrates_and_then_has_nothing_to_do(empty: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "odin.runtime.migrate", *arguments],
            cwd=checkout(),
            capture_output=True,
            check=False,
            text=True,
            timeout=30,
        )

    first = await asyncio.to_thread(run, empty)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("applied 0001_")
    assert (await asyncio.to_thread(run, empty)).stdout == "nothing to apply\n"
    wrong = await asyncio.to_thread(run)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "ODIN_POSTGRES_DSN is not set" in wrong.stderr
    away = await asyncio.to_thread(run, "postgresql://u:hunter2@127.0.0.1:1/x")
    assert away.returncode == 1
    assert "hunter2" not in away.stderr
    assert "Traceback" not in away.stderr
