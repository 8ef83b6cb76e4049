"""Everything that judges rows, in one object: fed from a snapshot, or from rows held in memory.

Pure: the same rows lead to the same findings, whoever feeds them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from odin.proof.judge import CHAIN_RULES, RUN_RULES, judge_chain, judge_run
from odin.proof.rows import Chain, ExecutionRow, RunRows

from .invariants.circumstances import Admission
from .invariants.conservation import Conservation
from .invariants.liveness import Liveness
from .invariants.outbox import Outbox
from .invariants.outcomes import FrozenOutcomes, Observations
from .invariants.signals import Signals
from .invariants.starts import Starts
from .invariants.tally import Tally
from .invariants.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odin.proof.findings import Finding

    from .invariants.rows import Moment, Told

OF_RUNS: Final = tuple(name for name, _ in (*RUN_RULES, *CHAIN_RULES))
NO_RUNS: Final = "no run in the window"


class Judges:
    """All accumulators of one pass.

    Attributes:
        runs: The rules over one run or one chain, by invariant.
    """

    def __init__(self, moment: Moment, kept_us: int = 0) -> None:
        """Begin.

        Args:
            moment: When the rows were read.
            kept_us: Runs that were asked for before this may be gone by retention.
        """
        self.runs = {name: Tally(name, NO_RUNS, idle_is_unknown=True) for name in OF_RUNS}
        self.terms = Terms()
        self.starts = Starts(kept_us)
        self.signals = Signals()
        self.liveness = Liveness(moment)
        self.conservation = Conservation()
        self.outbox = Outbox(moment)
        self.outcomes = FrozenOutcomes()
        self.observations = Observations()
        self.admission = Admission()
        self._chain: list[RunRows] = []

    def add_runs(self, batch: Iterable[RunRows]) -> None:
        """Judge runs; the runs of one chain follow one another, over batches too."""
        for (_, _, first), runs in groupby(batch, _chain_of):
            if self._chain and _chain_of(self._chain[0])[2] != first:
                self.end_chain()
            for rows in runs:
                self._add_run(rows)
                self._chain.append(_ends_of(rows))

    def _add_run(self, rows: RunRows) -> None:
        for finding in judge_run(rows):
            self.runs[finding.invariant].add(finding)
        self.conservation.add_run(rows)
        self.outbox.add_run(rows)
        if rows.execution is not None:
            self.liveness.add(rows.execution)

    def end_chain(self) -> None:
        """Judge the chain whose last run was added."""
        if not self._chain:
            return
        namespace, workflow_id, _ = _chain_of(self._chain[0])
        starts: Sequence[ExecutionRow] = [one.execution for one in self._chain if one.execution]
        chain = Chain(
            namespace=namespace,
            workflow_id=workflow_id,
            runs=tuple(self._chain),
            starts=tuple(starts),
        )
        self._chain = []
        for finding in judge_chain(chain):
            self.runs[finding.invariant].add(finding)

    def add_told(self, batch: Iterable[Told]) -> None:
        """Judge what was told of workflow ids."""
        for told in batch:
            self.starts.add(told)
            self.signals.add(told)
            self.observations.add(told)
            self.admission.add(told)

    def tallies(self) -> dict[str, Tally]:
        """Return every tally by invariant, to note that a check itself went wrong."""
        others = (
            *(self.terms, self.starts, self.signals, self.liveness, self.conservation),
            *(self.outbox, self.outcomes, self.observations, self.admission),
        )
        return self.runs | {one.tally.invariant: one.tally for one in others}

    def findings(self) -> list[Finding]:
        """Return what everything that was fed adds up to."""
        return [tally.finding() for tally in self.tallies().values()]


def _chain_of(rows: RunRows) -> tuple[str, str, str]:
    run = rows.execution
    return (
        ("", "", rows.run_id) if run is None else (run.namespace, run.workflow_id, run.first_run_id)
    )


def _ends_of(rows: RunRows) -> RunRows:
    """Return a run with its first and last event alone: all that a chain's judgement needs.

    A chain may have any number of runs, and its judge sees them all at once.
    """
    events = rows.events if len(rows.events) < 3 else (rows.events[0], rows.events[-1])  # noqa: PLR2004 - both ends
    return msgspec.structs.replace(
        rows, events=events, terms=None, requests=None, outbox=None, effects=None
    )
