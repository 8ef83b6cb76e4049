"""`odin up`, `down`, `ps`, `logs`, `demo`, `break`, `heal`: the local cluster by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from odin.cli.shared import current
from odin.errors import InvalidArgumentError
from odin.runtime.settings import load

from . import detached, logview, status
from .options import DemoSettings, Options
from .place import Place

# A demo of fewer seconds has no time for an experiment.
SHORT_DEMO = 300.0
Folder = Annotated[
    Path | None, typer.Option("--folder", help="Its data and logs; ODIN_FOLDER, else .odin.")
]


def up(  # noqa: PLR0913 - one argument per option
    *,
    engines: Annotated[int, typer.Option(help="How many engines.")] = 3,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 3,
    rate: Annotated[
        float, typer.Option("--load", help="Orders per second of a synthetic load; 0: none.")
    ] = 0.0,
    mocks: Annotated[bool, typer.Option(help="Run the mock services.")] = True,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running and return.")
    ] = False,
    proxies: Annotated[
        bool,
        typer.Option(envvar="ODIN_PROXIES", help="A proxy in every link, for `odin break cut`."),
    ] = False,
    folder: Folder = None,
) -> int:
    """Start a local cluster: servers, engines, mock services, workers.

    Examples: `odin up`, `odin up -d --engines 5`, `odin up --load 5`.
    """
    options = Options(
        engines=engines, workers=workers, load_rate=rate, mocks=mocks, proxies=proxies
    )
    place = Place.of(folder)
    if detach:
        return detached.start(options, place)
    return _attended(options, place)


def down(folder: Folder = None) -> int:
    """Stop the local cluster, and whatever a killed one has left running."""
    return detached.stop(Place.of(folder))


def ps(folder: Folder = None) -> int:
    """Show the local cluster's processes.

    Exit code 0 if it runs, 1 if it does not.
    """
    return status.show(Place.of(folder), as_json=current().as_json)


def logs(
    *,
    part: Annotated[
        str, typer.Argument(help="engine-1, worker-2, payments, postgres, …; all if none is named.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last lines of each part.")] = 50,
    folder: Folder = None,
) -> int:
    """Show the local cluster's logs, in order of time."""
    shown = logview.Wanted(part=part, follow=follow, count=lines, as_json=current().as_json)
    return logview.show(Place.of(folder), shown)


def demo(
    engines: Annotated[int, typer.Option(help="How many engines.")] = 3,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 3,
    folder: Folder = None,
) -> int:
    """Run the demo: three engines, three workers, mock services, five orders a second.

    ODIN_DEMO_SECONDS ends the load after that long, and verifies what became of it: exit code 0 if
    every accepted order finished in order and was charged once, else 1. ODIN_LOAD_RATE: the rate.
    Every ten minutes something is broken on purpose (`odin chaos history`), unless ODIN_CHAOS=0.
    """
    settings = load(DemoSettings)
    options = Options(
        engines=engines,
        workers=workers,
        load_rate=settings.load_rate,
        proxies=settings.proxies,
        chaos=settings.chaos and (not settings.demo_seconds or settings.demo_seconds > SHORT_DEMO),
    )
    place = Place.of(folder)
    if not settings.demo_seconds:
        return _attended(options, place)
    from .demo import Timed  # noqa: PLC0415 - see _attended
    from .session import run_session  # noqa: PLC0415 - see _attended

    options = replace(options, seconds=settings.demo_seconds)
    return run_session(options, place, Timed(settings.demo_seconds, place.client_log))


def _attended(options: Options, place: Place) -> int:
    """Run a cluster until it is told to stop."""
    # Slow to import, with Postgres, aiohttp and all: `ps` and `logs` do without.
    from .demo import attend  # noqa: PLC0415 - see above
    from .session import run_session  # noqa: PLC0415 - see above

    return run_session(options, place, attend)


