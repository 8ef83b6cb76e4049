"""A model of Postgres behind the engine's own store.

    SimDatabase(loop)           one server: .tables, .clock, .odds, .plan, .delay, .trouble(dice)
    database.store_type(host)   what `Engine(store_type=...)` takes

The model replaces what lies behind a connection: named statements are carried out on tables in
memory (`nodes.py`, `commit.py`, `queries.py`), under row locks (`locks.py`), by backends that go on
when their client is gone (`server.py`). `tests/simulation/test_store_differential.py` holds its
statements to what Postgres does.
"""

from .database import SimDatabase
from .faults import Fault, Odds
from .server import Call
from .store import SimStore
from .tables import Tables

__all__ = ["Call", "Fault", "Odds", "SimDatabase", "SimStore", "Tables"]
