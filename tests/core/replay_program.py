"""A workflow that runs any small program, and prints what became of it when it is run as a script.

The program is data: nested lists of steps. Its result is the trace of all that happened, so that
any difference in order shows in the bytes of the result.
"""

# ruff: noqa: ANN401, ARG002, N818, S311 - an author's code: any value, dice

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

from odin import workflow
from odin.exceptions import ActivityError

Program = list[Any]


class _Stop(Exception):
    pass


@workflow.defn
class Machine:
    @workflow.init
    def __init__(self, program: Program) -> None:
        self.trace: list[Any] = []
        self.signals = 0
        self.lock = asyncio.Lock()
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.semaphore = asyncio.Semaphore(2)
        self.changed = asyncio.Condition()

    @workflow.run
    async def run(self, program: Program) -> list[Any]:
        try:
            await self.do(program)
        except asyncio.CancelledError:
            self.trace.append("cancelled")
            await workflow.execute_activity("clean-up")
        return self.trace

    @workflow.signal
    def poke(self, value: int) -> None:
        self.signals += 1
        self.queue.put_nowait(value)
        self.trace.append(["poke", value])

    @workflow.signal
    async def slow_poke(self, value: int) -> None:
        async with self.changed:
            self.signals += 1
            self.changed.notify_all()
        self.trace.append(["slow", value, await self.activity("slow")])

    async def activity(self, name: str) -> Any:
        try:
            return await workflow.execute_activity(name)
        except ActivityError as error:
            return f"failed: {error.cause}"

    async def do(self, step: Program) -> Any:
        kind, *rest = step
        result = await getattr(self, "do_" + kind)(*rest)
        self.trace.append([kind, result])
        return result

    async def do_activity(self, name: str) -> Any:
        return await self.activity(name)

    async def do_sleep(self, ms: int) -> float:
        await asyncio.sleep(ms / 1000)
        return workflow.random().random()

    async def do_all(self, *steps: Program) -> Any:
        return await asyncio.gather(*(self.do(step) for step in steps))

    async def do_group(self, *steps: Program) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.do(step)) for step in steps]
        return [task.result() for task in tasks]

    async def do_breaking_group(self, *steps: Program) -> str:
        async def breaks() -> None:
            await self.activity("breaks")
            raise _Stop

        try:
            async with asyncio.TaskGroup() as group:
                for step in steps:
                    group.create_task(self.do(step))
                group.create_task(breaks())
        except* _Stop:
            pass
        return "broke"

    async def do_race(self, *steps: Program) -> list[Any]:
        tasks = [asyncio.create_task(self.do(step)) for step in steps]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        return [task.result() for task in done]

    async def do_ordered(self, *steps: Program) -> list[Any]:
        return [await each for each in workflow.as_completed([self.do(step) for step in steps])]

    async def do_completed(self, *steps: Program) -> list[Any]:
        tasks = [asyncio.create_task(self.do(step)) for step in steps]
        await asyncio.sleep(0)
        return [await each for each in asyncio.as_completed(tasks)]

    async def do_within(self, ms: int, step: Program) -> Any:
        try:
            return await asyncio.wait_for(self.do(step), ms / 1000)
        except TimeoutError:
            return "late"

    async def do_until(self, ms: int, step: Program) -> Any:
        try:
            async with asyncio.timeout(ms / 1000):
                return await self.do(step)
        except TimeoutError:
            return "late"

    async def do_shield(self, ms: int, step: Program) -> Any:
        inner = asyncio.create_task(self.do(step))
        try:
            return await asyncio.wait_for(asyncio.shield(inner), ms / 1000)
        except TimeoutError:
            return ["late", await inner]

    async def do_signals(self, count: int) -> int:
        await workflow.wait_condition(lambda: self.signals >= count)
        return self.signals

    async def do_locked(self, step: Program) -> Any:
        async with self.lock, self.semaphore:
            return await self.do(step)

    async def do_take(self, ms: int) -> Any:
        try:
            async with asyncio.timeout(ms / 1000):
                return await self.queue.get()
        except TimeoutError:
            return None

    async def do_steps(self, *steps: Program) -> list[Any]:
        return [await self.do(step) for step in steps]


EVERYTHING: Program = [
    "steps",
    ["all", ["activity", "a"], ["sleep", 5], ["activity", "b"]],
    ["group", ["activity", "c"], ["locked", ["activity", "d"]], ["locked", ["sleep", 3]]],
    ["breaking_group", *(["activity", f"e{at}"] for at in range(9))],
    ["race", *(["activity", f"f{at}"] for at in range(9))],
    ["ordered", *(["activity", f"g{at}"] for at in range(6))],
    ["completed", *(["steps"] for _ in range(9))],
    ["within", 50, ["all", ["activity", "h"], ["sleep", 10]]],
    ["until", 1, ["sleep", 100]],
    ["shield", 1, ["activity", "i"]],
    ["signals", 1],
    ["take", 5],
]


def main() -> None:
    """Run EVERYTHING in an order given by a seed, on a heap that is another one each time."""
    from odin.core.commands import ScheduleActivity
    from tests.core.replay_owner import Owner

    noise = [object() for _ in range(int.from_bytes(random.SystemRandom().randbytes(2), "big"))]
    heap = [{str(at): at} for at in noise[::7]]
    order = random.Random(int(sys.argv[1]))
    owner = Owner(Machine, EVERYTHING)
    while owner.closing is None:
        owner.step()
        if owner.activities:
            for at in order.sample(sorted(owner.activities), min(2, len(owner.activities))):
                owner.complete(at, at)
        elif owner.timers:
            owner.fire(order.choice(sorted(owner.timers)))
        elif owner.closing is None:
            owner.signal("poke", 1)
    lines = [
        f"{c.command_id} {c.activity_type}" if isinstance(c, ScheduleActivity) else repr(c)
        for outcome in owner.outcomes
        for c in outcome.commands
    ]
    owner.check_replay()
    sys.stdout.write(json.dumps([lines, owner.result, len(heap) > 0]))


if __name__ == "__main__":
    main()
