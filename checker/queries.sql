-- name: begin_snapshot
-- The first statement of the snapshot: what stands from here on is what is judged.
SELECT
    to_us(clock_timestamp()) AS now_us,
    coalesce(current_setting('track_commit_timestamp', true) = 'on', false) AS has_commit_times,
    (SELECT shard_count FROM cluster) AS shard_count,
    (SELECT to_us(min(at)) FROM mock_ledger) AS effects_since_us,
    (SELECT count(*) FROM schedule) AS schedule_count;

-- name: count_runs
-- How much there is to do, for whoever watches.
SELECT count(*), coalesce(sum(next_event_id - 1), 0)
FROM execution
WHERE started_at < from_us($2) AND (closed_at IS NULL OR closed_at >= from_us($1));

-- name: read_runs
-- Every run of every chain that the window touches; a chain comes in one piece, oldest run first.
WITH touched AS (
    SELECT DISTINCT shard_id, first_run_id
    FROM execution
    WHERE started_at < from_us($2) AND (closed_at IS NULL OR closed_at >= from_us($1))
)
SELECT
    e.shard_id, e.run_id::text, e.namespace, e.workflow_id, e.first_run_id::text, e.workflow_type,
    e.task_queue, e.status, e.next_event_id, to_us(e.started_at) AS started_at_us,
    to_us(e.closed_at) AS closed_at_us, to_us(e.last_event_at) AS last_event_at_us,
    to_us(e.due_at) AS due_at_us, e.has_task, e.signal_count, e.history_bytes, e.pending
FROM execution AS e
JOIN touched USING (shard_id, first_run_id)
ORDER BY e.shard_id, e.namespace, e.workflow_id, e.first_run_id, e.started_at, e.run_id;

-- name: read_events
-- Of the given runs. Each is looked up by itself: a plan that scans all events would do so per batch.
SELECT
    wanted.shard_id, wanted.run_id::text AS run_id, found.event_id, found.type,
    to_us(found.recorded_at) AS recorded_at_us, found.range_id, found.txid,
    CASE WHEN $3::boolean THEN to_us(pg_xact_commit_timestamp(found.txid::xid)) END AS commit_at_us,
    found.attributes
FROM unnest($1::integer[], $2::uuid[]) AS wanted (shard_id, run_id)
CROSS JOIN LATERAL (
    SELECT event_id, type, recorded_at, range_id, txid, attributes
    FROM event
    WHERE event.shard_id = wanted.shard_id AND event.run_id = wanted.run_id
    ORDER BY event_id
    OFFSET 0
) AS found;

-- name: read_terms
SELECT
    shard_id, range_id, incarnation, node_id, happening AS what, to_us(at) AS at_us, txid,
    CASE WHEN $1::boolean THEN to_us(pg_xact_commit_timestamp(txid::xid)) END AS commit_at_us
FROM shard_term
ORDER BY shard_id, range_id, at;

-- name: read_shards
SELECT shard_id, range_id, owner FROM shard ORDER BY shard_id;

-- name: read_requests
SELECT
    found.shard_id, found.namespace, found.workflow_id, found.request_id, found.kind,
    found.run_id::text AS run_id, found.event_id, found.body_hash,
    to_us(found.created_at) AS created_at_us
FROM unnest($1::integer[], $2::text[], $3::text[]) AS wanted (shard_id, namespace, workflow_id)
CROSS JOIN LATERAL (
    SELECT *
    FROM request
    WHERE request.shard_id = wanted.shard_id
      AND request.namespace = wanted.namespace
      AND request.workflow_id = wanted.workflow_id
    OFFSET 0
) AS found;

