"""Faults that aim: each makes the moment in which one guard counts. Mutations name them.

They are not drawn from unless they are named: what they do happens by itself too, but rarely.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.faults import DATABASE, KINDS, Fault, Heal, block, freeze, nothing, stop
from tests.simulation.loop import START_SECONDS
from tests.simulation.store import Call
from tests.simulation.store import Fault as Break

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.world import World

LOOK_SECONDS: Final = 0.01


def _after(world: World, seconds: float, heal: Heal) -> None:
    """Heal after this time, but never after the last of the faults."""
    ends = START_SECONDS + world.shape.fault_seconds
    world.loop.call_at(min(world.loop.time() + seconds, ends), heal)


def _planned(world: World, befall: Callable[[Call], Break | None]) -> Heal:
    """Decide what befalls calls to the database; return what ends it."""
    database = world.database
    database.plan = befall

    def heal() -> None:
        if database.plan is befall:
            database.plan = None

    return heal


def slow_commits(world: World, dice: Random) -> tuple[str, Heal]:
    """Have most commits answered late: groups gather meanwhile."""

    def befall(call: Call) -> Break | None:
        return Break.SLOW if call.name == "commit_group" and dice.random() < 0.7 else None

    return "slow commits", _planned(world, befall)


def commits_raise(world: World, dice: Random) -> tuple[str, Heal]:
    """Have most commits rolled back by an error that will pass."""
    kinds = [Break.DEADLOCK, Break.SERIALIZATION]

    def befall(call: Call) -> Break | None:
        return dice.choice(kinds) if call.name == "commit_group" and dice.random() < 0.6 else None

    return "commits raise", _planned(world, befall)


def gathering_in_doubt(world: World, dice: Random) -> tuple[str, Heal]:
    """Have commits be slow, raise or stay in doubt, so that more waits behind those."""
    kinds = [Break.SLOW, Break.SLOW, Break.DEADLOCK, Break.LOST, Break.LATE, Break.CUT]

    def befall(call: Call) -> Break | None:
        return dice.choice(kinds) if call.name == "commit_group" else None

    return "gathering in doubt", _planned(world, befall)


def freeze_over_lease(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop an engine until after its lease."""
    name, heal = freeze(dice.choice(world.engines))
    _after(world, dice.uniform(10.5, 16.0), heal)
    return f"{name} over its lease", nothing


