"""Calls of the store for the differential test, each made from a few small numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from engine.store import EventWrite, Group, OutboxDelay, OutboxInsert, RequestWrite, Store
from odin.core.events import HistoryEvent
from odin.core.execution import Execution, WorkflowTask

from .store_scene import INCARNATIONS, LEASE_US, NODE_IDS, SECOND_US, SHARDS, Scene, now_us

if TYPE_CHECKING:
    from .store.tables import ExecutionRow

OFFSETS: Final = (-20, 30, 100, 200, 1_000, 90_000)
"""When something is due, in seconds from the beginning; far from every boundary."""
_HOURS: Final = (1, 3, 30, 50)
"""How long ago a run has closed."""


class Numbers:
    """Dice for what a call is made of."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)  # noqa: S311 - repeatable on purpose

    def below(self, limit: int) -> int:
        """Return a number below `limit`."""
        return self._dice.randrange(limit)

    def mostly(self, value: int) -> int:
        """Return `value`, or once in a while its neighbour."""
        return value + (self._dice.choice((1, -1)) if self.below(24) == 0 else 0)

    def one_of(self, names: tuple[str, ...]) -> str:
        """Return one of the names."""
        return self._dice.choice(names)


# --- nodes ----------------------------------------------------------------------------------------


def register(scene: Scene, numbers: Numbers) -> None:
    who = numbers.below(3)
    scene.call(
        "register_node",
        who,
        lambda store: store.register_node(
            INCARNATIONS[who], NODE_IDS[who], f"http://{who}", lease_us=LEASE_US
        ),
    )


def renew(scene: Scene, numbers: Numbers) -> None:
    who = numbers.below(3)
    scene.call("renew", who, lambda store: store.renew(INCARNATIONS[who], lease_us=LEASE_US))


def expire(scene: Scene, numbers: Numbers) -> None:
    who, seconds = numbers.below(3), (-2, 60)[numbers.below(2)]
    lease_until_us = now_us() // SECOND_US * SECOND_US + seconds * SECOND_US
    scene.real.set_lease(INCARNATIONS[who], lease_until_us)
    scene.model.set_lease(INCARNATIONS[who], lease_until_us)


def mark_dead(scene: Scene, numbers: Numbers) -> None:
    scene.call("mark_dead_expired", numbers.below(3), _sorted)


async def _sorted(store: Any) -> list[str]:  # noqa: ANN401 - a store
    return sorted(await store.mark_dead_expired())


def leave(scene: Scene, numbers: Numbers) -> None:
    who, is_last = numbers.below(3), numbers.below(2)
    if is_last:
        scene.call("set_dead", who, lambda store: store.set_dead(INCARNATIONS[who]))
    else:
        scene.call("set_draining", who, lambda store: store.set_draining(INCARNATIONS[who]))


def forget(scene: Scene, numbers: Numbers) -> None:
    after_us = (0, 3_600 * SECOND_US)[numbers.below(2)]

    async def ask(store: Any) -> list[str]:  # noqa: ANN401 - a store
        return sorted(await store.forget_nodes(after_us=after_us))

    scene.call("forget_nodes", numbers.below(3), ask)


# --- shards ---------------------------------------------------------------------------------------


def acquire(scene: Scene, numbers: Numbers) -> None:
    who, shard_id, holds_term = numbers.below(3), numbers.below(SHARDS), numbers.below(2) == 1
    scene.call(
        "acquire",
        who,
        lambda store: store.acquire(shard_id, INCARNATIONS[who], holds_term=holds_term),
    )


async def _acquire(shard_id: int, incarnation: str, store: Store) -> int | None:
    return await store.acquire(shard_id, incarnation, holds_term=True)


def take_all(scene: Scene, numbers: Numbers) -> None:
    """Make the usual case usual: a node that lives and owns every shard that it may take."""
    if numbers.below(2):
        mark_dead(scene, numbers)
    who = numbers.below(3)
    scene.call(
        "register_node",
        who,
        lambda store: store.register_node(
            INCARNATIONS[who], NODE_IDS[who], f"http://{who}", lease_us=LEASE_US
        ),
    )
    for shard_id, row in scene.model.database.tables.shard.items():
        if row.owner == INCARNATIONS[who]:
            continue
        scene.call(
            "acquire",
            who,
            partial(_acquire, shard_id, INCARNATIONS[who]),
        )


