"""What goes wrong, and when: drawn from the seed, bounded, and all healed before the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from tests.simulation.broker import HOST as BROKER
from tests.simulation.broker import Mischief
from tests.simulation.store import Call
from tests.simulation.store import Fault as Break

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.world import World

Heal: TypeAlias = Callable[[], None]
Fault: TypeAlias = "Callable[[World, Random], tuple[str, Heal]]"
"""Begins at once; returns what it is and what ends it."""

SPAN_SECONDS: Final = (0.05, 14.0)
FIRST_SECONDS: Final = 0.5
DATABASE: Final = "db"
CALLS: Final = ("renew_lease", "commit_group", "commit_group", "acquire_shard", "release_shard")


def plan(
    world: World, kinds: list[str] | None = None, known: Mapping[str, Fault] | None = None
) -> list[str]:
    """Schedule the faults of the seed; return their names. Everything is healed in time.

    Args:
        world: Where they happen.
        kinds: Names to draw from; all of `KINDS` if not given.
        known: What the names stand for; `KINDS` if not given.
    """
    dice = world.loop.dice_for("faults")
    shape = world.shape
    drawn: list[str] = []
    for _ in range(dice.randint(1, shape.faults)):
        kind = dice.choice(kinds or _OFTEN)
        at = dice.uniform(FIRST_SECONDS, shape.fault_seconds - 1.0)
        span = min(_span(dice), shape.fault_seconds - at)
        world.healed_at = max(world.healed_at, at + span)
        drawn.append(f"{kind} at {at:.2f} for {span:.2f}")
        _schedule(world, (known or KINDS)[kind], Random(dice.getrandbits(64)), at, span)  # noqa: S311 - seeded dice
    return drawn


def _span(dice: Random) -> float:
    """Return how long a fault lasts: short ones as likely as long ones."""
    low, high = SPAN_SECONDS
    return float(low * (high / low) ** dice.random())


def _schedule(world: World, fault: Fault, dice: Random, at: float, span: float) -> None:
    def begin() -> None:
        name, heal = fault(world, dice)
        world.note("fault", name)

        def end() -> None:
            world.note("healed", name)
            heal()

        world.loop.call_later(span, end)

    world.loop.call_later(at, begin)


def nothing() -> None:
    """Heal what heals itself."""


# --- processes -----------------------------------------------------------------------------------


def crash(node: Node, dice: Random) -> tuple[str, Heal]:
    if not node.is_alive:
        return f"crash {node.host}: not alive", nothing
    silently = dice.random() < 0.3
    node.crash(silently=silently)
    return f"crash {node.host}{' silently' if silently else ''}", lambda: _revive(node)


def _revive(node: Node) -> None:
    if not node.is_alive:
        node.start()


def crash_engine(world: World, dice: Random) -> tuple[str, Heal]:
    """Kill an engine, and start it again."""
    return crash(dice.choice(world.engines), dice)


def crash_worker(world: World, dice: Random) -> tuple[str, Heal]:
    """Kill a worker, and start it again."""
    return crash(dice.choice(world.workers), dice)


def crash_all_engines(world: World, dice: Random) -> tuple[str, Heal]:
    """Kill all engines at once."""
    heals = [crash(engine, dice)[1] for engine in world.engines]
    return "crash all engines", lambda: _each(heals)


def stop_engine(world: World, dice: Random) -> tuple[str, Heal]:
    """Tell an engine to end in order, and start it again."""
    return stop(dice.choice(world.engines))


def stop_worker(world: World, dice: Random) -> tuple[str, Heal]:
    """Tell a worker to end in order, and start it again."""
    return stop(dice.choice(world.workers))


def stop(node: Node) -> tuple[str, Heal]:
    if not node.is_alive:
        return f"stop {node.host}: not alive", nothing
    node.ask_to_stop()

    def heal() -> None:
        if node.is_alive:
            node.crash()
        node.start()

    return f"stop {node.host}", heal


def freeze(node: Node) -> tuple[str, Heal]:
    process = node.process
    if process is None or not node.is_alive or process.is_frozen:
        return f"freeze {node.host}: not alive", nothing
    process.freeze()

    def heal() -> None:
        if process.is_alive:
            process.thaw()

    return f"freeze {process.name}", heal


def freeze_engine(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop an engine where it is, and let it go on."""
    return freeze(dice.choice(world.engines))