-- name: read_effects
-- Under keys of the given runs, and on the orders that those or the workflow ids name. A key begins
-- with the run's; "0" is the character after "/".
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS w (run_id, workflow_id, prefix)
), keyed AS (
    SELECT wanted.run_id, found.order_id
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT order_id
        FROM mock_ledger
        WHERE idempotency_key COLLATE "C" >= wanted.prefix || '/'
          AND idempotency_key COLLATE "C" < wanted.prefix || '0'
        OFFSET 0
    ) AS found
), orders AS (
    SELECT run_id, order_id FROM keyed
    UNION
    SELECT run_id, workflow_id FROM wanted
)
SELECT
    orders.run_id, effect.seq, effect.service, effect.effect AS kind, effect.order_id,
    effect.idempotency_key, effect.amount_cents, effect.body_hash, to_us(effect.at) AS at_us
FROM orders
CROSS JOIN LATERAL (
    SELECT * FROM mock_ledger WHERE mock_ledger.order_id = orders.order_id OFFSET 0
) AS effect
ORDER BY effect.seq;

-- name: read_orphans
-- Effects of the window under keys of runs that are not there. A delivery has a key of its own.
SELECT seq, effect AS kind, order_id, idempotency_key
FROM mock_ledger
WHERE at >= from_us($1)
  AND at < from_us($2)
  AND effect <> 'deliver'
  AND NOT EXISTS (
      SELECT
      FROM execution
      WHERE execution.workflow_id = split_part(mock_ledger.idempotency_key, '/', 1)
        AND execution.run_id::text = split_part(mock_ledger.idempotency_key, '/', 2)
  )
ORDER BY seq
LIMIT $3;

-- name: read_outbox
SELECT
    shard_id, id, destination, body, to_us(created_at) AS created_at_us, publish_count,
    to_us(next_publish_at) AS next_publish_at_us
FROM outbox
ORDER BY shard_id, id;

-- name: read_standing
-- How the runs stand that outbox rows name.
SELECT execution.run_id::text AS run_id, status, to_us(closed_at) AS closed_at_us
FROM unnest($1::integer[], $2::uuid[]) AS wanted (shard_id, run_id)
JOIN execution USING (shard_id, run_id);

-- name: read_clients
SELECT client, min(line) AS first_line, max(line) AS last_line, count(*) AS line_count
FROM client_log
WHERE client IN (
    SELECT client FROM client_log WHERE at >= from_us($1) AND at < from_us($2)
)
GROUP BY client
ORDER BY client;

-- name: read_workflow_ids
-- Everything that anybody has told of in the window, or that ran in it.
SELECT namespace, workflow_id
FROM client_log
WHERE at >= from_us($1) AND at < from_us($2)
UNION
SELECT namespace, workflow_id
FROM execution
WHERE started_at < from_us($2) AND (closed_at IS NULL OR closed_at >= from_us($1))
UNION
SELECT 'default', workflow_id
FROM mock_delivery
WHERE due_at >= from_us($1) AND due_at < from_us($2)
ORDER BY 1, 2;

-- name: read_calls
SELECT
    client, call_id, operation, kind, namespace, workflow_id, run_id, request_id, details, line
FROM client_log
JOIN unnest($1::text[], $2::text[]) AS wanted (namespace, workflow_id)
    USING (namespace, workflow_id)
ORDER BY client, line;

-- name: read_run_refs
SELECT
    e.namespace, e.workflow_id, e.shard_id, e.run_id::text, e.first_run_id::text, e.status,
    e.parent IS NOT NULL AS has_parent, e.signal_count
FROM execution AS e
JOIN unnest($1::text[], $2::text[]) AS wanted (namespace, workflow_id)
    USING (namespace, workflow_id)
ORDER BY e.started_at, e.run_id;

-- name: read_signals
SELECT wanted.run_id::text AS run_id, found.event_id, found.attributes
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS wanted (shard_id, run_id, position)
CROSS JOIN LATERAL (
    SELECT event_id, attributes
    FROM event
    WHERE event.shard_id = wanted.shard_id
      AND event.run_id = wanted.run_id
      AND event.type = 'workflow_execution_signaled'
    OFFSET 0
) AS found
ORDER BY wanted.position, found.event_id;

