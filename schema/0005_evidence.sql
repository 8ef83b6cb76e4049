-- What others than the engine tell: clients of their calls, experiments of their faults, the checker of what it found.
-- None of it decides anything. It is what the engine's own tables are held against.

-- Append-only: one row per line of a client's log. A call begins with `invoke` and ends with `ok` (accepted), `fail`
-- (refused: it has not happened and never will) or `unknown` (no answer in time); without an end it is unknown too.
-- `line` counts the lines of a client from 1 without a gap, so that evidence that never arrived shows, and evidence that
-- arrives twice is kept once. `at` is the client's own clock, `details` JSON as the client wrote it.
CREATE TABLE client_log (
    client text COLLATE "C" NOT NULL,
    line bigint NOT NULL CHECK (line > 0),
    at timestamptz NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL CHECK (operation IN ('invoke', 'ok', 'fail', 'unknown')),
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL DEFAULT 'default',
    workflow_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL DEFAULT '',
    request_id text COLLATE "C" NOT NULL DEFAULT '',
    details text NOT NULL DEFAULT '{}',
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (client, line)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX client_log_at ON client_log (at);
CREATE INDEX client_log_workflow ON client_log (workflow_id, namespace);
CREATE INDEX client_log_recorded_at ON client_log (recorded_at);

CREATE FUNCTION client_log_refuse_update() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'client_log is append-only';
END
$$;
CREATE TRIGGER client_log_append_only
BEFORE UPDATE ON client_log
FOR EACH ROW EXECUTE FUNCTION client_log_refuse_update();

-- One row per experiment. `evidence` is JSON: what was broken, and whether it was seen to take effect.
CREATE TABLE chaos_experiment (
    id text COLLATE "C" PRIMARY KEY,
    scenario text COLLATE "C" NOT NULL,
    seed bigint NOT NULL DEFAULT 0,
    status text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    healed_at timestamptz,
    ended_at timestamptz,
    evidence text NOT NULL DEFAULT '{}',
    verdict text COLLATE "C" CHECK (verdict IN ('valid', 'invalid', 'unknown')),
    CONSTRAINT chaos_experiment_heals_after_it_began CHECK (healed_at >= started_at)
);
CREATE INDEX chaos_experiment_started_at ON chaos_experiment (started_at);

-- One row per pass of the checker. `findings` is JSON: for each invariant its verdict, counts, the first offending ids
-- and what is wrong in words. `outcomes` is JSON, run id to digest: how some closed runs had ended, for the next pass.
CREATE TABLE check_result (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    experiment_id text COLLATE "C",
    verdict text COLLATE "C" NOT NULL CHECK (verdict IN ('valid', 'invalid', 'unknown')),
    seconds double precision NOT NULL DEFAULT 0,
    findings text NOT NULL,
    outcomes text NOT NULL DEFAULT '{}'
);
CREATE INDEX check_result_at ON check_result (at);

-- The effects of one run are found by the beginning of their keys, its deliveries by its workflow id.
CREATE INDEX mock_ledger_key ON mock_ledger (idempotency_key COLLATE "C");
CREATE INDEX mock_delivery_workflow ON mock_delivery (workflow_id);
