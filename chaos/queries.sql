-- name: has_table
SELECT to_regclass('chaos_experiment') IS NOT NULL AS is_there;

-- name: write_experiment
-- The row of an experiment as it stands now: begun, healed, or over. What was begun once stays.
INSERT INTO chaos_experiment
    (id, scenario, seed, status, started_at, healed_at, ended_at, evidence, verdict)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO UPDATE SET
    status = excluded.status,
    healed_at = coalesce(excluded.healed_at, chaos_experiment.healed_at),
    ended_at = coalesce(excluded.ended_at, chaos_experiment.ended_at),
    evidence = excluded.evidence,
    verdict = coalesce(excluded.verdict, chaos_experiment.verdict);

-- name: read_experiment
SELECT scenario, seed, started_at, evidence::text AS evidence
FROM chaos_experiment
WHERE id = $1;

-- name: end_experiment
-- Of a runner that was killed: what it left is healed now.
UPDATE chaos_experiment
SET status = 'halted', healed_at = coalesce(healed_at, $2), ended_at = coalesce(ended_at, $2)
WHERE id = $1;
