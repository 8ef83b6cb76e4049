-- name: count_living_engines
SELECT count(*) FROM node WHERE state <> 'dead' AND lease_until > clock_timestamp();

-- name: read_marks
-- Every transaction that writes from now on has an id of at least `next_txid`.
SELECT
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_txid,
    pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal_bytes,
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'id')::regclass), 0)
        AS outbox_id;

-- name: count_events
SELECT count(*) AS events, count(DISTINCT txid) AS groups
FROM event
WHERE txid >= $1::bigint::text::xid8 AND txid < $2::bigint::text::xid8;

-- name: is_outbox_empty
SELECT NOT EXISTS (SELECT FROM outbox);

-- name: read_durability
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method')
ORDER BY name;

-- name: read_version
SELECT current_setting('server_version');
