-- By queue, since when the task is due that has waited longest: one seek per line and priority that has queued tasks.
WITH RECURSIVE level (queue, keyed, priority) AS (
    SELECT known.queue, column1, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = known.queue AND t.keyed = column1
    )
    FROM (SELECT DISTINCT queue FROM holdfast_counts) AS known CROSS JOIN (VALUES (0), (1))
    UNION ALL
    SELECT level.queue, level.keyed, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority < level.priority
    )
    FROM level WHERE level.priority IS NOT NULL
)
SELECT queue, min(due_at) FROM (
    SELECT level.queue, (
        SELECT min(t.run_at) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
          AND t.run_at <= :now
    ) AS due_at
    FROM level WHERE priority IS NOT NULL
) WHERE due_at IS NOT NULL GROUP BY queue
