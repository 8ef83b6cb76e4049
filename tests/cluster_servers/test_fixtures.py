"""The fixtures themselves: what the other tests stand on."""

import asyncpg


async def test_two_databases_of_one_test_run_do_not_share_tables(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TABLE only_here (id int)")
        assert await connection.fetchval("SHOW fsync") == "on"
    finally:
        await connection.close()
