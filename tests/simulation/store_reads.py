"""Reads of the store for the differential test, and what retention deletes."""

from __future__ import annotations

from uuid import UUID

from engine.store.values import ExecutionFilter, Lookup
from odin.core.wire import TaskEntry

from .store_calls import OFFSETS, Numbers, owner_of, terms_of
from .store_scene import SECOND_US, SHARDS, Scene


def delete_closed(scene: Scene, numbers: Numbers) -> None:
    shard_ids = sorted({numbers.below(SHARDS) for _ in range(1 + numbers.below(2))})
    limit = 1 + numbers.below(3)
    who = owner_of(scene, numbers, shard_ids[0])
    terms = terms_of(scene, numbers, set(shard_ids))
    before_us = scene.began_us - (0, 0, 2, 40)[numbers.below(4)] * 3_600 * SECOND_US
    scene.call(
        "delete_closed",
        who,
        lambda store: store.delete_closed(terms, before_us=before_us, limit=limit),
    )


def dead_letters(scene: Scene, numbers: Numbers) -> None:
    entries = [
        TaskEntry("w", numbers.below(SHARDS), 1, f"run-{number}", number, 1)
        for number in range(numbers.below(3))
    ]
    scene.call("dead letters", 0, lambda store: store.record_dead_letters(entries, "expired"))


def read_runs(scene: Scene, numbers: Numbers) -> None:
    tables = scene.model.database.tables
    shard_id, workflow_id, run_id = numbers.below(SHARDS), f"order-{numbers.below(2)}", "none"
    if tables.execution:
        row = list(tables.execution.values())[numbers.below(len(tables.execution))]
        shard_id, workflow_id, run_id = row.shard_id, row.workflow_id, row.run_id
    size, after = numbers.below(12), numbers.below(3)
    request_id = f"request-{numbers.below(scene.made + 1)}"
    if tables.request and numbers.below(2):
        known = list(tables.request.values())[numbers.below(len(tables.request))]
        shard_id, workflow_id, request_id = known.shard_id, known.workflow_id, known.request_id
    runs = [(shard_id, run_id), (shard_id, str(UUID(int=9))), (0, run_id)]
    lookups = [
        Lookup(shard_id, "default", workflow_id, None, request_id),
        Lookup(shard_id, "default", workflow_id, run_id, ""),
        Lookup(shard_id, "other", workflow_id, None, request_id),
    ]
    for what, ask in {
        "load_execution": lambda store: store.load_execution(shard_id, run_id),
        "load_many": lambda store: store.load_many(runs),
        "load_open": lambda store: store.load_open(shard_id, "default", workflow_id),
        "load_latest": lambda store: store.load_latest(shard_id, "default", workflow_id),
        "load_request": lambda store: store.load_request(
            shard_id, "default", workflow_id, request_id
        ),
        "lookup_many": lambda store: store.lookup_many(lookups),
        "events": lambda store: store.events(
            shard_id, run_id, after=after, upto=4, limit=3, bytes_max=size
        ),
        "newest first": lambda store: store.events_newest_first(
            shard_id, run_id, before=5 - after, limit=2, bytes_max=size
        ),
        "describe": lambda store: store.describe(shard_id, "default", workflow_id, run_id),
    }.items():
        scene.call(what, 0, ask)


def read_work(scene: Scene, numbers: Numbers) -> None:
    shard_ids = sorted({numbers.below(SHARDS) for _ in range(3)})
    us = scene.began_us + OFFSETS[numbers.below(len(OFFSETS))] * SECOND_US + SECOND_US // 2
    limit, after = 1 + numbers.below(4), str(UUID(int=numbers.below(9) << 64))
    wanted = ExecutionFilter(
        status=(None, "running", "completed")[numbers.below(3)],
        workflow_type=(None, "order")[numbers.below(2)],
        origin=(None, "visitors")[numbers.below(2)],
        started_before_us=(None, scene.began_us + SECOND_US)[numbers.below(2)],
    )
    for what, ask in {
        "due_before": lambda store: store.due_before(shard_ids, us, limit),
        "due_before, later": lambda store: store.due_before(
            shard_ids, us, limit, after=(scene.began_us + 30 * SECOND_US, after)
        ),
        "scheduled_tasks": lambda store: store.scheduled_tasks(shard_ids[0], limit=limit),
        "scheduled_tasks, later": lambda store: store.scheduled_tasks(shard_ids[0], after=after),
        "outbox_due": lambda store: store.outbox_due(shard_ids, us, limit),
        "outbox_all": lambda store: store.outbox_all(shard_ids[0], after=limit, limit=limit),
        "list": lambda store: store.list_executions(wanted, limit=limit),
        "list, later": lambda store: store.list_executions(
            before=(scene.began_us + SECOND_US, after), limit=limit
        ),
        "open_counts": lambda store: store.open_counts(),
        "outbox_counts": lambda store: store.outbox_counts(),
        "cluster_view": lambda store: store.cluster_view(),
    }.items():
        scene.call(what, 1, ask)
