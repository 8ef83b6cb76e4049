-- name: create_cluster
SELECT shard_count, mode FROM create_cluster($1, $2);

-- name: acquire_shard
SELECT acquire_shard($1, $2, $3) AS range_id;

-- name: bump_shards
SELECT shard_id, range_id FROM bump_shards($1, $2, $3);

-- name: release_shard
-- A fenced write like any other: a late copy finds another range and does nothing.
WITH released AS (
    UPDATE shard
    SET owner = NULL, heir = $4, released_at = clock_timestamp()
    WHERE shard_id = $1 AND owner = $2 AND range_id = $3
    RETURNING shard_id, range_id
)
INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
SELECT released.shard_id, released.range_id, 'released', $2, coalesce(node.node_id, '')
FROM released
LEFT JOIN node ON node.incarnation = $2
RETURNING shard_id;

-- name: end_blocking_backends
-- Ends the sessions that keep the backend $1 from its lock, if they belong to a dead process, to an
-- earlier one of the same node, or to the asker itself (a connection that it lost).
-- The choice is materialized: the planner would otherwise end every blocker first and choose then.
WITH chosen AS MATERIALIZED (
    SELECT blocker.pid
    FROM unnest(pg_blocking_pids($1)) AS blocker (pid)
    JOIN pg_stat_activity AS activity ON activity.pid = blocker.pid
    JOIN node AS theirs ON theirs.incarnation = split_part(activity.application_name, '/', 2)
    WHERE activity.application_name LIKE 'odin-engine/%'
      AND (
          theirs.state = 'dead'
          OR theirs.node_id = (SELECT mine.node_id FROM node AS mine WHERE mine.incarnation = $2)
      )
)
SELECT pid FROM chosen WHERE pg_terminate_backend(pid);

-- name: cluster_view
-- One row: the database's clock, then the nodes and the shards column by column.
SELECT to_us(clock_timestamp()) AS db_now_us, nodes.*, shards.*
FROM (
    SELECT
        array_agg(incarnation ORDER BY incarnation) AS incarnations,
        array_agg(node_id ORDER BY incarnation) AS node_ids,
        array_agg(state ORDER BY incarnation) AS states,
        array_agg(to_us(lease_until) ORDER BY incarnation) AS leases,
        array_agg(address ORDER BY incarnation) AS addresses
    FROM node
) AS nodes
CROSS JOIN (
    SELECT
        array_agg(shard_id ORDER BY shard_id) AS shard_ids,
        array_agg(owner ORDER BY shard_id) AS owners,
        array_agg(heir ORDER BY shard_id) AS heirs,
        array_agg(to_us(released_at) ORDER BY shard_id) AS releases,
        array_agg(range_id ORDER BY shard_id) AS ranges
    FROM shard
) AS shards;
