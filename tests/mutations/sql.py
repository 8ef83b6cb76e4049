"""Guards that stand in SQL."""

from __future__ import annotations

from typing import Final

from .mutation import COMMIT, Edit, Mutation

INITIAL: Final = "schema/0001_initial.sql"
RETENTION: Final = "schema/0007_delete_closed.sql"
SHARD: Final = "engine/store/shard.sql"
NODE: Final = "engine/store/node.sql"
FENCE: Final = "tests/store/test_fence.py::test_"
SHARDS: Final = "tests/store/test_shards.py::test_"
NODES: Final = "tests/store/test_nodes.py::test_"
WAITS: Final = "tests/store/test_waits.py::test_"
PARTIAL: Final = "tests/store/test_partial.py::test_"
COMMITS: Final = "tests/store/test_commit.py::test_"

CHECK: Final = "        WHERE s.owner = p_incarnation AND s.range_id = term.range_id\n"
ORDERED_SHARE: Final = "        ORDER BY s.shard_id\n        FOR SHARE OF s"
ORDERED_UPDATE: Final = "        ORDER BY s.shard_id\n        FOR UPDATE OF s"
NOT_HELD: Final = (
    "    IF v_held IS NULL THEN\n        refused := p_shard;\n        RETURN;\n    END IF;\n"
)
OWNER_IS_DEAD: Final = "OR EXISTS (SELECT FROM node WHERE incarnation = s.owner AND state = 'dead')"
RENEWABLE: Final = "WHERE incarnation = $1 AND state <> 'dead' AND NOT lease_is_over(lease_until)"
BUMP_AND_LATE: Final = FENCE + "a_bump_and_a_late_group_of_the_same_shards_do_not_deadlock"


def one(name: str, file: str, text: str, replacement: str, *tests: str) -> Mutation:
    """A guard that is one text."""
    return Mutation(name, (Edit(file, text, replacement),), tests)


