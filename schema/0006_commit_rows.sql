-- The group of decisions again, as arrays of rows instead of one array per column.
--
-- A column costs the same whether a group has one row or a hundred: with some sixty of them, encoding
-- and unnesting empty and short arrays was dearer than a small group itself. Composite types carry the
-- same values in seven arrays. commit_group stays for the release before this one.

CREATE TYPE execution_image AS (
    shard_id integer, run_id uuid, status text, next_event_id integer, state_token bigint,
    task_token bigint, build_id text, closed_us bigint, last_event_us bigint, due_us bigint,
    run_deadline_us bigint, execution_deadline_us bigint, has_task boolean,
    cancel_requested boolean, last_message_event_id integer, last_visible_event_id integer,
    signal_count integer, history_bytes bigint, memo bytea, search_attributes bytea, pending bytea
);

-- An image, and what is fixed at the start.
CREATE TYPE execution_start AS (
    shard_id integer, run_id uuid, status text, next_event_id integer, state_token bigint,
    task_token bigint, build_id text, closed_us bigint, last_event_us bigint, due_us bigint,
    run_deadline_us bigint, execution_deadline_us bigint, has_task boolean,
    cancel_requested boolean, last_message_event_id integer, last_visible_event_id integer,
    signal_count integer, history_bytes bigint, memo bytea, search_attributes bytea, pending bytea,
    namespace text, workflow_id text, first_run_id uuid, workflow_type text, task_queue text,
    origin text, started_us bigint, task_timeout_ms bigint, parent bytea
);

CREATE TYPE event_write AS (
    shard_id integer, run_id uuid, event_id integer, type text, recorded_us bigint,
    range_id bigint, attributes bytea
);

CREATE TYPE outbox_insert AS (shard_id integer, destination text, body bytea);

CREATE TYPE outbox_delay AS (
    shard_id integer, id bigint, publish_count integer, next_publish_us bigint
);

CREATE TYPE request_write AS (
    shard_id integer, namespace text, workflow_id text, request_id text, kind text, run_id uuid,
    event_id integer, body_hash bytea
);


-- Writes a group of decisions: everything that belongs to shards which the incarnation still holds
-- under the given ranges, and nothing of the others, which it returns in `refused`.
--
-- The shard rows are share-locked to the end of the transaction, in shard order. Taking, releasing
-- and bumping a shard update its row and so wait for this transaction; if they came first, this one
-- waits, and the rows are judged as they are after the wait. So no write of an old range can land
-- once a new one has begun.
--
-- Existing executions are written before new ones: a run that closes makes room for the next run of
-- its workflow id. A count that differs from the number of rows that belong to held shards raises: an
-- image whose row is missing, closed, or already further on belongs to no state that the caller can
-- have read. While every shard is held all rows count, those of a shard that was not named too. Deletes
-- and delays of outbox rows are not counted: a repeated confirm must do no harm.
--
-- due_at moves only when it must. It is a lower bound, and while it is ahead of the clock, not later
-- than the true instant and not more than two minutes too early, it stays: a step of a run that is on
-- its way then changes no indexed column. Whoever finds nothing due at due_at writes the image again.
--
-- has_task is lowered only when nothing is due within two minutes: a run on its way has a task that
-- waits, then one that runs, several times a second, and each change would touch every index. Whoever
-- reads the runs with a task looks into them, and finds some that have none.
--
-- The planner settings make the plans the same on an empty and on a full table, and made once.
CREATE FUNCTION commit_group_rows(
    p_incarnation text, p_shard integer[], p_range bigint[],
    p_images execution_image[], p_starts execution_start[], p_events event_write[],
    p_outbox outbox_insert[], p_gone_shard integer[], p_gone_id bigint[],
    p_delays outbox_delay[], p_requests request_write[],
    OUT refused integer[], OUT outbox_ids bigint[]
)
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_held integer[];
    v_count integer;
    v_expected integer;
    v_all boolean;
