"""The engine's own `Store` on simulated connections: all above the wire is the real code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.store import Store

if TYPE_CHECKING:
    from odin.runtime.postgres import Session

    from .database import SimDatabase


class SimStore(Store):
    """A store whose connections lead to a `SimDatabase`; see `SimDatabase.store_type`."""

    @staticmethod
    def on(database: SimDatabase, host: str) -> type[SimStore]:
        """Return the type of the stores that a host's engines make."""

        async def connect(_dsn: str, *, application_name: str, session: Session) -> Any:  # noqa: ANN401 - stands in for asyncpg's
            return await database.connect(host, application_name, session)

        async def create_pool(
            _dsn: str,
            *,
            name: str,
            application_name: str,
            min_size: int,
            max_size: int,
            session: Session,
        ) -> Any:  # noqa: ANN401 - stands in for asyncpg's
            del name, min_size
            return database.pool(host, application_name, max_size, session)

        members = {"connect": staticmethod(connect), "create_pool": staticmethod(create_pool)}
        return type(f"SimStore of {host}", (SimStore,), members)
