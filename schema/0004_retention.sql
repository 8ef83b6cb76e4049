-- Closed runs go after a while, in paced batches by their shard's owner. What was acknowledged outlives them: a
-- request row gets its end when the last run of its workflow id goes, 24 h after that run closed.
ALTER TABLE request ADD COLUMN expires_at timestamptz;

CREATE INDEX execution_closed ON execution (shard_id, closed_at, run_id) WHERE closed_at IS NOT NULL;
CREATE INDEX request_expires ON request (shard_id, expires_at) WHERE expires_at IS NOT NULL;
