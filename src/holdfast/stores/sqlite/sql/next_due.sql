-- When the next task of these queues falls due: one seek per line and priority that has queued tasks.
WITH RECURSIVE level (queue, keyed, priority) AS (
    SELECT given.value, column1, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = given.value AND t.keyed = column1
    )
    FROM json_each(:queues) AS given CROSS JOIN (VALUES (0), (1))
    UNION ALL
    SELECT level.queue, level.keyed, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority < level.priority
    )
    FROM level WHERE level.priority IS NOT NULL
)
SELECT min((
    SELECT min(t.run_at) FROM holdfast_tasks AS t
    WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
      AND t.run_at > :now
))
FROM level WHERE priority IS NOT NULL
