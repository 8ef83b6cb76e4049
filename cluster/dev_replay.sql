-- name: open_runs
-- The newest ones: whoever writes a workflow looks at what was started last.
SELECT shard_id, run_id, workflow_id, workflow_type
FROM execution
WHERE namespace = $1 AND task_queue = $2 AND status = 'running'
ORDER BY started_at DESC
LIMIT $3;

-- name: read_history
SELECT event_id, type, to_us(recorded_at) AS recorded_at_us, attributes
FROM event
WHERE shard_id = $1 AND run_id = $2
ORDER BY event_id
LIMIT $3;

-- name: bury_nodes
-- Whoever owns the folder is alone: an engine that was killed holds its shards no longer.
UPDATE node SET state = 'dead' WHERE state <> 'dead';