def freeze_worker(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop a worker where it is, and let it go on."""
    return freeze(dice.choice(world.workers))


# --- the network ---------------------------------------------------------------------------------


def _pair(world: World, dice: Random) -> tuple[str, str]:
    """Return two hosts that talk with each other."""
    engines = [node.host for node in world.engines]
    workers = [node.host for node in world.workers]
    engine = dice.choice(engines)
    others = [host for host in engines if host != engine]
    if dice.random() < 0.3:
        return dice.choice(engines + workers), BROKER
    return engine, dice.choice([*others, *workers, *workers, "c0", DATABASE, DATABASE])


def cut(world: World, dice: Random) -> tuple[str, Heal]:
    """Reset every connection between two hosts."""
    one, other = _pair(world, dice)
    if other == DATABASE:
        world.database.cut(one)
        return f"cut {one} {other}", nothing
    return f"cut {one} {other} ({world.network.cut(one, other)})", nothing


def blackhole(world: World, dice: Random) -> tuple[str, Heal]:
    """Let nothing through between two hosts, in both directions."""
    one, other = _pair(world, dice)
    return block(world, [(one, other), (other, one)])


def one_way(world: World, dice: Random) -> tuple[str, Heal]:
    """Let nothing through between two hosts in one direction."""
    pair = list(_pair(world, dice))
    dice.shuffle(pair)
    return block(world, [(pair[0], pair[1])])


def isolate_engine(world: World, dice: Random) -> tuple[str, Heal]:
    """Cut an engine off from everything but the database, or from the database alone."""
    me = dice.choice(world.engines).host
    if dice.random() < 0.4:
        return block(world, [(me, DATABASE), (DATABASE, me)])
    others = [node.host for node in world.nodes if node.host != me] + ["c0", BROKER]
    return block(world, [pair for other in others for pair in ((me, other), (other, me))])


def swizzle(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop some links, all at once; they come back in another order."""
    pairs = {_pair(world, dice) for _ in range(dice.randint(2, 6))}
    return block(world, [path for pair in sorted(pairs) for path in (pair, pair[::-1])])


def block(world: World, paths: list[tuple[str, str]]) -> tuple[str, Heal]:
    blocked = []
    for path in paths:
        if path not in world.network.blocked:
            world.network.block(*path)
            blocked.append(path)

    def heal() -> None:
        for path in blocked:
            world.network.unblock(*path)

    return "block " + ", ".join("→".join(path) for path in paths), heal


def slow(world: World, dice: Random) -> tuple[str, Heal]:
    """Make everything between two hosts slow."""
    one, other = _pair(world, dice)
    seconds = dice.choice((0.05, 0.3, 1.5))
    for path in ((one, other), (other, one)):
        world.network.slow[path] = seconds

    def heal() -> None:
        for path in ((one, other), (other, one)):
            world.network.slow.pop(path, None)

    return f"slow {one} {other} by {seconds}", heal


# --- the broker ----------------------------------------------------------------------------------


def broker_down(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop the broker, and start it again with what it held."""
    world.broker.stop()
    return "broker down", world.broker.start


def broker_forgets(world: World, dice: Random) -> tuple[str, Heal]:
    """Lose every message that waits."""
    return f"broker forgets {world.broker.lose_everything()}", nothing


def broker_mischief(world: World, dice: Random) -> tuple[str, Heal]:
    """Have the broker lose, repeat, reorder, return, and keep confirms."""
    odds = Mischief(*(dice.choice((0.0, 0.0, 0.1, 0.5)) for _ in range(7)))
    world.broker.mischief = odds

    def heal() -> None:
        if world.broker.mischief is odds:
            world.broker.mischief = Mischief()

    return f"broker mischief {odds}", heal


# --- the database and clocks ---------------------------------------------------------------------


def database_trouble(world: World, dice: Random) -> tuple[str, Heal]:
    """Have commits fail, time out, or go through unheard."""
    return world.database.trouble(dice)


def commits_in_doubt(world: World, dice: Random) -> tuple[str, Heal]:
    """Have one commit in some be lost, rolled back, late, or carried out without a word."""
    chance = dice.choice((0.1, 0.3, 0.6))
    kinds = [Break.LOST, Break.CUT, Break.LATE, Break.DIED, Break.SILENT, Break.DEADLOCK]

    def draw(call: Call) -> Break | None:
        if call.name != "commit_group" or dice.random() > chance:
            return None
        return dice.choice(kinds)

    world.database.plan = draw

    def heal() -> None:
        if world.database.plan is draw:
            world.database.plan = None

    return f"commits in doubt, {chance}", heal


def freeze_at_call(world: World, dice: Random) -> tuple[str, Heal]:
    """Stop an engine just as it has asked the database for something of one kind."""
    return _at_call(world, dice, freeze)


def crash_at_call(world: World, dice: Random) -> tuple[str, Heal]:
    """Kill an engine just as it has asked the database for something of one kind."""
    return _at_call(world, dice, lambda node: crash(node, dice))


def _at_call(
    world: World, dice: Random, befall: Callable[[Node], tuple[str, Heal]]
) -> tuple[str, Heal]:
    wanted = dice.choice(CALLS)
    database, heals = world.database, list[Heal]()
    if database.plan is not None:
        return f"at {wanted}: something else is planned", nothing

    def wait(call: Call) -> None:
        if call.name != wanted or database.plan is not wait:
            return
        database.plan = None
        host = call.backend.connection.host
        node = next(engine for engine in world.engines if engine.host == host)

        def now() -> None:
            what, heal = befall(node)
            world.note(f"at {wanted}:", what)
            heals.append(heal)

        world.loop.call_soon(now, context=world.network.context)

    def over() -> None:
        if database.plan is wait:
            database.plan = None
        _each(heals)

    database.plan = wait
    return f"something at {wanted}", over


def wall_step(world: World, dice: Random) -> tuple[str, Heal]:
    """Step the time of day on a node, and back."""
    host = dice.choice(world.nodes).host
    seconds = dice.uniform(-3_600.0, 3_600.0)
    world.clocks[host].step_wall(seconds)
    return f"wall step {host} {seconds:.0f}", lambda: world.clocks[host].step_wall(-seconds)


def database_clock_step(world: World, dice: Random) -> tuple[str, Heal]:
    """Step the database's clock: forward by less than a lease's margin, back by more."""
    seconds = dice.choice((dice.uniform(0.0, 0.7), -dice.uniform(0.0, 3.0)))
    world.database.clock.step(seconds)
    world.stepped_back_us += max(0, int(-seconds * 1_000_000))
    return f"database clock step {seconds:.2f}", nothing


def _each(heals: list[Heal]) -> None:
    for heal in heals:
        heal()


KINDS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        crash_engine, crash_worker, crash_all_engines, stop_engine, stop_worker, freeze_engine,
        freeze_worker, cut, blackhole, one_way, isolate_engine, swizzle, slow, broker_down,
        broker_forgets, broker_mischief, database_trouble, commits_in_doubt, wall_step,
        database_clock_step, freeze_at_call, crash_at_call,
    )
}  # fmt: skip
_OFTEN: Final = sorted(KINDS) + 3 * ["commits_in_doubt", "freeze_at_call", "crash_at_call"]
