"""`odin check`."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import asyncpg
import msgspec
import typer

from odin.cli.nearby import FOLDER_VARIABLE, nearby
from odin.cli.output import chat, duration_of
from odin.cli.shared import current
from odin.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from odin.runtime.clock import SystemClock
from odin.runtime.settings import load

from .passes import SECOND_US, Asked, check, keep
from .replaying import Replay
from .settings import CheckerSettings
from .showing import show
from .verdicts import Report

if TYPE_CHECKING:
    from collections.abc import Callable

DSN_VARIABLE: Final = "ODIN_POSTGRES_DSN"


class _Secrets(msgspec.Struct):
    """What is read of a local cluster's secrets."""

    postgres_dsn: str = ""


class NoClusterError(FailedPreconditionError):
    """No cluster runs in the folder whose database is to be read."""

    reason = "NO_CLUSTER"


def check_history(
    *,
    since: Annotated[str, typer.Option(help="How far back: 30m, 1h; or an instant.")] = "1h",
    until: Annotated[str, typer.Option(help="Where to end: 5m ago is 5m; or an instant.")] = "",
    experiment: Annotated[
        str, typer.Option(help="Judge also whether this experiment's faults took effect.")
    ] = "",
    replay: Annotated[
        int | None, typer.Option(min=0, help="Histories to replay; 0: none, then I18 is unknown.")
    ] = None,
    workflows: Annotated[
        str, typer.Option(help="Modules of the workflows to replay; the demo's if empty.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The cluster's, whatever the environment says.")
    ] = None,
) -> int:
    r"""Prove from Postgres that every run finished, in order, charged at most once.

    Reads the database of --folder's cluster; without it ODIN_POSTGRES_DSN, or the database of the
    local cluster. Exits with 0 if all that is required is valid, 1 if anything is invalid, 3 if
    something required is unknown.

    \b
      odin check                           what ran in the last hour
      odin check --since 30m --json        for programs
      odin check --experiment x-17         and whether its faults took effect
    """
    now_us = round(SystemClock().wall().timestamp() * SECOND_US)
    settings = load(CheckerSettings, **_database(folder))
    asked = asked_of(
        settings,
        since_us=instant_us(since, now_us, "--since"),
        until_us=instant_us(until, now_us, "--until") if until else None,
        experiment=experiment or None,
        seed=now_us,
    )
    if replay is not None or workflows:
        asked = replace(
            asked,
            replay=replay_of(
                settings.check_replay_count if replay is None else replay,
                _names(workflows) or settings.modules,
                now_us,
            ),
        )
    report = asyncio.run(checked(settings.dsn, asked))
    return show(report, as_json=current().as_json)


async def checked(dsn: str, asked: Asked, *, tell: Callable[[str], None] = chat) -> Report:
    """Make one pass and keep its result; `tell` is told of progress.

    Raises:
        UnavailableError: Postgres does not answer, or lacks the tables.
    """
    try:
        report = await check(dsn, asked, clock=SystemClock(), tell=tell)
        await keep(dsn, report)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise UnavailableError(f"Postgres could not be read: {error}") from error
    return report


def asked_of(
    settings: CheckerSettings,
    *,
    since_us: int,
    until_us: int | None = None,
    experiment: str | None = None,
    seed: int = 0,
) -> Asked:
    """Return what a pass is to judge, as the settings say."""
    return Asked(
        since_us=since_us,
        until_us=until_us,
        experiment=experiment,
        settle_seconds=settings.check_settle_seconds,
        retention_seconds=settings.retention,
        replay=replay_of(settings.check_replay_count, settings.modules, seed),
    )


def replay_of(count: int, modules: tuple[str, ...], seed: int) -> Replay | None:
    """Return which histories to replay; None for none."""
    return Replay(modules=modules, runs_max=count, seed=seed) if count else None


def instant_us(text: str, now_us: int, what: str) -> int:
    """Return an instant, given as such or as how long ago it was, in microseconds since 1970.

    Raises:
        InvalidArgumentError: It is neither.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return now_us - round(duration_of(text, what).total_seconds() * SECOND_US)
    if at.tzinfo is None:
        raise InvalidArgumentError(f"{what} {text!r} lacks a time zone: end it with Z")
    return round(at.timestamp() * SECOND_US)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _database(folder: Path | None) -> dict[str, str]:
    """Return a local cluster's database as a setting; nothing where the environment names one.

    Args:
        folder: The cluster's, which then counts for more than the environment; None: the nearest.

    Raises:
        NoClusterError: no cluster runs in `folder`, or it has no database.
    """
    if folder is not None:
        dsn = _dsn_of(folder)
        if not dsn:
            raise NoClusterError(f"no cluster runs in {folder.resolve()}: `odin up` starts one")
        return {"postgres_dsn": dsn}
    if os.environ.get(DSN_VARIABLE):
        return {}
    dsn = _dsn_of(None)
    return {"postgres_dsn": dsn} if dsn else {}


def _dsn_of(folder: Path | None) -> str:
    """Return the database of the cluster in a folder, or nearby; empty if none runs."""
    local = nearby() if folder is None else nearby(environ={FOLDER_VARIABLE: str(folder)})
    if local is None:
        return ""
    file = local.file.with_name("cluster.secrets.json")
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Secrets).postgres_dsn
    except (OSError, msgspec.MsgspecError):
        return ""
