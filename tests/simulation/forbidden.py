"""Finds code under simulation that asks the machine for time, dice, threads or sockets.

What odin is handed (a clock, ids, a loop) is virtual; whatever it took from the machine instead
would differ from run to run. Libraries may ask: `logging` stamps its records.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from .loop_parts import RealWorldError

UNDER_TEST: Final = ("odin", "engine", "relay", "worker", "mocks")
_TAKEN: Final[list[tuple[Any, tuple[str, ...]]]] = [
    (
        time,
        (
            "clock_gettime", "clock_gettime_ns", "monotonic", "monotonic_ns", "perf_counter",
            "perf_counter_ns", "sleep", "time", "time_ns",
        ),
    ),
    (
        random,
        (
            "betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "randbytes",
            "randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform",
        ),
    ),
    (secrets, ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe")),
    (os, ("urandom",)),
    (uuid, ("uuid1", "uuid4")),
    (threading.Thread, ("start",)),
    (socket.socket, ("bind", "connect", "connect_ex", "listen")),
]  # fmt: skip


def _watched(owner: Any, name: str, found: list[str]) -> Callable[..., Any]:  # noqa: ANN401 - a module or a class
    real = getattr(owner, name)
    here = threading.get_ident()  # the real workers of other tests have threads of their own

    def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the real one takes
        frame = sys._getframe(1)  # noqa: SLF001 - tells who asks
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in UNDER_TEST and threading.get_ident() == here:
            what = f"{module}:{frame.f_lineno} asked for {owner.__name__}.{name}"
            found.append(what)
            raise RealWorldError(what)
        return real(*args, **kwargs)

    return watched


def _unseeded(found: list[str]) -> type[random.Random]:
    """Return dice that must be given a seed."""

    class Dice(random.Random):
        def __init__(self, *seed: Any) -> None:  # noqa: ANN401 - whatever may be a seed
            frame = sys._getframe(1)  # noqa: SLF001 - tells who asks
            module = str(frame.f_globals.get("__name__", ""))
            if not seed and module.partition(".")[0] in UNDER_TEST:
                what = f"{module}:{frame.f_lineno} asked for random.Random without a seed"
                found.append(what)
                raise RealWorldError(what)
            super().__init__(*seed)

    return Dice


@contextmanager
def no_real_world() -> Iterator[None]:
    """Fail whoever of odin asks the machine within the block, and the block too.

    Raises:
        RealWorldError: Somebody did; also if he has swallowed the error.
    """
    found: list[str] = []
    patches = [
        patch.object(owner, name, _watched(owner, name, found))
        for owner, names in _TAKEN
        for name in names
    ]
    patches.append(patch.object(random, "Random", _unseeded(found)))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()
    if found:
        raise RealWorldError("; ".join(dict.fromkeys(found)))
