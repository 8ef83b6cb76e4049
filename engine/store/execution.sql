-- name: load_execution
SELECT
    shard_id, namespace, workflow_id, run_id::text, first_run_id::text, workflow_type, task_queue,
    origin, build_id, status, next_event_id, state_token, task_token, to_us(started_at),
    to_us(closed_at), to_us(last_event_at), to_us(run_deadline_at), to_us(execution_deadline_at),
    task_timeout_ms, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
    history_bytes, parent, memo, search_attributes, pending
FROM execution
WHERE shard_id = $1 AND run_id = $2::uuid;

-- name: load_many
-- The limit keeps the look-up one per row: on an empty table a join would be planned the other way.
SELECT
    shard_id, namespace, workflow_id, run_id::text, first_run_id::text, workflow_type, task_queue,
    origin, build_id, status, next_event_id, state_token, task_token, to_us(started_at),
    to_us(closed_at), to_us(last_event_at), to_us(run_deadline_at), to_us(execution_deadline_at),
    task_timeout_ms, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
    history_bytes, parent, memo, search_attributes, pending
FROM unnest($1::integer[], $2::uuid[]) AS wanted (wanted_shard_id, wanted_run_id)
CROSS JOIN LATERAL (
    SELECT *
    FROM execution
    WHERE shard_id = wanted.wanted_shard_id AND run_id = wanted.wanted_run_id
    LIMIT 1
) AS found;

-- name: load_open
SELECT
    shard_id, namespace, workflow_id, run_id::text, first_run_id::text, workflow_type, task_queue,
    origin, build_id, status, next_event_id, state_token, task_token, to_us(started_at),
    to_us(closed_at), to_us(last_event_at), to_us(run_deadline_at), to_us(execution_deadline_at),
    task_timeout_ms, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
    history_bytes, parent, memo, search_attributes, pending
FROM execution
WHERE shard_id = $1 AND namespace = $2 AND workflow_id = $3 AND status = 'running';

-- name: load_latest
-- The open run if there is one: two runs of one chain may share the microsecond of their start.
WITH newest AS (
    (
        SELECT run_id, 0 AS rank
        FROM execution
        WHERE shard_id = $1 AND namespace = $2 AND workflow_id = $3 AND status = 'running'
        LIMIT 1
    )
    UNION ALL
    (
        SELECT run_id, 1 AS rank
        FROM execution
        WHERE shard_id = $1 AND namespace = $2 AND workflow_id = $3
        ORDER BY started_at DESC, run_id DESC
        LIMIT 1
    )
    ORDER BY rank
    LIMIT 1
)
SELECT
    shard_id, namespace, workflow_id, run_id::text, first_run_id::text, workflow_type, task_queue,
    origin, build_id, status, next_event_id, state_token, task_token, to_us(started_at),
    to_us(closed_at), to_us(last_event_at), to_us(run_deadline_at), to_us(execution_deadline_at),
    task_timeout_ms, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
    history_bytes, parent, memo, search_attributes, pending
FROM execution
JOIN newest USING (run_id)
WHERE shard_id = $1;

-- name: scheduled_tasks
-- Open runs that may have a task that waits to be taken, in the order of their ids, from after $2 on.
SELECT run_id::text
FROM execution
WHERE shard_id = $1 AND has_task AND run_id > $2::uuid
ORDER BY execution.run_id
LIMIT $3;

-- name: due_before
-- The runs of the shards $1 that may have something due, earliest first, from after ($3, $4) on.
SELECT due.shard_id, due.run_id::text, to_us(due.due_at) AS due_us
FROM unnest($1::integer[]) AS wanted (shard_id)
CROSS JOIN LATERAL (
    SELECT execution.shard_id, execution.run_id, execution.due_at
    FROM execution
    WHERE execution.shard_id = wanted.shard_id
      AND execution.due_at IS NOT NULL
      AND execution.due_at <= from_us($2::bigint)
      AND (execution.due_at, execution.run_id) > (from_us($3::bigint), $4::uuid)
    ORDER BY execution.due_at, execution.run_id
    LIMIT $5
) AS due
ORDER BY due.due_at, due.run_id
LIMIT $5;
