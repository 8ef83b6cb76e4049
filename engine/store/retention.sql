-- name: plan_by_index
-- For this transaction: a plan made while a table was empty must not scan it when it is full.
SET LOCAL enable_seqscan = off;

-- name: closed_before
-- Closed runs of a shard, oldest closing first. Runs that still have a message for another execution on its way stay.
SELECT e.run_id::text, e.namespace, e.workflow_id
FROM execution AS e
WHERE e.shard_id = $1
  AND e.closed_at IS NOT NULL
  AND e.closed_at < from_us($2)
  AND NOT EXISTS (
      SELECT FROM outbox AS o WHERE o.shard_id = $1 AND starts_with(o.destination, 'shard:')
  )
ORDER BY e.closed_at, e.run_id
LIMIT $3;

-- name: end_requests
-- The requests of workflow ids of which no run is left but those that go now: kept 24 h from the last closing on.
UPDATE request AS r
SET expires_at = last.closed_at + interval '24 hours'
FROM (
    SELECT gone.namespace, gone.workflow_id, max(e.closed_at) AS closed_at
    FROM unnest($2::uuid[]) AS wanted (run_id)
    JOIN execution AS gone ON gone.shard_id = $1 AND gone.run_id = wanted.run_id
    JOIN execution AS e
        ON e.shard_id = $1
       AND e.namespace = gone.namespace
       AND e.workflow_id = gone.workflow_id
    GROUP BY gone.namespace, gone.workflow_id
    HAVING bool_and(e.run_id = ANY ($2::uuid[]))
) AS last
WHERE r.shard_id = $1
  AND r.namespace = last.namespace
  AND r.workflow_id = last.workflow_id
  AND r.expires_at IS NULL;

-- name: delete_events
DELETE FROM event WHERE shard_id = $1 AND run_id = ANY ($2::uuid[]);

-- name: delete_executions
DELETE FROM execution
WHERE shard_id = $1 AND run_id = ANY ($2::uuid[]) AND closed_at IS NOT NULL;

-- name: delete_requests
DELETE FROM request
WHERE (shard_id, namespace, workflow_id, request_id) IN (
    SELECT shard_id, namespace, workflow_id, request_id
    FROM request
    WHERE shard_id = $1 AND expires_at < clock_timestamp()
    ORDER BY expires_at
    LIMIT $2
);
