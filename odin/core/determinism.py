"""Guards against what would come out differently at replay.

Two nets. At run time the clocks, dice and sleeps of the standard library refuse when they are
called from workflow code; they are wrapped once per process and look only whether this thread runs
a workflow loop. What cannot be wrapped (`datetime.now` and its like) is looked for in the source
when a workflow is registered.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from odin.core.loop import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

_TIME: Final = "use workflow.now() or workflow.time()"
_RANDOM: Final = "use workflow.random()"
_UUID: Final = "use workflow.uuid4()"

GUARDED: Final[dict[str, str]] = {
    "time.time": _TIME,
    "time.time_ns": _TIME,
    "time.monotonic": _TIME,
    "time.monotonic_ns": _TIME,
    "time.perf_counter": _TIME,
    "time.perf_counter_ns": _TIME,
    "time.sleep": "it blocks the worker; await workflow.sleep(...)",
    "uuid.uuid1": _UUID,
    "uuid.uuid4": _UUID,
    "uuid.uuid6": _UUID,
    "uuid.uuid7": _UUID,
    "uuid.uuid8": _UUID,
    "os.urandom": "use workflow.random().randbytes(...), or make secrets in an activity",
    **{
        f"random.{name}": _RANDOM
        for name in (
            "betavariate",
            "binomialvariate",
            "choice",
            "choices",
            "expovariate",
            "gammavariate",
            "gauss",
            "getrandbits",
            "lognormvariate",
            "normalvariate",
            "paretovariate",
            "randbytes",
            "randint",
            "random",
            "randrange",
            "sample",
            "seed",
            "shuffle",
            "triangular",
            "uniform",
            "vonmisesvariate",
            "weibullvariate",
        )
    },
    **{
        f"secrets.{name}": "make secrets in an activity"
        for name in ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe")
    },
}
"""Dotted name to what to do in its place; a name that came later than this Python is none yet."""

# Modules whose own use of clocks and dice has no influence on what a workflow decides.
_HARMLESS: Final = frozenset(
    {"logging", "importlib", "threading", "queue", "warnings", "linecache"}
)

_installed: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Wrap the guarded functions; once per process, further calls do nothing."""
    if _installed:
        return
    for dotted, alternative in GUARDED.items():
        module, name, original = _found(dotted)
        if original is not None:
            _installed[dotted] = original
            setattr(module, name, _guard(original, dotted, alternative))


def names_by_id() -> dict[int, str]:
    """Return id to dotted name of each guarded function, and of what stands in its place."""
    known = {id(original): dotted for dotted, original in _installed.items()}
    for dotted in GUARDED:
        _, _, present = _found(dotted)
        if present is not None:
            known[id(present)] = dotted
    return known


def _found(dotted: str) -> tuple[ModuleType, str, Callable[..., Any] | None]:
    """Return a function's module, its name there and itself, or None if this Python has it not."""
    module_name, _, name = dotted.partition(".")
    module = importlib.import_module(module_name)
    return module, name, getattr(module, name, None)


def _guard(original: Callable[..., Any], dotted: str, alternative: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - stands for the original
        loop = running_loop()
        if loop is None or loop.evicting or _is_harmless(sys._getframe(1)):  # noqa: SLF001 - who calls
            return original(*args, **kwargs)
        return loop.forbid(f"{dotted}()", f"it comes out differently at replay; {alternative}")

    return guarded


def _is_harmless(frame: FrameType | None) -> bool:
    """Return whether the call comes out of a logger, an import or the like."""
    while frame is not None:
        package, _, rest = frame.f_globals.get("__name__", "").partition(".")
        if package in _HARMLESS:
            return True
        if package == "odin" and rest.startswith("core."):
            break  # what lies below is the worker, on a thread of its own perhaps
        frame = frame.f_back
    return False