def terms_of(scene: Scene, numbers: Numbers, shard_ids: set[int]) -> dict[int, int]:
    """Return the ranges of shards, now and then a wrong one."""
    shards = scene.model.database.tables.shard
    return {one: max(0, numbers.mostly(shards[one].range_id)) for one in sorted(shard_ids)}


def owner_of(scene: Scene, numbers: Numbers, shard_id: int) -> int:
    """Return who owns a shard, now and then somebody else."""
    owner = scene.model.database.tables.shard[shard_id].owner
    who = INCARNATIONS.index(owner) if owner is not None else 0
    return numbers.mostly(who) % 3


def bump(scene: Scene, numbers: Numbers) -> None:
    shard_ids = {numbers.below(SHARDS) for _ in range(1 + numbers.below(3))}
    who = owner_of(scene, numbers, min(shard_ids))
    terms = terms_of(scene, numbers, shard_ids)
    scene.call("bump", who, lambda store: store.bump(INCARNATIONS[who], terms))


def release(scene: Scene, numbers: Numbers) -> None:
    shard_id = numbers.below(SHARDS)
    who = owner_of(scene, numbers, shard_id)
    range_id = terms_of(scene, numbers, {shard_id})[shard_id]
    heir = (*INCARNATIONS, None)[numbers.below(4)]
    scene.call(
        "release",
        who,
        lambda store: store.release(shard_id, INCARNATIONS[who], range_id, heir=heir),
    )


def wait_for_heir(scene: Scene, numbers: Numbers) -> None:
    shard_id = numbers.below(SHARDS)
    released_us = now_us() // SECOND_US * SECOND_US - 10 * SECOND_US
    scene.real.set_released(shard_id, released_us)
    scene.model.set_released(shard_id, released_us)


# --- groups ---------------------------------------------------------------------------------------


def commit(scene: Scene, numbers: Numbers) -> None:
    """Commit a group of one to three changes in one or more shards."""
    first = numbers.below(SHARDS)
    who = owner_of(scene, numbers, first)
    group = Group(INCARNATIONS[who])
    shard_ids = [(first + offset * numbers.below(2)) % SHARDS for offset in range(3)]
    for shard_id in shard_ids[: 1 + numbers.below(3)]:
        _CHANGES[numbers.below(len(_CHANGES))](scene, numbers, group, shard_id)
    group.terms = terms_of(scene, numbers, {first, *shard_ids})
    scene.call("commit", who, lambda store: store.commit(group))


