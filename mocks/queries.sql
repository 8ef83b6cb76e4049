-- name: take_key
-- Waits for a concurrent holder of the same key to commit or roll back; no row means that it exists.
INSERT INTO mock_key (service, idempotency_key, body_hash)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
RETURNING TRUE;

-- name: answer_of_key
SELECT body_hash, status, answer
FROM mock_key
WHERE service = $1 AND idempotency_key = $2;

-- name: keep_answer
UPDATE mock_key
SET status = $3, answer = $4
WHERE service = $1 AND idempotency_key = $2;

-- name: lock_order
-- An order that has no row yet has no lock either; the advisory lock serialises its first requests.
SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 0));

-- name: known_order
SELECT state, amount_cents, sku, quantity
FROM mock_order
WHERE service = $1 AND order_id = $2;

-- name: keep_order
INSERT INTO mock_order (service, order_id, state, amount_cents, sku, quantity)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (service, order_id) DO UPDATE
SET
    state = excluded.state,
    amount_cents = excluded.amount_cents,
    sku = excluded.sku,
    quantity = excluded.quantity,
    changed_at = clock_timestamp();

-- name: append_effect
INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, amount_cents, body_hash)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: move_stock
-- No row: the sku is unknown or not enough of it is left.
UPDATE mock_stock
SET available = available + $2, reserved = reserved + $3, shipped = shipped + $4
WHERE sku = $1
  AND available + $2 >= 0
  AND reserved + $3 >= 0
  AND shipped + $4 >= 0
RETURNING TRUE;

-- name: send_driver
INSERT INTO mock_delivery (order_id, workflow_id, driver, request_id, due_at, next_attempt_at)
SELECT $1, $2, $3, $4, due.at, due.at
FROM (
    SELECT clock_timestamp() + make_interval(secs => $5::float8 + random() * ($6::float8 - $5::float8))
) AS due (at)
ON CONFLICT (order_id) DO NOTHING;

-- name: call_driver_off
UPDATE mock_delivery
SET state = 'cancelled'
WHERE order_id = $1 AND state IN ('underway', 'delivered');

-- name: claim_deliveries
-- The parcel is handed over in the statement that first finds it due, and the ledger says so; from
-- then on the row comes back after the claim's time until the report of it is settled.
WITH due AS (
    SELECT order_id, state AS state_before
    FROM mock_delivery
    WHERE state IN ('underway', 'delivered') AND next_attempt_at <= clock_timestamp()
    ORDER BY next_attempt_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE mock_delivery AS delivery
    SET
        state = 'delivered',
        delivered_at = coalesce(delivery.delivered_at, clock_timestamp()),
        attempt_count = delivery.attempt_count + 1,
        next_attempt_at = clock_timestamp() + make_interval(secs => $2::float8)
    FROM due
    WHERE delivery.order_id = due.order_id
    RETURNING
        delivery.order_id, delivery.workflow_id, delivery.driver, delivery.request_id,
        delivery.delivered_at, delivery.attempt_count, due.state_before
), recorded AS (
    INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, body_hash)
    SELECT 'drivers', 'deliver', order_id, request_id, ''::bytea
    FROM claimed
    WHERE state_before = 'underway'
)
SELECT order_id, workflow_id, driver, request_id, delivered_at, attempt_count
FROM claimed;

-- name: settle_delivery
UPDATE mock_delivery
SET state = $2, last_error = $3
WHERE order_id = $1 AND state = 'delivered';

-- name: put_delivery_off
UPDATE mock_delivery
SET next_attempt_at = clock_timestamp() + make_interval(secs => $2::float8), last_error = $3
WHERE order_id = $1 AND state = 'delivered';

-- name: forget_keys
DELETE FROM mock_key
WHERE (service, idempotency_key) IN (
    SELECT service, idempotency_key
    FROM mock_key
    WHERE service = $1 AND created_at < clock_timestamp() - $2::interval
    LIMIT $3
);

-- name: forget_effects
DELETE FROM mock_ledger
WHERE seq IN (
    SELECT seq
    FROM mock_ledger
    WHERE service = $1 AND at < clock_timestamp() - $2::interval
    LIMIT $3
);

-- name: forget_orders
DELETE FROM mock_order
WHERE (service, order_id) IN (
    SELECT service, order_id
    FROM mock_order
    WHERE service = $1 AND changed_at < clock_timestamp() - $2::interval
    LIMIT $3
);

-- name: forget_deliveries
DELETE FROM mock_delivery
WHERE order_id IN (
    SELECT order_id
    FROM mock_delivery
    WHERE $1::text = 'drivers' AND due_at < clock_timestamp() - $2::interval
    LIMIT $3
);
