"""Guards that stand in the engine, the relay and the store's code."""

from __future__ import annotations

from typing import Final

from .mutation import Edit, Mutation
from .sql import one

DOUBT: Final = "tests/store/test_doubt.py::test_"
ANSWERS: Final = "tests/store/test_answers.py::test_"
OVER: Final = "tests/store/test_handing_over.py::test_"
LATE: Final = DOUBT + "a_late_statement_of_a_group_in_doubt_is_refused_in_every_shard_of_it"
REFUSED: Final = DOUBT + "a_write_that_is_refused_is_not_acknowledged_and_ends_the_term"

BEHIND: Final = (
    "tests/engine/test_store_failing.py"
    "::test_who_waits_behind_new_ranges_that_cannot_be_taken_is_refused_with_the_cause"
)
SHARDS: Final = "tests/engine/test_shards.py::test_"
BUMP: Final = "        ranges = await self._bump(terms)\n"
RELEASE: Final = (
    '            self._shards.drop(shard_id, ShardLostError(f"shard {shard_id} is handed over"))\n'
    "            released = await self._store.release(\n"
    "                shard_id, self._membership.incarnation, term.range_id, heir=hand_over.heir\n"
    "            )\n"
)
WAIT: Final = "            await term.settled()\n            self._shards.check_lease()\n"

CALL: Final = (
    "                return await connection.fetchrow(query, *arguments)\n"
    "            except BaseException:\n"
)

