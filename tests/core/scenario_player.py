"""Plays scenario files: commands and the full trace that they lead to, as plain text.

A file is a list of steps. A step is one or more command lines, a line `----`, and the trace, up to
an empty line. Lines beginning with `#` before the commands are comments.

Commands (times in seconds; `t+` in the trace counts from the first command):
    start [key=value…]            a client starts a run: request=, run_timeout=, execution_timeout=,
                                  delay=, conflict=, reuse=, signal=
    signal NAME | cancel | terminate
    poll WORKER                   claims the workflow task, and remembers what it was granted
    report WORKER [COMMAND; …]    activity ID [retries=N] [start_to_close=S] [schedule_to_start=S]
                                  [schedule_to_close=S] [heartbeat=S] | timer ID S | cancel-timer ID
                                  | cancel-activity ID [wait] | complete | fail | cancel | continue
    repeat WORKER                 the same report again
    fail-task WORKER TEXT         the workflow task could not be run
    claim ID TOKEN WORKER         an activity
    done ID TOKEN | failed ID TOKEN TYPE | canceled ID TOKEN
    release ID ATTEMPT | beat ID | wait S | due
    warm yes|no                   whether a linked worker keeps the run warm
    takeover                      a new owner loads the rows and brings back what waits
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from odin.core import commands as c
from odin.core import events as e
from odin.core.backoff import RetryPolicySpec
from odin.core.decide import Decision
from odin.core.decide_workflow import ReportOutcome
from odin.core.execution import Execution
from odin.core.payload import Failure
from odin.core.wire import ActivityOutcome
from odin.errors import OdinError
from tests.core.decide_world import SECOND_US, START_US, Grant, World, activity, complete, timer

SHOWN = {
    "command_id", "seen", "name", "timeout_type", "retry_state", "reason", "fires_at_us", "time_us",
}  # fmt: skip


@dataclass
class Step:
    """Comments, commands, and the trace that is expected of them."""

    comments: list[str]
    commands: list[str]
    trace: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.comments, *self.commands, "----", *self.trace]) + "\n"


def parse(text: str) -> Iterator[Step]:
    """Return the steps of a scenario file."""
    for block in re.split(r"\n\s*\n", text.strip()):
        head, _, trace = block.partition("\n----")
        lines = head.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        yield Step(comments, lines[len(comments) :], trace.strip("\n").splitlines())


def play(text: str) -> str:
    """Return the file with the trace that its commands lead to now."""
    player = Player()
    steps = list(parse(text))
    for step in steps:
        step.trace = [line for command in step.commands for line in player.play(command)]
    return "\n".join(map(str, steps))


def milliseconds(seconds: str) -> int:
    return round(float(seconds) * 1_000)


class Player:
    """Plays one file."""

    def __init__(self) -> None:
        self.world = World()
        self.grants: dict[str, Grant] = {}
        self.reports: dict[str, tuple[list[c.Command], Grant, str]] = {}
        self.labels: dict[int, str] = {}
        self.runs: dict[str, str] = {}

    def play(self, line: str) -> list[str]:
        """Play one command line; return its trace."""
        word, _, rest = line.partition(" ")
        handler: Callable[[str], list[str]] = getattr(self, "do_" + word.replace("-", "_"))
        known = len(self.world.decisions)
        try:
            said = handler(rest)
        except OdinError as error:
            return [f"refused: {error.reason}"]
        decisions = self.world.decisions[known:]
        if not decisions:
            return said or ["nothing"]
        trace = [line for one in decisions for line in self.show(one)]
        return [*said, *trace, *self.state(self.world.run)]

    # --- commands -------------------------------------------------------------------------------

    def do_start(self, rest: str) -> list[str]:
        given = dict(pair.split("=") for pair in rest.split())
        names = {
            "request": "request_id",
            "conflict": "id_conflict_policy",
            "reuse": "id_reuse_policy",
            "signal": "signal_name",
        }
        spans = {
            "run_timeout": "run_timeout_ms",
            "execution_timeout": "execution_timeout_ms",
            "delay": "start_delay_ms",
        }
        fields: dict[str, object] = {names[k]: v for k, v in given.items() if k in names}
        fields |= {spans[k]: milliseconds(v) for k, v in given.items() if k in spans}
        outcome = self.world.start(**fields)
        return [f"answered: {'started' if outcome.started else 'exists'}"]

    def do_signal(self, name: str) -> list[str]:
        self.world.signal(name)
        return []

    def do_cancel(self, reason: str) -> list[str]:
        self.world.cancel(reason)
        return []

    def do_terminate(self, reason: str) -> list[str]:
        self.world.terminate(reason)
        return []

    def do_poll(self, worker: str) -> list[str]:
        grant = self.grants[worker] = self.world.grant()
        return [f"granted: task {grant.number}, events to {grant.seen}, {at(grant.time_us)}"]

    def do_report(self, rest: str) -> list[str]:
        worker, _, issued = rest.partition(" ")
        parsed = [self.command(one.split()) for one in issued.split(";") if one.strip()]
        report_id = f"r{self.world.next_number()}"
        self.reports[worker] = (parsed, self.grants[worker], report_id)
        return self.do_repeat(worker)

    def do_repeat(self, worker: str) -> list[str]:
        issued, grant, report_id = self.reports[worker]
        outcome: ReportOutcome = self.world.report(
            *issued, grant=grant, worker=worker, report_id=report_id
        )
        if outcome.accepted is None:
            return [f"refused: {outcome.refused}"]
        accepted = outcome.accepted
        return [f"accepted: events to {accepted.last_event_id}, {self.label(accepted.token)}"]

    def do_fail_task(self, rest: str) -> list[str]:
        worker, _, message = rest.partition(" ")
        self.world.fail_task(message, self.grants[worker])
        return []

    def do_claim(self, rest: str) -> list[str]:
        number, held, worker = rest.split()
        outcome = self.world.claim(int(number), held, worker)
        if outcome.activity is None:
            return ["not wanted"]
        return [f"granted: activity {number}, attempt {outcome.activity.attempt}"]

    def do_done(self, rest: str) -> list[str]:
        number, held = rest.split()
        return self.answered(self.world.finish(int(number), held))

    def do_failed(self, rest: str) -> list[str]:
        number, held, kind = rest.split()
        return self.answered(self.world.fail(int(number), held, type=kind))

    def do_canceled(self, rest: str) -> list[str]:
        number, held = rest.split()
        return self.answered(self.world.finish(int(number), held, ActivityOutcome("canceled")))

    def do_release(self, rest: str) -> list[str]:
        number, attempt = rest.split()
        self.world.release(int(number), int(attempt))
        return []

    def do_beat(self, number: str) -> list[str]:
        self.world.beat(int(number))
        return [f"activity {number} is alive {at(self.world.now_us)}"]

    def do_wait(self, seconds: str) -> list[str]:
        self.world.wait(float(seconds))
        return [f"now {at(self.world.now_us)}"]

    def do_due(self, _: str) -> list[str]:
        self.world.due()
        return []

    def do_warm(self, value: str) -> list[str]:
        self.world.sticky = value == "yes"
        return [f"warm: {value}"]

    def do_takeover(self, _: str) -> list[str]:
        self.world.take_over()
        self.world.republish_task()
        self.world.republish_activities(*self.world.run.activities)
        return [f"range {self.world.range_id}, grace until {at(self.world.grace_until_us)}"]

    def command(self, words: list[str]) -> c.Command:
        """Return a workflow's command from its words."""
        name, *rest = words
        match name:
            case "activity":
                return self.activity(int(rest[0]), dict(one.split("=") for one in rest[1:]))
            case "timer":
                return timer(int(rest[0]), float(rest[1]))
            case "cancel-timer":
                return c.CancelTimer(command_id=int(rest[0]))
            case "cancel-activity":
                return c.RequestCancelActivity(command_id=int(rest[0]), wait="wait" in rest)
            case _:
                endings: dict[str, c.Command] = {
                    "complete": complete(),
                    "fail": c.FailWorkflow(failure=Failure("no")),
                    "cancel": c.CancelWorkflow(),
                    "continue": c.ContinueAsNew(),
                }
                return endings[name]

    def activity(self, command_id: int, options: dict[str, str]) -> c.ScheduleActivity:
        retries = int(options.pop("retries", "0"))
        spans = {f"{name}_ms": milliseconds(value) for name, value in options.items()}
        return activity(command_id, retry_policy=RetryPolicySpec(maximum_attempts=retries), **spans)

    # --- traces ---------------------------------------------------------------------------------

    def answered(self, decision: Decision | None) -> list[str]:
        return ["answered: recorded" if decision is not None else "answered: no longer wanted"]

    def label(self, token: int) -> str:
        """Return a short name for a token, by its first appearance."""
        return self.labels.setdefault(token, f"T{len(self.labels) + 1}")

    def run_name(self, run_id: str) -> str:
        return self.runs.setdefault(run_id, f"run {len(self.runs) + 1}")

    def show(self, decision: Decision) -> Iterator[str]:
        """Return the lines of a decision, and of those that come with it."""
        for stored in decision.events:
            yield f"  {stored.event_id} {stored.type}{self.facts(e.from_history(stored))}"
        for task in decision.tasks:
            yield f"  outbox {task.destination} {task.entry.number} attempt {task.entry.attempt}"
        if decision.push:
            yield f"  push task {decision.execution.workflow_task.number}"
        for one in decision.stopped:
            yield f"  stop activity {one.command_id} of {one.worker}: {one.reason}"
        if decision.acknowledged is not None:
            known = decision.acknowledged
            yield f"  request {known.request_id}: {known.kind}, event {known.event_id}"
        for also in decision.also:
            yield f"  and {self.run_name(also.execution.run_id)}, {also.execution.status}:"
            yield from ("  " + line for line in self.show(also))

    def facts(self, event: e.Event) -> str:
        found = []
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if name in SHOWN and value not in ("", None):
                shown = at(value) if name.endswith("_us") else value
                found.append(f"{name.removesuffix('_us').removesuffix('_at')}={shown}")
            elif name == "attempts" and value:
                found.append("attempts=" + ",".join(one.how for one in value))
        return "".join(" " + one for one in found)

    def state(self, run: Execution) -> Iterator[str]:
        """Return the lines of the state after the last decision."""
        yield (
            f"{self.run_name(run.run_id)}: {run.status}, {run.next_event_id - 1} events,"
            f" state {self.label(run.state_token)}, task {self.label(run.task_token)}"
        )
        task = run.workflow_task
        if task.state != "none":
            where = " pushed" if task.pushed else ""
            due = at(task.due_us)
            yield f"  task {task.number} {task.state}{where}, attempt {task.attempt}, due {due}"
        for one in run.activities.values():
            who = f" by {one.worker}" if one.worker else ""
            asked = ", asked to stop" if one.cancel_requested else ""
            yield (
                f"  activity {one.command_id} {one.state}{who}, attempt {one.attempt},"
                f" due {at(one.due_us)}{asked}"
            )
        for pending in run.timers.values():
            yield f"  timer {pending.command_id} due {at(pending.fires_at_us)}"
        for name, deadline in (("run", run.run_deadline_us), ("chain", run.execution_deadline_us)):
            if deadline is not None and run.is_open:
                yield f"  end of the {name} {at(deadline)}"


def at(instant_us: int) -> str:
    return f"t+{(instant_us - START_US) / SECOND_US:g}"
