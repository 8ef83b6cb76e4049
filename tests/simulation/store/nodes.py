"""Statements on `node`, `shard`, `shard_term` and `cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .statements import SHARED, Context, Lock, Row, Statement, Write, error, lease_is_over
from .tables import DeadLetterRow, NodeRow, ShardRow, TermRow

if TYPE_CHECKING:
    from .tables import Tables

HEIR_GRACE_US: Final = 3_000_000


def _create_cluster(context: Context) -> tuple[list[Row], list[Write]]:
    tables, (shard_count, mode) = context.tables, context.arguments
    if tables.cluster is not None:
        return [tables.cluster], []

    def write(_txid: int) -> None:
        tables.cluster = (shard_count, mode)
        tables.shard = {number: ShardRow(number) for number in range(shard_count)}

    return [(shard_count, mode)], [write]


def _register_node(context: Context) -> tuple[list[Row], list[Write]]:
    incarnation, node_id, address, lease_us = context.arguments
    tables, now = context.tables, context.now_us
    if any(row.node_id == node_id and row.state != "dead" for row in tables.node.values()):
        return [], []
    if incarnation in tables.node:
        raise error("23505", "duplicate key value violates node_pkey")
    row = NodeRow(incarnation, node_id, address, "alive", now + lease_us, now)

    def write(_txid: int) -> None:
        tables.node[incarnation] = row

    return [(now, now + lease_us)], [write]


def _node_id_holder(context: Context) -> tuple[list[Row], list[Write]]:
    (node_id,) = context.arguments
    return [
        (row.incarnation, context.now_us, row.lease_until_us)
        for row in context.tables.node.values()
        if row.node_id == node_id and row.state != "dead"
    ], []


def _own_node(context: Context) -> list[Lock]:
    return [Lock(("node", context.arguments[0]))]


def _renew_lease(context: Context) -> tuple[list[Row], list[Write]]:
    incarnation, lease_us = context.arguments
    now = context.now_us
    row = context.tables.node.get(incarnation)
    if row is None or row.state == "dead" or lease_is_over(row.lease_until_us, now):
        return [], []
    return [(now, now + lease_us)], [_setting(row, lease_until_us=now + lease_us)]


def _setting(row: Any, **values: object) -> Write:  # noqa: ANN401 - a row of any table
    def write(_txid: int) -> None:
        for name, value in values.items():
            setattr(row, name, value)

    return write


def _expired(context: Context) -> list[NodeRow]:
    return [
        context.tables.node[incarnation]
        for incarnation in sorted(context.tables.node)
        if context.tables.node[incarnation].state != "dead"
        and lease_is_over(context.tables.node[incarnation].lease_until_us, context.now_us)
    ]


def _mark_dead_expired(context: Context) -> tuple[list[Row], list[Write]]:
    rows = [row for row in _expired(context) if ("node", row.incarnation) in context.held]

    def write(_txid: int) -> None:
        for row in rows:
            row.state = "dead"

    return [(row.incarnation,) for row in rows], [write] if rows else []


def _set_state(
    context: Context, before: tuple[str, ...], state: str
) -> tuple[list[Row], list[Write]]:
    row = context.tables.node.get(context.arguments[0])
    if row is None or row.state not in before:
        return [], []
    return [(row.incarnation,)], [_setting(row, state=state)]


def _forgettable(context: Context) -> list[NodeRow]:
    (after_us,) = context.arguments
    named = {one for row in context.tables.shard.values() for one in (row.owner, row.heir)}
    return [
        row
        for row in context.tables.node.values()
        if row.state == "dead"
        and row.lease_until_us < context.now_us - after_us
        and row.incarnation not in named
    ]


def _forget_nodes(context: Context) -> tuple[list[Row], list[Write]]:
    rows = _forgettable(context)

    def write(_txid: int) -> None:
        for row in rows:
            context.tables.node.pop(row.incarnation, None)

    return [(row.incarnation,) for row in rows], [write] if rows else []


def _term(context: Context, row: TermRow) -> Write:
    """Return the write of a `shard_term` row; its txid is known as it commits."""

    def write(txid: int) -> None:
        stamped = TermRow(
            row.shard_id, row.range_id, row.happening, row.incarnation, row.node_id, row.at_us, txid
        )
        context.tables.shard_term[row.shard_id, row.range_id, row.happening] = stamped

    return write


def _is_dead(tables: Tables, incarnation: str | None) -> bool:
    row = None if incarnation is None else tables.node.get(incarnation)
    return row is not None and row.state == "dead"


def _is_takeable(shard: ShardRow, me: str, context: Context, *, holds_term: bool) -> bool:
    tables = context.tables
    if shard.owner is None:
        return (
            shard.heir is None
            or shard.heir == me
            or shard.released_us is None
            or shard.released_us <= context.now_us - HEIR_GRACE_US
            or _is_dead(tables, shard.heir)
        )
    return (shard.owner == me and not holds_term) or _is_dead(tables, shard.owner)


def _acquire_shard(context: Context) -> tuple[list[Row], list[Write]]:
    shard_id, me, holds_term = context.arguments
    tables, now = context.tables, context.now_us
    shard, own = tables.shard.get(shard_id), tables.node.get(me)
    if (
        shard is None
        or own is None
        or own.state != "alive"
        or lease_is_over(own.lease_until_us, now)
        or not _is_takeable(shard, me, context, holds_term=holds_term)
    ):
        return [(None,)], []
    before, after = shard.range_id, shard.range_id + 1
    writes: list[Write] = [_setting(shard, owner=me, range_id=after, heir=None, released_us=None)]
    if (shard_id, before, "released") not in tables.shard_term:
        for begun in ("acquired", "bumped"):
            ended = tables.shard_term.get((shard_id, before, begun))
            if ended is not None:
                over = TermRow(
                    shard_id, before, "expired", ended.incarnation, ended.node_id, now, 0
                )
                writes.append(_term(context, over))
    writes.append(_term(context, TermRow(shard_id, after, "acquired", me, own.node_id, now, 0)))
    return [(after,)], writes


def _bumpable(context: Context) -> list[int]:
    me, shard_ids, ranges = context.arguments
    wanted = dict(zip(shard_ids, ranges, strict=True))
    return [
        shard_id
        for shard_id in sorted(wanted)
        if (row := context.tables.shard.get(shard_id)) is not None
        and (row.owner, row.range_id) == (me, wanted[shard_id])
    ]


def _node_id(tables: Tables, incarnation: str) -> str:
    row = tables.node.get(incarnation)
    return "" if row is None else row.node_id


def _bump_shards(context: Context) -> tuple[list[Row], list[Write]]:
    me, tables = context.arguments[0], context.tables
    rows: list[Row] = []
    writes: list[Write] = []
    for shard_id in _bumpable(context):
        if ("shard", shard_id) not in context.held:
            continue  # it did not match when the statement began
        shard = tables.shard[shard_id]
        after = shard.range_id + 1
        rows.append((shard_id, after))
        writes.append(_setting(shard, range_id=after))
        bumped = TermRow(shard_id, after, "bumped", me, _node_id(tables, me), context.now_us, 0)
        writes.append(_term(context, bumped))
    return rows, writes


def _releasable(context: Context) -> ShardRow | None:
    shard_id, me, range_id, _heir = context.arguments
    row = context.tables.shard.get(shard_id)
    return row if row is not None and (row.owner, row.range_id) == (me, range_id) else None


def _release_shard(context: Context) -> tuple[list[Row], list[Write]]:
    shard_id, me, range_id, heir = context.arguments
    shard, now = _releasable(context), context.now_us
    if shard is None or ("shard", shard_id) not in context.held:
        return [], []
    ended = TermRow(shard_id, range_id, "released", me, _node_id(context.tables, me), now, 0)
    return [(shard_id,)], [
        _setting(shard, owner=None, heir=heir, released_us=now),
        _term(context, ended),
    ]


def _share_lock_term(context: Context) -> tuple[list[Row], list[Write]]:
    shard_id, me, range_id = context.arguments
    row = context.tables.shard.get(shard_id)
    held = row is not None and (row.owner, row.range_id) == (me, range_id)
    return ([(True,)] if held and ("shard", shard_id) in context.held else []), []


def _term_lock(context: Context) -> list[Lock]:
    shard_id, me, range_id = context.arguments
    row = context.tables.shard.get(shard_id)
    matches = row is not None and (row.owner, row.range_id) == (me, range_id)
    return [Lock(("shard", shard_id), SHARED)] if matches else []


def _cluster_view(context: Context) -> tuple[list[Row], list[Write]]:
    nodes = [context.tables.node[key] for key in sorted(context.tables.node)]
    shards = [context.tables.shard[key] for key in sorted(context.tables.shard)]
    return [
        (
            context.now_us,
            [row.incarnation for row in nodes],
            [row.node_id for row in nodes],
            [row.state for row in nodes],
            [row.lease_until_us for row in nodes],
            [row.address for row in nodes],
            [row.shard_id for row in shards],
            [row.owner for row in shards],
            [row.heir for row in shards],
            [row.released_us for row in shards],
            [row.range_id for row in shards],
        )
    ], []


def _end_blocking_backends(context: Context) -> tuple[list[Row], list[Write]]:
    pid, incarnation = context.arguments
    mine = _node_id(context.tables, incarnation)
    ended = []
    for backend in context.backends.blocking(pid):
        theirs = context.tables.node.get(backend.incarnation)
        if theirs is not None and (theirs.state == "dead" or theirs.node_id == mine):
            backend.terminate()
            ended.append((backend.pid,))
    return ended, []


def _record_dead_letters(context: Context) -> tuple[list[Row], list[Write]]:
    *columns, reason = context.arguments
    rows = [
        DeadLetterRow(shard_id, kind, run_id, number, attempt, reason)
        for shard_id, kind, run_id, number, attempt in zip(*columns, strict=True)
    ]
    return [], [lambda _txid: context.tables.dead_letter.extend(rows)]


STATEMENTS: Final[dict[str, Statement]] = {
    "create_cluster": Statement(_create_cluster, lambda _context: [Lock("cluster")]),
    "register_node": Statement(
        _register_node, lambda context: [Lock(("node_id", context.arguments[1]))]
    ),
    "node_id_holder": Statement(_node_id_holder, reads_only=True),
    "renew_lease": Statement(_renew_lease, _own_node),
    "mark_dead_expired": Statement(
        _mark_dead_expired,
        lambda context: [Lock(("node", row.incarnation), skip=True) for row in _expired(context)],
    ),
    "set_draining": Statement(
        lambda context: _set_state(context, ("alive",), "draining"), _own_node
    ),
    "set_dead": Statement(
        lambda context: _set_state(context, ("alive", "draining"), "dead"), _own_node
    ),
    "forget_nodes": Statement(
        _forget_nodes,
        lambda context: [Lock(("node", row.incarnation)) for row in _forgettable(context)],
    ),
    "acquire_shard": Statement(
        _acquire_shard, lambda context: [Lock(("shard", context.arguments[0]))]
    ),
    "bump_shards": Statement(
        _bump_shards,
        lambda context: [Lock(("shard", shard_id)) for shard_id in _bumpable(context)],
    ),
    "release_shard": Statement(
        _release_shard,
        lambda context: (
            [Lock(("shard", context.arguments[0]))] if _releasable(context) is not None else []
        ),
    ),
    "share_lock_term": Statement(_share_lock_term, _term_lock),
    "cluster_view": Statement(_cluster_view, reads_only=True),
    "end_blocking_backends": Statement(_end_blocking_backends, reads_only=True),
    "record_dead_letters": Statement(_record_dead_letters),
}
