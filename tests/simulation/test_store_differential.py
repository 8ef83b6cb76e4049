"""The model of the store answers and writes what Postgres does, call by call.

`ODIN_TEST_PROFILE=hunt` tries thousands of other sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .store_calls import Numbers, take_all
from .store_scene import SECOND_US, Model, Real, Scene, now_us

EXAMPLES = settings.default.max_examples // 8 if settings.default else 12


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
                numbers.call()(scene, numbers)
            scene.check_tables()
        finally:
            model.close()

    check()
