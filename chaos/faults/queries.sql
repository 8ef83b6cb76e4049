-- name: read_now
SELECT clock_timestamp();

-- name: count_shards
SELECT shard_count FROM cluster;

-- name: read_owned
-- Shards whose owner is one of these nodes.
SELECT shard.shard_id
FROM shard JOIN node ON node.incarnation = shard.owner
WHERE node.node_id = ANY ($1::text[]) AND node.state <> 'dead'
ORDER BY shard.shard_id;

-- name: read_owners
-- How many shards each engine with a live lease owns.
SELECT node.node_id, count(*) AS shards
FROM shard JOIN node ON node.incarnation = shard.owner
WHERE node.state = 'alive' AND node.lease_until > clock_timestamp()
GROUP BY node.node_id
ORDER BY node.node_id;

-- name: read_terms
-- What happened to the terms of these shards since $1.
SELECT happening, node_id, count(*) AS terms, count(DISTINCT shard_id) AS shards,
    extract(epoch FROM min(at) - $1::timestamptz)::float8 AS first_seconds,
    extract(epoch FROM max(at) - $1::timestamptz)::float8 AS last_seconds
FROM shard_term
WHERE at > $1 AND shard_id = ANY ($2::integer[])
GROUP BY happening, node_id
ORDER BY happening, node_id;

-- name: count_expired
SELECT count(*) FROM shard_term WHERE happening = 'expired' AND at > $1;

-- name: read_backends
SELECT pid
FROM pg_stat_activity
WHERE backend_type = 'client backend'
    AND datname = current_database()
    AND application_name LIKE 'odin-%'
    AND pid <> pg_backend_pid()
ORDER BY pid;

-- name: read_outbox
-- Rows that wait in these shards, and how often they were published.
SELECT count(*) AS depth, coalesce(max(publish_count), 0) AS published_max,
    coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_seconds
FROM outbox
WHERE shard_id = ANY ($1::integer[]);

-- name: read_runs
SELECT workflow_id, count(*) AS runs, min(status) AS status
FROM execution
WHERE workflow_id = ANY ($1::text[])
GROUP BY workflow_id;

-- name: read_charged_again
SELECT order_id
FROM mock_ledger
WHERE effect = 'charge' AND order_id = ANY ($1::text[])
GROUP BY order_id
HAVING count(*) > 1;

-- name: count_dead_letters
SELECT count(*) FROM dead_letter WHERE recorded_at > $1;

-- name: has_evidence_table
SELECT to_regclass('chaos_experiment') IS NOT NULL;

-- name: count_open
-- Runs that began in a window and have not closed.
SELECT count(*) FROM execution
WHERE status = 'running' AND started_at >= $1::timestamptz AND started_at < $2::timestamptz;
