-- name: delete_closed
SELECT refused, shard_ids, run_ids FROM delete_closed_runs($1, $2, $3, $4, $5);
