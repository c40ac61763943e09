    -- How many tasks of the key k.key of the queue $2 may start, of $3 at most: `room`; and the first $4 of them. What has
    -- expired ($5) does not count. Where it is one at a time, a task that has begun and not ended goes first, also
    -- while it is not due, or has yet to be reaped.
    SELECT first.priority, first.run_at, first.seq, first.id::text AS id, free.room
    FROM (
        SELECT $3::bigint - count(*) AS room FROM (
            SELECT FROM {schema}.tasks AS r
            WHERE r.begun AND r.status = 'running' AND r.queue = $2::text AND r.concurrency_key = k.key
              AND r.id <> ALL ($5::uuid[])
            LIMIT $3::bigint
        ) AS running
    ) AS free
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT b.priority, b.run_at, b.seq, b.id, b.status FROM {schema}.tasks AS b
            WHERE $3::bigint = 1 AND b.begun AND b.status IN ('queued', 'running') AND b.queue = $2::text
              AND b.concurrency_key = k.key
            ORDER BY b.seq LIMIT 1
        ) AS begun
        UNION ALL
        SELECT * FROM (
            SELECT t.priority, t.run_at, t.seq, t.id, t.status FROM {schema}.tasks AS t
            WHERE t.status = 'queued' AND t.queue = $2::text AND t.concurrency_key = k.key
              AND t.run_at <= $1::timestamptz
            ORDER BY t.run_at, t.seq LIMIT $4::bigint
        ) AS line
        LIMIT least(free.room, $4::bigint)
    ) AS first
    WHERE first.run_at <= $1::timestamptz AND first.status = 'queued'