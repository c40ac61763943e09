-- Leases that were granted to this claim_id; else new ones on up to $5 due tasks, best first.
--
-- `level` walks the priorities downwards by index seeks, so tasks that are scheduled at a higher one cost a seek each.
-- Everything up to `picked` is pulled row by row: a level is looked for only once those above it gave too little, and
-- no more rows are locked than are taken. `room` is what the levels above leave, as far as seen without locks; below a
-- level that others hold so much of that more is needed after all, it starts anew.
--
-- A statement sees what was committed when it began. So of two with one claim_id at once, neither sees what the other
-- is granted; but only one can insert the mark, and the other, which has waited for it, says `sent_before`.
-- $7: a mark is needed.
WITH RECURSIVE
moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
held AS MATERIALIZED (
    SELECT t.seq FROM {schema}.tasks AS t WHERE t.status = 'running' AND t.claim_id = $3::text
),
line (queue) AS (
    (
        SELECT g.queue FROM unnest($2::text[]) AS g (queue)
        UNION
        (
            SELECT t.queue FROM {schema}.tasks AS t
            WHERE t.status = 'queued' AND $2::text[] IS NULL ORDER BY t.queue LIMIT 1
        )
    )
    UNION
    SELECT (
        SELECT t.queue FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue > line.queue ORDER BY t.queue LIMIT 1
    )
    FROM line WHERE $2::text[] IS NULL AND line.queue IS NOT NULL
),
open_line AS MATERIALIZED (
    SELECT line.queue FROM line
    WHERE line.queue IS NOT NULL AND NOT EXISTS (SELECT FROM held)
      AND NOT EXISTS (SELECT FROM {schema}.queues AS q WHERE q.name = line.queue AND q.paused)
),
level (priority, room) AS (
    SELECT max(top.priority), $5::bigint
    FROM open_line
    CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = open_line.queue ORDER BY t.priority DESC LIMIT 1
    ) AS top
    UNION ALL
    SELECT lower.priority, CASE WHEN level.room > due.n THEN level.room - due.n ELSE $5::bigint END
    FROM level
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT FROM open_line
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.tasks AS t
                WHERE t.status = 'queued' AND t.queue = open_line.queue AND t.priority = level.priority
                  AND t.run_at <= (SELECT moment.now FROM moment)
                LIMIT level.room
            ) AS one
            LIMIT level.room
        ) AS few
    ) AS due
    CROSS JOIN LATERAL (
        SELECT max(top.priority) AS priority
        FROM open_line
        CROSS JOIN LATERAL (
            SELECT t.priority FROM {schema}.tasks AS t
            WHERE t.status = 'queued' AND t.queue = open_line.queue AND t.priority < level.priority
            ORDER BY t.priority DESC LIMIT 1
        ) AS top
    ) AS lower
    WHERE level.priority IS NOT NULL
),
due AS MATERIALIZED (
    SELECT true AS yes
    FROM level
    CROSS JOIN open_line
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = open_line.queue AND t.priority = level.priority
          AND t.run_at <= (SELECT moment.now FROM moment)
        LIMIT 1
    ) AS one
    LIMIT 1
),
mark AS (
    INSERT INTO {schema}.claims (claim_id, at)
    SELECT $3::text, moment.now FROM moment WHERE $7::boolean AND EXISTS (SELECT FROM due)
    ON CONFLICT DO NOTHING
    RETURNING claim_id
),
picked AS MATERIALIZED (
    SELECT best.seq
    FROM level
    CROSS JOIN LATERAL (
        SELECT open_line.queue, level.room AS n FROM open_line WHERE (SELECT count(*) FROM open_line) = 1
        UNION ALL
        SELECT merged.queue, count(*) AS n
        FROM (
            SELECT open_line.queue
            FROM open_line
            CROSS JOIN LATERAL (
                SELECT t.run_at, t.seq FROM {schema}.tasks AS t
                WHERE t.status = 'queued' AND t.queue = open_line.queue AND t.priority = level.priority
                  AND t.run_at <= (SELECT moment.now FROM moment)
                ORDER BY t.run_at, t.seq LIMIT level.room
            ) AS front
            WHERE (SELECT count(*) FROM open_line) > 1
            ORDER BY front.run_at, front.seq LIMIT level.room
        ) AS merged
        GROUP BY merged.queue
    ) AS share
    CROSS JOIN LATERAL (
        SELECT t.seq FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = share.queue AND t.priority = level.priority
          AND t.run_at <= (SELECT moment.now FROM moment)
        ORDER BY t.run_at, t.seq LIMIT share.n
        FOR UPDATE SKIP LOCKED
    ) AS best
    WHERE NOT $7::boolean OR EXISTS (SELECT FROM mark)
    LIMIT $5::bigint
),
-- The clock is read once more, now that the rows are held: a lease is never shorter than it says.
start AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, count(*) AS n FROM picked
),
claimed AS (
    UPDATE {schema}.tasks AS t
    SET status = 'running', attempt = t.attempt + 1, token = gen_random_uuid(), claim_id = $3::text,
        claimed_by = $4::text, claimed_at = start.now, started_at = coalesce(t.started_at, start.now),
        lease_micros = coalesce(round(t.lease * 1000000)::bigint, $6::bigint),
        lease_expires_at =
            start.now + coalesce(round(t.lease * 1000000)::bigint, $6::bigint) * interval '1 microsecond'
    FROM picked CROSS JOIN start
    WHERE t.seq = picked.seq
    RETURNING t.*
),
noted AS (
    INSERT INTO {schema}.events (task, at, kind, actor, attempt)
    SELECT seq, claimed_at, 'task.running', claimed_by, attempt FROM claimed
),
counted AS (
    INSERT INTO {schema}.counts (queue, queued, running)
    SELECT queue, -count(*), count(*) FROM claimed GROUP BY queue
),
-- One row per queue and priority that has queued tasks; walked only where fewer were claimed than asked for.
shelf (queue, priority) AS (
    SELECT open_line.queue, top.priority
    FROM open_line
    CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = open_line.queue ORDER BY t.priority DESC LIMIT 1
    ) AS top
    UNION ALL
    SELECT shelf.queue, lower.priority
    FROM shelf
    CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = shelf.queue AND t.priority < shelf.priority
        ORDER BY t.priority DESC LIMIT 1
    ) AS lower
)
SELECT
    CASE WHEN (SELECT n FROM start) < $5::bigint THEN (
        SELECT min(soon.run_at)
        FROM shelf
        CROSS JOIN LATERAL (
            SELECT t.run_at FROM {schema}.tasks AS t
            WHERE t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
              AND t.run_at > (SELECT moment.now FROM moment)
            ORDER BY t.run_at LIMIT 1
        ) AS soon
    ) END AS next_due_at,
    $7::boolean AND EXISTS (SELECT FROM due) AND NOT EXISTS (SELECT FROM mark) AS sent_before,
    answer.*
FROM (SELECT) AS always
LEFT JOIN (
    SELECT
        seq, id::text AS id, attempt, token::text AS token, claimed_by, lease_expires_at, lease_micros, name, queue,
        payload, priority, failures, max_attempts, timeout, run_id, meta, created_at, claimed_at, run_at
    FROM claimed
    UNION ALL
    SELECT
        t.seq, t.id::text, t.attempt, t.token::text, t.claimed_by, t.lease_expires_at, t.lease_micros, t.name, t.queue,
        t.payload, t.priority, t.failures, t.max_attempts, t.timeout, t.run_id, t.meta, t.created_at, t.claimed_at,
        t.run_at
    FROM held JOIN {schema}.tasks AS t ON t.seq = held.seq
) AS answer ON true
ORDER BY answer.priority DESC, answer.run_at, answer.seq