def freeze_gathering(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop an engine over its lease while one group of it is under way and another gathers."""
    heals = [_planned(world, lambda call: Break.SLOW if call.name == "commit_group" else None)]
    is_over = False

    def look() -> None:
        if is_over:
            return
        for node in world.engines:
            if node.is_alive and _gathers(world, node):
                name, heal = freeze(node)
                world.note("gathering:", name)
                _after(world, dice.uniform(10.5, 16.0), heal)
                return
        world.loop.call_later(LOOK_SECONDS, look)

    def end() -> None:
        nonlocal is_over
        is_over = True
        heals[0]()

    look()
    return "freeze what gathers", end


def _gathers(world: World, node: Node) -> bool:
    parts = None if node.process is None else world.parts.get(node.process)
    if parts is None:
        return False
    return any(
        lane._in_flight is not None and any(one.group.events for one in lane._queue)  # noqa: SLF001 - looked into
        for lane in parts.lanes
    )


def late_renewal(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop an engine between a renewal and its reply, then keep it from the database."""
    if world.database.plan is not None:
        return "a late renewal: something else is planned", nothing
    node = dice.choice(world.engines)

    def befall(call: Call) -> Break | None:
        host = call.backend.connection.host
        if call.name == "renew_lease" and host == node.host and world.database.plan is befall:
            world.database.plan = None
            world.loop.call_soon(begin, context=world.network.context)
        return None

    def begin() -> None:
        name, thaw = freeze(node)
        world.note("at its renewal:", name)

        def go_on() -> None:
            what, heal = block(world, [(node.host, DATABASE), (DATABASE, node.host)])
            world.note(what)
            _after(world, 14.0, heal)
            thaw()

        _after(world, dice.uniform(3.0, 6.5), go_on)

    _planned(world, befall)
    return f"a late renewal of {node.host}", nothing


def starved_lease(world: World, dice: Random) -> tuple[str, Heal]:
    """Have an engine's renewals fail, and stop it over the end of its lease while groups gather."""
    if world.database.plan is not None:
        return "a starved lease: something else is planned", nothing
    node = dice.choice(world.engines)
    ends_at = world.loop.time() + 14.0
    heals: list[Heal] = []

    def befall(call: Call) -> Break | None:
        if call.backend.connection.host != node.host:
            return None
        is_late = call.name == "commit_group" and _lease_left(world, node) < 4.0
        return Break.LOST if call.name == "renew_lease" else Break.SLOW if is_late else None

    def look() -> None:
        left = _lease_left(world, node)
        if left < 2.6 and node.is_alive and _gathers(world, node):
            name, heal = freeze(node)
            world.note("gathering:", name)
            _after(world, left + dice.uniform(0.3, 1.0), heal)
            _after(world, left + 2.0, heals[0])
        elif world.loop.time() < ends_at:
            world.loop.call_later(LOOK_SECONDS, look)

    heals.append(_planned(world, befall))
    _after(world, 14.0, heals[0])
    look()
    return f"starve the lease of {node.host}", nothing


def _lease_left(world: World, node: Node) -> float:
    parts = None if node.process is None else world.parts.get(node.process)
    database = world.database
    row = None if parts is None else database.tables.node.get(parts.membership.incarnation)
    return 10.0 if row is None else (row.lease_until_us - database.clock.now_us()) / 1_000_000


def lose_database(world: World, dice: Random) -> tuple[str, Heal]:
    """Keep an engine from the database until after its lease."""
    host = dice.choice(world.engines).host
    name, heal = block(world, [(host, DATABASE), (DATABASE, host)])
    _after(world, dice.uniform(10.5, 16.0), heal)
    return name, nothing


def release_unheard(world: World, dice: Random) -> tuple[str, Heal]:
    """Have an engine end in order; the database's answers to its releases come late."""
    name, start = stop(dice.choice(world.engines))
    heal = _planned(world, lambda call: Break.SLOW if call.name == "release_shard" else None)

    def end() -> None:
        heal()
        start()

    return f"{name}, releases unheard", end


def deaf_worker(world: World, dice: Random) -> tuple[str, Heal]:
    """Let nothing through from a worker to the engines, or from the engines to a worker."""
    host = dice.choice(world.workers).host
    paths = [(host, engine.host) for engine in world.engines]
    if dice.random() < 0.3:
        paths = [path[::-1] for path in paths]
    name, heal = block(world, paths)
    _after(world, dice.uniform(2.0, 13.0), heal)
    return name, nothing


def pause_worker(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop a worker for a little longer than an attempt may take."""
    name, heal = freeze(dice.choice(world.workers))
    _after(world, dice.uniform(4.0, 7.0), heal)
    return name, nothing


def slow_services(world: World, dice: Random) -> tuple[str, Heal]:
    """Have services take as long as an attempt may, nearly."""
    world.ledger.pace = dice.uniform(3.0, 8.0)

    def heal() -> None:
        world.ledger.pace = 1.0

    return "slow services", heal


def short_cuts(world: World, dice: Random) -> tuple[str, Heal]:
    """Reset the links of workers again and again, each time for a moment."""
    is_over = False

    def again() -> None:
        if is_over:
            return
        engine, worker = dice.choice(world.engines), dice.choice(world.workers)
        world.network.cut(engine.host, worker.host)
        world.loop.call_later(dice.uniform(0.02, 0.4), again)

    def end() -> None:
        nonlocal is_over
        is_over = True

    again()
    return "short cuts", end


FOCUSED: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        slow_commits, commits_raise, gathering_in_doubt, freeze_over_lease, freeze_gathering,
        late_renewal, starved_lease, lose_database, release_unheard, deaf_worker, pause_worker,
        slow_services, short_cuts,
    )
}  # fmt: skip
ALL_KINDS: Final = KINDS | FOCUSED
