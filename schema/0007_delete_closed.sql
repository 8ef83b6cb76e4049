-- Deletes what is old enough of the shards that the incarnation still holds under the given ranges: up to
-- p_limit runs, oldest closing first, with their events, and up to p_limit requests whose end has come.
-- It returns the shards that it does not hold (any more), and the runs that went with their shards.
--
-- One call, because it occupies the lane by which these shards are written: as six statements a shard it
-- held up every commit for minutes when the database was slow to answer.
--
-- The rows of shards are share-locked as in commit_group_rows. A run that still has a message for another
-- execution on its way stays. The requests of a workflow id of which no run is left but those that go are
-- given their end, 24 h after its last closing.
CREATE FUNCTION delete_closed_runs(
    p_incarnation text, p_shard integer[], p_range bigint[], p_before_us bigint, p_limit integer,
    OUT refused integer[], OUT shard_ids integer[], OUT run_ids text[]
)
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_held integer[];
    v_runs uuid[];
    v_last record;
    v_over record;
BEGIN
    SELECT coalesce(array_agg(held.shard_id), '{}') INTO v_held
    FROM (
        SELECT s.shard_id
        FROM unnest(p_shard, p_range) AS term (shard_id, range_id)
        JOIN shard AS s ON s.shard_id = term.shard_id
        WHERE s.owner = p_incarnation AND s.range_id = term.range_id
        ORDER BY s.shard_id
        FOR SHARE OF s
    ) AS held;
    SELECT coalesce(array_agg(id), '{}') INTO refused
    FROM unnest(p_shard) AS id WHERE id <> ALL (v_held);

    SELECT coalesce(array_agg(e.shard_id), '{}'), coalesce(array_agg(e.run_id), '{}'),
           coalesce(array_agg(e.run_id::text), '{}')
    INTO shard_ids, v_runs, run_ids
    FROM (
        SELECT old.shard_id, old.run_id
        FROM unnest(v_held) AS held (shard_id)
        CROSS JOIN LATERAL (
            SELECT x.shard_id, x.run_id, x.closed_at
            FROM execution AS x
            WHERE x.shard_id = held.shard_id
              AND x.closed_at IS NOT NULL
              AND x.closed_at < from_us(p_before_us)
              AND NOT EXISTS (
                  SELECT FROM outbox AS o
                  WHERE o.shard_id = held.shard_id AND starts_with(o.destination, 'shard:')
              )
            ORDER BY x.closed_at, x.run_id
            LIMIT p_limit
        ) AS old
        ORDER BY old.closed_at, old.run_id
        LIMIT p_limit
    ) AS e;

    IF cardinality(v_runs) > 0 THEN
        -- One by one: joined, a plan made while there were no requests reads all of them.
        FOR v_last IN
            SELECT gone.shard_id, gone.namespace, gone.workflow_id, max(e.closed_at) AS closed_at
            FROM unnest(shard_ids, v_runs) AS wanted (shard_id, run_id)
            JOIN execution AS gone
                ON gone.shard_id = wanted.shard_id AND gone.run_id = wanted.run_id
            JOIN execution AS e
                ON e.shard_id = gone.shard_id
               AND e.namespace = gone.namespace
               AND e.workflow_id = gone.workflow_id
            GROUP BY gone.shard_id, gone.namespace, gone.workflow_id
            HAVING bool_and(e.run_id = ANY (v_runs))
        LOOP
            UPDATE request AS r
            SET expires_at = v_last.closed_at + interval '24 hours'
            WHERE r.shard_id = v_last.shard_id
              AND r.namespace = v_last.namespace
              AND r.workflow_id = v_last.workflow_id
              AND r.expires_at IS NULL;
        END LOOP;

        DELETE FROM event AS e
        USING unnest(shard_ids, v_runs) AS gone (shard_id, run_id)
        WHERE e.shard_id = gone.shard_id AND e.run_id = gone.run_id;

        DELETE FROM execution AS e
        USING unnest(shard_ids, v_runs) AS gone (shard_id, run_id)
        WHERE e.shard_id = gone.shard_id AND e.run_id = gone.run_id AND e.closed_at IS NOT NULL;
    END IF;

    FOR v_over IN
        SELECT over.namespace, over.workflow_id, over.request_id, held.shard_id
        FROM unnest(v_held) AS held (shard_id)
        CROSS JOIN LATERAL (
            SELECT x.namespace, x.workflow_id, x.request_id
            FROM request AS x
            WHERE x.shard_id = held.shard_id AND x.expires_at < clock_timestamp()
            ORDER BY x.expires_at
            LIMIT p_limit
        ) AS over
    LOOP
        DELETE FROM request AS r
        WHERE r.shard_id = v_over.shard_id
          AND r.namespace = v_over.namespace
          AND r.workflow_id = v_over.workflow_id
          AND r.request_id = v_over.request_id;
    END LOOP;
END
$$;
