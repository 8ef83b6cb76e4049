"""`python -m cluster.load`: the demo's synthetic load, open-loop: it does not slow with the system.

Orders start at a fixed rate, whatever became of the earlier ones; a few subscriptions run beside.
What became of every start stands in the client log. After ODIN_DEMO_SECONDS the load ends by
itself: the starts under way get their answers, and the subscriptions are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from odin.client import Client
from odin.errors import (
    OdinError,
    OutcomeUnknownError,
    ResourceExhaustedError,
    UnavailableError,
)
from odin.runtime.clock import SystemClock, pause
from odin.runtime.ids import SystemIds
from odin.runtime.service import run, serve
from odin.runtime.settings import load

from .client_log import ClientLog
from .client_log_feed import feeding
from .load_settings import LoadSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odin.runtime.clock import Clock
    from odin.runtime.ids import Ids

RUN_TIMEOUT: Final = timedelta(minutes=5)
DRAIN_TIMEOUT: Final = timedelta(seconds=3)
ASKED_AGAIN_COUNT: Final = 4
REPORT_SECONDS: Final = 10.0
SKU_COUNT: Final = 20
LATEST_SECONDS: Final = 1.0
FAREWELL_SECONDS: Final = 2.0
OBSERVED_MAX: Final = 50

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Load:
    """The generator; one instance per run.

    Attributes:
        settings: What and how much.
        client: Reaches any engine, and asks another when one does not answer.
        client_log: Where outcomes are written.
        clock: Paces the starts.
        ids: Makes request ids.
        counts: accepted, refused, unknown, left_out.
    """

    settings: LoadSettings
    client: Client
    client_log: ClientLog
    clock: Clock
    ids: Ids
    counts: Counter[str] = field(default_factory=Counter)
    _run: str = field(init=False)
    _dice: random.Random = field(init=False)
    _under_way: int = field(default=0, init=False)
    _subscriptions: list[str] = field(default_factory=list, init=False)
    _observed: deque[str] = field(default_factory=lambda: deque(maxlen=OBSERVED_MAX), init=False)

    def __post_init__(self) -> None:
        """Choose the name of this run."""
        self._run = self.settings.load_run or self.ids.claim_token()[:8]
        self._dice = random.Random(self.settings.load_seed)  # noqa: S311 - what is bought, no secret

    async def __call__(self, stop: asyncio.Event) -> None:
        """Generate until the time is over or `stop` is set; sets `stop` when it is done itself."""
        log.info("load begins", extra={"run": self._run, "rate": self.settings.load_rate})
        try:
            async with asyncio.timeout(None) as deadline:
                async with asyncio.TaskGroup() as group:
                    for number in range(self.settings.load_subscriptions):
                        group.create_task(self._subscribe(number), name=f"subscribe {number}")
                    await self._pace(stop, group)
                    if stop.is_set():  # told to stop: nobody waits for late answers
                        soon = asyncio.get_running_loop().time() + FAREWELL_SECONDS
                        deadline.reschedule(soon)
                await self._cancel_subscriptions()
                await self._observe_again()
        except TimeoutError:
            log.warning("left before every call was answered", extra={"run": self._run})
        self._report()
        log.info("load ends", extra={"run": self._run})
        stop.set()

    async def _pace(self, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
        """Start order n at its own instant; one that is late by more than a second is left out."""
        interval = 1.0 / self.settings.load_rate
        begin = self.clock.boottime()
        end = begin + self.settings.demo_seconds if self.settings.demo_seconds else None
        reported, number = begin, 0
        while not stop.is_set():
            due = begin + number * interval
            if end is not None and due >= end:
                break
            now = self.clock.boottime()
            if due > now and await pause(self.clock, stop, due - now):
                break
            late = now - due > LATEST_SECONDS
            if late or self._under_way >= self.settings.load_concurrency:
                self.counts["left_out"] += 1
            else:
                self._under_way += 1
                group.create_task(self._order(number), name=f"order {number}")
            number += 1
            if now - reported >= REPORT_SECONDS:
                reported = now
                self._report()

    async def _order(self, number: int) -> None:
        workflow_id = f"order-{self._run}-{number}"
        declines = self._dice.random() < self.settings.load_decline_share
        purchase = {
            "order_id": workflow_id,
            "sku": f"sku-{self._dice.randrange(SKU_COUNT):02d}",
            "quantity": self._dice.randint(1, 3),
            "amount_cents": self._dice.randint(500, 20_000),
            "card": f"{'declined' if declines else 'card'}-{number % 1_000}",
            "limit_seconds": self.settings.load_order_limit_seconds,
        }
        try:
            await self._start("Order", workflow_id, purchase, RUN_TIMEOUT)
            every = self.settings.load_observe_every
            if every and number % every == 0:
                await self._observe(workflow_id)
                self._observed.append(workflow_id)
        finally:
            self._under_way -= 1

    async def _subscribe(self, number: int) -> None:
        workflow_id = f"subscription-{self._run}-{number}"
        plan = {
            "period_seconds": self.settings.load_period_seconds,
            "amount_cents": 499,
            "card": f"card-{number}",
        }
        self._subscriptions.append(workflow_id)
        await self._start("subscription", workflow_id, plan, None)

    async def _start(
        self,
        workflow_type: str,
        workflow_id: str,
        argument: dict[str, Any],
        limit: timedelta | None,
    ) -> None:
        request_id = self.ids.request_id()

        async def start() -> str:
            handle = await self.client.start_workflow(
                workflow_type,
                argument,
                id=workflow_id,
                run_timeout=limit,
                request_id=request_id,
                origin=self.settings.load_origin,
            )
            return handle.first_run_id or ""

        await self._told(
            start,
            call="start",
            workflow_id=workflow_id,
            workflow_type=workflow_type,
            request_id=request_id,
            amount_cents=int(argument["amount_cents"]),
        )

    async def _cancel_subscriptions(self) -> None:
        async with asyncio.TaskGroup() as group:
            for workflow_id in self._subscriptions:
                group.create_task(self._cancel(workflow_id), name=f"cancel {workflow_id}")

    async def _cancel(self, workflow_id: str) -> None:
        request_id = self.ids.request_id()
        handle = self.client.get_workflow_handle(workflow_id)

        async def cancel() -> str:
            await handle.cancel(reason="the demo is over", request_id=request_id)
            return ""

        await self._told(cancel, call="cancel", workflow_id=workflow_id, request_id=request_id)

    async def _observe_again(self) -> None:
        async with asyncio.TaskGroup() as group:
            for workflow_id in self._observed:
                group.create_task(self._observe(workflow_id), name=f"observe {workflow_id}")

    async def _observe(self, workflow_id: str) -> None:
        """Ask how a run stands, and write down the answer; a call that fails says nothing."""
        fields = {
            "call": "describe",
            "workflow_id": workflow_id,
            "request_id": self.ids.request_id(),
        }
        self.client_log.write("invoke", **fields)
        try:
            seen = await self.client.get_workflow_handle(workflow_id).describe()
        except OdinError as error:
            self.client_log.write("unknown", reason=error.reason, **fields)
        else:
            self.client_log.write("ok", run_id=seen.run_id, status=seen.status, **fields)

    async def _told(self, attempt: Callable[[], Awaitable[str]], **fields: Any) -> None:  # noqa: ANN401 - of the log
        """Make one call to its end, under the same request id, and write down what became of it.

        Once a copy's fate was unknown, a later refusal is no proof that nothing happened.
        """
        self.client_log.write("invoke", **fields)
        unknown, last = False, UnavailableError("never asked")
        for _ in range(ASKED_AGAIN_COUNT):
            try:
                run_id = await attempt()
            except UnavailableError as error:
                unknown, last = unknown or isinstance(error, OutcomeUnknownError), error
                continue
            except OdinError as error:
                if unknown:
                    break
                limited = isinstance(error, ResourceExhaustedError)
                self.counts["refused" if limited else "failed"] += 1
                wait_ms = round((error.retry_after or 0) * 1_000)
                self.client_log.write("fail", reason=error.reason, retry_after_ms=wait_ms, **fields)
                return
            self.counts["accepted" if fields["call"] == "start" else "cancelled"] += 1
            self.client_log.write("ok", run_id=run_id, **fields)
            return
        if not unknown:
            self.counts["failed"] += 1
            self.client_log.write("fail", reason=last.reason, **fields)
            return
        self.counts["unknown"] += 1
        self.client_log.write("unknown", reason="OUTCOME_UNKNOWN", **fields)

    def _report(self) -> None:
        log.info("load", extra={"under_way": self._under_way, **self.counts})


async def main() -> None:
    """Run the generator as a process.

    Raises:
        ConfigurationError: a setting is missing or wrong.
    """
    settings = load(LoadSettings)
    clock = SystemClock()
    ids = SystemIds(clock)
    dsn = settings.postgres_dsn.get_secret_value() if settings.postgres_dsn else ""
    client_name = f"load-{ids.claim_token()[:12]}"
    token = settings.api_token.get_secret_value() if settings.api_token else None
    with ClientLog(settings.client_log, clock) as client_log:
        async with (
            feeding(dsn, client_log, client_name, clock),
            Client([settings.engines], api_key=token, identity="load") as client,
        ):
            generator = Load(settings, client, client_log, clock, ids)
            await serve({"load": generator}, DRAIN_TIMEOUT)


if __name__ == "__main__":
    run(main, service="load")