ENGINE: Final = (
    one("no bump after unknown", "engine/lane.py", BUMP, "        ranges = dict(terms)\n", LATE),
    one(
        "bump of the first shard only",
        "engine/lane.py",
        BUMP,
        "        ranges = await self._bump(dict(list(terms.items())[:1]))\n",
        LATE,
    ),
    one(
        "read, then bump",
        "engine/lane.py",
        BUMP,
        "        self._events.shards_bumped({one: term + 1 for one, term in terms.items()})\n"
        + BUMP,
        DOUBT + "nothing_of_a_shard_in_doubt_is_decided_or_read_before_its_bump_has_committed",
    ),
    Mutation(
        "what gathers stays after unknown",
        (
            Edit("engine/lane.py", "        self.drop(terms, doubt)\n", ""),
            Edit(
                "engine/shards.py",
                "        self.lane_of(term.shard_id).drop("
                "{term.shard_id: term.range_id}, {term.shard_id: error})\n",
                "",
            ),
        ),
        (DOUBT + "what_gathers_behind_a_group_in_doubt_goes_with_it",),
    ),
    one(
        "a new term joins the group that its forerunner left",
        "engine/lane.py",
        " and last.ticket.error(shard_id) is None:",
        ":",
        SHARDS + "a_new_term_joins_no_group_that_an_earlier_one_was_taken_out_of",
    ),
    one(
        "a bump answered late begins a term",
        "engine/shards.py",
        "        if self._is_leaving:\n            return\n",
        "",
        SHARDS + "a_bump_that_is_answered_while_its_engine_leaves_begins_no_term",
    ),
    one(
        "answers before the commit",
        "engine/handler.py",
        "await term.write(verdict.run, verdict.decision, alone=alone).wait(term.shard_id)",
        "term.write(verdict.run, verdict.decision, alone=alone)",
        ANSWERS + "no_answer_leaves_before_its_group_has_committed",
    ),
    one(
        "refusals do not wait",
        "engine/handler.py",
        "        except OdinError:\n            await term.settled()\n",
        "        except OdinError:\n",
        ANSWERS + "a_refusal_because_of_what_is_on_its_way_is_answered_after_it",
    ),
    one(
        "repeats do not wait",
        "engine/handler.py",
        "        else:\n" + WAIT,
        "        else:\n            self._shards.check_lease()\n",
        ANSWERS + "a_repeat_of_what_is_on_its_way_is_answered_after_it",
    ),
    one(
        "reads do not wait",
        "engine/closings.py",
        "    except TimeoutError:\n        await term.settled()\n",
        "    except TimeoutError:\n",
        ANSWERS + "nothing_is_told_of_a_run_that_is_on_its_way",
    ),
    one(
        "workers' answers do not wait",
        "engine/term.py",
        "            self._newest.then(self.shard_id, settled)",
        "            settled(None)",
        ANSWERS + "nothing_is_told_of_a_run_that_is_on_its_way",
    ),
    one(
        "the node ignores refusals",
        "engine/lane.py",
        "for shard in committed.refused\n",
        "for shard in ()\n",
        REFUSED,
    ),
    one(
        "the store ignores refusals",
        "engine/store/writes.py",
        "refused, outbox_ids = frozenset(row[0]), row[1]",
        "refused, outbox_ids = frozenset(), row[1]",
        REFUSED,
    ),
    one(
        "terms begin before they are taken",
        "engine/ownership.py",
        "        try:\n            range_id = await self._store.acquire(",
        "        self._shards.begin(shard_id, 1)\n"
        "        try:\n            range_id = await self._store.acquire(",
        OVER + "no_term_begins_before_its_acquisition_has_committed",
    ),
    one(
        "eviction before the commit",
        "engine/node.py",
        "                if term.is_settled:",
        "                if term is not None:",
        "tests/store/test_partial.py::test_no_run_leaves_memory_before_its_group_has_committed",
    ),
    one(
        "acknowledged requests are not looked up",
        "engine/loader.py",
        "if known is None and stored is not None:",
        "if known is None and stored is not stored:",
        ANSWERS + "what_was_acknowledged_is_known_to_the_next_term",
    ),
    one(
        "own clock not compared",
        "engine/shards.py",
        "if not self._lease.may_serve():",
        "if False:",
        ANSWERS + "memory_is_told_of_only_under_a_lease",
    ),
    one(
        "trust without end",
        "engine/membership.py",
        "return not self.expired.is_set() and self.lease.may_serve(self._clock.boottime())",
        "return not self.expired.is_set()",
        OVER + "a_node_trusts_its_lease_for_eight_seconds_of_its_own_clock",
    ),
    one(
        "trust beyond one's death",
        "engine/membership.py",
        "return not self.expired.is_set() and self.lease.may_serve(self._clock.boottime())",
        "return self.lease.may_serve(self._clock.boottime())",
        OVER + "a_node_that_was_marked_dead_serves_no_more_though_its_own_clock_would_let_it",
    ),
    one(
        "counted from receipt",
        "engine/membership.py",
        "Renewal(sent_at, received_at,",
        "Renewal(received_at, received_at,",
        OVER + "a_lease_is_counted_from_the_send_of_its_renewal_however_late_the_reply",
    ),
    one(
        "counted from receipt in the arithmetic",
        "odin/core/lease.py",
        "max((renewal.sent_at for",
        "max((renewal.received_at for",
        "tests/core/test_lease.py::test_a_slow_reply_does_not_lengthen_the_trust",
    ),
    one(
        "answers until the release is answered",
        "engine/ownership.py",
        RELEASE,
        "".join(RELEASE.splitlines(keepends=True)[1:]) + RELEASE.splitlines(keepends=True)[0],
        OVER + "a_shard_answers_nothing_from_the_moment_its_release_is_sent",
    ),
    one(
        "no bump after a release in doubt",
        "engine/ownership.py",
        "await self._bump_unknown(shard_id, term.range_id, error)",
        "del error",
        OVER + "a_release_in_doubt_is_bumped_so_that_a_late_copy_does_nothing",
    ),
    one(
        "a connection is used after a failure",
        "engine/store/lane.py",
        CALL + "                self._connection = None\n                connection.terminate()\n",
        CALL,
        "tests/store/test_commit.py::test_a_cancelled_commit_never_reuses_its_connection",
    ),
    one(
        "a raised group fails all of its requests",
        "engine/handler.py",
        "if alone or error.is_of_server:",
        "if True:",
        "tests/engine/test_outcomes.py::test_a_group_that_raises_is_decided_anew_request_by_request",
    ),
    one(
        "a full disk is told only after new ranges",
        "engine/lane.py",
        "        if _is_of_server(error):\n            pending.ticket.fail(errors)\n",
        "",
        BEHIND,
    ),
    one(
        "what gathers waits for new ranges that do not come",
        "engine/lane.py",
        "            if terms and pending.decisions:\n",
        "            if False:\n",
        BEHIND,
    ),
    one(
        "a full disk is tried again alone",
        "engine/handler.py",
        "if alone or error.is_of_server:",
        "if alone:",
        "tests/store/test_stuck.py::test_a_start_for_which_there_is_no_room_is_refused_at_once"
        "_and_not_tried_again_alone",
    ),
    one(
        "what was never decided is a doubt",
        "engine/router.py",
        "                if not written:\n",
        "                if False:\n",
        "tests/engine/test_store_failing.py"
        "::test_a_start_while_the_database_is_gone_is_refused_with_the_cause_and_may_come_again",
    ),
    one(
        "what comes waits for new ranges that do not come",
        "engine/handler.py",
        "            self._shards.check_writes(shard_id)\n",
        "",
        "tests/store/test_stuck.py"
        "::test_a_shard_keeps_its_term_while_its_lane_waits_for_new_ranges_in_vain",
    ),
    one(
        "no connection is a doubt",
        "engine/store/errors.py",
        "if isinstance(error, NotConnectedError):",
        "if False:",
        "tests/store/test_condition.py"
        "::test_a_group_for_which_there_was_no_connection_surely_did_not_happen",
    ),
    one(
        "a refusal after a doubt is believed",
        "engine/router.py",
        "    if unknown and not isinstance(request, WaitWorkflow):\n",
        "    if unknown and cause is None and not isinstance(request, WaitWorkflow):\n",
        "tests/engine/test_router.py"
        "::test_a_database_that_fails_after_a_copy_of_unknown_fate_leaves_it_unknown",
    ),
    one(
        "what was sent into a silence counts as refused",
        "engine/router.py",
        "    is_unknown = unknown and",
        "    is_unknown = False and",
        "tests/engine/test_router.py"
        "::test_a_caller_whose_request_was_sent_into_the_silence_learns_that_it_may_be_there",
    ),
    one(
        "an engine's last word comes too late",
        "odin/_client/transport.py",
        "_MARGIN: Final = 0.5\n",
        "_MARGIN: Final = 0.1\n",
        "tests/service/test_client_retries.py"
        "::test_an_engine_has_its_last_word_while_the_client_still_listens",
    ),
    one(
        "a rest may outlast the deadline",
        "odin/_client/transport.py",
        "        ceiling = min(ceiling, room_seconds)\n",
        "        pass\n",
        "tests/service/test_client_retries.py::test_a_long_rest_leaves_time_for_a_last_copy",
    ),
    one(
        "a cause is risked for a last copy",
        "odin/_client/transport.py",
        "room = 0.0 if is_certain else left - last_seconds",
        "room = left - last_seconds",
        "tests/service/test_client_retries.py"
        "::test_a_long_rest_is_not_cut_for_a_copy_that_could_only_lose_the_cause",
    ),
    one(
        "every refusal is definite",
        "odin/_client/transport.py",
        "        return refusal.is_definite\n",
        "        return True\n",
        "tests/service/test_client_retries.py"
        "::test_a_refusal_after_a_copy_of_unknown_fate_is_not_reported_as_one",
    ),
    one(
        "a read has a fate",
        "odin/_client/transport.py",
        "if isinstance(progress.last, OutcomeUnknownError):",
        "if False:",
        "tests/service/test_client_retries.py::test_a_read_that_is_lost_to_the_deadline_has_no_fate",
    ),
    one(
        "an owner that fell silent is waited for",
        "engine/router.py",
        "if waited >= CUT_OFF_SECONDS and (owner := self._cut_off_owner(request)):",
        "if (owner := '') and waited:",
        "tests/engine/test_router.py"
        "::test_a_caller_of_an_owner_that_fell_silent_is_sent_to_it_and_nothing_is_unknown",
    ),
    one(
        "a silent link is given up by its heartbeat alone",
        "odin/runtime/links.py",
        "        if self._impatient:\n",
        "        if False:\n",
        "tests/runtime/test_links.py"
        "::test_an_impatient_link_gives_a_silent_end_up_while_something_is_asked",
    ),
    one(
        "opening a link has no bound",
        "odin/runtime/link_sockets.py",
        "asyncio.timeout(OPEN_SECONDS)",
        "asyncio.timeout(None)",
        "tests/runtime/test_links.py"
        "::test_an_engine_that_takes_a_connection_and_says_nothing_is_a_link_closed_error",
    ),
    one(
        "inherited rows are not read",
        "relay/sweep.py",
        "        self._begun.add(shard_id)\n",
        "",
        "tests/broker/test_sweep.py::test_the_rows_that_a_term_inherits_are_published_when_it_begins",
    ),
    one(
        "waiting tasks are not brought back",
        "engine/takeover.py",
        "    await _bring_back(term, reads, loader, clock)\n",
        "",
        "tests/engine/test_ownership.py"
        "::test_a_task_pushed_before_a_takeover_is_brought_back_though_messages_keep_coming",
    ),
    one(
        "no sweep",
        "relay/sweep.py",
        "rows = await self._read_due(sorted(self._shards), self._now_us())",
        "rows = []",
        "tests/broker/test_sweep.py::test_every_10_s_rows_that_nobody_offered_are_found",
    ),
    one(
        "rows go without a confirm",
        "relay/publisher.py",
        "            self._not_confirmed(departure, pack, error)\n",
        "            self._confirmed(departure, pack)\n",
        "tests/broker/test_publisher_rules.py"
        "::test_a_row_not_confirmed_is_noted_and_tried_after_1_s_doubling_to_60_s",
    ),
    one(
        "confirms of older terms count",
        "engine/outbox.py",
        "        if term is not None and term.range_id == range_id:\n",
        "        if term is not None:\n",
        ANSWERS + "a_confirm_of_an_older_term_deletes_no_row",
    ),
    one(
        "the relay keeps rows of older terms",
        "relay/publisher.py",
        "        self._book.drop_term(shard_id, range_id)\n",
        "",
        "tests/broker/test_publisher_rules.py::test_a_confirm_of_a_term_that_is_over_is_ignored",
    ),
    one(
        "no hold in round three",
        "engine/handler.py",
        "if run is None or run.rounds < HOLD_ROUNDS or",
        "if True or run.rounds < HOLD_ROUNDS or",
        ANSWERS + "messages_are_held_back_from_the_third_round_of_a_closing_report_on",
    ),
    one(
        "no grace in a new term",
        "engine/term.py",
        "self.began_us + GRACE_US",
        "self.began_us",
        ANSWERS + "in_the_first_seconds_of_a_term_no_started_attempt_is_judged",
    ),
)
