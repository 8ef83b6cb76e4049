"""The one file that the migrations add up to."""

import asyncpg

from cluster.servers.schema import current_schema


async def test_the_written_schema_makes_the_same_tables_as_the_migrations(
    dsn: str, postgres_server: str
) -> None:
    text = await current_schema()
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
    finally:
        await connection.close()
    assert [row["tablename"] for row in tables] != []
    assert [row["tablename"] for row in tables if f".{row['tablename']} (" not in text] == []
    assert await current_schema() == text