BEGIN
    SELECT array_agg(held.shard_id) INTO v_held
    FROM (
        SELECT s.shard_id
        FROM unnest(p_shard, p_range) AS term (shard_id, range_id)
        JOIN shard AS s ON s.shard_id = term.shard_id
        WHERE s.owner = p_incarnation AND s.range_id = term.range_id
        ORDER BY s.shard_id
        FOR SHARE OF s
    ) AS held;
    refused := '{}';
    outbox_ids := '{}';
    IF v_held IS NULL THEN
        refused := p_shard;
        RETURN;
    END IF;
    v_all := cardinality(v_held) = cardinality(p_shard);
    IF NOT v_all THEN
        SELECT array_agg(id) INTO refused FROM unnest(p_shard) AS id WHERE id <> ALL (v_held);
    END IF;

    IF cardinality(p_images) > 0 THEN
        UPDATE execution AS e
        SET status = x.status,
            next_event_id = x.next_event_id,
            state_token = x.state_token,
            task_token = x.task_token,
            build_id = x.build_id,
            closed_at = from_us(x.closed_us),
            last_event_at = from_us(x.last_event_us),
            due_at = CASE
                WHEN e.due_at <= from_us(x.due_us)
                    AND e.due_at > clock_timestamp()
                    AND e.due_at + interval '2 minutes' >= from_us(x.due_us)
                THEN e.due_at
                ELSE from_us(x.due_us)
            END,
            run_deadline_at = from_us(x.run_deadline_us),
            execution_deadline_at = from_us(x.execution_deadline_us),
            has_task = x.has_task OR (
                e.has_task
                AND coalesce(from_us(x.due_us) < clock_timestamp() + interval '2 minutes', false)
            ),
            cancel_requested = x.cancel_requested,
            last_message_event_id = x.last_message_event_id,
            last_visible_event_id = x.last_visible_event_id,
            signal_count = x.signal_count,
            history_bytes = x.history_bytes,
            memo = x.memo,
            search_attributes = x.search_attributes,
            pending = x.pending
        FROM unnest(p_images) AS x
        WHERE e.shard_id = x.shard_id
          AND e.run_id = x.run_id
          AND e.closed_at IS NULL
          AND e.next_event_id <= x.next_event_id
          AND x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_expected := cardinality(p_images);
        IF NOT v_all THEN
            SELECT count(*) INTO v_expected
            FROM unnest(p_images) AS x WHERE x.shard_id = ANY (v_held);
        END IF;
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % executions were updated', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(p_starts) > 0 THEN
        INSERT INTO execution (
            shard_id, run_id, namespace, workflow_id, first_run_id, workflow_type, task_queue,
            origin, build_id, status, next_event_id, state_token, task_token, started_at,
            closed_at, last_event_at, due_at, run_deadline_at, execution_deadline_at,
            task_timeout_ms, has_task, cancel_requested, last_message_event_id,
            last_visible_event_id, signal_count, history_bytes, parent, memo, search_attributes,
            pending
        )
        SELECT
            x.shard_id, x.run_id, x.namespace, x.workflow_id, x.first_run_id, x.workflow_type,
            x.task_queue, x.origin, x.build_id, x.status, x.next_event_id, x.state_token,
            x.task_token, from_us(x.started_us), from_us(x.closed_us), from_us(x.last_event_us),
            from_us(x.due_us), from_us(x.run_deadline_us), from_us(x.execution_deadline_us),
            x.task_timeout_ms, x.has_task, x.cancel_requested, x.last_message_event_id,
            x.last_visible_event_id, x.signal_count, x.history_bytes, x.parent, x.memo,
            x.search_attributes, x.pending
        FROM unnest(p_starts) AS x
        WHERE x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_expected := cardinality(p_starts);
        IF NOT v_all THEN
            SELECT count(*) INTO v_expected
            FROM unnest(p_starts) AS x WHERE x.shard_id = ANY (v_held);
        END IF;
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % executions were inserted', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(p_events) > 0 THEN
        INSERT INTO event (
            shard_id, run_id, event_id, type, recorded_at, range_id, txid, attributes
        )
        SELECT
            x.shard_id, x.run_id, x.event_id, x.type, from_us(x.recorded_us), x.range_id,
            pg_current_xact_id(), x.attributes
        FROM unnest(p_events) AS x
        WHERE x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_expected := cardinality(p_events);
        IF NOT v_all THEN
            SELECT count(*) INTO v_expected
            FROM unnest(p_events) AS x WHERE x.shard_id = ANY (v_held);
        END IF;
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % events were inserted', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(p_requests) > 0 THEN
        INSERT INTO request (
            shard_id, namespace, workflow_id, request_id, kind, run_id, event_id, body_hash
        )
        SELECT
            x.shard_id, x.namespace, x.workflow_id, x.request_id, x.kind, x.run_id, x.event_id,
            x.body_hash
        FROM unnest(p_requests) AS x
        WHERE x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(p_outbox) > 0 THEN
        -- Ids are drawn first, so that id number i belongs to row number i whatever the plan does.
        SELECT array_agg(nextval('outbox_id_seq')) INTO outbox_ids
        FROM generate_series(1, cardinality(p_outbox));
        INSERT INTO outbox (shard_id, id, destination, body)
        SELECT x.shard_id, x.id, x.destination, x.body
        FROM ROWS FROM (unnest(p_outbox), unnest(outbox_ids))
            AS x (shard_id, destination, body, id)
        WHERE x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(p_gone_shard) > 0 THEN
        DELETE FROM outbox AS o
        USING unnest(p_gone_shard, p_gone_id) AS x (shard_id, id)
        WHERE o.shard_id = x.shard_id AND o.id = x.id AND x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(p_delays) > 0 THEN
        UPDATE outbox AS o
        SET publish_count = x.publish_count, next_publish_at = from_us(x.next_publish_us)
        FROM unnest(p_delays) AS x
        WHERE o.shard_id = x.shard_id AND o.id = x.id AND x.shard_id = ANY (v_held);
    END IF;
END
$$;