-- name: read_deliveries
SELECT order_id, workflow_id, request_id, state
FROM mock_delivery
WHERE workflow_id = ANY ($1::text[]);

-- name: read_stock
-- With what orders hold of each sku; shipping's orders keep their pieces while they are reserved or
-- recalled.
SELECT
    stock.sku, stock.total, stock.available, stock.reserved, stock.shipped,
    coalesce(held.quantity, 0) AS held
FROM mock_stock AS stock
LEFT JOIN (
    SELECT sku, sum(quantity) AS quantity
    FROM mock_order
    WHERE service = 'shipping' AND state IN ('reserved', 'recalled')
    GROUP BY sku
) AS held USING (sku)
ORDER BY stock.sku;

-- name: read_sessions
SELECT
    pid,
    coalesce(application_name, '') AS application_name,
    CASE WHEN starts_with(state, 'idle in transaction')
        THEN extract(epoch FROM clock_timestamp() - state_change)::double precision
        ELSE 0 END AS idle_in_transaction_seconds,
    CASE WHEN wait_event_type = 'Lock'
        THEN extract(epoch FROM clock_timestamp() - query_start)::double precision
        ELSE 0 END AS lock_wait_seconds
FROM pg_stat_activity
WHERE datname = current_database()
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()
  AND application_name <> 'odin-checker';

-- name: read_tables
SELECT relname AS name, n_live_tup AS live_tuples, n_dead_tup AS dead_tuples
FROM pg_stat_user_tables
WHERE schemaname = 'public' AND relname IN ('outbox', 'execution', 'shard', 'node', 'event', 'request')
ORDER BY relname;

-- name: choose_outcomes
-- The newest closed runs of the window.
SELECT run_id::text AS run_id
FROM execution
WHERE closed_at >= from_us($1) AND closed_at < from_us($2)
ORDER BY closed_at DESC
LIMIT $3;

-- name: read_outcomes
-- A digest of how each of the runs ended; those that are gone are left out.
SELECT
    e.run_id::text AS run_id,
    encode(sha256(convert_to(e.status, 'UTF8') || closing.attributes), 'hex') AS digest
FROM execution AS e
JOIN event AS closing
    ON closing.shard_id = e.shard_id
    AND closing.run_id = e.run_id
    AND closing.event_id = e.next_event_id - 1
WHERE e.run_id = ANY ($1::uuid[]) AND e.closed_at IS NOT NULL;

-- name: last_outcomes
SELECT outcomes FROM check_result ORDER BY id DESC LIMIT 1;

-- name: read_experiment
SELECT
    id, scenario, status, evidence, to_us(started_at) AS started_at_us,
    to_us(healed_at) AS healed_at_us, to_us(ended_at) AS ended_at_us
FROM chaos_experiment
WHERE id = $1;

-- name: last_fault
-- When the newest fault was healed, and whether one is not.
SELECT
    to_us(max(healed_at)) AS healed_at_us,
    coalesce(bool_or(healed_at IS NULL AND ended_at IS NULL), false) AS is_broken
FROM chaos_experiment;

-- name: choose_replays
-- Some runs of the window, chosen by lot: the same seed chooses the same.
SELECT shard_id, run_id::text, namespace, workflow_id, workflow_type
FROM execution
WHERE started_at < from_us($2)
  AND (closed_at IS NULL OR closed_at >= from_us($1))
  AND workflow_type = ANY ($3::text[])
  AND next_event_id <= $5
ORDER BY md5(run_id::text || $4::text)
LIMIT $6;

-- name: read_history
SELECT event_id, type, to_us(recorded_at) AS recorded_at_us, attributes
FROM event
WHERE shard_id = $1 AND run_id = $2::uuid
ORDER BY event_id;

-- name: write_result
INSERT INTO check_result (since, until, experiment_id, verdict, seconds, findings, outcomes)
VALUES (from_us($1), from_us($2), $3, $4, $5, $6, $7)
RETURNING id;
