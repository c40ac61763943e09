-- claim_line.sql where several queues have tasks of one priority, so that the best of each have to be compared.
--
-- Everything up to `picked` is pulled row by row: a level is looked at only once those above it gave too little, and
-- no more rows are locked than are taken. `room` is what the levels above leave, as far as seen without locks; below a
-- level that others hold so much of that more is needed after all, it starts anew.
WITH RECURSIVE
moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
known AS MATERIALIZED (SELECT true AS yes FROM {schema}.claims AS c WHERE c.claim_id = $2::text),
{include shelves}
rung AS MATERIALIZED (
    SELECT s.priority, count(*) AS shelves, row_number() OVER (ORDER BY s.priority DESC) AS n
    FROM shelf AS s GROUP BY s.priority
),
level (n, priority, shelves, room) AS (
    SELECT rung.n, rung.priority, rung.shelves, $4::bigint FROM rung WHERE rung.n = 1
    UNION ALL
    SELECT
        lower.n, lower.priority, lower.shelves, CASE WHEN level.room > due.n THEN level.room - due.n ELSE $4::bigint END
    FROM level
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT FROM shelf
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.tasks AS t
                WHERE t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
                  AND (t.run_at, t.seq) >= (shelf.run_at, shelf.seq) AND t.run_at <= (SELECT moment.now FROM moment)
                LIMIT level.room
            ) AS one
            WHERE shelf.priority = level.priority
            LIMIT level.room
        ) AS few
    ) AS due
    CROSS JOIN LATERAL (SELECT * FROM rung WHERE rung.n = level.n + 1) AS lower
),
picked AS MATERIALIZED (
    SELECT best.tid, false AS begun
    FROM level
    CROSS JOIN LATERAL (
        SELECT shelf.queue, shelf.run_at, shelf.seq, level.room AS n
        FROM shelf WHERE shelf.priority = level.priority AND level.shelves = 1
        UNION ALL
        SELECT merged.queue, merged.run_at, merged.seq, count(*) AS n
        FROM (
            SELECT shelf.queue, shelf.run_at, shelf.seq
            FROM shelf
            CROSS JOIN LATERAL (
                SELECT t.run_at, t.seq FROM {schema}.tasks AS t
                WHERE t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
                  AND (t.run_at, t.seq) >= (shelf.run_at, shelf.seq) AND t.run_at <= (SELECT moment.now FROM moment)
                ORDER BY t.run_at, t.seq LIMIT level.room
            ) AS front
            WHERE shelf.priority = level.priority AND level.shelves > 1
            ORDER BY front.run_at, front.seq LIMIT level.room
        ) AS merged
        GROUP BY merged.queue, merged.run_at, merged.seq
    ) AS share
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = share.queue AND t.priority = level.priority
          AND (t.run_at, t.seq) >= (share.run_at, share.seq) AND t.run_at <= (SELECT moment.now FROM moment)
        ORDER BY t.run_at, t.seq LIMIT share.n
        FOR UPDATE SKIP LOCKED
    ) AS best
    LIMIT $4::bigint
),
{include grant}