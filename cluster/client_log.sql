-- name: add_client_lines
-- A line that is there already came with a commit whose answer was lost.
INSERT INTO client_log (
    client, line, at, call_id, operation, kind, workflow_id, run_id, request_id, details
)
SELECT
    $1, x.line, x.at::timestamptz, x.call_id, x.operation, x.kind, x.workflow_id, x.run_id,
    x.request_id, x.details
FROM unnest(
    $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[]
) AS x (line, at, call_id, operation, kind, workflow_id, run_id, request_id, details)
ON CONFLICT (client, line) DO NOTHING;

-- name: forget_client_lines
-- The oldest first, a batch at a time: what no check looks at any more must not fill the disk.
DELETE FROM client_log
WHERE (client, line) IN (
    SELECT client, line
    FROM client_log
    WHERE recorded_at < clock_timestamp() - interval '24 hours'
    ORDER BY recorded_at, line
    LIMIT 2000
);
