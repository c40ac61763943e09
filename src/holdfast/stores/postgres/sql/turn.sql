-- Locks the limits of those of these queues that have due tasks, the whole store's ('*') first, then by name, and reads
-- them as they are then. $2 to $5 are shelves (see fronts.py).
WITH moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT DISTINCT g.queue
    FROM unnest($2::text[], $3::smallint[], $4::timestamptz[], $5::bigint[]) AS g (queue, priority, run_at, seq)
    WHERE EXISTS (
        SELECT FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = g.queue AND t.priority = g.priority
          AND (t.run_at, t.seq) >= (g.run_at, g.seq) AND t.run_at <= (SELECT moment.now FROM moment)
    )
)
SELECT
    q.name, q.max_running, q.rate_count, q.rate_micros, q.burst, q.max_running_per_key, q.rate_tat, q.changed_at
FROM {schema}.queues AS q
WHERE q.limited AND (q.name = '*' OR NOT q.paused)
  AND q.name = ANY (ARRAY(SELECT due.queue FROM due UNION ALL SELECT '*' FROM due))
ORDER BY q.name <> '*', q.name
FOR UPDATE OF q
