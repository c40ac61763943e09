-- By queue, since when the task is due that has waited longest: one seek per queue and priority that has queued tasks.
WITH RECURSIVE moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
level (queue, priority) AS (
    SELECT known.queue, (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = known.queue ORDER BY t.priority DESC LIMIT 1
    )
    FROM (SELECT DISTINCT c.queue FROM {schema}.counts AS c) AS known
    UNION ALL
    SELECT level.queue, (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority < level.priority
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM level WHERE level.priority IS NOT NULL
)
SELECT level.queue, min(first.run_at) AS due_at
FROM level
CROSS JOIN LATERAL (
    SELECT t.run_at FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority = level.priority
      AND t.run_at <= (SELECT moment.now FROM moment)
    ORDER BY t.run_at, t.seq LIMIT 1
) AS first
GROUP BY level.queue