SQL: Final = (
    one(
        "no share lock in the group",
        COMMIT,
        "FOR SHARE OF s",
        "",
        FENCE + "a_write_waits_for_an_acquisition_under_way_and_is_then_refused",
        FENCE + "an_acquisition_waits_for_a_group_under_way",
        WAITS + "a_group_that_waited_writes_the_shards_that_are_still_its_own",
    ),
    one(
        "no fence",
        COMMIT,
        CHECK + ORDERED_SHARE,
        ORDERED_SHARE,
        FENCE + "a_write_of_an_old_range_is_refused",
        FENCE + "a_write_of_another_incarnation_is_refused",
    ),
    one(
        "fence without the range",
        COMMIT,
        CHECK + ORDERED_SHARE,
        "        WHERE s.owner = p_incarnation\n" + ORDERED_SHARE,
        FENCE + "a_write_of_an_old_range_is_refused",
    ),
    one(
        "fence without the owner",
        COMMIT,
        CHECK + ORDERED_SHARE,
        "        WHERE s.range_id = term.range_id\n" + ORDERED_SHARE,
        FENCE + "a_write_of_another_incarnation_is_refused",
    ),
    one(
        "only the first shard checked",
        COMMIT,
        NOT_HELD,
        NOT_HELD + "    IF p_shard[1] = ANY (v_held) THEN v_held := p_shard; END IF;\n",
        PARTIAL + "of_a_lost_shard_nothing_is_written_and_of_the_others_everything",
    ),
    Mutation(
        "groups lock in any order",
        (
            Edit(COMMIT, ORDERED_SHARE, "        FOR SHARE OF s"),
            Edit(
                "engine/store/encode.py", "dict(sorted(group.terms.items()))", "dict(group.terms)"
            ),
        ),
        (BUMP_AND_LATE,),
    ),
    Mutation(
        "bumps lock in any order",
        (
            Edit(INITIAL, ORDERED_UPDATE, "        FOR UPDATE OF s"),
            Edit("engine/store/shards.py", "shard_ids = sorted(terms)", "shard_ids = list(terms)"),
        ),
        (BUMP_AND_LATE,),
    ),
    one(
        "bump of another range",
        INITIAL,
        CHECK + ORDERED_UPDATE,
        "        WHERE s.owner = p_incarnation\n" + ORDERED_UPDATE,
        SHARDS + "a_bump_begins_new_terms_of_exactly_what_is_held_under_the_given_range",
    ),
    one(
        "bump of another owner",
        INITIAL,
        CHECK + ORDERED_UPDATE,
        "        WHERE s.range_id = term.range_id\n" + ORDERED_UPDATE,
        SHARDS + "a_bump_never_makes_an_owner",
    ),
    one(
        "no count of executions",
        COMMIT,
        "        IF v_count <> v_expected THEN\n"
        "            RAISE EXCEPTION '% of % executions were updated'",
        "        IF false THEN\n            RAISE EXCEPTION '% of % executions were updated'",
        COMMITS + "an_image_of_a_run_that_has_no_row_raises",
        COMMITS + "an_image_of_a_closed_run_raises",
        COMMITS + "an_image_older_than_the_row_raises",
    ),
    one(
        "outbox ids used again",
        COMMIT,
        "array_agg(nextval('outbox_id_seq'))",
        "array_agg((SELECT coalesce(max(id), 0) FROM outbox) + generate_series)",
        PARTIAL + "ids_of_outbox_rows_are_never_used_again",
    ),
    one(
        "the same range after a takeover",
        INITIAL,
        "SET owner = p_incarnation, range_id = s.range_id + 1",
        "SET owner = p_incarnation",
        SHARDS + "a_shard_that_nobody_has_owned_is_taken_under_range_1",
        SHARDS + "a_frozen_dead_owner_s_lock_is_taken_from_it",
    ),
    one(
        "takes on expiry alone",
        INITIAL,
        OWNER_IS_DEAD,
        OWNER_IS_DEAD.replace("state = 'dead'", "lease_is_over(lease_until)"),
        SHARDS + "an_expired_owner_keeps_its_shard_until_it_is_marked_dead",
    ),
    one(
        "a missing row is a death",
        INITIAL,
        OWNER_IS_DEAD,
        "OR NOT EXISTS (SELECT FROM node WHERE incarnation = s.owner AND state <> 'dead')",
        SHARDS + "an_owner_whose_row_is_missing_is_not_dead",
    ),
    one(
        "no taking again of one's own",
        INITIAL,
        "(s.owner = p_incarnation AND NOT p_holds_term)",
        "false",
        SHARDS + "an_owner_without_a_term_takes_its_own_shard_again",
    ),
    one(
        "the dead take",
        INITIAL,
        "WHERE incarnation = p_incarnation AND state = 'alive' AND NOT lease_is_over(lease_until)",
        "WHERE incarnation = p_incarnation",
        SHARDS + "a_node_that_does_not_live_takes_nothing",
    ),
    one(
        "judged before the wait",
        INITIAL,
        "PERFORM FROM shard WHERE shard_id = p_shard_id FOR UPDATE;",
        "",
        SHARDS + "an_acquisition_that_waited_is_judged_by_what_stands_after_the_wait",
    ),
    one(
        "the lease by the statement's beginning",
        INITIAL,
        "RETURN lease_until <= clock_timestamp()",
        "RETURN lease_until <= now()",
        WAITS + "a_lease_that_ends_while_its_renewal_waits_is_not_renewed",
    ),
    one(
        "ten seconds ahead are too many",
        INITIAL,
        "interval '20 seconds'",
        "interval '10 seconds'",
        NODES + "what_may_be_marked_dead_is_exactly_what_may_not_be_renewed",
    ),
    one(
        "expiry is not final",
        NODE,
        RENEWABLE,
        "WHERE incarnation = $1 AND state <> 'dead'",
        NODES + "an_expired_lease_is_not_renewed_though_nobody_has_noticed",
        WAITS + "a_lease_that_ends_while_its_renewal_waits_is_not_renewed",
    ),
    one(
        "the dead renew",
        NODE,
        RENEWABLE,
        "WHERE incarnation = $1 AND NOT lease_is_over(lease_until)",
        NODES + "a_dead_node_is_not_renewed_though_its_lease_runs",
        NODES + "a_renewal_that_waited_is_judged_by_what_became_of_the_row",
    ),
    one(
        "neither expiry nor death",
        NODE,
        RENEWABLE,
        "WHERE incarnation = $1",
        NODES + "an_expired_lease_is_not_renewed_though_nobody_has_noticed",
        NODES + "a_dead_node_is_not_renewed_though_its_lease_runs",
    ),
    one(
        "a forgotten node that a shard names",
        NODE,
        "  AND NOT EXISTS (\n"
        "      SELECT FROM shard WHERE shard.owner = node.incarnation"
        " OR shard.heir = node.incarnation\n  )\n",
        "",
        NODES + "a_node_is_forgotten_only_when_no_shard_names_it",
    ),
    one(
        "release of an old range",
        SHARD,
        "WHERE shard_id = $1 AND owner = $2 AND range_id = $3\n    RETURNING",
        "WHERE shard_id = $1 AND owner = $2 AND $3::bigint > 0\n    RETURNING",
        SHARDS + "a_release_of_an_old_range_or_of_another_s_shard_does_nothing",
        "tests/store/test_handing_over.py"
        "::test_a_release_in_doubt_is_bumped_so_that_a_late_copy_does_nothing",
    ),
    one(
        "no end for sessions of the dead",
        SHARD,
        "theirs.state = 'dead'",
        "false",
        SHARDS + "a_frozen_dead_owner_s_lock_is_taken_from_it",
    ),
    one(
        "no end for one's own lost sessions",
        SHARD,
        "          OR theirs.node_id = (",
        "          OR '' = (",
        SHARDS + "a_bump_ends_the_session_that_its_own_process_has_lost",
    ),
    one(
        "an end for sessions of the living",
        SHARD,
        "theirs.state = 'dead'",
        "true",
        SHARDS + "a_living_owner_s_session_is_not_ended_by_a_taker",
    ),
    one(
        "rare work without a range",
        "engine/store/commit.sql",
        "WHERE shard_id = $1 AND owner = $2 AND range_id = $3",
        "WHERE shard_id = $1 AND owner = $2 AND $3::bigint > 0",
        FENCE + "rare_work_of_an_old_term_is_refused",
    ),
    one(
        "retention without a fence",
        RETENTION,
        "        WHERE s.owner = p_incarnation AND s.range_id = term.range_id\n",
        "",
        "tests/store/test_retention.py::test_an_owner_whose_term_is_over_deletes_nothing",
        "tests/store/test_retention.py"
        "::test_a_lost_shard_keeps_its_runs_and_costs_the_others_nothing",
    ),
    one(
        "rare work without a lock",
        "engine/store/commit.sql",
        "\nFOR SHARE;",
        ";",
        FENCE + "an_acquisition_waits_for_a_write_under_way_and_then_sees_it",
    ),
    one(
        "no row for a request",
        COMMIT,
        "FROM unnest(p_requests) AS x\n        WHERE x",
        "FROM unnest(p_requests) AS x\n        WHERE false AND x",
        COMMITS + "an_acknowledged_request_is_found_again_and_cannot_be_written_twice",
    ),
    one(
        "a run goes before its messages",
        RETENTION,
        "o.shard_id = held.shard_id AND starts_with",
        "false AND starts_with",
        "tests/store/test_retention.py"
        "::test_no_run_goes_while_a_message_of_its_shard_to_another_run_is_on_its_way",
    ),
    one(
        "requests go with their run",
        RETENTION,
        "v_last.closed_at + interval '24 hours'",
        "'-infinity'::timestamptz",
        "tests/store/test_retention.py::test_a_request_outlives_its_run_by_a_day_after_the_closing",
    ),
)
