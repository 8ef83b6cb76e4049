"""One loading of the author's code, with its worker, on a thread with an event loop of its own.

    start ──▶ import ──▶ (replay of open runs) ──▶ begin ──▶ work ──▶ stop ──▶ end
                 └─ failed ──▶ end

All methods are called on the session's thread; what is awaited happens on the generation's own.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from odin.errors import OdinError
from odin.worker import Worker

from .dev_replay import OpenRun, Stuck, stuck_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from odin.cli.authored import Found
    from odin.worker.options import WorkerFields

    from .dev_code import AuthoredCode

T = TypeVar("T")


class WorkerFailedError(OdinError):
    """A worker ended although nobody had told it to."""

    reason = "WORKER_FAILED"


class Generation:
    """A worker with the author's code as it was at one moment.

    Args:
        number: Counted from 1.
        code: Imports the modules.
        fields: Options of the worker that win over those that come with the code.

    Attributes:
        found: What the modules hold, once they are loaded.
    """

    def __init__(self, number: int, code: AuthoredCode, fields: WorkerFields) -> None:
        self.number = number
        self.found: Found | None = None
        self._code = code
        self._fields = fields
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = asyncio.Event()
        self._worker: Worker | None = None
        self._loaded: Future[None] = Future()
        self._over: Future[None] = Future()
        # A thread of the author's that never ends must not hold the process.
        self._thread = threading.Thread(target=self._main, name=f"worker-{number}", daemon=True)

    def start(self) -> None:
        """Begin to import the modules."""
        self._thread.start()

    async def loaded(self) -> None:
        """Wait until the modules are imported; a wait that is given up changes nothing.

        Raises:
            OdinError: They cannot be used; the message says where and why.
        """
        await asyncio.shield(asyncio.wrap_future(self._loaded))

    async def stuck(self, runs: Sequence[OpenRun], timeout_seconds: float) -> list[Stuck]:
        """Return which open runs cannot go on with this code; none if that takes too long."""
        found = self.found
        if found is None:
            return []

        async def replay() -> list[Stuck]:
            return await stuck_runs(runs, found)

        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._elsewhere(replay())
        except TimeoutError:
            return []

    def begin(self, address: str) -> None:
        """Let the worker begin: it links to the engine at `address` and takes tasks."""
        self._call(lambda: self._begin(address))

    @property
    def failure(self) -> BaseException | None:
        """Why the worker has ended by itself; None if it has not."""
        return self._over.exception() if self._over.done() else None

    @property
    def is_linked(self) -> bool:
        """Whether the worker is linked to the engine."""
        return self._worker is not None and self._worker.linked > 0

    def stop(self, *, force: bool = False) -> None:
        """Begin to stop: nothing stays warm; activities finish, or with `force` are cancelled."""
        self._call(lambda: self._stop(force=force))

    async def ended(self) -> None:
        """Wait for the end.

        Raises:
            WorkerFailedError: The worker failed.
        """
        await asyncio.shield(asyncio.wrap_future(self._over))

    # On its own thread.

    def _main(self) -> None:
        try:
            asyncio.run(self._life())
        except BaseException as error:  # noqa: BLE001 - the thread's last resort: the session is told
            failed = WorkerFailedError(f"the worker failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._over.set_exception(failed)
        else:
            self._over.set_result(None)

    async def _life(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self.found = self._code.load()
        except OdinError as error:
            self._loaded.set_exception(error)
            return
        except BaseException as error:
            self._loaded.set_exception(WorkerFailedError(repr(error)))
            raise
        self._loaded.set_result(None)
        await self._begun.wait()
        if self._worker is not None:
            await self._worker.run()

    def _begin(self, address: str) -> None:
        found = self.found
        if found is not None and self._worker is None:
            options: WorkerFields = {**found.options, **self._fields}
            self._worker = Worker(
                address, workflows=found.workflows, activities=found.activities, **options
            )
        self._begun.set()

    def _stop(self, *, force: bool) -> None:
        if self._worker is not None:
            self._worker.stop()
            if force:
                self._worker.stop()
        self._begun.set()

    # From one thread to the other.

    def _call(self, work: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # the loop is closed: the generation has ended
            return

    async def _elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "after load"  # noqa: S101 - for the type checker
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
