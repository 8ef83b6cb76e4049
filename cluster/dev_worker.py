"""The author's worker in `odin dev`: the present generation, and how the next takes its place."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import aiohttp
import asyncpg

from odin.core.definition import WorkflowDefinition
from odin.errors import OdinError, UnavailableError
from odin.runtime.clock import SystemClock, pause

from .dev_console import listed
from .dev_generation import Generation
from .dev_replay import open_runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from odin.cli.authored import Found
    from odin.worker.options import WorkerFields

    from .dev_code import AuthoredCode
    from .dev_console import Console, ConsoleHandler
    from .dev_options import DevOptions
    from .dev_replay import Stuck

LOOK_SECONDS: Final = 0.2
SETTLE_SECONDS: Final = 0.1
OLD_ACTIVITIES_SECONDS: Final = 60.0
REPLAY_SECONDS: Final = 10.0
SLOW_SECONDS: Final = 5.0
STUCK_SHOWN_MAX: Final = 10
_POLL_SECONDS: Final = 0.02
_OK: Final = 200
_RED: Final = "31"
_GREEN: Final = "32"
_YELLOW: Final = "33"

log = logging.getLogger(__name__)


class Hosted:
    """What the author's modules hold, hosted by one generation after another.

    Args:
        code: Imports the modules; None: there are none, and nothing is hosted.
        options: What the command was told.
        console: Where the author looks.
        shown: Shows the log; it is told when the code is another one.
    """

    def __init__(
        self,
        code: AuthoredCode | None,
        options: DevOptions,
        console: Console,
        shown: ConsoleHandler,
    ) -> None:
        self._code = code
        self._options = options
        self._console = console
        self._shown = shown
        self._clock = SystemClock()
        self._address = ""
        self._dsn = ""
        self._count = 0
        self._present: Generation | None = None
        self._told: Generation | None = None
        self._earlier: list[Generation] = []

    @property
    def found(self) -> Found | None:
        """What is hosted at present."""
        return None if self._present is None else self._present.found

    async def load_first(self) -> None:
        """Import the modules for the first time.

        A module that fails is shown, and tried again when it changes.

        Raises:
            ModuleMissingError: There is no such module or object.
        """
        if self._code is None:
            return
        generation = self._next()
        try:
            await self._loaded(generation)
        except OdinError as error:
            if error.reason == "MODULE_NOT_FOUND" or not self._options.reload:
                raise
            self._tell_failed(error)
        else:
            self._present = generation

    async def begin(
        self, address: str, dsn: str, stop: asyncio.Event, timeout_seconds: float
    ) -> None:
        """Return once the engine is ready and the worker, if there is one, is linked to it.

        Raises:
            UnavailableError: The time is up.
        """
        self._address, self._dsn = address, dsn
        until = self._clock.boottime() + timeout_seconds
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while not stop.is_set() and not await self._is_ready(session):
                if self._clock.boottime() > until:
                    raise UnavailableError(f"the engine was not ready in {timeout_seconds:.0f} s")
                await pause(self._clock, stop, _POLL_SECONDS)
        if self._present is not None and not stop.is_set():
            self._present.begin(address)
            while not self._present.is_linked and self._clock.boottime() < until:
                if await pause(self._clock, stop, _POLL_SECONDS):
                    return

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self._address}/v1/ready") as answer:
                return answer.status == _OK
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def run(self, stop: asyncio.Event) -> None:
        """Load changed code and swap the workers, until `stop` is set."""
        code = self._code
        if code is None or not self._options.reload:
            await stop.wait()
            return
        while not await pause(self._clock, stop, LOOK_SECONDS):
            self._tell_worker_failed()
            if not (changed := code.changed()):
                continue
            while not await pause(self._clock, stop, SETTLE_SECONDS) and (more := code.changed()):
                changed += more
            if not stop.is_set():
                await self._swap(changed)

    async def _swap(self, changed: Sequence[Path]) -> None:
        names = listed(dict.fromkeys(path.name for path in changed))
        generation = self._next()
        try:
            await self._loaded(generation)
        except OdinError as error:
            self._tell_failed(error)
            return
        stuck = await self._stuck(generation)
        old, self._present = self._present, generation
        if old is not None:
            old.stop()  # lets go of its warm runs at once; its activities may finish
            self._earlier = [*self._earlier, old]
        self._shown.forget()
        generation.begin(self._address)
        found = generation.found
        held = "" if found is None else listed([*found.workflow_names(), *found.activity_names()])
        self._console.event(f"{names} changed: now running {held}", _GREEN)
        self.tell_warnings()
        self._tell_stuck(stuck)

    async def _loaded(self, generation: Generation) -> None:
        """Wait for the import, and say so if it takes long; it is the author's code that does."""
        generation.start()
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await generation.loaded()
        except TimeoutError:
            self._console.event(f"still importing {listed(self._options.targets)} ...")
            await generation.loaded()

    async def _stuck(self, generation: Generation) -> list[Stuck]:
        found = generation.found
        queue = "default" if found is None else found.options.get("task_queue", "default")
        try:
            runs = await open_runs(self._dsn, self._options.namespace, queue)
        except (OSError, asyncpg.PostgresError) as error:
            log.info("open runs were not looked through", extra={"detail": str(error)})
            return []
        return await generation.stuck(runs, REPLAY_SECONDS)

    async def end(self, timeout_seconds: float) -> None:
        """Stop every generation that still works, and wait for the ends."""
        working = [*self._earlier, *([] if self._present is None else [self._present])]
        for generation in working:
            generation.stop(force=True)
        try:
            async with asyncio.timeout(timeout_seconds):
                for generation in working:
                    await generation.ended()
        except TimeoutError:
            log.warning("a worker did not end in time")
        except Exception as error:  # noqa: BLE001 - it ends either way
            log.warning("a worker failed", extra={"detail": str(error)})

    def _next(self) -> Generation:
        assert self._code is not None, "there are modules"  # noqa: S101 - for the type checker
        self._count += 1
        fields: WorkerFields = {
            "broker": "embedded",
            "identity": f"dev-{self._count}",
            "namespace": self._options.namespace,
            "token": self._options.token,
            "graceful_shutdown_timeout": timedelta(seconds=OLD_ACTIVITIES_SECONDS),
        }
        return Generation(self._count, self._code, fields)

    def tell_warnings(self) -> None:
        """Show what the workflows hold that often is not meant."""
        for workflow in self.found.workflows if self.found is not None else ():
            definition = WorkflowDefinition.of(workflow)
            for warning in definition.warnings:
                self._console.event(f"{definition.name}: {warning}", _YELLOW)

    def _tell_worker_failed(self) -> None:
        present = self._present
        if present is not None and present is not self._told and present.failure is not None:
            self._told = present
            self._console.event(f"{present.failure}\nwaiting for a change", _RED)

    def _tell_failed(self, error: OdinError) -> None:
        after = "the old code goes on" if self._present is not None else "waiting for a change"
        self._console.event(f"{error}\n{after}", _RED)

    def _tell_stuck(self, stuck: Sequence[Stuck]) -> None:
        if not stuck:
            return
        lines = [f"{len(stuck)} open run(s) cannot go on with this code:"]
        for one in stuck[:STUCK_SHOWN_MAX]:
            lines.append(f"{one.workflow_id} ({one.workflow_type})")
            lines += [f"  {line}" for line in one.message.splitlines()]
            if one.source:
                lines.append(f"  {self._console.place(one.source)}")
        self._console.event("\n".join(lines), _RED)
