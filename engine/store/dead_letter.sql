-- name: record_dead_letters
INSERT INTO dead_letter (shard_id, kind, run_id, number, attempt, reason)
SELECT shard_id, kind, run_id, number, attempt, $6
FROM unnest($1::integer[], $2::text[], $3::text[], $4::integer[], $5::integer[])
    AS dead (shard_id, kind, run_id, number, attempt);
