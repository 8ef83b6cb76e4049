-- name: register_node
-- No row comes back if another process that is not dead has the node_id.
INSERT INTO node (incarnation, node_id, address, lease_until)
VALUES ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond')
ON CONFLICT (node_id) WHERE state <> 'dead' DO NOTHING
RETURNING to_us(clock_timestamp()) AS db_now_us, to_us(lease_until) AS lease_until_us;

-- name: node_id_holder
SELECT incarnation, to_us(clock_timestamp()) AS db_now_us, to_us(lease_until) AS lease_until_us
FROM node
WHERE node_id = $1 AND state <> 'dead';

-- name: renew_lease
-- Expiry is final: a lease that is over is not renewed, whether or not anybody has noticed.
UPDATE node
SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE incarnation = $1 AND state <> 'dead' AND NOT lease_is_over(lease_until)
RETURNING to_us(clock_timestamp()) AS db_now_us, to_us(lease_until) AS lease_until_us;

-- name: mark_dead_expired
-- Rows that are locked are being renewed or marked by somebody else: the next call sees what became
-- of them, and two takers cannot deadlock.
UPDATE node
SET state = 'dead'
WHERE incarnation IN (
    SELECT expired.incarnation
    FROM node AS expired
    WHERE expired.state <> 'dead' AND lease_is_over(expired.lease_until)
    ORDER BY expired.incarnation
    FOR UPDATE SKIP LOCKED
)
RETURNING incarnation;

-- name: set_draining
UPDATE node
SET state = 'draining'
WHERE incarnation = $1 AND state = 'alive'
RETURNING incarnation;

-- name: set_dead
UPDATE node
SET state = 'dead'
WHERE incarnation = $1 AND state <> 'dead'
RETURNING incarnation;

-- name: forget_nodes
-- Only rows that no shard names: a missing row must never stand for a death that somebody waits for.
DELETE FROM node
WHERE state = 'dead'
  AND lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond'
  AND NOT EXISTS (
      SELECT FROM shard WHERE shard.owner = node.incarnation OR shard.heir = node.incarnation
  )
RETURNING incarnation;
