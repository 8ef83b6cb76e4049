"""The checker's word on an experiment: its package is found by name, like every other service."""

from __future__ import annotations

import importlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from odin.errors import OdinError
from odin.runtime.services import module_of
from odin.runtime.settings import load

if TYPE_CHECKING:
    from odin.runtime.clock import Clock

    from .plan import Verdict

VERDICTS: Final[dict[str, Verdict]] = {"valid": "pass", "invalid": "fail", "unknown": "unknown"}
# What began a little before is judged too: it was under way when the fault came.
BEFORE: Final = timedelta(seconds=30)
SECOND_US: Final = 1_000_000


def _checker(name: str) -> Any:  # noqa: ANN401 - resolved at run time, see the layer rule
    return importlib.import_module(f"{module_of('checker')}.{name}")


async def checked(
    dsn: str,
    experiment_id: str,
    started_at: str,
    clock: Clock,
    until: datetime | None = None,
) -> tuple[Verdict, list[str]]:
    """Let the checker judge everything since an experiment began, and keep its report.

    Args:
        dsn: The database.
        experiment_id: Whose faults must have been seen to bite.
        started_at: When it began, ISO 8601.
        clock: Tells the time.
        until: Where the window ends; None for now.

    Returns:
        The verdict, and why it is no better. A checker that fails has judged nothing: unknown.
    """
    since = datetime.fromisoformat(started_at) - BEFORE
    try:
        passes = _checker("passes")
        settings = load(_checker("settings").CheckerSettings, postgres_dsn=dsn)
        asked = _checker("commands").asked_of(
            settings,
            since_us=round(since.timestamp() * SECOND_US),
            until_us=None if until is None else round(until.timestamp() * SECOND_US),
            experiment=experiment_id,
            seed=round(clock.wall().timestamp()),
        )
        report = await passes.check(dsn, asked, clock=clock)
        await passes.keep(dsn, report)
    except (OdinError, ImportError, AttributeError) as error:
        return "unknown", [f"there is no checker to ask: {error}"]
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return "unknown", [f"the checker could not read: {error}"]
    why = [
        f"{one.invariant} {one.verdict}: {one.words}"
        for one in report.findings
        if one.verdict != "valid" and report.verdict != "valid"
    ]
    return VERDICTS.get(str(report.verdict), "unknown"), why
