-- name: lookup_many
-- For each wanted line, in order: what its request id was answered, and its run. Without a run id that is
-- the open run of the workflow id, else its newest one. The limits keep each look-up one per line: on an
-- empty table a join would be planned the other way round, and stay so.
SELECT
    answered.kind, answered.run_id, answered.event_id, answered.body_hash,
    found.*
FROM unnest($1::integer[], $2::text[], $3::text[], $4::uuid[], $5::text[])
    WITH ORDINALITY AS wanted (shard_id, namespace, workflow_id, run_id, request_id, position)
LEFT JOIN LATERAL (
    SELECT request.kind, request.run_id::text, request.event_id, request.body_hash
    FROM request
    WHERE request.shard_id = wanted.shard_id
      AND request.namespace = wanted.namespace
      AND request.workflow_id = wanted.workflow_id
      AND request.request_id = wanted.request_id
    LIMIT 1
) AS answered ON true
LEFT JOIN LATERAL (
    SELECT
        e.shard_id, e.namespace, e.workflow_id, e.run_id::text, e.first_run_id::text,
        e.workflow_type, e.task_queue, e.origin, e.build_id, e.status, e.next_event_id,
        e.state_token, e.task_token, to_us(e.started_at), to_us(e.closed_at),
        to_us(e.last_event_at), to_us(e.run_deadline_at), to_us(e.execution_deadline_at),
        e.task_timeout_ms, e.cancel_requested, e.last_message_event_id, e.last_visible_event_id,
        e.signal_count, e.history_bytes, e.parent, e.memo, e.search_attributes, e.pending
    FROM execution AS e
    WHERE e.shard_id = wanted.shard_id
      AND e.run_id = coalesce(
          wanted.run_id,
          (
              SELECT o.run_id FROM execution AS o
              WHERE o.shard_id = wanted.shard_id
                AND o.namespace = wanted.namespace
                AND o.workflow_id = wanted.workflow_id
                AND o.status = 'running'
          ),
          (
              SELECT n.run_id FROM execution AS n
              WHERE n.shard_id = wanted.shard_id
                AND n.namespace = wanted.namespace
                AND n.workflow_id = wanted.workflow_id
              ORDER BY n.started_at DESC, n.run_id DESC
              LIMIT 1
          )
      )
      AND e.namespace = wanted.namespace
      AND e.workflow_id = wanted.workflow_id
    LIMIT 1
) AS found ON true
ORDER BY wanted.position;
