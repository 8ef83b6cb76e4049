-- name: commit_group
-- One call per group, see schema/0001_initial.sql: fence, executions, events, requests, outbox.
SELECT refused, outbox_ids
FROM commit_group(
    $1, $2, $3, $4,
    $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
    $26, $27, $28, $29, $30, $31, $32, $33, $34,
    $35, $36, $37, $38, $39, $40, $41,
    $42, $43, $44,
    $45, $46,
    $47, $48, $49, $50,
    $51, $52, $53, $54, $55, $56, $57, $58
);

-- name: share_lock_term
-- Holds the term to the end of the transaction: taking, releasing and bumping the shard wait for it.
SELECT true
FROM shard
WHERE shard_id = $1 AND owner = $2 AND range_id = $3
FOR SHARE;
