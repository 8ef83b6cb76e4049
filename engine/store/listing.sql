-- name: list_executions
-- Newest first, from before ($9, $10) on. Every filter but the namespace may be null. The condition on
-- task_timeout_ms holds for every row; the indexes for lists ask for it.
SELECT
    shard_id, namespace, workflow_id, run_id::text, workflow_type, task_queue, origin, status,
    to_us(started_at), to_us(closed_at), next_event_id - 1
FROM execution
WHERE namespace = $1
  AND task_timeout_ms >= 0
  AND ($2::text IS NULL OR status = $2)
  AND ($3::text IS NULL OR workflow_type = $3)
  AND ($4::integer IS NULL OR shard_id = $4)
  AND ($5::text IS NULL OR workflow_id = $5)
  AND ($6::text IS NULL OR origin = $6)
  AND ($7::bigint IS NULL OR started_at >= from_us($7))
  AND ($8::bigint IS NULL OR started_at < from_us($8))
  AND ($9::bigint IS NULL OR (started_at, run_id) < (from_us($9), $10::uuid))
ORDER BY started_at DESC, execution.run_id DESC
LIMIT $11;

-- name: open_counts
-- Open runs per shard, from the index over open runs: as much work as there are open runs.
SELECT shard_id, count(*) AS open_count
FROM execution
WHERE status = 'running'
GROUP BY shard_id;

-- name: table_estimates
-- How many rows the tables have, as the last analyze saw it: no table is read.
SELECT relname, greatest(reltuples, 0)::bigint AS row_count
FROM pg_class
WHERE oid IN ('execution'::regclass, 'event'::regclass, 'outbox'::regclass, 'request'::regclass);
