"""The model of the store answers and writes what Postgres does, call by call.

`ODIN_TEST_PROFILE=hunt` tries thousands of other sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .store_calls import (
    Numbers,
    acquire,
    bump,
    commit,
    expire,
    forget,
    leave,
    mark_dead,
    register,
    release,
    renew,
    take_all,
    wait_for_heir,
)
from .store_reads import dead_letters, delete_closed, read_runs, read_work
from .store_scene import SECOND_US, Model, Real, Scene, now_us

CALLS: Final[dict[str, Callable[[Scene, Numbers], None]]] = {
    one.__name__: one
    for one in (
        register, renew, expire, mark_dead, leave, forget, acquire, take_all, bump, release,
        wait_for_heir, commit, delete_closed, dead_letters, read_runs, read_work,
    )
}  # fmt: skip
WEIGHTED: Final = (
    *CALLS, *("commit",) * 20, *("take_all",) * 3, "bump", "release", "read_runs", "read_work",
    "delete_closed", "delete_closed",
)  # fmt: skip
EXAMPLES = settings.default.max_examples // 4 if settings.default else 25


@pytest.fixture
def real(dsn: str) -> Iterator[Real]:
    """A Postgres, with a store for each incarnation."""
    with asyncio.Runner() as runner:
        postgres = Real(dsn, runner)
        postgres.open()
        yield postgres
        postgres.close()


def test_the_model_does_what_postgres_does(real: Real) -> None:
    @settings(max_examples=EXAMPLES)
    @given(st.integers(0, 2**32), st.integers(10, 40))
    def check(seed: int, count: int) -> None:
        real.begin()
        model = Model()
        try:
            scene = Scene(real, model, now_us() // SECOND_US * SECOND_US)
            numbers = Numbers(seed)
            take_all(scene, numbers)
            for _ in range(count):
                CALLS[numbers.one_of(WEIGHTED)](scene, numbers)
            scene.check_tables()
        finally:
            model.close()

    check()
