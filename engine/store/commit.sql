-- name: commit_group
-- One call per group, see schema/0006_commit_rows.sql: fence, executions, events, requests, outbox.
SELECT refused, outbox_ids
FROM commit_group_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: share_lock_term
-- Holds the term to the end of the transaction: taking, releasing and bumping the shard wait for it.
SELECT true
FROM shard
WHERE shard_id = $1 AND owner = $2 AND range_id = $3
FOR SHARE;
