-- name: count_in_flight
SELECT count(*) FROM execution WHERE namespace = 'default' AND status = 'running';

-- name: count_finished
-- Of the last minute. No index knows closed_at: what began in the last ten minutes is looked through,
-- and an order takes no more than five. A run that goes on as a new one has not finished.
SELECT count(*)
FROM execution
WHERE namespace = 'default'
    AND status IN ('completed', 'failed', 'canceled', 'terminated', 'timed_out')
    AND started_at > now() - interval '10 minutes'
    AND closed_at > now() - interval '1 minute';

-- name: read_charged_again
-- Orders that were charged in the last $1 seconds and had been charged before.
SELECT DISTINCT later.order_id
FROM mock_ledger AS later
WHERE later.effect = 'charge'
    AND later.at > now() - $1::float8 * interval '1 second'
    AND EXISTS (
        SELECT FROM mock_ledger AS earlier
        WHERE earlier.order_id = later.order_id
            AND earlier.effect = 'charge'
            AND earlier.seq < later.seq
    );
