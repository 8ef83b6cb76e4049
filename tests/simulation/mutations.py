"""All mutations of odin's own code: which of them the simulation finds, and why not the others.

`FOUND` has the first seed, from 0 on, at which a mutation is found with the faults that it names.
`EQUIVALENT` are guards that a second one covers; each is found together with that one, as its
reason says.
"""

from typing import Final

from tests.simulation import mutations_tasks, mutations_writes
from tests.simulation.mutation import MUTATIONS, Mutation

FOUND: Final = {
    "answer_before_commit": 0,
    "repeat_before_commit": 0,
    "push_before_commit": 0,
    "eviction_before_commit": 0,
    "no_bump_after_unknown": 0,
    "memory_kept_after_unknown": 0,
    "gathering_kept_and_restamped": 12,
    "passing_failure_is_final": 0,
    "refusal_ignored": 12,
    "renewal_from_reply": 0,
    "lease_never_in_doubt": 0,
    "answers_while_releasing": 0,
    "sweeper_off": 8,
    "republish_off": 0,
    "outbox_row_dropped_and_nothing_again": 10,
    "due_scan_off": 0,
    "timer_lost_at_takeover": 0,
    "no_repeats": 10,
    "claim_without_compare": 0,
    "result_without_token": 24,
    "closed_unseen": 7,
    "report_without_token": 1,
    "requests_forgotten": 0,
    "timers_early": 0,
    "no_freeze_nor_its_covers": 0,
}
EQUIVALENT: Final = {
    "gathering_kept": "a group keeps the range under which it gathered, and the fence refuses it:"
    " see gathering_kept_and_restamped",
    "outbox_row_dropped": "what is lost is published again when it is due, and after a takeover:"
    " see outbox_row_dropped_and_nothing_again",
    "nothing_brought_back": "what is nowhere is published again when it is due, and timers are"
    " found by the scan: see timer_lost_at_takeover",
    "nothing_again": "the row stays until the broker has the task, and the sweep publishes it:"
    " see outbox_row_dropped_and_nothing_again",
    "no_freeze": "reports are repeated before claims, a claim names nothing of a run that waits for"
    " its answer, and an instance refuses a second task before that: see no_freeze_nor_its_covers",
    "freeze_alone": "a run that waits for its answer takes no other task",
}

__all__ = ["EQUIVALENT", "FOUND", "MUTATIONS", "Mutation"]
assert set(MUTATIONS) == {*FOUND, *EQUIVALENT}, (mutations_tasks, mutations_writes)
