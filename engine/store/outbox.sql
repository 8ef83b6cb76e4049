-- name: outbox_due
-- Rows of the shards $1 that may be published (again), those that have waited longest first.
SELECT due.shard_id, due.id, due.destination, due.body, due.publish_count,
    to_us(due.next_publish_at) AS next_publish_us
FROM unnest($1::integer[]) AS wanted (shard_id)
CROSS JOIN LATERAL (
    SELECT outbox.shard_id, outbox.id, outbox.destination, outbox.body, outbox.publish_count,
        outbox.next_publish_at
    FROM outbox
    WHERE outbox.shard_id = wanted.shard_id
      AND outbox.publish_count >= 0
      AND outbox.next_publish_at <= from_us($2::bigint)
    ORDER BY outbox.next_publish_at, outbox.id
    LIMIT $3
) AS due
ORDER BY due.next_publish_at, due.id
LIMIT $3;

-- name: outbox_all
-- What a new owner inherits, in the order of ids, from after $2 on.
SELECT shard_id, id, destination, body, publish_count, to_us(next_publish_at) AS next_publish_us
FROM outbox
WHERE shard_id = $1 AND id > $2
ORDER BY id
LIMIT $3;

-- name: outbox_counts
-- How many rows wait per shard; counts no further than $1 rows in all.
SELECT shard_id, count(*) AS row_count
FROM (SELECT shard_id FROM outbox LIMIT $1) AS counted
GROUP BY shard_id;
