-- name: events
-- Events after $3 up to $4, oldest first; at most $5, and $6 bytes of attributes, but at least one.
SELECT event_id, type, recorded_us, attributes
FROM (
    SELECT
        page.event_id,
        page.type,
        to_us(page.recorded_at) AS recorded_us,
        page.attributes,
        sum(octet_length(page.attributes)) OVER (ORDER BY page.event_id) AS bytes,
        row_number() OVER (ORDER BY page.event_id) AS place
    FROM (
        SELECT event_id, type, recorded_at, attributes
        FROM event
        WHERE shard_id = $1 AND run_id = $2::uuid AND event_id > $3 AND event_id <= $4
        ORDER BY event_id
        LIMIT $5
    ) AS page
) AS sized
WHERE bytes <= $6 OR place = 1
ORDER BY event_id;

-- name: events_newest_first
-- Events before $3, newest first; at most $4, and $5 bytes of attributes, but at least one.
SELECT event_id, type, recorded_us, attributes
FROM (
    SELECT
        page.event_id,
        page.type,
        to_us(page.recorded_at) AS recorded_us,
        page.attributes,
        sum(octet_length(page.attributes)) OVER (ORDER BY page.event_id DESC) AS bytes,
        row_number() OVER (ORDER BY page.event_id DESC) AS place
    FROM (
        SELECT event_id, type, recorded_at, attributes
        FROM event
        WHERE shard_id = $1 AND run_id = $2::uuid AND event_id < $3
        ORDER BY event_id DESC
        LIMIT $4
    ) AS page
) AS sized
WHERE bytes <= $5 OR place = 1
ORDER BY event_id DESC;
