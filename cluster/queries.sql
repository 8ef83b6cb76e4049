-- name: count_open
SELECT count(*)
FROM execution
WHERE status = 'running' AND workflow_id = ANY($1::text[]);

-- name: read_runs
-- Every run of the workflows, with what its events add up to and the one that closed it.
SELECT
    execution.workflow_id,
    execution.run_id::text AS run_id,
    execution.status,
    execution.next_event_id,
    counted.event_count,
    counted.first_event_id,
    counted.last_event_id,
    closing.type AS closing_type,
    closing.attributes AS closing_attributes
FROM execution
CROSS JOIN LATERAL (
    SELECT count(*) AS event_count, min(event_id) AS first_event_id, max(event_id) AS last_event_id
    FROM event
    WHERE event.shard_id = execution.shard_id AND event.run_id = execution.run_id
) AS counted
LEFT JOIN event AS closing
    ON closing.shard_id = execution.shard_id
    AND closing.run_id = execution.run_id
    AND closing.event_id = execution.next_event_id - 1
WHERE execution.workflow_id = ANY($1::text[])
ORDER BY execution.workflow_id, execution.started_at, execution.run_id;

-- name: read_effects
-- A subscription's orders are named after it, with the number of the period behind a dot.
SELECT
    seq, service, effect, order_id, amount_cents,
    regexp_replace(order_id, '\.[0-9]+$', '') AS workflow_id
FROM mock_ledger
WHERE regexp_replace(order_id, '\.[0-9]+$', '') = ANY($1::text[])
ORDER BY seq;

-- name: read_stock_lost
SELECT sku
FROM mock_stock
WHERE available + reserved + shipped <> total
ORDER BY sku;

-- name: terminate_backends
-- Of odin's own processes, this one excepted.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE backend_type = 'client backend'
  AND pid <> pg_backend_pid()
  AND datname = current_database()
  AND application_name LIKE 'odin-%';
