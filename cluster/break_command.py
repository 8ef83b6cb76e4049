"""What `odin break` and `odin heal` do and say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from odin.cli.output import chat, write_json, write_table
from odin.errors import InvalidArgumentError, UnavailableError
from odin.runtime.clock import SystemClock

from .breaking import Breaker, expanded
from .proxy.faults import Fault
from .servers import ServerError
from .state import read_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .place import Place
    from .undo import Broken

COLUMNS: Final = ("ID", "WHAT", "HEALS IN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody wants broken; spans in seconds."""

    verb: str
    parts: Sequence[str]
    to: str = ""
    from_: str = ""
    seconds: float = 30.0
    how: str = "blackhole"
    direction: str = "both"
    pattern: str = ""
    is_statement: bool = False
    is_once: bool = True
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    bytes_per_second: float = 0.0


def run(place: Place, wish: Wish, *, as_json: bool) -> int:
    """Break what is wished for, and say what was done and how to undo it; return the exit code.

    Raises:
        OdinError: it cannot be done.
    """
    breaker = Breaker(place, SystemClock())
    if wish.verb == "list":
        return _show(breaker, as_json=as_json)
    if wish.verb == "thaw":
        return heal(place, wish.parts, as_json=as_json)
    state = read_state(place)
    names = expanded(wish.parts, [one.name for one in state.parts] if state else [])
    if not names:
        names = {"alarm": ["rabbitmq"], "disconnect": ["postgres"]}.get(wish.verb, [])
    if not names:
        raise InvalidArgumentError(f"break {wish.verb}: whom? Name a part, e.g. engine-1")
    try:
        broken = asyncio.run(_break(breaker, wish, names))
    except (ServerError, OSError, asyncpg.PostgresError) as error:
        raise UnavailableError(str(error).split("\n", 1)[0]) from error
    if as_json:
        write_json(msgspec.to_builtins(broken))
    else:
        chat(_told(broken, wish))
    return 0


def heal(place: Place, parts: Sequence[str], *, as_json: bool) -> int:
    """Heal what concerns the parts, all if none is named; return the exit code.

    Raises:
        UnavailableError: something could not be healed; it stays on record.
    """
    breaker = Breaker(place, SystemClock())
    state = read_state(place)
    wanted = set(expanded(parts, [one.name for one in state.parts] if state else []))
    try:
        healed = asyncio.run(breaker.heal(lambda one: not wanted or bool(wanted & set(one.parts))))
    except ServerError as error:
        raise UnavailableError(str(error).split("\n", 1)[0]) from error
    if as_json:
        write_json(msgspec.to_builtins(healed))
        return 0
    for one in healed:
        chat(f"healed: {one.what}")
    if not healed:
        chat("nothing was broken")
    return 0


def fault_of(wish: Wish) -> Fault:
    """Return the fault of links that is wished for.

    Raises:
        InvalidArgumentError: there is none like that.
    """
    fields: dict[str, Any] = {"mode": wish.how.replace("-", "_")}
    if wish.pattern:
        fields |= {
            "pattern": wish.pattern,
            "is_statement": wish.is_statement,
            "is_once": wish.is_once,
        }
    if wish.verb == "slow":
        if bool(wish.bytes_per_second) == bool(wish.delay_seconds or wish.jitter_seconds):
            raise InvalidArgumentError("break slow takes --delay (and --jitter), or --rate")
        fields = {
            "mode": "throttle" if wish.bytes_per_second else "delay",
            "delay_ms": wish.delay_seconds * 1_000,
            "jitter_ms": wish.jitter_seconds * 1_000,
            "bytes_per_second": wish.bytes_per_second,
        }
    try:
        fault = msgspec.convert({**fields, "direction": wish.direction}, type=Fault)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"no such fault: {error}") from None
    fault.check()
    return fault


async def _break(breaker: Breaker, wish: Wish, names: Sequence[str]) -> Broken:
    match wish.verb:
        case "kill":
            return breaker.kill(names)
        case "restart":
            return breaker.restart(names)
        case "freeze":
            return breaker.freeze(names, wish.seconds)
        case "alarm":
            return await breaker.alarm(wish.seconds)
        case "disconnect":
            return await breaker.disconnect(names[0])
        case _:
            fault = fault_of(wish)
            found = [await breaker.links(one, to=wish.to, from_=wish.from_) for one in names]
            links = list(dict.fromkeys(link for some in found for link in some))
            return await breaker.break_links(links, fault, wish.seconds)


def _told(broken: Broken, wish: Wish) -> str:
    if broken.kind == "once":
        return f"{broken.what}; it comes back by itself (`odin ps` shows it)"
    who = " ".join(wish.parts) or broken.parts[0]
    return f"{broken.what}: heals in {wish.seconds:g} s, or now with `odin heal {who}`"


def _show(breaker: Breaker, *, as_json: bool) -> int:
    entries = breaker.broken()
    if as_json:
        write_json(msgspec.to_builtins(entries))
        return 0
    now = breaker.clock.boottime()
    rows = [(one.id, one.what, f"{max(0.0, one.until - now):.0f} s") for one in entries]
    if rows:
        write_table(COLUMNS, rows)
    else:
        chat("nothing is broken")
    return 0
