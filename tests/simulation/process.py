"""Simulated processes with a machine, a clock and dice of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clocks import SimClock
from tests.simulation.ids import SimIds
from tests.simulation.loop import PROCESS, Process

if TYPE_CHECKING:
    from tests.simulation.world import World


class HostProcess(Process):
    """One start of one program on one machine.

    Attributes:
        host: The machine, by which the network knows it.
        clock: The machine's clock; it outlives the process.
        ids: The process's own.
    """

    def __init__(self, world: World, host: str, number: int, clock: SimClock) -> None:
        super().__init__(world.loop, f"{host}.{number}")
        self.world = world
        self.host = host
        self.clock = clock
        self.ids = SimIds(world.loop, self.name, clock)


def here() -> HostProcess:
    """Return the process that runs."""
    process = PROCESS.get()
    assert isinstance(process, HostProcess), "this is for simulated processes"
    return process
