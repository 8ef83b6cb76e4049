-- The books of the mock services: payments, shipping and drivers. No part of the engine; what the
-- checker and the demo's verification hold against the engine's own histories.

-- What was answered under an idempotency key. Written in the transaction of the effect itself, so
-- that neither a crash nor a lost answer can part the two.
CREATE TABLE mock_key (
    service text NOT NULL CHECK (service IN ('payments', 'shipping', 'drivers')),
    idempotency_key text NOT NULL,
    body_hash bytea NOT NULL,
    status integer,
    answer bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (service, idempotency_key)
);
CREATE INDEX mock_key_created_at ON mock_key (created_at);

-- Append-only: one row per effect. `seq` orders the effects of one order over all services: a step
-- begins after the answer of the one before it, so after that one's commit. It is not unique per key
-- on purpose: a double effect must show.
CREATE TABLE mock_ledger (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service text NOT NULL CHECK (service IN ('payments', 'shipping', 'drivers')),
    effect text NOT NULL CHECK (
        effect IN (
            'charge', 'refund', 'reserve', 'unreserve', 'ship', 'cancel_shipment', 'assign',
            'unassign', 'deliver'
        )
    ),
    order_id text NOT NULL,
    idempotency_key text NOT NULL,
    amount_cents bigint NOT NULL DEFAULT 0,
    body_hash bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX mock_ledger_order ON mock_ledger (order_id, seq);
CREATE INDEX mock_ledger_at ON mock_ledger (at);

CREATE FUNCTION mock_ledger_refuse_update() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'mock_ledger is append-only';
END
$$;
CREATE TRIGGER mock_ledger_append_only
BEFORE UPDATE ON mock_ledger
FOR EACH ROW EXECUTE FUNCTION mock_ledger_refuse_update();

-- What a service knows of an order; `sku` and `quantity` say what shipping holds for it.
CREATE TABLE mock_order (
    service text NOT NULL CHECK (service IN ('payments', 'shipping', 'drivers')),
    order_id text NOT NULL,
    state text NOT NULL,
    amount_cents bigint NOT NULL DEFAULT 0,
    sku text NOT NULL DEFAULT '',
    quantity integer NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (service, order_id)
);
CREATE INDEX mock_order_changed_at ON mock_order (changed_at);

-- Conserved: available + reserved + shipped = total, always.
CREATE TABLE mock_stock (
    sku text PRIMARY KEY,
    total bigint NOT NULL,
    available bigint NOT NULL CHECK (available >= 0),
    reserved bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    shipped bigint NOT NULL DEFAULT 0 CHECK (shipped >= 0)
) WITH (fillfactor = 50);
INSERT INTO mock_stock (sku, total, available)
SELECT sku, 1000000000, 1000000000
FROM (
    SELECT 'sku-' || lpad(n::text, 2, '0') AS sku FROM generate_series(0, 19) AS n
    UNION ALL SELECT unnest(ARRAY['tea', 'coffee'])
) AS goods;

-- A driver under way. `due_at` is when the parcel is handed over; after that the delivery is
-- reported to an engine until one gives a definite answer.
CREATE TABLE mock_delivery (
    order_id text PRIMARY KEY,
    workflow_id text NOT NULL,
    driver text NOT NULL,
    request_id text NOT NULL,
    state text NOT NULL DEFAULT 'underway' CHECK (
        state IN ('underway', 'delivered', 'reported', 'refused', 'cancelled')
    ),
    due_at timestamptz NOT NULL,
    delivered_at timestamptz,
    next_attempt_at timestamptz NOT NULL,
    attempt_count integer NOT NULL DEFAULT 0,
    last_error text NOT NULL DEFAULT ''
);
CREATE INDEX mock_delivery_pending ON mock_delivery (next_attempt_at)
WHERE state IN ('underway', 'delivered');
CREATE INDEX mock_delivery_due_at ON mock_delivery (due_at);
