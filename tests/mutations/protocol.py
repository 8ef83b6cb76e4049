"""Guards of the protocol between owner and worker."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .sql import one

WORKFLOW: Final = "odin/core/decide_workflow.py"
ACTIVITY: Final = "odin/core/decide_activity.py"
DUE: Final = "odin/core/decide_due.py"
CHANGE: Final = "odin/core/decide.py"
RUNS: Final = "odin/worker/runs.py"
TASKS: Final = "tests/core/test_decide_workflow_task.py::test_"
ACTIVITIES: Final = "tests/core/test_decide_activity.py::test_"
TIMES: Final = "tests/core/test_decide_due.py::test_"
WORKERS: Final = "tests/worker/test_worker_workflows.py::test_"

PROTOCOL: Final[tuple[Mutation, ...]] = (
    one(
        "report ids are not kept",
        WORKFLOW,
        "if kept.worker == worker and kept.report_id == report.report_id:",
        "if kept is report:",
        TASKS + "a_repeated_report_gets_the_answer_of_its_own_batch",
        TASKS + "a_repeat_is_answered_after_the_run_has_closed_too",
    ),
    one(
        "closing with an unseen message",
        WORKFLOW,
        "if closing and execution.last_message_event_id > report.seen:",
        "if False:",
        TASKS + "a_closing_report_with_an_unseen_message_is_refused_whole_and_goes_round_at_once",
    ),
    one(
        "reports without the task token",
        WORKFLOW,
        "        report.task_token != execution.task_token\n        or task.state",
        "        task.state",
        TASKS + "a_report_that_does_not_fit_is_stale_and_changes_nothing",
    ),
    one(
        "results without the claim token",
        ACTIVITY,
        "        or activity.claim_token != claim_token\n",
        "",
        ACTIVITIES + "nothing_of_a_result_with_an_invalid_claim_token_is_recorded",
    ),
    one(
        "a claim is spent by its repeat",
        ACTIVITY,
        'if activity.state == "started" and activity.claim_token == claim_token:',
        'if activity.state == "nowhere":',
        ACTIVITIES + "the_same_claim_token_gets_the_same_answer_and_spends_nothing",
    ),
    one(
        "an attempt is claimed twice",
        ACTIVITY,
        'if activity.state != "scheduled" or activity.attempt + 1 != attempt:',
        "if activity.attempt + 1 < attempt:",
        ACTIVITIES + "a_second_claimant_is_not_wanted",
    ),
    one(
        "the owner's own time",
        WORKFLOW,
        "            seen=report.seen,\n            time_us=report.time_us,\n",
        "            seen=report.seen,\n            time_us=change.at_us,\n",
        TASKS + "the_recorded_time_is_the_one_that_the_worker_used",
    ),
    one(
        "a batch beyond what was seen",
        "odin/core/instance.py",
        "ids[count - 1] > seen",
        "ids[count - 1] < 0",
        "tests/core/test_instance_determinism.py"
        "::test_replay_of_any_program_gives_the_commands_of_every_task_again",
    ),
    one(
        "no due time for a workflow task",
        CHANGE,
        "        task.due_us = self.at_us + task.interval_ms * 1_000\n",
        "        task.due_us = NEVER_US\n",
        TASKS + "a_due_task_is_published_again_with_doubled_spacing_up_to_ten_minutes",
    ),
    one(
        "no due time for a pushed task",
        CHANGE,
        "task.due_us = self.at_us + STICKY_DUE_MS * 1_000",
        "task.due_us = NEVER_US",
        TASKS + "a_pushed_task_goes_to_the_shared_queue_after_five_seconds",
    ),
    one(
        "no due time for an activity",
        CHANGE,
        "            due_us=self.at_us + interval_ms * 1_000,\n",
        "            due_us=NEVER_US,\n",
        TIMES + "an_activity_that_nobody_takes_is_published_with_doubled_spacing_up_to_ten_minutes",
    ),
    one(
        "no due time for a started attempt",
        ACTIVITY,
        "    started.due_us = started_due_us(started, change.at_us)\n",
        "    started.due_us = 2**62\n",
        ACTIVITIES + "a_claim_spends_an_attempt_and_starts_its_clocks",
    ),
    one(
        "started attempts are judged at once",
        DUE,
        "return max(started_due_us(activity, last_us), self.grace_until_us)",
        "return started_due_us(activity, last_us)",
        TIMES + "in_the_grace_of_a_new_term_no_started_attempt_is_judged",
    ),
    one(
        "heartbeat clocks go on from the row",
        DUE,
        "last_us = max(self.term_began_us, beat",
        "last_us = max(0, beat",
        TIMES + "heartbeat_clocks_begin_anew_with_the_term",
    ),
    one(
        "warm state after a refusal",
        RUNS,
        '            self._telemetry.count("workflow_reports_refused")\n'
        "            self._drop(run, tell=True)\n",
        '            self._telemetry.count("workflow_reports_refused")\n'
        "            run.job, run.reported_at = None, None\n"
        "            self._idle[run.header.run_id] = run\n",
        WORKERS + "a_refused_report_drops_the_warm_state_and_the_next_task_replays",
    ),
    one(
        "no freeze",
        RUNS,
        "elif run.job is not None or task.number <= run.done_number:",
        "elif task.number <= run.done_number:",
        WORKERS + "a_push_is_discarded_while_a_report_is_unanswered",
    ),
    one(
        "a token for a state that ran ahead",
        RUNS,
        "        run.held = instance.last_event_id\n        run.token = None\n",
        "        run.held = instance.last_event_id\n",
        "tests/worker/test_runs.py"
        "::test_a_state_that_ran_ahead_has_no_token_until_its_report_is_accepted",
    ),
    one(
        "the report goes with the warm state",
        RUNS,
        "            if run.reported_at is not None and run.reported_at < before:\n"
        "                self._let_go(run)\n",
        "            if run.reported_at is not None and run.reported_at < before:\n"
        "                self._let_go(run)\n"
        '                self._postbox.withdraw(("r", run.header.run_id))\n',
        "tests/worker/test_runs.py"
        "::test_without_an_answer_the_warm_state_goes_and_the_report_stays",
    ),
)