class Verb(StrEnum):
    """What `odin break` can do."""

    KILL = "kill"
    RESTART = "restart"
    FREEZE = "freeze"
    THAW = "thaw"
    CUT = "cut"
    SLOW = "slow"
    ALARM = "alarm"
    DISCONNECT = "disconnect"


def break_things(  # noqa: PLR0913 - one argument per option
    *,
    verb: Annotated[
        Verb | None,
        typer.Argument(help="kill, restart, freeze, thaw, cut, slow, alarm or disconnect."),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Argument(help="engine-1, worker-2, engines, workers, postgres, rabbitmq, valkey, …"),
    ] = None,
    to: Annotated[str, typer.Option(help="The link to this dependency alone.")] = "",
    from_: Annotated[str, typer.Option("--from", help="The link from this part alone.")] = "",
    for_: Annotated[str, typer.Option("--for", help="How long: 15, 15s or 500ms.")] = "30s",
    how: Annotated[
        str,
        typer.Option(
            help="Of cut: blackhole, refuse, reset, half-open, cut-after, freeze-before or "
            "freeze-after a pattern."
        ),
    ] = "blackhole",
    direction: Annotated[str, typer.Option(help="up (part to dependency), down or both.")] = "both",
    after: Annotated[str, typer.Option(help="The pattern: a literal text in the stream.")] = "",
    statement: Annotated[
        str, typer.Option(help="The pattern: a text in the Postgres statement that is executed.")
    ] = "",
    always: Annotated[bool, typer.Option(help="At every match, not only the first.")] = False,
    delay: Annotated[str, typer.Option(help="Of slow: a delay each way.")] = "",
    jitter: Annotated[str, typer.Option(help="Of slow: up to this much more.")] = "",
    rate: Annotated[float, typer.Option(help="Of slow: bytes per second.")] = 0.0,
    listed: Annotated[bool, typer.Option("--list", help="Show what is broken.")] = False,
    folder: Folder = None,
) -> int:
    r"""Break a part of the local cluster on purpose, for a bounded time.

    \b
      odin break kill engine-2                    SIGKILL; it is started again
      odin break freeze worker-1 --for 15s        SIGSTOP, then SIGCONT
      odin break cut engine-1 --to postgres       nothing passes, nobody is told
      odin break cut engine-1 --to postgres --how cut-after --statement commit_group
      odin break slow engines --to postgres --delay 300ms --jitter 100ms
      odin break alarm rabbitmq                   its memory alarm: it takes no message
      odin break --list

    Everything heals by itself after --for, or by `odin heal`, `odin down` and the next `odin up`.
    cut and slow need a cluster with proxies: `odin up --proxies`.
    """
    from .break_command import Wish, run  # noqa: PLC0415 - see _attended

    wish = Wish(
        verb="list" if listed or verb is None else verb.value,
        parts=parts or [],
        to=to,
        from_=from_,
        seconds=span_of(for_),
        how=how,
        direction=direction,
        pattern=after or statement,
        is_statement=bool(statement),
        is_once=not always,
        delay_seconds=span_of(delay),
        jitter_seconds=span_of(jitter),
        bytes_per_second=rate,
    )
    return run(Place.of(folder), wish, as_json=current().as_json)


def heal(
    parts: Annotated[list[str] | None, typer.Argument(help="Only what concerns these.")] = None,
    folder: Folder = None,
) -> int:
    """Heal what `odin break` has broken: all of it, or what concerns the named parts."""
    from .break_command import heal as heal_now  # noqa: PLC0415 - see _attended

    return heal_now(Place.of(folder), parts or [], as_json=current().as_json)


def span_of(text: str) -> float:
    """Return seconds of "15", "15s", "500ms" or "2m"; 0 for an empty text.

    Raises:
        InvalidArgumentError: it is not a span.
    """
    if not text:
        return 0.0
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", text)
    if found is None:
        raise InvalidArgumentError(f"{text!r} is not a time: write 15, 15s, 500ms or 2m")
    return float(found[1]) * units[found[2]]