def _start(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    scene.made += 1
    run_id = str(UUID(int=scene.made << 64 | 0x7000 << 48 | 0b10 << 62 | scene.made))
    started_us = scene.began_us + (scene.made % 3) * SECOND_US
    execution = Execution(
        shard_id=shard_id,
        namespace="default",
        workflow_id=f"order-{numbers.below(2) if numbers.below(10) == 0 else scene.made}",
        run_id=run_id,
        first_run_id=run_id,
        workflow_type=("order", "refund")[numbers.below(2)],
        task_queue="default",
        origin=("", "visitors")[scene.made % 2],
        next_event_id=2,
        state_token=scene.made,
        started_us=started_us,
        last_event_us=started_us,
        workflow_task=_task(scene, numbers),
        memo=(None, b"\x80")[numbers.below(2)],
    )
    group.inserts[run_id] = execution
    _append(scene, group, execution)


def _task(scene: Scene, numbers: Numbers) -> WorkflowTask:
    due_us = scene.began_us + OFFSETS[numbers.below(len(OFFSETS))] * SECOND_US
    states: tuple[Literal["scheduled", "backoff", "none"], ...] = ("scheduled", "backoff", "none")
    return WorkflowTask(states[numbers.below(3)], 1, 1, due_us)


def _append(scene: Scene, group: Group, execution: Execution, event_id: int = 0) -> None:
    event_id = event_id or execution.next_event_id - 1
    event = HistoryEvent(
        event_id, "timer_fired", scene.began_us + event_id, b"x" * (scene.made % 7)
    )
    group.events.append(EventWrite(execution.shard_id, execution.run_id, event))


def _some_run(scene: Scene, numbers: Numbers, shard_id: int) -> ExecutionRow | None:
    """Return a run of the shard, an open one if there is one and chance wants it."""
    tables = scene.model.database.tables
    rows = [row for row in tables.execution.values() if row.shard_id == shard_id]
    still_open = [row for row in rows if row.status == "running"]
    chosen = still_open if still_open and numbers.below(8) else rows
    return chosen[numbers.below(len(chosen))] if chosen else None


def _image(scene: Scene, numbers: Numbers, row: ExecutionRow) -> Execution:
    closed = numbers.below(4) == 0
    closed_us = scene.began_us - _HOURS[numbers.below(4)] * 3_600 * SECOND_US
    return Execution(
        shard_id=row.shard_id,
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        first_run_id=row.first_run_id,
        workflow_type=row.workflow_type,
        task_queue=row.task_queue,
        status="completed" if closed else "running",
        closed_us=closed_us if closed else None,
        next_event_id=row.next_event_id + 1,
        state_token=row.state_token + 1,
        started_us=row.started_us,
        last_event_us=row.last_event_us,
        signal_count=row.signal_count + numbers.below(2),
        workflow_task=WorkflowTask() if closed else _task(scene, numbers),
    )


def _step(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    """Write the next image of a run; now and then one that is too old, or an event twice."""
    row = _some_run(scene, numbers, shard_id)
    if row is None or row.run_id in group.updates:
        _start(scene, numbers, group, shard_id)
        return
    execution = _image(scene, numbers, row)
    mistake = numbers.below(24)
    if mistake == 1:
        execution.next_event_id = max(2, row.next_event_id - 1)
    elif mistake == 3:
        execution.closed_us, execution.status = scene.began_us, "running"
    group.updates[execution.run_id] = execution
    _append(scene, group, execution, 1 if mistake == 2 else 0)


def _restart(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    """Close a run and begin the next one of its workflow id in the same group."""
    row = _some_run(scene, numbers, shard_id)
    _start(scene, numbers, group, shard_id)
    if row is None or row.run_id in group.updates:
        return
    execution = _image(scene, numbers, row)
    execution.status, execution.workflow_task = "continued_as_new", WorkflowTask()
    execution.closed_us = scene.began_us
    group.updates[row.run_id] = execution
    (*_, begun) = group.inserts.values()
    begun.workflow_id = row.workflow_id
    _append(scene, group, execution)


def _missing(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    """Write an image of a run that has no row, or only events."""
    _start(scene, numbers, group, shard_id)
    if numbers.below(2):
        run_id, execution = group.inserts.popitem()
        if numbers.below(2):
            group.updates[run_id] = execution


def _outbox(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    """Insert, delete and delay rows of the outbox, some of which are not there."""
    tables, delays = scene.model.database.tables, group.outbox_delays
    for number in range(numbers.below(4)):
        destination = ("w:default", "a:slow", "shard:1")[numbers.below(8) % 3]
        group.outbox.append(OutboxInsert(shard_id, destination, bytes([number])))
    known = [outbox_id for shard, outbox_id in tables.outbox if shard == shard_id]
    for outbox_id in [*known[: numbers.below(3)], numbers.below(5)]:
        group.outbox_deletes.append((shard_id, outbox_id))
    for outbox_id in [*known[2 : 2 + numbers.below(3)], numbers.below(5), *known[2:3]]:
        due_us = scene.began_us + OFFSETS[numbers.below(4)] * SECOND_US
        delays.append(OutboxDelay(shard_id, outbox_id, numbers.below(4), due_us))


def _requests(scene: Scene, numbers: Numbers, group: Group, shard_id: int) -> None:
    """Record what was acknowledged; now and then something that was recorded before."""
    scene.made += 1
    row = _some_run(scene, numbers, shard_id)
    request_id = f"request-{scene.made - numbers.below(24) // 23}"
    run_id = "00000000-0000-7000-8000-000000000001"
    group.requests.append(
        RequestWrite(
            shard_id,
            "default",
            "order-0" if row is None else row.workflow_id,
            request_id,
            "signal",
            run_id,
            numbers.below(9),
            b"hash",
        )
    )


Change = Callable[[Scene, Numbers, Group, int], None]
_CHANGES: Final[list[Change]] = [
    *(_start,) * 3, *(_step,) * 8, *(_restart,) * 2, *(_outbox,) * 6, *(_requests,) * 4, _missing,
]  # fmt: skip
