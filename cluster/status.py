"""`odin ps`: what runs, by the state file, the kernel and telemetry."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from odin.cli.output import chat, is_for_people, span, write_json, write_table
from odin.runtime.clock import SystemClock
from odin.runtime.telemetry import read_telemetry
from odin.runtime.valkey import ValkeyDownError

from .footer import ending
from .state import read_secrets, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odin.runtime.clock import Clock
    from odin.runtime.telemetry import Snapshot

    from .place import Place
    from .state import ClusterState, PartState

EXIT_NOT_RUNNING: Final = 1
COLUMNS: Final = ("PART", "PID", "STATE", "UPTIME", "RESTARTS", "ADDRESS", "NUMBERS")
# What of a part's telemetry says most, and the word for it.
KEY_NUMBERS: Final = {
    "engine": {
        "odin_shard_owned": "shards",
        "odin_runs_in_memory": "runs",
        "odin_outbox_depth": "outbox",
    },
    "worker": {
        "activities_running": "activities",
        "workflows_warm": "warm",
        "engines_linked": "links",
    },
}


def show(place: Place, *, as_json: bool) -> int:
    """Print the parts; return 0 if the cluster is supervised, else 1."""
    state = read_state(place)
    if state is None:
        chat(f"no cluster has run in {place.folder}: `odin up` starts one")
        if as_json:
            write_json({"phase": "stopped", "parts": []})
        return EXIT_NOT_RUNNING
    told = asyncio.run(_telemetry(place)) if state.is_supervised else {}
    clock = SystemClock()
    rows = [row_of(one, told.get(one.name), clock) for one in state.parts]
    phase = phase_of(state)
    if as_json:
        write_json(
            {
                "phase": phase,
                "supervisor_pid": state.pid,
                "started_at": state.started_at,
                "broker": state.broker,
                "engines": state.engines,
                "notices": state.notices,
                "parts": rows,
            }
        )
    else:
        write_table(COLUMNS, [_cells(row) for row in rows])
        _explain(state, phase)
    return 0 if state.is_supervised else EXIT_NOT_RUNNING


def phase_of(state: ClusterState) -> str:
    """Return the cluster's phase; "lost" if its supervisor has gone without an end in order."""
    if state.phase == "stopped" or state.is_supervised:
        return state.phase
    return "lost"


def row_of(part: PartState, told: Snapshot | None, clock: Clock) -> dict[str, Any]:
    """Return what is known of one part.

    `is_stale` says that a part that should tell of itself has not lately; `state` is "gone" if its
    process is not there although nobody has noticed yet.
    """
    names = KEY_NUMBERS.get(part.kind, {})
    gauges: Mapping[str, float] = told.gauges if told else {}
    is_gone = part.pid is not None and not part.is_alive
    started = part.started_at if part.pid is not None and not is_gone else ""
    return {
        "part": part.name,
        "kind": part.kind,
        "pid": None if is_gone else part.pid,
        "state": "gone" if is_gone else part.phase,
        "uptime_seconds": _age(started, clock),
        "restarts": part.restarts,
        "address": part.address,
        "numbers": {word: gauges[name] for name, word in names.items() if name in gauges},
        "is_stale": bool(names) and part.phase == "running" and (told is None or told.is_stale),
        "exit_code": part.exit_code,
        "last_line": part.last_line,
        "log": part.log,
    }


async def _telemetry(place: Place) -> dict[str, Snapshot]:
    url = read_secrets(place).valkey_url
    if not url:
        return {}
    try:
        return {one.node: one for one in await read_telemetry(url)}
    except ValkeyDownError:
        return {}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = " ".join(f"{word} {value:.0f}" for word, value in row["numbers"].items())
    notes = [numbers, "(stale)" if row["is_stale"] else ""]
    if row["state"] in {"waiting", "refused"}:
        notes = [f"ended{ending(row['exit_code'])}", row["last_line"]]
    uptime = row["uptime_seconds"]
    return (
        row["part"],
        "-" if row["pid"] is None else str(row["pid"]),
        row["state"],
        "-" if uptime is None else span(uptime),
        str(row["restarts"]),
        row["address"] or "-",
        " ".join(one for one in notes if one) or "-",
    )


def _explain(state: ClusterState, phase: str) -> None:
    if phase == "lost":
        chat("the supervisor is gone: `odin down` ends what is left, `odin up` starts anew")
    elif is_for_people():
        chat(f"{phase}, supervisor pid {state.pid}, broker {state.broker or 'not known yet'}")
    for notice in state.notices:
        chat(notice)


def _age(started_at: str, clock: Clock) -> float | None:
    if not started_at:
        return None
    return max(0.0, (clock.wall() - datetime.fromisoformat(started_at)).total_seconds())
