-- The tables of odin's core, and the functions that are its only doors for writing under a fence.
--
-- Every primary key of a shard's data begins with shard_id, so that shards can later live on
-- different servers; no transaction crosses shards of different servers. There are no foreign keys:
-- the shard's owner is the only writer, and what it writes goes through commit_group, which checks.
-- Instants are timestamptz here and integer microseconds since 1970 in every call (`_us`).
--
-- Fill factors: rows that are updated in place keep room for the next version on their page, so that
-- an update that changes no indexed column touches no index.

CREATE FUNCTION from_us(us bigint) RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN 'epoch'::timestamptz + us * interval '1 microsecond';
-- Exact for every instant up to the year 2255. Neither strict nor pinned, so that it is inlined.

CREATE FUNCTION to_us(instant timestamptz) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (extract(epoch FROM instant) * 1000000)::bigint;


-- The one row that says what every engine must agree on.
CREATE TABLE cluster (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    shard_count integer NOT NULL CHECK (shard_count BETWEEN 1 AND 4096),
    mode text NOT NULL CHECK (mode IN ('sharded', 'standby')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per process start (`incarnation`). `dead` is final, and the only proof of death: a row
-- that is missing or expired says nothing. The lease lives here and not beside the fence, so that a
-- renewal never queues behind a commit.
CREATE TABLE node (
    incarnation text COLLATE "C" PRIMARY KEY,
    node_id text COLLATE "C" NOT NULL,
    address text NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'alive' CHECK (state IN ('alive', 'draining', 'dead')),
    lease_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE UNIQUE INDEX node_living ON node (node_id) WHERE state <> 'dead';

-- The fence. Whoever writes holds the row FOR SHARE; whoever takes, releases or bumps updates it.
CREATE TABLE shard (
    shard_id integer PRIMARY KEY CHECK (shard_id >= 0),
    range_id bigint NOT NULL DEFAULT 0 CHECK (range_id >= 0),
    owner text COLLATE "C",
    heir text COLLATE "C",
    released_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- What happened to each term, for good. `acquired` and `bumped` begin the term range_id; `released`
-- ends it by its owner's hand, `expired` is written by whoever took over.
CREATE TABLE shard_term (
    shard_id integer NOT NULL,
    range_id bigint NOT NULL,
    happening text COLLATE "C" NOT NULL
        CHECK (happening IN ('acquired', 'bumped', 'released', 'expired')),
    incarnation text COLLATE "C" NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (shard_id, range_id, happening)
);

-- One row per run: the fold of its history, and in `pending` everything that waits, packed.
-- due_at is a lower bound of the earliest instant at which the owner must act (see commit_group).
CREATE TABLE execution (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    first_run_id uuid NOT NULL,
    workflow_type text COLLATE "C" NOT NULL,
    task_queue text COLLATE "C" NOT NULL,
    origin text COLLATE "C" NOT NULL,
    build_id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (status IN (
        'running', 'completed', 'failed', 'canceled', 'terminated', 'timed_out', 'continued_as_new'
    )),
    next_event_id integer NOT NULL CHECK (next_event_id > 1),
    state_token bigint NOT NULL,
    task_token bigint NOT NULL,
    started_at timestamptz NOT NULL,
    closed_at timestamptz,
    last_event_at timestamptz NOT NULL,
    due_at timestamptz,
    run_deadline_at timestamptz,
    execution_deadline_at timestamptz,
    task_timeout_ms bigint NOT NULL CHECK (task_timeout_ms >= 0),
    has_task boolean NOT NULL,
    cancel_requested boolean NOT NULL,
    last_message_event_id integer NOT NULL,
    last_visible_event_id integer NOT NULL,
    signal_count integer NOT NULL,
    history_bytes bigint NOT NULL,
    parent bytea,
    memo bytea,
    search_attributes bytea,
    pending bytea NOT NULL,
    PRIMARY KEY (shard_id, run_id),
    CONSTRAINT execution_closes_once CHECK ((status = 'running') = (closed_at IS NULL)),
    CONSTRAINT execution_closed_waits_for_nothing
        CHECK (status = 'running' OR (due_at IS NULL AND NOT has_task))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- At most one open run per workflow id.
CREATE UNIQUE INDEX execution_open ON execution (shard_id, namespace, workflow_id)
    WHERE status = 'running';
-- The newest run of a workflow id. It holds neither shard_id nor run_id: on an empty table it would
-- look as good as the primary key for finding a run, and a plan made then would later read a shard's
-- whole index to find one row.
CREATE INDEX execution_latest ON execution (namespace, workflow_id, started_at);
CREATE INDEX execution_due ON execution (shard_id, due_at, run_id) WHERE due_at IS NOT NULL;
-- What a new owner pages through: open runs that may have a task that waits to be taken.
CREATE INDEX execution_has_task ON execution (shard_id, run_id) WHERE has_task;
-- Lists of the API, newest first. The predicate holds for every row: only a query that states it may
-- use these, so that they too stay out of the owner's plans.
CREATE INDEX execution_by_time ON execution (namespace, started_at) WHERE task_timeout_ms >= 0;
CREATE INDEX execution_by_status ON execution (namespace, status, started_at)
    WHERE task_timeout_ms >= 0;
CREATE INDEX execution_by_type ON execution (namespace, workflow_type, started_at)
    WHERE task_timeout_ms >= 0;

-- Append-only. range_id and txid are evidence: under which term, in which transaction.
CREATE TABLE event (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    event_id integer NOT NULL CHECK (event_id > 0),
    type text COLLATE "C" NOT NULL,
    recorded_at timestamptz NOT NULL,
    range_id bigint NOT NULL,
    txid xid8 NOT NULL,
    attributes bytea NOT NULL,
    PRIMARY KEY (shard_id, run_id, event_id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);

-- Tasks on their way out; a row goes once its publication is confirmed. Ids are never reused: a late
-- confirm of an older term must not delete another task's row. The owner publishes a new row at
-- once; the sweep looks at it when that has had its time.
CREATE TABLE outbox (
    shard_id integer NOT NULL,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    destination text NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    publish_count integer NOT NULL DEFAULT 0,
    next_publish_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '5 seconds',
    PRIMARY KEY (shard_id, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

-- The predicate holds for every row. It keeps this index from being taken for the primary key, see
-- execution_latest: only a query that states it may use it.
CREATE INDEX outbox_due ON outbox (shard_id, next_publish_at, id) WHERE publish_count >= 0;

-- What was acknowledged, so that the same request id gets the same acceptance.
CREATE TABLE request (
    shard_id integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    event_id integer NOT NULL,
    body_hash bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, namespace, workflow_id, request_id)
);

-- Schedules, and each instant that one of them fired or was passed over at.
CREATE TABLE schedule (
    shard_id integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    specification bytea NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,
    next_fire_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, namespace, schedule_id)
);

CREATE TABLE schedule_fire (
    shard_id integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    nominal_at timestamptz NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    run_id uuid,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, namespace, schedule_id, nominal_at)
);


-- Creates the cluster and its shards if there is none; returns what is, theirs or ours.
CREATE FUNCTION create_cluster(
    p_shard_count integer, p_mode text, OUT shard_count integer, OUT mode text
)
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO cluster (shard_count, mode) VALUES (p_shard_count, p_mode)
    ON CONFLICT (is_only) DO NOTHING;
    IF FOUND THEN
        INSERT INTO shard (shard_id) SELECT generate_series(0, p_shard_count - 1);
    END IF;
    SELECT c.shard_count, c.mode INTO create_cluster.shard_count, create_cluster.mode
    FROM cluster AS c;
END
$$;


-- Whether a lease is over by the database's clock, now. One far ahead was made by a clock gone
-- wrong. The renewal asks for the opposite, so that no lease is both over and renewable.
CREATE FUNCTION lease_is_over(lease_until timestamptz) RETURNS boolean
    LANGUAGE sql VOLATILE
    RETURN lease_until <= clock_timestamp()
        OR lease_until > clock_timestamp() + interval '20 seconds';


-- Takes a shard, or returns null if it may not be taken now.
--
-- The row is locked first and judged in the next statement, whose snapshot begins after the wait:
-- deaths and leases are judged as they stand when the row is ours. The UPDATE carries the whole
-- condition. Every acquisition begins a new range, the term that it ends gets its `expired` row
-- unless it was released.
CREATE FUNCTION acquire_shard(p_shard_id integer, p_incarnation text, p_holds_term boolean)
    RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_range_id bigint;
BEGIN
    PERFORM FROM shard WHERE shard_id = p_shard_id FOR UPDATE;

    UPDATE shard AS s
    SET owner = p_incarnation, range_id = s.range_id + 1, heir = NULL, released_at = NULL
    WHERE s.shard_id = p_shard_id
      AND EXISTS (
          SELECT FROM node
          WHERE incarnation = p_incarnation AND state = 'alive' AND NOT lease_is_over(lease_until)
      )
      AND (
          (s.owner = p_incarnation AND NOT p_holds_term)
          OR EXISTS (SELECT FROM node WHERE incarnation = s.owner AND state = 'dead')
          OR (s.owner IS NULL AND (
              s.heir IS NULL
              OR s.heir = p_incarnation
              OR s.released_at IS NULL
              OR s.released_at <= clock_timestamp() - interval '3 seconds'
              OR EXISTS (SELECT FROM node WHERE incarnation = s.heir AND state = 'dead')
          ))
      )
    RETURNING s.range_id INTO v_range_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
    SELECT begun.shard_id, begun.range_id, 'expired', begun.incarnation, begun.node_id
    FROM shard_term AS begun
    WHERE begun.shard_id = p_shard_id
      AND begun.range_id = v_range_id - 1
      AND begun.happening IN ('acquired', 'bumped')
      AND NOT EXISTS (
          SELECT FROM shard_term AS ended
          WHERE ended.shard_id = p_shard_id
            AND ended.range_id = v_range_id - 1
            AND ended.happening = 'released'
      );
    INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
    SELECT p_shard_id, v_range_id, 'acquired', incarnation, node_id
    FROM node
    WHERE incarnation = p_incarnation;
    RETURN v_range_id;
END
$$;


-- Begins a new term of every given shard that is still held under the given range, so that a write
-- of the old range that is still under way can no longer land. Never sets the owner. Rows are locked
-- in shard order, like those of commit_group, so that the two cannot block each other for good.
CREATE FUNCTION bump_shards(p_incarnation text, p_shard integer[], p_range bigint[])
    RETURNS TABLE (shard_id integer, range_id bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_held integer[];
BEGIN
    SELECT array_agg(held.shard_id) INTO v_held
    FROM (
        SELECT s.shard_id
        FROM unnest(p_shard, p_range) AS term (shard_id, range_id)
        JOIN shard AS s ON s.shard_id = term.shard_id
        WHERE s.owner = p_incarnation AND s.range_id = term.range_id
        ORDER BY s.shard_id
        FOR UPDATE OF s
    ) AS held;

    RETURN QUERY
    WITH bumped AS (
        UPDATE shard AS s SET range_id = s.range_id + 1
        WHERE s.shard_id = ANY (v_held)
        RETURNING s.shard_id, s.range_id
    ), recorded AS (
        INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
        SELECT bumped.shard_id, bumped.range_id, 'bumped', p_incarnation,
            coalesce(node.node_id, '')
        FROM bumped LEFT JOIN node ON node.incarnation = p_incarnation
    )
    SELECT bumped.shard_id, bumped.range_id FROM bumped;
END
$$;


-- Writes a group of decisions: everything that belongs to shards which the incarnation still holds
-- under the given ranges, and nothing of the others, which it returns in `refused`.
--
-- The shard rows are share-locked to the end of the transaction, in shard order. Taking, releasing
-- and bumping a shard update its row and so wait for this transaction; if they came first, this one
-- waits, and the rows are judged as they are after the wait. So no write of an old range can land
-- once a new one has begun.
--
-- x_*: images of executions, the x_update_count existing ones first; i_*: what is fixed at the start,
-- for the new ones alone. Existing ones are written first: a run that closes makes room for the next
-- run of its workflow id. A count that differs from the number of images raises: an image whose row
-- is missing, closed, or already further on belongs to no state that the caller can have read.
-- Deletes and delays of outbox rows are not counted: a repeated confirm must do no harm.
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
CREATE FUNCTION commit_group(
    p_incarnation text, p_shard integer[], p_range bigint[],
    x_update_count integer,
    x_shard integer[], x_run uuid[], x_status text[], x_next_event integer[],
    x_state_token bigint[], x_task_token bigint[], x_build text[],
    x_closed bigint[], x_last_event bigint[], x_due bigint[],
    x_run_deadline bigint[], x_execution_deadline bigint[],
    x_has_task boolean[], x_cancel_requested boolean[],
    x_last_message integer[], x_last_visible integer[], x_signals integer[],
    x_history_bytes bigint[], x_memo bytea[], x_search_attributes bytea[], x_pending bytea[],
    i_namespace text[], i_workflow text[], i_first_run uuid[], i_type text[], i_task_queue text[],
    i_origin text[], i_started bigint[], i_task_timeout bigint[], i_parent bytea[],
    e_shard integer[], e_run uuid[], e_id integer[], e_type text[], e_recorded bigint[],
    e_range bigint[], e_attributes bytea[],
    o_shard integer[], o_destination text[], o_body bytea[],
    d_shard integer[], d_id bigint[],
    l_shard integer[], l_id bigint[], l_publish_count integer[], l_next_publish bigint[],
    q_shard integer[], q_namespace text[], q_workflow text[], q_request text[], q_kind text[],
    q_run uuid[], q_event integer[], q_body_hash bytea[],
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
    IF cardinality(v_held) <> cardinality(p_shard) THEN
        SELECT array_agg(id) INTO refused FROM unnest(p_shard) AS id WHERE id <> ALL (v_held);
    END IF;

    IF x_update_count > 0 THEN
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
        FROM unnest(
            x_shard[:x_update_count], x_run, x_status, x_next_event, x_state_token, x_task_token,
            x_build, x_closed, x_last_event, x_due, x_run_deadline, x_execution_deadline,
            x_has_task, x_cancel_requested, x_last_message, x_last_visible, x_signals,
            x_history_bytes, x_memo, x_search_attributes, x_pending
        ) AS x (
            shard_id, run_id, status, next_event_id, state_token, task_token,
            build_id, closed_us, last_event_us, due_us, run_deadline_us, execution_deadline_us,
            has_task, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
            history_bytes, memo, search_attributes, pending
        )
        WHERE e.shard_id = x.shard_id
          AND e.run_id = x.run_id
          AND e.closed_at IS NULL
          AND e.next_event_id <= x.next_event_id
          AND x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        SELECT count(*) INTO v_expected
        FROM unnest(x_shard[:x_update_count]) AS id WHERE id = ANY (v_held);
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % executions were updated', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(x_shard) > x_update_count THEN
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
        FROM unnest(
            x_shard[x_update_count + 1:], x_run[x_update_count + 1:],
            x_status[x_update_count + 1:], x_next_event[x_update_count + 1:],
            x_state_token[x_update_count + 1:], x_task_token[x_update_count + 1:],
            x_build[x_update_count + 1:], x_closed[x_update_count + 1:],
            x_last_event[x_update_count + 1:], x_due[x_update_count + 1:],
            x_run_deadline[x_update_count + 1:], x_execution_deadline[x_update_count + 1:],
            x_has_task[x_update_count + 1:], x_cancel_requested[x_update_count + 1:],
            x_last_message[x_update_count + 1:], x_last_visible[x_update_count + 1:],
            x_signals[x_update_count + 1:], x_history_bytes[x_update_count + 1:],
            x_memo[x_update_count + 1:], x_search_attributes[x_update_count + 1:],
            x_pending[x_update_count + 1:],
            i_namespace, i_workflow, i_first_run, i_type, i_task_queue, i_origin, i_started,
            i_task_timeout, i_parent
        ) AS x (
            shard_id, run_id, status, next_event_id, state_token, task_token,
            build_id, closed_us, last_event_us, due_us, run_deadline_us, execution_deadline_us,
            has_task, cancel_requested, last_message_event_id, last_visible_event_id, signal_count,
            history_bytes, memo, search_attributes, pending,
            namespace, workflow_id, first_run_id, workflow_type, task_queue, origin, started_us,
            task_timeout_ms, parent
        )
        WHERE x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        SELECT count(*) INTO v_expected
        FROM unnest(x_shard[x_update_count + 1:]) AS id WHERE id = ANY (v_held);
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % executions were inserted', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(e_shard) > 0 THEN
        INSERT INTO event (
            shard_id, run_id, event_id, type, recorded_at, range_id, txid, attributes
        )
        SELECT
            x.shard_id, x.run_id, x.event_id, x.type, from_us(x.recorded_us), x.range_id,
            pg_current_xact_id(), x.attributes
        FROM unnest(e_shard, e_run, e_id, e_type, e_recorded, e_range, e_attributes)
            AS x (shard_id, run_id, event_id, type, recorded_us, range_id, attributes)
        WHERE x.shard_id = ANY (v_held);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        SELECT count(*) INTO v_expected FROM unnest(e_shard) AS id WHERE id = ANY (v_held);
        IF v_count <> v_expected THEN
            RAISE EXCEPTION '% of % events were inserted', v_count, v_expected
                USING ERRCODE = 'OD001';
        END IF;
    END IF;

    IF cardinality(q_shard) > 0 THEN
        INSERT INTO request (
            shard_id, namespace, workflow_id, request_id, kind, run_id, event_id, body_hash
        )
        SELECT
            x.shard_id, x.namespace, x.workflow_id, x.request_id, x.kind, x.run_id, x.event_id,
            x.body_hash
        FROM unnest(q_shard, q_namespace, q_workflow, q_request, q_kind, q_run, q_event, q_body_hash)
            AS x (shard_id, namespace, workflow_id, request_id, kind, run_id, event_id, body_hash)
        WHERE x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(o_shard) > 0 THEN
        -- Ids are drawn first, so that id number i belongs to row number i whatever the plan does.
        SELECT array_agg(nextval('outbox_id_seq')) INTO outbox_ids
        FROM generate_series(1, cardinality(o_shard));
        INSERT INTO outbox (shard_id, id, destination, body)
        SELECT x.shard_id, x.id, x.destination, x.body
        FROM unnest(o_shard, outbox_ids, o_destination, o_body)
            AS x (shard_id, id, destination, body)
        WHERE x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(d_shard) > 0 THEN
        DELETE FROM outbox AS o
        USING unnest(d_shard, d_id) AS x (shard_id, id)
        WHERE o.shard_id = x.shard_id AND o.id = x.id AND x.shard_id = ANY (v_held);
    END IF;

    IF cardinality(l_shard) > 0 THEN
        UPDATE outbox AS o
        SET publish_count = x.publish_count, next_publish_at = from_us(x.next_publish_us)
        FROM unnest(l_shard, l_id, l_publish_count, l_next_publish)
            AS x (shard_id, id, publish_count, next_publish_us)
        WHERE o.shard_id = x.shard_id AND o.id = x.id AND x.shard_id = ANY (v_held);
    END IF;
END
$$;
