"""An experiment that is run again: what the record tells of the first one, and how both compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from odin.errors import FailedPreconditionError, NotFoundError

from .evidence import SQL
from .plan import Verdict
from .result import Draw, Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .faults.books import Books

_SEEN: Final = "seen: "


class _Fault(msgspec.Struct):
    """One line of the evidence's faults."""

    fault: str
    bit: bool


class _Evidence(msgspec.Struct):
    """What `evidence.shown` has written."""

    own_verdict: Verdict
    faults: list[_Fault] = []
    targets: list[str] = []
    claims: dict[str, bool] = {}
    steady_before: bool = False
    recovered_seconds: float | None = None
    counts: dict[str, Any] = {}
    wrong: list[str] = []
    reasons: list[str] = []
    checker: Verdict | None = None
    draw: Draw | None = None
    replay_of: str = ""


async def recorded(books: Books, experiment_id: str) -> Result:
    """Return an experiment as its row tells it.

    Raises:
        NotFoundError: there is no row of this id.
        FailedPreconditionError: the row is one of another version, and cannot be read.
        BooksClosedError: Postgres does not answer.
    """
    async with books.open() as connection:
        row = None
        if await connection.fetchval(SQL["has_table"]):
            row = await connection.fetchrow(SQL["read_experiment"], experiment_id)
    if row is None:
        raise NotFoundError(
            f"no experiment {experiment_id!r} is on record: `odin chaos history` shows the ids",
            reason="NO_EXPERIMENT",
        )
    try:
        found = msgspec.json.decode(str(row["evidence"]), type=_Evidence)
    except msgspec.MsgspecError as error:
        raise FailedPreconditionError(
            f"the record of {experiment_id} cannot be read: {error}", reason="NOT_DRAWN"
        ) from error
    bits = [(one.fault, one.bit) for one in found.faults]
    return Result(
        experiment_id=experiment_id,
        scenario=str(row["scenario"]),
        seed=int(row["seed"]),
        started_at=row["started_at"].isoformat(timespec="milliseconds"),
        targets=found.targets,
        bites={name: bit for name, bit in bits if not name.startswith(_SEEN)},
        seen={name.removeprefix(_SEEN): bit for name, bit in bits if name.startswith(_SEEN)},
        claims=found.claims,
        is_steady_before=found.steady_before,
        recovered_seconds=found.recovered_seconds,
        counts=found.counts,
        wrong=found.wrong,
        reasons=found.reasons,
        verdict=found.own_verdict,
        checker=found.checker,
        draw=found.draw,
        replay_of=found.replay_of,
    )


def changed(
    then: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return in words which parameters of faults are not what they were."""
    return [
        f"{fault}: {name} was {then[fault].get(name)}, is {now.get(fault, {}).get(name)}"
        for fault in then
        for name in sorted({*then[fault], *now.get(fault, {})})
        if then[fault].get(name) != now.get(fault, {}).get(name)
    ]


def side_by_side(first: Result, second: Result) -> list[tuple[str, str, str]]:
    """Return the rows of a table of both: what is told, of the first, of the second."""
    told = [_told(first), _told(second)]
    return [(name, told[0][name], told[1][name]) for name in told[0]]


def _told(one: Result) -> dict[str, str]:
    counts = one.counts
    recovered = one.recovered_seconds
    return {
        "experiment": one.experiment_id,
        "verdict": one.verdict,
        "checker": one.checker or "-",
        "seed": str(one.seed),
        "struck": "; ".join(one.targets) or "nobody",
        "bit": "yes" if one.has_bitten else "NO",
        "starts": f"{counts['finished']}/{counts['started']}" if counts else "-",
        "stall": f"{counts['longest stall']} s" if counts else "-",
        "recovered": "-" if recovered is None else f"{recovered} s",
        "why": "; ".join([*one.wrong, *one.reasons])[:_WHY_MAX] or "-",
    }


_WHY_MAX: Final = 100
