-- What a claim looks at, in one step: leases already granted to this claim_id; per line of an open queue its best
-- priority that has due tasks (seeks only: a million scheduled tasks above it cost nothing); when the next task falls
-- due, where nothing is; the first tasks of the best line; the open queues; and what is limited.
WITH RECURSIVE
line (queue) AS (
    SELECT value FROM json_each(:queues)
    UNION
    SELECT min(queue) FROM holdfast_tasks WHERE status = 'queued' AND :queues IS NULL
    UNION
    SELECT (SELECT min(t.queue) FROM holdfast_tasks AS t WHERE t.status = 'queued' AND t.queue > line.queue)
    FROM line WHERE :queues IS NULL AND line.queue IS NOT NULL
),
open_line (queue) AS MATERIALIZED (
    SELECT queue FROM line
    WHERE queue IS NOT NULL AND queue NOT IN (SELECT name FROM holdfast_queues WHERE paused)
),
level (queue, keyed, priority) AS (
    SELECT queue, column1, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = open_line.queue AND t.keyed = column1
    )
    FROM open_line CROSS JOIN (VALUES (0), (1))
    UNION ALL
    SELECT level.queue, level.keyed, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority < level.priority
    )
    FROM level
    WHERE level.priority IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
          AND t.run_at <= :now
    )
),
seen (queue, keyed, priority, soonest) AS MATERIALIZED (
    SELECT queue, keyed, priority, (
        SELECT min(t.run_at) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
    )
    FROM level WHERE priority IS NOT NULL
),
best (queue, keyed, priority) AS MATERIALIZED (
    SELECT queue, keyed, priority FROM seen WHERE soonest <= :now ORDER BY priority DESC LIMIT 1
)
SELECT
    (SELECT json_group_array(seq) FROM holdfast_tasks WHERE status = 'running' AND claim_id = :claim_id),
    (SELECT json_group_array(json_array(queue, keyed, priority)) FROM seen WHERE soonest <= :now),
    (SELECT min(soonest) FROM seen),
    (
        SELECT json_group_array(json_array(
            seq, id, name, queue, payload, priority, attempt, failures, max_attempts, policy, run_id, meta, created_at
        ))
        FROM (
            SELECT * FROM holdfast_tasks
            WHERE status = 'queued' AND queue = (SELECT queue FROM best) AND keyed = (SELECT keyed FROM best)
              AND priority = (SELECT priority FROM best) AND run_at <= :now
            ORDER BY run_at, seq LIMIT :limit
        )
    ),
    (SELECT json_group_array(queue) FROM open_line),
    (SELECT json_group_array(json_array(name, limits, rate_tat)) FROM holdfast_queues WHERE limited)
