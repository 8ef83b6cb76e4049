"""Engines live by the clock, the dice and the loop that they are handed, and by nothing else."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import pytest

from .forbidden import no_real_world
from .loop_parts import RealWorldError
from .test_store_engine import turmoil


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.monotonic()",
        "import random; random.random()",
        "import random; random.Random()",
        "import secrets; secrets.token_hex(8)",
        "import uuid; uuid.uuid4()",
        "import threading; threading.Thread(target=print).start()",
        "import socket\nwith socket.socket() as one: one.connect(('127.0.0.1', 1))",
    ],
)
def test_code_of_odin_that_asks_the_machine_is_found(code: str) -> None:
    with pytest.raises(RealWorldError, match=r"odin\.somewhere:[12] asked"), no_real_world():
        exec(code, {"__name__": "odin.somewhere"})  # noqa: S102 - code as if it were odin's


def test_it_is_found_too_where_the_error_is_swallowed() -> None:
    with pytest.raises(RealWorldError), no_real_world(), suppress(Exception):
        exec("import time; time.time()", {"__name__": "engine.lane"})  # noqa: S102 - the same


def test_libraries_may_ask() -> None:
    with no_real_world():
        logging.getLogger("library").warning("stamped")


def test_a_real_worker_of_another_test_goes_on_asking() -> None:
    """Its thread stands beside the simulation and is no part of it."""
    begun, may_ask = threading.Event(), threading.Event()
    told: list[BaseException | None] = []

    def ask() -> None:
        begun.set()
        may_ask.wait()
        try:
            exec("import time; time.monotonic()", {"__name__": "odin.worker.watch"})  # noqa: S102 - the same
        except RealWorldError as error:
            told.append(error)
        else:
            told.append(None)

    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait()
    with no_real_world():
        may_ask.set()
        thread.join()
    assert told == [None]


def test_engines_ask_nothing_of_the_machine() -> None:
    with no_real_world():
        turmoil(11)
