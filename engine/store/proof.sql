-- name: proof_target
-- The run that is asked about: the one with run id $4, else the open one of the workflow id, else its
-- newest one.
SELECT e.run_id::text, e.first_run_id::text, to_us(e.started_at)
FROM execution AS e
WHERE e.shard_id = $1
  AND e.run_id = coalesce(
      $4::uuid,
      (
          SELECT o.run_id FROM execution AS o
          WHERE o.shard_id = $1 AND o.namespace = $2 AND o.workflow_id = $3
            AND o.status = 'running'
      ),
      (
          SELECT n.run_id FROM execution AS n
          WHERE n.shard_id = $1 AND n.namespace = $2 AND n.workflow_id = $3
          ORDER BY n.started_at DESC, n.run_id DESC
          LIMIT 1
      )
  )
  AND e.namespace = $2
  AND e.workflow_id = $3;

-- name: proof_runs
-- The runs of the workflow id with the first run $3, oldest first, from the run ($4, $5) on: at most $6.
-- The shard is not named: with it the primary key would look good on an empty table.
SELECT
    shard_id, run_id::text, namespace, workflow_id, first_run_id::text, workflow_type, task_queue,
    status, next_event_id, to_us(started_at), to_us(closed_at), to_us(last_event_at),
    to_us(due_at), has_task, signal_count, history_bytes, pending
FROM execution
WHERE namespace = $1 AND workflow_id = $2 AND first_run_id = $3::uuid
  AND (started_at, run_id) >= (from_us($4), $5::uuid)
ORDER BY started_at, run_id
LIMIT $6;

-- name: proof_runs_before
-- The run of the chain that began last before the run ($4, $5).
SELECT
    shard_id, run_id::text, namespace, workflow_id, first_run_id::text, workflow_type, task_queue,
    status, next_event_id, to_us(started_at), to_us(closed_at), to_us(last_event_at),
    to_us(due_at), has_task, signal_count, history_bytes, pending
FROM execution
WHERE namespace = $1 AND workflow_id = $2 AND first_run_id = $3::uuid
  AND (started_at, run_id) < (from_us($4), $5::uuid)
ORDER BY started_at DESC, run_id DESC
LIMIT 1;

-- name: proof_events
-- Events $3 to $4 of the run, at most $5, with the commit time of the transaction that each names. An
-- id of two thousand million transactions ago would stand for another one by now.
SELECT
    shard_id, run_id::text, event_id, type, to_us(recorded_at), range_id, txid::text::bigint,
    CASE
        WHEN current_setting('track_commit_timestamp')::boolean
            AND txid::text::bigint > 2
            AND txid::text::bigint
                > pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 2000000000
            THEN to_us(pg_xact_commit_timestamp(txid::xid))
    END,
    attributes
FROM event
WHERE shard_id = $1 AND run_id = $2::uuid AND event_id BETWEEN $3 AND $4
ORDER BY event_id
LIMIT $5;

-- name: proof_terms
-- What happened to ranges $2 to $3 of the shard, and to the next one that began after these; at most $4.
SELECT
    shard_id, range_id, incarnation, node_id, happening, to_us(at), txid::text::bigint,
    CASE
        WHEN current_setting('track_commit_timestamp')::boolean
            AND txid::text::bigint > 2
            AND txid::text::bigint
                > pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 2000000000
            THEN to_us(pg_xact_commit_timestamp(txid::xid))
    END
FROM shard_term
WHERE shard_id = $1
  AND range_id >= $2
  AND range_id <= coalesce(
      (
          SELECT n.range_id FROM shard_term AS n
          WHERE n.shard_id = $1 AND n.range_id > $3 AND n.happening IN ('acquired', 'bumped')
          ORDER BY n.range_id
          LIMIT 1
      ),
      $3
  )
ORDER BY range_id, happening
LIMIT $4;

-- name: proof_requests
SELECT
    shard_id, namespace, workflow_id, request_id, kind, run_id::text, event_id, body_hash,
    to_us(created_at)
FROM request
WHERE shard_id = $1 AND namespace = $2 AND workflow_id = $3 AND run_id = $4::uuid
LIMIT $5;

-- name: proof_outbox
-- Rows of the shard that name the run, among its $3 oldest rows.
SELECT
    shard_id, id, destination, body, to_us(created_at), publish_count, to_us(next_publish_at)
FROM (SELECT * FROM outbox WHERE shard_id = $1 ORDER BY id LIMIT $3) AS waiting
WHERE position(convert_to($2, 'UTF8') IN body) > 0;

-- name: proof_orders
-- The orders of effects under keys from $1 to before $2, at most $3 effects.
SELECT order_id FROM mock_ledger
WHERE idempotency_key COLLATE "C" >= $1 AND idempotency_key COLLATE "C" < $2
LIMIT $3;

-- name: proof_effects
-- All effects on the orders, at most $2. By order, as the index has them: walked by seq alone, the
-- whole ledger would be read.
SELECT
    seq, service, effect, order_id, idempotency_key, amount_cents, body_hash, to_us(at)
FROM mock_ledger
WHERE order_id = ANY ($1::text[])
ORDER BY order_id, seq
LIMIT $2;

-- name: proof_server
-- The database's clock, whether it keeps commit times, and how far back the ledgers go.
SELECT
    to_us(clock_timestamp()),
    current_setting('track_commit_timestamp')::boolean,
    (SELECT to_us(min(at)) FROM mock_ledger);
