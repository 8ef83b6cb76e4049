"""All mutations."""

from __future__ import annotations

from typing import Final

from .engine import ENGINE
from .mutation import Mutation
from .protocol import PROTOCOL
from .sql import SQL

MUTATIONS: Final[tuple[Mutation, ...]] = (*SQL, *ENGINE, *PROTOCOL)
