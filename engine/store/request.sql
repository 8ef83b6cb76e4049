-- name: load_request
SELECT kind, run_id::text, event_id, body_hash
FROM request
WHERE shard_id = $1 AND namespace = $2 AND workflow_id = $3 AND request_id = $4;
