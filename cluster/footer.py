"""What the user sees: lines that stay, and below them, at a terminal, a footer that lives.

Without a terminal every line is a plain one, and the footer is printed now and then as a line. A
terminal may go away at any time (its window is closed): then nothing is shown any more, and the
cluster goes on to its orderly end.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from odin.runtime.clock import Clock

    from .figures import Figures
    from .state import PartState

PLAIN_SECONDS: Final = 5.0
LIVE_SECONDS: Final = 1.0
STALE_SHOWN_MAX: Final = 4
WORDS_SHOWN_MAX: Final = 90
UNKNOWN: Final = "?"


class Screen(Protocol):
    """Where lines and the footer go."""

    footer_seconds: float

    def line(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def footer(self, figures: Figures, parts: Sequence[PartState]) -> None:
        """Show the present numbers."""
        ...

    def close(self) -> None:
        """Leave the footer as it is and show no more of it."""
        ...


class PlainScreen:
    """Lines with the seconds since the start, for logs and pipes."""

    footer_seconds = PLAIN_SECONDS

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._began = clock.boottime()
        self._stream = stream or sys.stdout

    def line(self, text: str) -> None:
        """Print the line at once."""
        seconds = self._clock.boottime() - self._began
        try:
            self._stream.write(f"[{seconds:6.1f} s] {text}\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more
            silence(self._stream)

    def footer(self, figures: Figures, parts: Sequence[PartState]) -> None:
        """Print the numbers as a line."""
        self.line(" ".join([summary(figures, parts), *remarks(figures, parts)]))

    def close(self) -> None:
        """Do nothing: there is no footer."""


class LiveScreen:
    """A footer that is drawn anew in place, lines above it."""

    footer_seconds = LIVE_SECONDS

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        self._clock = clock
        self._began = clock.boottime()
        self._console = console or Console(highlight=False)
        self._live: Live | None = None
        self._gone = False

    def line(self, text: str) -> None:
        """Print the line above the footer."""
        seconds = self._clock.boottime() - self._began
        head = Text(f"{seconds:6.1f} s ", style="dim")
        style = "bold red" if text.startswith("FAILED") else "yellow" if "NOTICE" in text else ""
        whole = Text.assemble(head, (text, style))
        self._draw(lambda: self._console.print(whole, soft_wrap=True))

    def footer(self, figures: Figures, parts: Sequence[PartState]) -> None:
        """Draw the numbers."""
        seconds = self._clock.boottime() - self._began
        text = Text.assemble(
            (f"{minutes(seconds)} ", "dim"),
            styled(figures, parts),
            *((f"\n      {remark}", "yellow") for remark in remarks(figures, parts)),
            ("\n      Ctrl-C ends it", "dim"),
        )

        def draw() -> None:
            if self._live is None:
                # Its own thread would write to a terminal that has gone, and nobody could tell.
                self._live = Live(console=self._console, auto_refresh=False, transient=False)
                self._live.start()
            self._live.update(text, refresh=True)

        self._draw(draw)

    def close(self) -> None:
        """Stop drawing."""
        live, self._live = self._live, None
        if live is not None:
            self._draw(live.stop)

    def _draw(self, what: Callable[[], None]) -> None:
        if self._gone:
            return
        try:
            what()
        except (OSError, ValueError):  # the terminal has gone
            self._gone = True
            silence(sys.stdout)


def screen_for(clock: Clock) -> Screen:
    """Return the screen that fits standard output."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveScreen(clock)
    return PlainScreen(clock)


def silence(stream: TextIO) -> None:
    """Send what is still written to `stream` nowhere: the interpreter flushes it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def silence_terminal() -> None:
    """Write nothing more to a terminal that has been closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            silence(stream)


def summary(figures: Figures, parts: Sequence[PartState]) -> str:
    """Return the numbers as one line."""
    engines = [one.phase == "running" for one in parts if one.kind == "engine"]
    shards = "/".join(_number(one) for one in figures.shards.values())
    return (
        f"engines {sum(engines)}/{len(engines)} | shards {shards}"
        f" | in flight {_number(figures.in_flight)}"
        f" | finished {_number(figures.finished)}/min | refused {_number(figures.refused)}"
        f" | charged twice: {figures.charged_twice}"
    )


def styled(figures: Figures, parts: Sequence[PartState]) -> Text:
    """Return the numbers for a terminal."""
    text = Text(summary(figures, parts))
    text.highlight_regex(r"(?<= )[\d/?]+(?=(/min)?( \||$))", "bold cyan")
    right = "bold white on red" if figures.charged_twice else "bold green"
    text.highlight_regex(r"charged twice: \d+", right)
    return text


def remarks(figures: Figures, parts: Sequence[PartState]) -> list[str]:
    """Return what the user should know beside the numbers."""
    found = []
    if not figures.postgres_answers:
        found.append("(Postgres does not answer)")
    if not figures.telemetry_answers:
        found.append("(Valkey does not answer: shards and refused are not known)")
    elif figures.stale:
        names = ", ".join(figures.stale[:STALE_SHOWN_MAX])
        more = "" if len(figures.stale) <= STALE_SHOWN_MAX else ", …"
        found.append(f"(no fresh telemetry of {names}{more})")
    ended = (described(one) for one in parts if one.phase in {"waiting", "refused"})
    found += [f"({shortened(one)})" for one in ended]
    return found


def described(part: PartState) -> str:
    """Return what happened to a part that does not run, in one line."""
    words = f": {part.last_line}" if part.last_line else ""
    if part.phase == "refused":
        return f"{part.name} refused to start{words}"
    return f"{part.name} ended{ending(part.exit_code)}{words}"


def shortened(text: str) -> str:
    """Return the text, cut to what a footer has room for."""
    return text if len(text) <= WORDS_SHOWN_MAX else f"{text[:WORDS_SHOWN_MAX]}…"


def ending(code: int | None) -> str:
    """Return an exit code in words."""
    if code is None:
        return ""
    return f" by signal {-code}" if code < 0 else f" with code {code}"


def minutes(seconds: float) -> str:
    """Return a span as mm:ss."""
    whole, rest = divmod(int(seconds), 60)
    return f"{whole:02}:{rest:02}"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
